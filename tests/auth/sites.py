"""Servers of issuers that are made up, and URLconfs with them in every odd place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from django.conf.urls.i18n import i18n_patterns
from django.http import HttpRequest
from django.urls import include, path, re_path

from mcp_django import MCPServer
from mcp_django.auth import endpoints
from mcp_django.auth.backends import BaseBackend

ISSUER = "https://issuer.example"
GATE = "https://gate.example/to/mcp"


class Issued(BaseBackend):
    """Takes tokens of an issuer, and here none at all."""

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """Another one for each server."""
        return [ISSUER, f"{ISSUER}/{server}", ISSUER]


AUTH = ["tokens", f"{__name__}.Issued"]
shop = MCPServer("shop-front", title="Shop", auth=AUTH, scopes=["mcp", "shop:read"])
depot = MCPServer("depot", auth=AUTH)
inner = MCPServer("inner", auth=["tokens"])

METADATA = path("", include("mcp_django.urls"))


def urlconf(*patterns: Any) -> Any:
    """A URLconf as Django takes it: what has ``urlpatterns``."""
    module: Any = ModuleType("urls_of_a_test")
    module.urlpatterns = list(patterns)
    return module


one = urlconf(path("mcp", shop.urls), METADATA)
two = urlconf(path("mcp", shop.urls), path("nested/", include([path("mcp", depot.urls)])), METADATA)
rooted = urlconf(path("", shop.urls), METADATA)
slashed = urlconf(path("mcp/", shop.urls), METADATA)
closed = urlconf(path("mcp", inner.urls), METADATA)
named_like_a_part = urlconf(path("sse", shop.urls), METADATA)
tenants = urlconf(
    path("<slug:tenant>/mcp", shop.urls), re_path("^x(?P<n>[0-9]+)", depot.urls), METADATA
)
languages = urlconf(*i18n_patterns(path("mcp", shop.urls)), METADATA)
accents = urlconf(path("café au lait/mcp", shop.urls), METADATA)
elsewhere = urlconf(path("mcp", shop.urls), path("meta/", include("mcp_django.urls")))
bare = urlconf(path("mcp", shop.urls))


@contextmanager
def gated() -> Iterator[tuple[MCPServer, Any]]:
    """A server that is known by another address than its own, and a URLconf that has it."""
    gate = MCPServer("gate", auth=AUTH, resource_url=GATE)
    try:
        yield gate, urlconf(path("inside/mcp", gate.urls), METADATA)
    finally:
        # Or the other tests of this process would know it too.
        endpoints._declared_servers.clear()
