"""Who the authorization server says it is: one issuer in every document, answer and check."""

from __future__ import annotations

from django.http import HttpRequest

from mcp_django.auth.endpoints import origin_of
from mcp_django.conf import get_settings


def issuer_of(request: HttpRequest) -> str:
    """The issuer identifier (RFC 8414, section 2): ``OAUTH["ISSUER"]``, else the site's origin."""
    return get_settings().oauth.issuer or origin_of(request)
