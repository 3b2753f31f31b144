"""A fresh request of the caller for each call, through the site's own middleware, views and URLs.

Views, REST views and the admin share this module. The request carries nothing that came with the
MCP request: it goes to the same host over the same scheme from the same address and asks for the
same language, but has no credentials, neither cookies nor Authorization, since the caller is
known already. It is a ``WSGIRequest``, because the middleware and the view run synchronously, in
one thread.
"""

from __future__ import annotations

import datetime as dt
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import (
    Resolver404,
    ResolverMatch,
    URLPattern,
    URLResolver,
    get_resolver,
    get_script_prefix,
    get_urlconf,
    reverse,
)
from django.utils import timezone
from django.utils.regex_helper import normalize
from django.utils.translation import get_language

from mcp_django.conf import get_settings
from mcp_django.core.context import Context
from mcp_django.exceptions import ToolError

# Running the site's middleware and views ----------------------------------------------------------

# Every call runs in a context of its own, so that the language, the time zone and the URLconf
# that a middleware sets end with the call. A session that a view begins is deleted with it, too.
# A view that runs for a call cannot call another one, because such a chain could be endless.

T = TypeVar("T")

_is_inside: ContextVar[bool] = ContextVar(
    "mcp_django.integrations.site_requests.is_inside", default=False
)


class SiteHandler(BaseHandler):
    """The site's middleware and views; it tells what a view raised from what it answered."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    def resolve_request(self, request: Any) -> Any:
        """The view of a request, unless another pattern takes the address first.

        Otherwise a value could be chosen that makes it the address of any page of the site.
        """
        match = super().resolve_request(request)
        if not any(route.leads_to(match) for route in request.routes):
            raise Resolver404({"path": request.path_info})
        return match

    def process_exception_by_middleware(self, exception: Any, request: Any) -> Any:
        """What a middleware answers to an exception; a page about it is none for callers."""
        response: Any = super().process_exception_by_middleware(exception, request)
        request.is_error_page = response is not None and response.status_code >= 500
        return response

    def _get_response(self, request: Any) -> HttpResponseBase:
        try:
            response = super()._get_response(request)  # type: ignore[misc]  # not in the stubs
        except Exception as exc:
            request.failure = exc
            raise
        request.zone = timezone.get_current_timezone()
        if not request.is_error_page:
            request.returned = response
        found: HttpResponseBase = response
        return found


def visit(request: FreshRequest, respond: Callable[[], T]) -> T:
    """What ``respond`` makes of the request, alone: nothing that the site sets outlives it.

    Raises:
        ToolError: a view that runs for a call asks for another one.
    """
    if _is_inside.get():
        raise ToolError(
            f"{request.path} is asked for by a view that itself runs for a call; a view cannot be "
            "called from within another one."
        )
    return copy_context().run(_visit, request, respond)


def _visit(request: FreshRequest, respond: Callable[[], T]) -> T:
    _is_inside.set(True)
    try:
        return respond()
    finally:
        discard_session(request)


def discard_session(request: Any) -> None:
    """Delete the session that somebody began: its cookie goes nowhere."""
    session = getattr(request, "session", None)
    if session is not None and getattr(session, "session_key", None):
        session.delete()


def release(response: HttpResponseBase) -> None:
    """Close the files of a response.

    ``close()`` would also announce the end of a request, at which Django closes connections, those
    in a transaction of our caller included; the MCP request goes on.
    """
    closers = response._resource_closers  # type: ignore[attr-defined]  # not in the stubs
    while closers:
        closers.pop(0)()
    response.closed = True


# Where a URL name leads ---------------------------------------------------------------------------

# To which view, and through which variables. The URLconf is walked when a component is first used
# and never while components are declared: the modules that declare them are often imported by the
# URLconf itself.

Namespaces = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One URL pattern; ``converters`` has one for each variable, ``None`` for a bare expression."""

    name: str | None
    namespaces: Namespaces
    """The instance and the application namespace of each level."""
    callback: Callable[..., Any]
    converters: Mapping[str, Any]
    required: frozenset[str]
    trouble: str
    """Why no address can be made of values, empty when one can."""
    urlconf: str | None = None
    """The URLconf that has it, where that is not the one in force."""

    @property
    def view(self) -> Any:
        """The class of a class-based view, the function otherwise."""
        found = getattr(self.callback, "view_class", None) or getattr(self.callback, "cls", None)
        return found or self.callback

    @property
    def full_name(self) -> str:
        """The name as ``reverse`` takes it."""
        return ":".join((*(instance for instance, _ in self.namespaces), self.name or ""))

    def is_called(self, name: str) -> bool:
        """Whether ``reverse`` could mean this pattern by a name."""
        *spaces, last = name.split(":")
        if last != self.name or len(spaces) != len(self.namespaces):
            return False
        pairs = zip(spaces, self.namespaces, strict=True)
        return all(space in known for space, known in pairs)

    def leads_to(self, match: ResolverMatch) -> bool:
        """Whether an address was resolved to this pattern, or to the one of its name elsewhere.

        A middleware may choose another URLconf for a request.
        """
        return match.func is self.callback or match.view_name == self.full_name

    def url(self, values: Mapping[str, Any]) -> str:
        """The path for these values.

        Raises:
            NoReverseMatch: they do not fit.
        """
        target = self.full_name if self.name else self.callback
        return reverse(target, urlconf=self.urlconf, kwargs=dict(values))


