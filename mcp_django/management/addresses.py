"""Where the servers of this site are, as far as its settings and its URLconf tell."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from django.core.management.base import CommandError
from django.urls import NoReverseMatch, reverse

from mcp_django.conf import get_settings
from mcp_django.server import MCPServer

# Where runserver listens; a site elsewhere says so with BASE_URL.
LOCAL = "http://127.0.0.1:8000"


def base_url() -> str:
    """The site's own address: ``BASE_URL``, or where runserver listens."""
    return get_settings().base_url or LOCAL


def paths(server: MCPServer) -> list[str]:
    """The paths at which the URLconf mounts a server; none if it does not, or needs arguments."""
    try:
        return [reverse(f"{server.namespace}:endpoint")]
    except NoReverseMatch:
        return []


def urls(server: MCPServer) -> list[str]:
    """The addresses of a server: whole ones if the site knows its own, else paths."""
    base = get_settings().base_url
    return [urljoin(base, path) for path in paths(server)]


def endpoint_url(server: MCPServer) -> str:
    """The address that a client is told.

    Raises:
        CommandError: the URLconf does not say; the way out is to give it.
    """
    try:
        path = reverse(f"{server.namespace}:endpoint")
    except NoReverseMatch:
        raise CommandError(
            f"The URLconf has no fixed address for server {server.name!r}; give it with --url, "
            "or mount the server: path('mcp', server.urls)."
        ) from None
    return urljoin(base_url(), path)


def check_url(url: str) -> str:
    """The given address, if it is one.

    Raises:
        CommandError: it is no absolute HTTP address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"--url {url!r} is no address; write https://example.com/mcp.")
    return url
