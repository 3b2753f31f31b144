"""A new request of the caller for each call, through the site's own middleware, views and URLs.

Views, REST views and the admin share this module. The request has the host, scheme, client
address and language of the MCP request. It has no credentials, neither cookies nor an
``Authorization`` header, because the caller is already known. It is a ``WSGIRequest``, because
the middleware and the view run synchronously, in one thread.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes, urlencode, urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, get_user_model
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

from mcp_django.auth.principal import Principal
from mcp_django.components.context import Context
from mcp_django.conf import get_settings
from mcp_django.exceptions import ToolError
from mcp_django.execution.audit import keep_revision
from mcp_django.process import on_settings_change
from mcp_django.protocol.headers import FORM
from mcp_django.protocol.text import nearest
from mcp_django.tenants import by_tenant

T = TypeVar("T")

_is_in_site_call: ContextVar[bool] = ContextVar(
    "mcp_django.integrations.site_requests.is_inside", default=False
)


class SiteHandler(BaseHandler):
    """Runs the site's middleware and view, and records what the view raised or returned."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    def resolve_request(self, request: Any) -> Any:
        """Return the view of a request, unless another pattern matches the URL first.

        Otherwise, a caller could choose an argument that turns the URL into that of any other page.
        """
        match = super().resolve_request(request)
        if not any(route.leads_to(match) for route in request.routes):
            raise Resolver404({"path": request.path_info})
        return match

    def process_exception_by_middleware(self, exception: Any, request: Any) -> Any:
        """Return a middleware's response to an exception, and record whether it is an error page.

        Callers do not receive the content of an error page.
        """
        response: Any = super().process_exception_by_middleware(exception, request)
        request.is_error_page = response is not None and response.status_code >= 500
        return response

    def _get_response(self, request: Any) -> HttpResponseBase:
        response: HttpResponseBase
        try:
            response = super()._get_response(request)  # type: ignore[misc]  # not in the stubs
        except Exception as exc:
            request.view_exception = exc
            raise
        request.time_zone = timezone.get_current_timezone()
        if not request.is_error_page:
            request.view_response = response
        return response


_handlers: dict[type[SiteHandler], SiteHandler] = {}


@on_settings_change()
def _discard_handlers() -> None:
    # Their middleware read the old settings.
    _handlers.clear()


def send_isolated(
    request: CallerRequest,
    read: Callable[[HttpResponseBase], T],
    *,
    handler_class: type[SiteHandler] = SiteHandler,
) -> T:
    """Return the result of ``read`` for the site's response, and close the files of the response.

    Every call runs in a copied context (``contextvars``), so that the language, the time zone and
    the URLconf that a middleware sets do not outlive the call. A session that a view starts is
    deleted after the call. A view that runs for a call cannot call another view, because such calls
    could recurse forever.

    Raises:
        ToolError: a view that runs for a call tries to call another view.
        Exception: any exception of the handler and of ``read``.
    """
    if _is_in_site_call.get():
        raise ToolError(
            f"{request.path} is requested by a view that itself runs for a call; a view cannot be "
            "called from within another one."
        )

    def send_and_read() -> T:
        _is_in_site_call.set(True)
        try:
            handler = _handlers.get(handler_class) or _handlers.setdefault(
                handler_class, handler_class()
            )
            response = handler.get_response(request)
            try:
                return read(response)
            finally:
                close_files(response)
        finally:
            discard_session(request)

    context = copy_context()
    try:
        return context.run(send_and_read)
    finally:
        keep_revision(context)


def discard_session(request: Any) -> None:
    """Delete the session that was started during a call, because its cookie is not sent."""
    session = getattr(request, "session", None)
    if session is not None and getattr(session, "session_key", None):
        session.delete()


def close_files(response: HttpResponseBase) -> None:
    """Close the files of a response.

    ``close()`` would also send ``request_finished``, at which Django closes database connections,
    even those in a transaction of the calling code; the MCP request is still running.
    """
    closers = response._resource_closers  # type: ignore[attr-defined]  # not in the stubs
    while closers:
        closers.pop(0)()
    response.closed = True


# URL patterns -------------------------------------------------------------------------------------

# A route has the view and the variables of a URL name. The URLconf is searched when a component is
# first used and never while components are declared, because the URLconf itself often imports the
# modules that declare them.

Namespaces = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class URLVariables:
    """The variables of some levels of a URL; see ``URLRoute``."""

    converters: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    reverse_problem: str = ""


