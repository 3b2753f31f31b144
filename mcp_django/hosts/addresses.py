"""The addresses at which a site has its servers, as clients need them."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from django.urls import NoReverseMatch, reverse

from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings, is_loopback

# The default address of runserver; other sites set BASE_URL.
LOCAL = "http://127.0.0.1:8000"


def server_paths(server: Server) -> list[str]:
    """Return the paths at which the URLconf mounts a server; empty if its URL needs arguments."""
    try:
        return [reverse(f"{server.namespace}:endpoint")]
    except NoReverseMatch:
        return []


def server_urls(server: Server) -> list[str]:
    """Return the URLs of a server: absolute ones if ``BASE_URL`` is set, else paths."""
    base = get_settings().base_url
    return [urljoin(base, path) for path in server_paths(server)]


def is_public(url: str) -> bool:
    """Return whether a vendor's cloud can connect to a URL."""
    parts = urlsplit(url)
    return parts.scheme == "https" and not is_loopback(parts.hostname)
