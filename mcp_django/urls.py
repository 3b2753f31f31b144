"""URLs of the protected resource metadata of all endpoints (RFC 9728); include at the root."""

from __future__ import annotations

from django.urls import re_path

from mcp_django.auth.challenges import protected_resource

urlpatterns = [
    re_path(
        r"^\.well-known/oauth-protected-resource(?P<path>/.*)?$",
        protected_resource,
        name="mcp_protected_resource",
    ),
]