@dataclass(frozen=True, kw_only=True)
class URLRoute:
    """One URL pattern; its variables are read at first use, as most searches keep few routes."""

    name: str | None = None
    namespaces: Namespaces = ()
    """The instance namespace and the application namespace of each level."""
    callback: Any = None
    """The view; ``None`` for a level above a view."""
    levels: tuple[Any, ...] = ()
    """The pattern objects of Django, outermost first."""
    urlconf: str | None = None
    """The URLconf that has the pattern, if it is not the current one."""

    @cached_property
    def _variables(self) -> URLVariables:
        """The variables of all levels, as Django finds them for ``reverse``."""
        converters: dict[str, Any] = {}
        required: frozenset[str] = frozenset()
        problem = ""
        for level in self.levels:
            regex = level.regex
            if "(" not in regex.pattern:
                continue
            ways = [set(names) for _, names in normalize(regex.pattern)]
            names = set().union(*ways)
            trouble = ""
            # Django generates the names of unnamed groups, such as _0.
            if names and all(name.startswith("_") and name[1:].isdigit() for name in names):
                trouble = "has unnamed groups; name them, as in (?P<year>[0-9]{4})"
            elif not names.issuperset(regex.groupindex):
                trouble = (
                    "has alternatives (|) that Django cannot reverse; use a path() for each of them"
                )
            own = [name for name in (*level.converters, *regex.groupindex) if name in names]
            converters |= {name: level.converters.get(name) for name in own}
            required |= set.intersection(*ways).intersection(own)
            problem = problem or trouble
        return URLVariables(converters=converters, required=required, reverse_problem=problem)

    @property
    def converters(self) -> Mapping[str, Any]:
        """The variables with their converters; ``None`` for a group of a regular expression."""
        return self._variables.converters

    @property
    def required(self) -> frozenset[str]:
        """The variables that ``reverse`` always needs."""
        return self._variables.required

    @property
    def reverse_problem(self) -> str:
        """Why the pattern cannot be reversed, empty if it can."""
        return self._variables.reverse_problem

    @property
    def view(self) -> Any:
        """The class of a class-based view, otherwise the function."""
        view_class = getattr(self.callback, "view_class", None) or getattr(
            self.callback, "cls", None
        )
        return view_class or self.callback

    @property
    def namespace(self) -> str:
        """The instance namespaces, as in the name."""
        return ":".join(instance for instance, _ in self.namespaces)

    @property
    def full_name(self) -> str:
        """The name to pass to ``reverse``."""
        name = self.name or ""
        return f"{self.namespace}:{name}" if self.namespaces else name

    def matches_name(self, name: str) -> bool:
        """Return whether ``reverse`` could find this pattern by a name."""
        *spaces, last = name.split(":")
        if last != self.name or len(spaces) != len(self.namespaces):
            return False
        pairs = zip(spaces, self.namespaces, strict=True)
        return all(space in names for space, names in pairs)

    def leads_to(self, match: ResolverMatch) -> bool:
        """Return whether a URL was resolved to this pattern, or to another one of the same name.

        A middleware may select another URLconf for a request.
        """
        return match.func is self.callback or match.view_name == self.full_name

    @property
    def is_reversible(self) -> bool:
        """Whether ``reverse`` can find the pattern: by name, or by view outside of a namespace."""
        return bool(self.name) or not self.namespaces

    def reverse_path(self, values: Mapping[str, Any]) -> str:
        """Return the path for these values.

        Raises:
            NoReverseMatch: the values do not match the pattern.
        """
        target = self.full_name if self.name else self.callback
        return reverse(target, urlconf=self.urlconf, kwargs=dict(values))


def resolver_of(urlconf: str | None) -> URLResolver:
    """Return the resolver of a URLconf; by default that of the site or the MCP request's host."""
    return get_resolver(urlconf or get_urlconf())


def all_routes(urlconf: str | None = None) -> Iterator[URLRoute]:
    """Yield every pattern of the URLconf that leads to a view."""
    try:
        patterns = resolver_of(urlconf).url_patterns
    except ModuleNotFoundError as exc:
        if urlconf is None:
            raise
        raise ImproperlyConfigured(f"There is no URLconf {urlconf!r} ({exc}).") from exc
    yield from _walk(patterns, URLRoute(urlconf=urlconf))


