"""Where providers and users find the pages of third-party authorization."""

from __future__ import annotations

from django.urls import path

from mcp_django.oauth.views import upstream

urlpatterns = [
    path("oauth/upstream/<slug:provider>/callback", upstream.callback, name="upstream_callback"),
    path(
        "oauth/upstream/<slug:provider>/backchannel-logout",
        upstream.backchannel_logout,
        name="upstream_logout",
    ),
    path("oauth/upstream/<slug:provider>/connect", upstream.connect, name="upstream_connect"),
    path(
        "oauth/upstream/<slug:provider>/disconnect",
        upstream.disconnect,
        name="upstream_disconnect",
    ),
]
