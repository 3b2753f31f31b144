"""A request of its own for each call: the caller's, and nothing that came with the MCP request.

It goes to the same host over the same scheme from the same address and asks for the same language.
It has no credentials, neither cookies nor Authorization: who calls is known already. It is a
``WSGIRequest``, since the middleware and the view run synchronously, in one thread.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import DisallowedHost
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import get_script_prefix
from django.utils.translation import get_language

from mcp_django.conf import get_settings
from mcp_django.core.context import Context
from mcp_django.sources.site.routes import Route

Pairs = list[tuple[str, str]]
"""Names and texts to send; a list is its name several times."""

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"
ACCEPT = "application/json, text/plain;q=0.9, text/html;q=0.8, */*;q=0.5"
FORM = "application/x-www-form-urlencoded"
# Who the client is behind a proxy; what the site believes of it is its own affair.
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What a call sends to the site: the path is encoded and has the script prefix."""

    verb: str
    path: str
    query: Pairs
    body: Pairs
    routes: Sequence[Route]
    """The patterns that the path is meant for; no other one may answer."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The arguments that it was made of."""


class FreshRequest(WSGIRequest):
    """A request whose answer is kept by no cache of the site.

    The caller is known without a cookie, so a page made for him would be stored under the key of
    everybody who has none.
    """

    _cached_user: Any
    """Read by Django's ``get_user``, and so by its middleware."""
    _acached_user: Any
    routes: Sequence[Route] = ()
    """The patterns that may answer."""
    failure: Exception | None = None
    """What the view raised and no middleware of the site made an answer of."""
    returned: Any = None
    """The response that the view itself gave."""
    is_error_page: bool = False
    """Whether a middleware made a page of what the view raised."""
    zone: dt.tzinfo | None = None
    """The time zone of the view, which middleware may have set."""

    @property
    def session(self) -> Any:
        """The session that a middleware opened; it has nothing but how the user came in.

        Without that, middleware for users known to the web server would take him for one whom the
        server has signed out.
        """
        try:
            return self.__dict__["_session"]
        except KeyError:
            raise AttributeError("session") from None

    @session.setter
    def session(self, session: Any) -> None:
        self.__dict__["_session"] = session
        if self._cached_user.is_authenticated and isinstance(session, SessionBase):
            session[BACKEND_SESSION_KEY] = getattr(self._cached_user, "backend", MODEL_BACKEND)
            # Nobody has looked at it yet, and nothing in it is worth keeping.
            session.accessed = session.modified = False

    @property
    def _cache_update_cache(self) -> bool:
        return False

    @_cache_update_cache.setter
    def _cache_update_cache(self, value: bool) -> None:
        """The cache middleware decides; here it has no choice."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the site is for this caller."""

    host: str
    port: str
    is_secure: bool


def fresh_request(ctx: Context, sending: Sending) -> FreshRequest:
    """The request of a call, with the caller as the user whom Django's middleware will find."""
    request = FreshRequest(_environ(ctx.request, sending))
    request.routes = sending.routes
    request._cached_user = ctx.user
    request._acached_user = ctx.user
    # There is no page of ours in which a token could have been, and no cookie to forge a post with.
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
    if ctx.user.is_authenticated:
        _leave_shared_caches(request, ctx)
    return request


def _leave_shared_caches(request: FreshRequest, ctx: Context) -> None:
    """Have no page found in a cache that was made for those without a cookie.

    The key of a page that varies by cookie has the header in it; ``COOKIES`` is read before, and
    stays empty.
    """
    assert request.COOKIES == {}
    request.META["HTTP_COOKIE"] = f"mcp={hashlib.sha256(ctx.principal.key.encode()).hexdigest()}"


def _environ(carrier: HttpRequest | None, sending: Sending) -> dict[str, Any]:
    where = _origin(carrier)
    body = urlencode(sending.body).encode()
    prefix = get_script_prefix().rstrip("/")
    path = unquote_to_bytes(sending.path.removeprefix(prefix)).decode("latin-1")
    environ = {
        "REQUEST_METHOD": sending.verb,
        "SCRIPT_NAME": prefix,
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(sending.query),
        "SERVER_NAME": urlsplit(f"//{where.host}").hostname or where.host,
        "SERVER_PORT": where.port,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": where.host,
        "HTTP_ACCEPT": ACCEPT,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if where.is_secure else "http",
        "wsgi.input": BytesIO(body),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        **_said_by_proxy(is_secure=where.is_secure),
        **_of_client(carrier.META if carrier is not None else {}),
    }
    if sending.verb == "POST":
        environ |= {"CONTENT_TYPE": FORM, "CONTENT_LENGTH": str(len(body))}
    return environ


def _of_client(meta: Mapping[str, Any]) -> dict[str, str]:
    """What the MCP request says of the machine it came from."""
    language = meta.get("HTTP_ACCEPT_LANGUAGE") or get_language() or django_settings.LANGUAGE_CODE
    return {
        "REMOTE_ADDR": str(meta.get("REMOTE_ADDR") or "127.0.0.1"),
        "HTTP_ACCEPT_LANGUAGE": str(language),
        "HTTP_USER_AGENT": str(meta.get("HTTP_USER_AGENT", "")),
        **{name: str(meta[name]) for name in FORWARDED if name in meta},
    }


def _said_by_proxy(*, is_secure: bool) -> dict[str, str]:
    """The header by which the site's proxy says that the outer connection is encrypted."""
    declared = django_settings.SECURE_PROXY_SSL_HEADER
    return {declared[0]: declared[1].partition(",")[0]} if declared and is_secure else {}


def _origin(carrier: HttpRequest | None) -> Origin:
    """The host of the MCP request; without one that of ``BASE_URL``, or the first allowed."""
    if carrier is not None:
        try:
            return Origin(carrier.get_host(), str(carrier.get_port()), carrier.is_secure())
        except DisallowedHost:
            # A mount outside of Django's middleware has rules of its own.
            pass
    base = urlsplit(get_settings().base_url)
    if base.netloc:
        is_secure = base.scheme == "https"
        return Origin(base.netloc, str(base.port or (443 if is_secure else 80)), is_secure)
    is_secure = bool(django_settings.SECURE_SSL_REDIRECT)
    return Origin(_allowed_host(), "443" if is_secure else "80", is_secure)


def _allowed_host() -> str:
    named = [host.lstrip(".") for host in django_settings.ALLOWED_HOSTS if host != "*"]
    return named[0] if named else "localhost"
