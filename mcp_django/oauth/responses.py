"""Shared by the OAuth endpoints: errors, CORS, the issuer and URL path converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Self
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls.converters import PathConverter, StringConverter
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.settings import oauth2_settings

from mcp_django.auth.endpoints import origin_of
from mcp_django.conf import get_settings
from mcp_django.transports.bodies import end_connection_if_unread

DESCRIPTIONS = {
    "invalid_request": "A parameter is missing or malformed.",
    "invalid_client": "The client is unknown, or client authentication failed.",
    "invalid_grant": (
        "The code, refresh token or assertion is unknown, expired, already used or issued to "
        "another client; or its user may not connect."
    ),
    "unauthorized_client": "The client may not use this grant type.",
    "unsupported_grant_type": "This server does not support this grant type.",
    "invalid_scope": "A scope is unknown, or exceeds what was granted.",
    "invalid_target": (
        "The resource is not an MCP server of this site, or exceeds what was granted. "
        "Send the resource from the protected resource metadata."
    ),
    "unsupported_token_type": "Tokens of this type cannot be revoked here.",
    "temporarily_unavailable": "A provider that this server needs does not respond; try later.",
    "server_error": "The server failed; the error was logged.",
    "slow_down": "Too many failed requests; wait before the next one.",
}


class OAuthError(Exception):
    """An error of the token and revocation endpoints (RFC 6749, section 5.2; RFC 8707, section 2).

    The error codes and descriptions are fixed, so a response never repeats values of the request.
    """

    def __init__(
        self, error: str | None, description: str = "", *, status: int = 400, retry_after: int = 0
    ) -> None:
        self.error = error if error in DESCRIPTIONS else "invalid_request"
        self.description = description or DESCRIPTIONS[self.error]
        self.status = status
        self.retry_after = retry_after
        super().__init__(self.error)

    @classmethod
    def too_many(cls, wait: int) -> Self:
        """Return the error for too many failed requests; ``wait`` is in seconds."""
        return cls("slow_down", status=429, retry_after=wait)

    @classmethod
    def invalid_client(cls) -> Self:
        """Return the error for a client that is unknown or not authenticated."""
        return cls("invalid_client", status=401)


def error_response(
    code: str, description: str, *, status: int = 400, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    """Return an OAuth error response (RFC 6749, section 5.2) with ``no-store``."""
    body = {"error": code, "error_description": description}
    return JsonResponse(
        body, status=status, headers={"Cache-Control": "no-store", **(headers or {})}
    )


def issuer_of(request: HttpRequest) -> str:
    """Return the issuer (RFC 8414, section 2): ``OAUTH["ISSUER"]`` or the site's origin.

    It is the same in all metadata, responses and checks.
    """
    return get_settings().oauth.issuer or origin_of(request)


# The path converters match only the paths that the authorization server serves, so that the site's
# other URL patterns can match the rest.


class OIDCPath(StringConverter):
    """The path after the OpenID Connect discovery URL, unless the toolkit serves that URL."""

    regex = "(?:/.*)?"

    def to_python(self, value: str) -> str:
        """Return the path.

        Raises:
            ValueError: if the toolkit is an OpenID provider and serves its own document.
        """
        if oauth2_settings.OIDC_ENABLED:
            raise ValueError(value)
        return value


class IssuerPath(PathConverter):
    """The path of the issuer only, such as ``o`` for ``https://shop.example/o``."""

    def to_python(self, value: str) -> str:
        """Return the path.

        Raises:
            ValueError: if it is not the issuer's path, or the toolkit is an OpenID provider.
        """
        if oauth2_settings.OIDC_ENABLED:
            raise ValueError(value)
        if value != urlsplit(get_settings().oauth.issuer).path.strip("/"):
            raise ValueError(value)
        return value


View = Callable[..., HttpResponseBase]
# The headers that the official clients send during discovery and registration.
REQUEST_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, "
    "Mcp-Name, Last-Event-ID"
)
MAX_AGE_SECONDS = 600


def allow_cross_origin(*methods: str) -> Callable[[View], View]:
    """Return a decorator that allows cross-origin requests with these methods only.

    The view must not use cookies. Preflight requests are handled here. Other methods get 405 with
    ``Allow`` and a JSON error.
    """
    allowed = ", ".join((*methods, "OPTIONS"))

    def decorate(view: View) -> View:
        @csrf_exempt
        @login_not_required
        @wraps(view)
        def opened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                response: HttpResponseBase = HttpResponse(status=204)
            elif request.method in methods:
                response = view(request, *args, **kwargs)
            else:
                response = error_response("invalid_request", f"Use {allowed}.", status=405)
            if response.status_code in (204, 405):
                response.headers["Allow"] = allowed
            return end_connection_if_unread(request, add_cors_headers(response, allowed))

        return opened

    return decorate


def add_cors_headers(response: HttpResponseBase, methods: str) -> HttpResponseBase:
    """Add CORS headers that let any origin read the response, without credentials."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = methods
    response.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
    response.headers["Access-Control-Expose-Headers"] = "WWW-Authenticate, Retry-After"
    response.headers["Access-Control-Max-Age"] = str(MAX_AGE_SECONDS)
    return response
