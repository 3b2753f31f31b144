"""Servers with fictional issuers, and URLconfs that mount them in unusual places."""

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
    """Names issuers, but accepts no token."""

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """Return a common issuer and one for each server."""
        return [ISSUER, f"{ISSUER}/{server}", ISSUER]


AUTH = ["tokens", f"{__name__}.Issued"]
shop = MCPServer("shop-front", title="Shop", auth=AUTH, scopes=["mcp", "shop:read"])
depot = MCPServer("depot", auth=AUTH)
inner = MCPServer("inner", auth=["tokens"])

METADATA = path("", include("mcp_django.urls"))


def urlconf(*patterns: Any) -> Any:
    """Return an object with ``urlpatterns``, which Django accepts as a URLconf."""
    module: Any = ModuleType("urls_of_a_test")
    module.urlpatterns = list(patterns)
    return module


single = urlconf(path("mcp", shop.urls), METADATA)
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
    """Declare a server with a resource URL of its own, and return it with its URLconf."""
    gate = MCPServer("gate", auth=AUTH, resource_url=GATE)
    try:
        yield gate, urlconf(path("inside/mcp", gate.urls), METADATA)
    finally:
        # Otherwise other tests of this process would see the server too.
        endpoints._declared_servers.clear()
