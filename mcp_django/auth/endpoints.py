"""Endpoints as OAuth resources (RFC 8707): each endpoint is one, named by its URL.

A token is good for the resource it was issued for and for no other (AUT-9), so two spellings of
one URL have to become the same name, and two URLs never. The two addresses of HTTP+SSE belong to
the endpoint beside them. Finding an endpoint asks the URLconf and no database.
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
# A slash or backslash in disguise would let one name stand for two paths, a NUL ends one early.
_DISGUISED = re.compile(r"%(?![0-9a-f]{2})|%(?:2f|5c|[01][0-9a-f]|7f)", re.IGNORECASE)
# What RFC 3986 (section 3.3) lets stand in a path as it is; Django reverses with the same.
_SAFE = "/~:@!$&'()*+,;="
_PARTS = frozenset({"sse", "messages"})

_declared: WeakValueDictionary[str, Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of this site: its server, and the canonical URL that tokens are bound to."""

    server: Any
    resource: str


def canonical(url: str) -> str | None:
    """The one spelling of a resource's URL; ``None`` for what names no resource.

    Scheme and host are lowered, a default port and one trailing slash dropped, the path encoded as
    RFC 3986 (section 6.2.2) normalizes it; its case stays. A user, a query, a fragment, a dot
    segment, an encoded slash or more than 2000 characters make it no resource.
    """
    if not url or len(url) > MAX_LENGTH or _UNPRINTABLE.search(url) or "?" in url or "#" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
        path = _normal(parts.path)
    except ValueError:
        return None
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or port == 0 or "@" in parts.netloc or not _HOST.fullmatch(host):
        return None
    if path.endswith("/"):
        return None
    shown = "" if port in (None, _PORTS[scheme]) else f":{port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{shown}{path}"


def _normal(path: str) -> str:
    """A path in its normal encoding, without the slash at its end.

    Raises:
        ValueError: the path is ambiguous, or no UTF-8.
    """
    if _DISGUISED.search(path):
        raise ValueError(path)
    plain = unquote(path, errors="strict")
    if {".", ".."} & set(plain.split("/")):
        raise ValueError(path)
    return quoted(plain).removesuffix("/")


def quoted(path: str) -> str:
    """A path as Django has it (decoded) in the encoding of a URL."""
    return quote(path, safe=_SAFE)


def origin_of(request: HttpRequest) -> str:
    """Scheme, host and port of the site: ``BASE_URL`` where it is set, else as the request says.

    The host was checked against ``ALLOWED_HOSTS``; a proxy's headers count where the site's own
    settings say so.
    """
    base = get_settings().base_url
    if base:
        parts = urlsplit(base)
        return canonical(f"{parts.scheme}://{parts.netloc}") or ""
    return canonical(f"{request.scheme}://{request.get_host()}") or ""


def prefix_of(request: HttpRequest) -> str:
    """The path under which the whole site is served (``SCRIPT_NAME``), without a slash at its end.

    Read from the request: on a mount outside of Django's handlers no thread knows it.
    """
    return str(request.META.get("SCRIPT_NAME", "")).rstrip("/")


def resource_of(request: HttpRequest, server: Any = None) -> str:
    """The resource that a request to an endpoint is for, whichever address of it was called.

    ``server`` is who answers where no URLconf has said it; its ``resource_url`` goes before
    everything that the request says.
    """
    view = getattr(request.resolver_match, "func", None)
    server = server or getattr(view, "mcp_server", None)
    if server is not None and server.resource_url:
        return canonical(server.resource_url) or ""
    path = request.path.removesuffix("/")
    part = getattr(view, "endpoint", None) or path.rpartition("/")[2]
    if part in _PARTS:
        path = path.rpartition("/")[0]
    return canonical(origin_of(request) + quoted(path)) or ""


def declare(url: str, server: Any) -> None:
    """Make a server known by a URL that no URLconf has (``MCPServer(resource_url=…)``).

    Raises:
        ValueError: the URL names no resource.
    """
    resource = canonical(url)
    if resource is None:
        raise ValueError(url)
    _declared[resource] = server