def routes_by_name(name: str, urlconf: str | None = None) -> list[URLRoute]:
    """Return the patterns of a URL name.

    Raises:
        ImproperlyConfigured: no pattern has the name; the message suggests the closest name.
    """
    routes = list(all_routes(urlconf))
    matches = [route for route in routes if route.matches_name(name)]
    if not matches:
        names = sorted({route.full_name for route in routes if route.name})
        # A name that lacks only its namespace may be too different to be the nearest one.
        other = nearest(name, names) or next(
            (full_name for full_name in names if full_name.rpartition(":")[2] == name), None
        )
        hint = f"the URLconf has {', '.join(map(repr, names[:20])) or 'none'}."
        if other:
            hint = f"did you mean {other!r}?"
        raise ImproperlyConfigured(f"There is no URL named {name!r}; {hint}")
    # An application namespace means the instance of the same name, or else the first instance.
    chosen = name if any(route.full_name == name for route in matches) else matches[0].full_name
    return [route for route in matches if route.full_name == chosen]


def routes_by_view(view_class: type[Any], urlconf: str | None = None) -> list[URLRoute]:
    """Return the patterns that lead to a class-based view and can be reversed.

    Raises:
        ImproperlyConfigured: there is no such pattern, or the patterns have several names.
    """
    routes = [
        route for route in all_routes(urlconf) if route.view is view_class and route.is_reversible
    ]
    if not routes:
        raise ImproperlyConfigured(
            f"No URL leads to {view_class.__qualname__}; add a named path() for it to the URLconf."
        )
    names = sorted({route.full_name for route in routes})
    if len(names) > 1:
        raise ImproperlyConfigured(
            f"{view_class.__qualname__} has several URLs; register one of their names: "
            f"{', '.join(map(repr, names))}."
        )
    return routes


def _walk(patterns: Iterable[Any], above: URLRoute) -> Iterator[URLRoute]:
    for pattern in patterns:
        levels = (*above.levels, pattern.pattern)
        if isinstance(pattern, URLResolver):
            space = ((pattern.namespace, pattern.app_name or ""),) if pattern.namespace else ()
            inside = replace(above, levels=levels, namespaces=(*above.namespaces, *space))
            yield from _walk(pattern.url_patterns, inside)
        elif isinstance(pattern, URLPattern):
            yield replace(above, levels=levels, name=pattern.name, callback=pattern.callback)


# Site requests ------------------------------------------------------------------------------------

Pairs = list[tuple[str, str]]
"""Names and texts to send; a list is sent as several pairs with the same name."""

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"
ACCEPT = "application/json, text/plain;q=0.9, text/html;q=0.8, */*;q=0.5"
# The client's address behind a proxy; the site decides whether to trust it.
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRequest:
    """The request of a call to the site; its path is URL-encoded and has the script prefix."""

    method: str
    path: str
    query: Pairs = field(default_factory=list)
    body: Pairs | bytes = b""
    """The fields of a form, or the body itself, whose type and length are then in ``meta``."""
    routes: Sequence[URLRoute] = ()
    """The patterns that the path may resolve to; any other pattern is rejected."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Headers by their WSGI names, in place of the usual ones."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments from which the request was built."""


class CallerRequest(WSGIRequest):
    """A request whose response is not stored in any cache of the site.

    The caller is authenticated without a cookie, so a page for the caller would be stored under
    the key of all visitors without a cookie.
    """

    _cached_user: Any
    """Read by ``get_user`` in Django's authentication middleware."""
    _acached_user: Any
    routes: Sequence[URLRoute] = ()
    """The patterns that the path may resolve to."""
    view_exception: Exception | None = None
    """The exception of the view, if no middleware turned it into a response."""
    view_response: Any = None
    """The response that the view itself returned."""
    is_error_page: bool = False
    """Whether a middleware turned the exception of the view into an error page."""
    time_zone: dt.tzinfo | None = None
    """The time zone of the view, which middleware may have set."""

    if not TYPE_CHECKING:
        # For type checkers, a class with this method would have every attribute.
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__class__":
                # The middleware of django-pghistory replaces the class of a request with its own.
                value = _with_base(type(self), value)
            super().__setattr__(name, value)

    @property
    def session(self) -> Any:
        """The session that a middleware opened; it contains only the user's backend.

        Without the backend, ``RemoteUserMiddleware`` would take the caller for a user whom the web
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
            # The view has not accessed it yet, and nothing in it has to be saved.
            session.accessed = session.modified = False

    @property
    def _cache_update_cache(self) -> bool:
        return False

    @_cache_update_cache.setter
    def _cache_update_cache(self, value: bool) -> None:
        """Ignore the value that the cache middleware sets."""


@cache
def _with_base(request_class: type[CallerRequest], base: type) -> type:
    """Return a class that inherits from both request classes."""
    if issubclass(base, CallerRequest):
        return base
    return type(request_class.__name__, (request_class, base), {"__module__": __name__})


R = TypeVar("R", bound=CallerRequest)


def build_request(ctx: Context, sending: SiteRequest, request_class: type[R]) -> R:
    """Return the request of a call, with the caller as the user for Django's middleware."""
    request = request_class(_environ(ctx.request, sending))
    request.routes = sending.routes
    request._cached_user = ctx.user
    request._acached_user = ctx.user
    # No page was rendered that could contain a CSRF token, and no cookie could be misused.
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
    if ctx.user.is_authenticated:
        # Prevent cache hits on pages that were stored for visitors without a cookie: the cache key
        # of a page that varies by cookie includes the ``Cookie`` header. ``COOKIES`` is parsed
        # before the header is set, and stays empty.
        assert request.COOKIES == {}
        caller = hashlib.sha256(by_tenant(ctx.principal.key).encode()).hexdigest()
        request.META["HTTP_COOKIE"] = f"mcp={caller}"
    return request


