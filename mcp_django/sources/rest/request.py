"""The request that a REST view gets: a fresh one of the caller's, with a body of any type.

REST framework believes it to be authenticated, so the view's own authenticators are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from django.utils.crypto import salted_hmac
from rest_framework.settings import api_settings

from mcp_django.auth.principal import Principal, missing
from mcp_django.core.context import Context
from mcp_django.sources.rest.routing import Place
from mcp_django.sources.site.fresh import FreshRequest, Sending, fresh_request

ACCEPT = "application/json, */*;q=0.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked of a view; ``meta`` are headers in the spelling of WSGI."""

    method: str
    query: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    content_type: str = ""
    meta: Mapping[str, str] = field(default_factory=dict)


class RestRequest(FreshRequest):
    """A request whose view is known.

    ``mark`` stands in the place of an ``Authorization`` for the view alone, not for middleware. It
    tells callers apart where the view keeps its answers in a cache that varies by the header, and
    is worth nothing anywhere else.
    """

    place: Place
    mark: str
    is_known: bool
    """Whether anybody is known to have made the call; the view may put its own user here."""


class CallerToken:
    """``request.auth``: the caller's credential in the words of the OAuth toolkit's tokens."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    @property
    def user(self) -> Any:
        """Whose credential it is."""
        return self.principal.user

    @property
    def scope(self) -> str:
        """The scopes, separated by spaces; none where the credential is not scoped."""
        return " ".join(sorted(self.principal.scopes or ()))

    def allow_scopes(self, scopes: Iterable[str]) -> bool:
        """Whether the credential reaches that far."""
        return not missing(self.principal.scopes, tuple(scopes))

    def is_valid(self, scopes: Iterable[str] | None = None) -> bool:
        """Whether it holds and reaches that far."""
        return self.allow_scopes(scopes or ())


def new_request(ctx: Context, place: Place, ask: Ask) -> RestRequest:
    """The request of one call."""
    verb = ask.method.upper()
    fresh = fresh_request(
        # Without patterns: the view is chosen already.
        ctx,
        Sending(verb=verb, path=place.path, query=ask.query, body=[], routes=()),
    )
    environ = {
        **fresh.environ,
        # The first request has read them as text; a server hands over bytes, each a character.
        "SCRIPT_NAME": fresh.META["SCRIPT_NAME"].encode().decode("latin-1"),
        "PATH_INFO": fresh.META["PATH_INFO"].encode().decode("latin-1"),
        "HTTP_ACCEPT": ACCEPT,
        "CONTENT_TYPE": ask.content_type,
        "CONTENT_LENGTH": str(len(ask.body)),
        "wsgi.input": BytesIO(ask.body),
        **ask.meta,
    }
    # Looks like a cookie to a cache, and must not to the view.
    mark = environ.pop("HTTP_COOKIE", "")
    request = RestRequest(environ)
    assert request.COOKIES == {}
    request.META.update({"HTTP_COOKIE": mark} if mark else {})
    request.place, request.mark = place, _mark(ctx.principal)
    request.is_known = ctx.principal.is_authenticated
    _authenticate(request, ctx.principal)
    return request


def _authenticate(request: Any, principal: Principal) -> None:
    """Say who it is to Django and to REST framework, and that no form has to prove it."""
    user = principal.user
    request.user = request._cached_user = request._acached_user = user
    request._dont_enforce_csrf_checks = request.csrf_processing_done = True
    if not principal.is_authenticated:
        nobody: Any = api_settings.UNAUTHENTICATED_USER
        user = nobody() if nobody else None
    # What rest_framework.test.force_authenticate sets. It beats a view's own authenticators in
    # whatever way they are declared, and the class stays as it is.
    request._force_auth_user = user
    request._force_auth_token = _token(principal, user)


def _token(principal: Principal, user: Any) -> Any:
    if principal.is_authenticated:
        return CallerToken(principal)
    # Something has to be set, or the view would authenticate the request by itself.
    return False if user is None else None


def _mark(principal: Principal) -> str:
    scopes = "*" if principal.scopes is None else " ".join(sorted(principal.scopes))
    told = f"{principal.key}\n{scopes}"
    digest = salted_hmac("mcp_django.sources.rest", told, algorithm="sha256").hexdigest()
    return f"MCP {digest}"