def find_endpoint(url: str, request: HttpRequest) -> Endpoint | None:
    """The endpoint that a URL of this site names, in any of its spellings; ``None`` for another.

    A server that declares its URL is known by that one alone.
    """
    resource, origin = canonical(url), origin_of(request)
    if resource is None:
        return None
    if resource in _declared:
        return Endpoint(_declared[resource], resource)
    if not (resource == origin or resource.startswith(f"{origin}/")):
        return None
    path, urlconf = unquote(resource.removeprefix(origin)), getattr(request, "urlconf", None)
    view = _view_at(path, prefix_of(request), urlconf)
    if view is None or view.mcp_server.resource_url:
        return None
    if view.endpoint in _PARTS:
        resource = resource.rpartition("/")[0]
    return Endpoint(view.mcp_server, resource)


def find_server(url: str, request: HttpRequest) -> Any | None:
    """The server whose endpoint a URL of this site names, ``None`` for any other URL."""
    found = find_endpoint(url, request)
    return found.server if found else None


def server_of(resource: str) -> Any | None:
    """The server of a resource that this site has issued a token for, whatever its host.

    For what has no request at hand; the script name is that of the thread.
    """
    named = canonical(resource)
    if named is None:
        return None
    return _declared.get(named) or _server_at(unquote(urlsplit(named).path))


def _server_at(path: str) -> Any | None:
    """The server whose endpoint is at a decoded path of this site, script name included."""
    view = _view_at(path.removesuffix("/"), get_script_prefix().rstrip("/"), None)
    return None if view is None or view.mcp_server.resource_url else view.mcp_server


def _view_at(path: str, prefix: str, urlconf: Any) -> Any | None:
    if prefix and path != prefix and not path.startswith(f"{prefix}/"):
        return None
    within = path.removeprefix(prefix)
    # A mount that ends in a slash is found by that spelling alone.
    for spelling in (within or "/", f"{within}/"):
        view = _resolved(spelling, urlconf)
        if view is not None:
            return view
    return None


def _resolved(path: str, urlconf: Any) -> Any | None:
    # Under i18n_patterns a path belongs to its own language, whatever the reader's is; without
    # LocaleMiddleware to the site's, which need not be one of LANGUAGES.
    default = settings.LANGUAGE_CODE
    for language in dict.fromkeys((translation.get_language_from_path(path) or default, default)):
        with translation.override(language), suppress(Resolver404):
            view = resolve(path, urlconf).func
            return view if hasattr(view, "mcp_server") else None
    return None


def known(urls: Iterable[str], request: HttpRequest) -> list[str] | None:
    """The resources that URLs name if all of them are endpoints of this site, else ``None``."""
    named = []
    for url in urls:
        found = find_endpoint(url, request)
        if found is None:
            return None
        named.append(found.resource)
    return list(dict.fromkeys(named))


def all_resources(request: HttpRequest) -> dict[str, Any]:
    """Every endpoint of this site whose URL has no variables: the server of each resource.

    Of one under ``i18n_patterns`` the address in the site's own language.
    """
    found = dict(_declared)
    start = origin_of(request) + quoted(prefix_of(request))
    for path in _mounted(getattr(request, "urlconf", None)):
        endpoint = find_endpoint(start + quoted(path), request)
        if endpoint is not None:
            found[endpoint.resource] = endpoint.server
    return found


def _mounted(urlconf: Any = None) -> list[str]:
    """The paths of all endpoints that have no variables in them, without the script name.

    Read from the patterns, since by its name ``reverse`` finds one of several mounts.
    """
    with translation.override(settings.LANGUAGE_CODE):
        return list(dict.fromkeys(_paths(get_resolver(urlconf).url_patterns, "/")))


def _paths(patterns: Iterable[Any], before: str) -> Iterator[str]:
    for one in patterns:
        regex = before + one.pattern.regex.pattern.lstrip("^")
        if isinstance(one, URLResolver):
            yield from _paths(one.url_patterns, regex)
        elif getattr(one.callback, "endpoint", None) == "mcp":
            # Each possibility is a text with the variables that stand in it.
            yield from (text for text, variables in normalize(regex) if not variables)
