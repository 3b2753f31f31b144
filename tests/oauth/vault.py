"""A server whose tools return everything that they can see, and all mounts of the site."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.urls import include, path, re_path

# This import sets Django up, so it comes first.
from tests.sites.example.asgi import application, plain  # isort: split

from mcp_django import Context, MCPServer
from mcp_django.transports.consumer import MCPConsumer
from tests.oauth.servers import billing, orders

vault = MCPServer("vault", title="Vault", scopes=("mcp", "vault"))
executed: list[str] = []


@vault.tool(read_only=True)
def dump(ctx: Context) -> dict[str, Any]:
    """Everything within reach of a tool that asks for it."""
    request = ctx.request
    assert request is not None
    within = {
        "context": vars(ctx),
        "principal": ctx.principal,
        "meta": request.META,
        "headers": dict(request.headers),
        "cookies": request.COOKIES,
        "scope": getattr(request, "scope", {}),
        "environ": getattr(request, "environ", {}),
        "request": vars(request),
    }
    return {
        "text": repr(within),
        "user": request.user.get_username(),
        "agent": request.headers.get("User-Agent"),
        "method": request.method,
        "path": request.path,
    }


@vault.tool(scopes=["mcp:write"])
def change(name: str) -> str:
    """Change something."""
    executed.append(name)
    return name


@vault.tool(scopes=["orders:refund"])
def refund(name: str) -> str:
    """Refund something."""
    executed.append(name)
    return name


@vault.tool(read_only=True, scopes=["mcp:write"], slow=True)
def slowly() -> str:
    """Answer on a stream."""
    return "done"


@vault.resource("vault://gold", scopes=["mcp:write"], subscribe=True)
def gold() -> str:
    """What there is."""
    return "gold"


@vault.resource("vault://shelves/{shelf}", scopes=["mcp:write"], subscribe=True)
def shelf(shelf: str) -> str:
    """What is on a shelf."""
    executed.append(shelf)
    return shelf


@vault.resource(
    "vault://secret", scopes=["mcp:write"], permission="auth.change_user", subscribe=True
)
def secret() -> str:
    """What few may know of."""
    return "secret"


@vault.prompt(scopes=["mcp:write"])
def tidy(place: str) -> str:
    """Ask to tidy up."""
    return place


@vault.completion(tidy, "place")
def places(value: str) -> list[str]:
    """Places to tidy up."""
    return ["here"]


@vault.tool(permission="auth.change_user", scopes=["mcp:write"])
def hire(name: str) -> str:
    """Hire somebody; for those who may change users."""
    executed.append(name)
    return name


SERVERS = {"mcp": orders, "billing/mcp": billing, "vault/mcp": vault}
PLACES = {f"^{at}(?:/sse|/messages)?/?$": server for at, server in SERVERS.items()}

# Django serves everything else, including the metadata.
REST = re_path("", plain)
raw = URLRouter([*(re_path(at, server.asgi) for at, server in PLACES.items()), REST])
consumer = URLRouter(
    [*(re_path(at, MCPConsumer.as_asgi(server=server)) for at, server in PLACES.items()), REST]
)
MOUNTS = {"view": plain, "lane": application, "raw": raw, "consumer": consumer}

urlpatterns = [
    *(path(at, server.urls) for at, server in SERVERS.items()),
    path("<slug:shop>/shop/mcp", billing.urls),
    path("", include("mcp_django.urls")),
]
