"""Endpoints as OAuth resources (RFC 8707): each endpoint is a resource, identified by its URL.

A token is valid only for the resource it was issued for, so all spellings of one URL have to become
the same name, and different URLs must not. The two URLs of HTTP+SSE belong to the endpoint whose
URL is their parent. Finding an endpoint uses the URLconf and not the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakValueDictionary

from django.conf import settings
from django.http import HttpRequest
from django.urls import Resolver404, URLResolver, get_resolver, get_script_prefix, resolve
from django.utils import translation
from django.utils.regex_helper import normalize

from mcp_django.conf import get_settings

MAX_LENGTH = 2000
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]*:[0-9a-f:.]*")
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]|\\")
# An encoded slash or backslash would let one name refer to two paths; a NUL truncates a path.
_AMBIGUOUS_ENCODING = re.compile(r"%(?![0-9a-f]{2})|%(?:2f|5c|[01][0-9a-f]|7f)", re.IGNORECASE)
# Characters that RFC 3986 (section 3.3) allows unencoded in a path; Django's ``reverse`` uses them.
_SAFE = "/~:@!$&'()*+,;="
_SSE_PARTS = frozenset({"sse", "messages"})

_declared_servers: WeakValueDictionary[str, Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """An endpoint of this site: its server, and the canonical URL that tokens are bound to."""

    server: Any
    resource: str


def canonicalize_url(url: str) -> str | None:
    """Return the canonical spelling of a resource's URL; ``None`` if it is not a valid one.

    Scheme and host are lowercased, a default port and one trailing slash removed, the path encoded
    as RFC 3986 (section 6.2.2) normalizes it; its case is kept. A URL with a user, a query, a
    fragment, a dot segment, an encoded slash or more than 2000 characters is not valid.
    """
    if not url or len(url) > MAX_LENGTH or _UNPRINTABLE.search(url) or "?" in url or "#" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
        plain = unquote(parts.path, errors="strict")
        path = quote_path(plain).removesuffix("/")
    except ValueError:
        return None
    if _AMBIGUOUS_ENCODING.search(parts.path) or not {".", ".."}.isdisjoint(plain.split("/")):
        return None
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or port == 0 or "@" in parts.netloc or not _HOST.fullmatch(host):
        return None
    if path.endswith("/"):
        return None
    port_suffix = "" if port in (None, _PORTS[scheme]) else f":{port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{port_suffix}{path}"


def quote_path(path: str) -> str:
    """Return a decoded path, as Django has it, in URL encoding."""
    return quote(path, safe=_SAFE)


def origin_of(request: HttpRequest) -> str:
    """Return scheme, host and port of the site: of ``BASE_URL`` if it is set, else of the request.

    The host was checked against ``ALLOWED_HOSTS``; a proxy's headers are used if the site's own
    settings say so.
    """
    base = get_settings().base_url
    if base:
        parts = urlsplit(base)
        return canonicalize_url(f"{parts.scheme}://{parts.netloc}") or ""
    return canonicalize_url(f"{request.scheme}://{request.get_host()}") or ""


def prefix_of(request: HttpRequest) -> str:
    """Return the path under which the site is served (``SCRIPT_NAME``), without a trailing slash.

    Read from the request: a mount outside of Django's handlers has no script prefix in its thread.
    """
    return str(request.META.get("SCRIPT_NAME", "")).rstrip("/")


def resource_of(request: HttpRequest, server: Any = None) -> str:
    """Return the resource that a request to an endpoint is for, whichever of its URLs was called.

    ``server`` is the server that answers, where no URLconf names it; its ``resource_url`` takes
    precedence over the request.
    """
    view = getattr(request.resolver_match, "func", None)
    server = server or getattr(view, "mcp_server", None)
    if server is not None and server.resource_url:
        return canonicalize_url(server.resource_url) or ""
    path = request.path.removesuffix("/")
    part = getattr(view, "endpoint", None) or path.rpartition("/")[2]
    if part in _SSE_PARTS:
        path = path.rpartition("/")[0]
    return canonicalize_url(origin_of(request) + quote_path(path)) or ""


def declare_url(url: str, server: Any) -> None:
    """Register a server under a URL that no URLconf has (``MCPServer(resource_url=…)``).

    Raises:
        ValueError: the URL is not a valid resource URL.
    """
    resource = canonicalize_url(url)
    if resource is None:
        raise ValueError(url)
    _declared_servers[resource] = server


def find_endpoint(url: str, request: HttpRequest) -> ServerEndpoint | None:
    """Return the endpoint that a URL of this site names, in any spelling; ``None`` for other URLs.

    A server that declares its URL is found only by that URL.
    """
    resource, origin = canonicalize_url(url), origin_of(request)
    if resource is None:
        return None
    if resource in _declared_servers:
        return ServerEndpoint(_declared_servers[resource], resource)
    if not (resource == origin or resource.startswith(f"{origin}/")):
        return None
    path, urlconf = unquote(resource.removeprefix(origin)), getattr(request, "urlconf", None)
    view = _view_at(path, prefix_of(request), urlconf)
    if view is None or view.mcp_server.resource_url:
        return None
    if view.endpoint in _SSE_PARTS:
        resource = resource.rpartition("/")[0]
    return ServerEndpoint(view.mcp_server, resource)


def find_server(url: str, request: HttpRequest) -> Any | None:
    """Return the server whose endpoint a URL of this site names, ``None`` for any other URL."""
    endpoint = find_endpoint(url, request)
    return endpoint.server if endpoint else None


def server_of(resource: str) -> Any | None:
    """Return the server of a resource that this site has issued a token for, whatever its host.

    For code that has no request; the script name is that of the thread.
    """
    url = canonicalize_url(resource)
    if url is None:
        return None
    if server := _declared_servers.get(url):
        return server
    path = unquote(urlsplit(url).path).removesuffix("/")
    view = _view_at(path, get_script_prefix().rstrip("/"), None)
    return None if view is None or view.mcp_server.resource_url else view.mcp_server


def _view_at(path: str, prefix: str, urlconf: Any) -> Any | None:
    if prefix and path != prefix and not path.startswith(f"{prefix}/"):
        return None
    within = path.removeprefix(prefix)
    # A mount that ends in a slash resolves only with the slash.
    for spelling in (within or "/", f"{within}/"):
        view = _resolve_view(spelling, urlconf)
        if view is not None:
            return view
    return None


def _resolve_view(path: str, urlconf: Any) -> Any | None:
    # Under i18n_patterns, a path resolves only if its own language is active or, without
    # LocaleMiddleware, the site's language, which need not be one of LANGUAGES.
    default = settings.LANGUAGE_CODE
    for language in dict.fromkeys((translation.get_language_from_path(path) or default, default)):
        with translation.override(language), suppress(Resolver404):
            view = resolve(path, urlconf).func
            return view if hasattr(view, "mcp_server") else None
    return None


def find_resources(urls: Iterable[str], request: HttpRequest) -> list[str] | None:
    """Return the resources that URLs name if all are endpoints of this site, else ``None``."""
    resources = []
    for url in urls:
        endpoint = find_endpoint(url, request)
        if endpoint is None:
            return None
        resources.append(endpoint.resource)
    return list(dict.fromkeys(resources))


def all_resources(request: HttpRequest) -> dict[str, Any]:
    """Return the server of each resource of this site whose URL has no variables.

    An endpoint under ``i18n_patterns`` is listed by its URL in the site's own language.
    """
    servers = dict(_declared_servers)
    start = origin_of(request) + quote_path(prefix_of(request))
    # Read from the patterns, since ``reverse`` finds only one of several mounts of a name.
    with translation.override(settings.LANGUAGE_CODE):
        patterns = get_resolver(getattr(request, "urlconf", None)).url_patterns
        paths = dict.fromkeys(_iter_paths(patterns, "/"))
    for path in paths:
        endpoint = find_endpoint(start + quote_path(path), request)
        if endpoint is not None:
            servers[endpoint.resource] = endpoint.server
    return servers


def _iter_paths(patterns: Iterable[Any], before: str) -> Iterator[str]:
    """Yield the paths of all endpoints that have no variables, without the script name."""
    for pattern in patterns:
        regex = before + pattern.pattern.regex.pattern.lstrip("^")
        if isinstance(pattern, URLResolver):
            yield from _iter_paths(pattern.url_patterns, regex)
        elif getattr(pattern.callback, "endpoint", None) == "mcp":
            # ``normalize`` returns each possible path with the variables in it.
            yield from (text for text, variables in normalize(regex) if not variables)
