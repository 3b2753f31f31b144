"""Servers with tools that most callers may not see, in this process or in one of their own.

Run as a program, this module creates the caller whose token is `SECRET` in the database of a test.
"""

from __future__ import annotations

from typing import Annotated, Any

# Sets Django up first.
from tests.sites.example.asgi import application as fast_handler  # isort: split

from channels.routing import URLRouter
from django.urls import path, re_path

from mcp_django import Context, Header, MCPServer
from mcp_django.auth.permissions import AllowAny

SECRET = "m" * 43

# Clients cannot sign in to the first server, so it never asks for credentials.
public = MCPServer("hidden-public", permission=AllowAny, auth=["session"])
members = MCPServer("hidden-members", auth=["tokens"])
inviting = MCPServer("hidden-inviting", permission=AllowAny, auth=["tokens"])
SERVERS = {"public": public, "members": members, "inviting": inviting}
urlpatterns = [path(f"{name}/mcp", server.urls) for name, server in SERVERS.items()]


def now(a: int) -> str:
    """Need a number."""
    return str(a)


async def later(a: int) -> str:
    """Need a number on the event loop."""
    return str(a)


async def asks(ctx: Context, a: int = 0) -> str:
    """Ask the user."""
    return await ctx.aelicit("Who?", str, key="who")


def routed(a: Annotated[int, Header("Number")]) -> str:
    """Want its argument in a header, too."""
    return str(a)


# One tool for each check that follows the permission check. All names have the same length, so that
# the answers have the same length, too.
HIDDEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "hidden_now": (now, {}),
    "hidden_later": (later, {}),
    "hidden_reader": (later, {"read_only": True}),
    "hidden_asker": (asks, {}),
    "hidden_sampler": (asks, {"needs": ["sampling"]}),
    "hidden_routed": (routed, {}),
    "hidden_task": (now, {"task": "required"}),
    "hidden_rated": (now, {"rate": "1/h"}),
    "hidden_gated": (now, {"approval": "staff"}),
}
HIDDEN = {name.ljust(16, "_"): tool for name, tool in HIDDEN.items()}
ABSENT = "absent".ljust(16, "_")

for server in SERVERS.values():
    for name, (function, options) in HIDDEN.items():
        server.tool(name, permission="auth.delete_group", **options)(function)

    @server.tool
    def visible(a: int) -> str:
        """Be there for everybody."""
        return str(a)


raw = URLRouter([re_path(f"^raw/{name}/mcp$", server.asgi) for name, server in SERVERS.items()])


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve the raw mounts under `/raw`, and everything else by the fast handler."""
    is_raw = scope.get("path", "").startswith("/raw/")
    await (raw if is_raw else fast_handler)(scope, receive, send)


if __name__ == "__main__":
    from mcp_django.models import AccessToken
    from tests.kit.servers import person

    AccessToken.objects.issue(person(), name="test", secret=SECRET)