def resolver_of(urlconf: str | None) -> URLResolver:
    """A URLconf by name, or the one in force: the site's, or that of the MCP request's host."""
    return get_resolver(urlconf or get_urlconf())


def routes(urlconf: str | None = None) -> Iterator[Route]:
    """Every pattern of the URLconf that leads to a view."""
    try:
        patterns = resolver_of(urlconf).url_patterns
    except ModuleNotFoundError as exc:
        if urlconf is None:
            raise
        raise ImproperlyConfigured(f"There is no URLconf {urlconf!r} ({exc}).") from exc
    for one in _walk(patterns, _Level()):
        yield replace(one, urlconf=urlconf)


def routes_called(name: str, urlconf: str | None = None) -> list[Route]:
    """The patterns of a URL name.

    Raises:
        ImproperlyConfigured: there is none; the message has the nearest name.
    """
    every = list(routes(urlconf))
    found = [one for one in every if one.is_called(name)]
    if not found:
        raise ImproperlyConfigured(f"There is no URL named {name!r}; {_hint(name, every)}")
    # The namespace of an application means the instance of its own name, or the first one.
    chosen = name if any(one.full_name == name for one in found) else found[0].full_name
    return [one for one in found if one.full_name == chosen]


def routes_of(view_class: type[Any], urlconf: str | None = None) -> list[Route]:
    """The patterns that lead to a class-based view and can be reversed.

    Raises:
        ImproperlyConfigured: there is none, or more than one name.
    """
    found = [
        one
        for one in routes(urlconf)
        if one.view is view_class and (one.name or not one.namespaces)
    ]
    if not found:
        raise ImproperlyConfigured(
            f"No URL leads to {view_class.__qualname__}; give it a path with a name in the URLconf."
        )
    names = sorted({one.full_name for one in found})
    if len(names) > 1:
        raise ImproperlyConfigured(
            f"{view_class.__qualname__} has several URLs; register one of their names: "
            f"{', '.join(map(repr, names))}."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """What the levels of the URLconf down to a pattern have given so far."""

    namespaces: Namespaces = ()
    converters: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    trouble: str = ""


def _walk(patterns: Iterable[Any], above: _Level) -> Iterator[Route]:
    for one in patterns:
        found = _below(above, one.pattern)
        if isinstance(one, URLResolver):
            space = ((one.namespace, one.app_name or ""),) if one.namespace else ()
            inside = replace(found, namespaces=(*above.namespaces, *space))
            yield from _walk(one.url_patterns, inside)
        elif isinstance(one, URLPattern):
            yield Route(
                name=one.name,
                namespaces=found.namespaces,
                callback=one.callback,
                converters=found.converters,
                required=found.required,
                trouble=found.trouble,
            )


def _below(above: _Level, pattern: Any) -> _Level:
    """Add the variables of one level, which Django knows from the ways to write it backwards."""
    regex = pattern.regex
    ways = [set(names) for _, names in normalize(regex.pattern)]
    names = set().union(*ways)
    trouble = ""
    if names and all(map(_is_unnamed, names)):
        trouble = "has groups without names; name them as in (?P<year>[0-9]{4})"
    elif not names.issuperset(regex.groupindex):
        trouble = "has alternatives (|) that Django cannot write backwards; make paths of them"
    ordered = [name for name in (*pattern.converters, *regex.groupindex) if name in names]
    converters = {name: pattern.converters.get(name) for name in ordered}
    return replace(
        above,
        converters={**above.converters, **converters},
        required=above.required | set.intersection(*ways).intersection(converters),
        trouble=above.trouble or trouble,
    )


def _is_unnamed(name: str) -> bool:
    """Whether Django made the name up for a group without one."""
    return name.startswith("_") and name[1:].isdigit()


def _hint(name: str, every: Iterable[Route]) -> str:
    names = sorted({one.full_name for one in every if one.name})
    nearest = difflib.get_close_matches(name, names, n=1)
    # Without its namespace a name is far from itself.
    nearest = nearest or [one for one in names if one.rpartition(":")[2] == name]
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return f"the URLconf has {', '.join(map(repr, names[:20])) or 'none'}."


# Site requests ------------------------------------------------------------------------------------

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
