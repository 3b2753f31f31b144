"""What OAuth endpoints share: errors, CORS, the issuer, and path converters of the URLs."""

from __future__ import annotations

from collections.abc import Callable
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

DESCRIPTIONS = {
    "invalid_request": "The request lacks a parameter, or one is malformed.",
    "invalid_client": "The client is unknown, or did not prove who it is.",
    "invalid_grant": (
        "The code, refresh token or assertion is unknown, expired, used up or another client's; "
        "or its user may not connect."
    ),
    "unauthorized_client": "The client may not use this grant type.",
    "unsupported_grant_type": "This server does not offer this grant type.",
    "invalid_scope": "A scope is unknown, or goes beyond what was granted.",
    "invalid_target": (
        "The resource is no MCP server of this site, or goes beyond what was granted. "
        "Send the resource of the protected resource metadata."
    ),
    "unsupported_token_type": "Tokens of this kind cannot be revoked here.",
    "temporarily_unavailable": "A provider behind this server does not answer; try again soon.",
    "server_error": "The server made a mistake; its log says which.",
    "slow_down": "Too many requests failed; wait before the next one.",
}


class Refused(Exception):
    """An error of the token and revocation endpoints (RFC 6749, section 5.2; RFC 8707, section 2).

    What it says is ours alone, so nothing of a request gets into an answer.
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
        """The refusal of a client that failed too often; ``wait`` in seconds."""
        return cls("slow_down", status=429, retry_after=wait)

    @classmethod
    def client(cls) -> Self:
        """The refusal of a client that is unknown or did not prove who it is."""
        return cls("invalid_client", status=401)

    def as_dict(self) -> dict[str, str]:
        """The body of the answer."""
        return {"error": self.error, "error_description": self.description}


def error(code: str, description: str, *, status: int = 400) -> JsonResponse:
    """An OAuth error (RFC 6749, section 5.2) that no cache keeps."""
    response = JsonResponse({"error": code, "error_description": description}, status=status)
    response.headers["Cache-Control"] = "no-store"
    return response


def issuer_of(request: HttpRequest) -> str:
    """The issuer identifier (RFC 8414, section 2): ``OAUTH["ISSUER"]``, else the site's origin.

    It is the same in every document, answer and check.
    """
    return get_settings().oauth.issuer or origin_of(request)


# Path converters ----------------------------------------------------------------------------------

# They leave addresses that the authorization server does not answer to the other URLs of the
# site.


class OIDCPath(StringConverter):
    """What follows the address of OpenID Connect's discovery, unless the toolkit serves that."""

    regex = "(?:/.*)?"

    def to_python(self, value: str) -> str:
        """The path.

        Raises:
            ValueError: the site is an OpenID provider by the toolkit, whose own document it is.
        """
        if _is_openid_provider():
            raise ValueError(value)
        return value


class IssuerPath(PathConverter):
    """The path of the issuer and no other, ``o`` for ``https://shop.example/o``; else as above."""

    def to_python(self, value: str) -> str:
        """The path.

        Raises:
            ValueError: the issuer has another one, or the toolkit serves it.
        """
        if _is_openid_provider() or value != urlsplit(get_settings().oauth.issuer).path.strip("/"):
            raise ValueError(value)
        return value


def _is_openid_provider() -> bool:
    """Whether the site gives out ID tokens by the toolkit (``OIDC_ENABLED``)."""
    return bool(oauth2_settings.OIDC_ENABLED)


# Endpoints for any origin (CORS) ------------------------------------------------------------------

View = Callable[..., HttpResponseBase]
# What the official clients send while they discover and register.
REQUEST_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, "
    "Mcp-Name, Last-Event-ID"
)
MAX_AGE_SECONDS = 600


def open_to_browsers(*methods: str) -> Callable[[View], View]:
    """Let pages of any origin call a view by these methods; refuse other methods.

    Cookies do not count there. Preflights are answered here. A refused method gets 405 with
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
                response = error("invalid_request", f"Use {allowed}.", status=405)
            if response.status_code in (204, 405):
                response.headers["Allow"] = allowed
            return with_cors(response, allowed)

        return opened

    return decorate


def with_cors(response: HttpResponseBase, methods: str) -> HttpResponseBase:
    """The answer, readable by pages of any origin; never with credentials."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = methods
    response.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
    response.headers["Access-Control-Expose-Headers"] = "WWW-Authenticate, Retry-After"
    response.headers["Access-Control-Max-Age"] = str(MAX_AGE_SECONDS)
    return response