def _environ(carrier: HttpRequest | None, sending: SiteRequest) -> dict[str, Any]:
    host, port, is_secure = _origin(carrier)
    content = sending.body
    body = content if isinstance(content, bytes) else urlencode(content).encode()
    prefix = get_script_prefix().rstrip("/")
    path = unquote_to_bytes(sending.path.removeprefix(prefix)).decode("latin-1")
    # The header with which the site's proxy marks an HTTPS connection.
    declared = django_settings.SECURE_PROXY_SSL_HEADER
    proxy_header = {declared[0]: declared[1].partition(",")[0]} if declared and is_secure else {}
    meta = carrier.META if carrier is not None else {}
    language = meta.get("HTTP_ACCEPT_LANGUAGE") or get_language() or django_settings.LANGUAGE_CODE
    environ = {
        "REQUEST_METHOD": sending.method,
        "SCRIPT_NAME": prefix,
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(sending.query),
        "SERVER_NAME": urlsplit(f"//{host}").hostname or host,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": host,
        "HTTP_ACCEPT": ACCEPT,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if is_secure else "http",
        "wsgi.input": BytesIO(body),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        **proxy_header,
        "REMOTE_ADDR": str(meta.get("REMOTE_ADDR") or "127.0.0.1"),
        "HTTP_ACCEPT_LANGUAGE": str(language),
        "HTTP_USER_AGENT": str(meta.get("HTTP_USER_AGENT", "")),
        **{name: str(meta[name]) for name in FORWARDED if name in meta},
    }
    if sending.method == "POST":
        environ |= {"CONTENT_TYPE": FORM, "CONTENT_LENGTH": str(len(body))}
    return {**environ, **sending.meta}


def _origin(carrier: HttpRequest | None) -> tuple[str, str, bool]:
    """Return the host, port and use of HTTPS of the MCP request, or else of the settings."""
    if carrier is not None:
        try:
            return carrier.get_host(), str(carrier.get_port()), carrier.is_secure()
        except DisallowedHost:
            # A mount outside of Django's middleware has its own rules for hosts.
            pass
    base = urlsplit(get_settings().base_url)
    if base.netloc:
        is_secure = base.scheme == "https"
        return base.netloc, str(base.port or (443 if is_secure else 80)), is_secure
    is_secure = bool(django_settings.SECURE_SSL_REDIRECT)
    hosts = [host.lstrip(".") for host in django_settings.ALLOWED_HOSTS if host != "*"]
    return hosts[0] if hosts else "localhost", "443" if is_secure else "80", is_secure


def superuser_context(server: Any) -> Context:
    """Return the context of a superuser, with which forms and schemas are built before a call.

    This context never gives access to rows: each call checks the permissions of its own caller.
    """
    user: Any = get_user_model()()
    user.pk = user._meta.pk.get_default() or 0
    for name in ("is_active", "is_staff", "is_superuser"):
        # A custom user model may define them as read-only properties.
        with suppress(AttributeError):
            setattr(user, name, True)
    principal = Principal(key="registration", user=user)
    return Context(server=server, principal=principal, protocol_version="")
