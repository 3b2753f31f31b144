"""A decorator keeps the type of the function, bare and called."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import assert_type

from mcp_django import UI, Context, Header, MCPServer, Message, mcp
from mcp_django.auth.permissions import IsStaff

server = MCPServer("typing", permission=[IsStaff, "auth.view_group"], auth=["tokens"])


@mcp.tool
def bare(a: int, b: str = "") -> int:
    return a


@mcp.tool()
def called(a: int) -> str:
    return str(a)


@mcp.tool("name", title="Named", read_only=True, enforce=False, scopes=["a"], timeout=1.5)
def named(a: int) -> str:
    return str(a)


@mcp.tool(ui="shop/orders.html")
def shown() -> dict[str, int]:
    return {}


@mcp.tool(ui=UI("shop/map.html", resources=["https://a.example"], visibility=["app"], border=True))
def drawn() -> dict[str, int]:
    return {}


assert_type(shown(), dict[str, int])
assert_type(drawn(), dict[str, int])


@server.tool
async def later(ctx: Context, a: int) -> int:
    await ctx.areport_progress(1, 2, "half")
    return a


@server.resource("x://{n}", cache_ttl=timedelta(minutes=1), permission=IsStaff)
def resource(n: int) -> bytes:
    return b""


@server.prompt
def prompt(name: str) -> list[Message]:
    return [Message(name, role="assistant")]


@server.prompt("other", template="a.txt")
def templated(name: str) -> dict[str, str]:
    return {"name": name}


@server.completion(prompt, "name")
def names(value: str) -> list[str]:
    return [value]


@server.completion("x://{n}", "n")
async def numbers(value: str) -> list[str]:
    return [value]


assert_type(bare(1, b="x"), int)
assert_type(called(1), str)
assert_type(named(a=1), str)
assert_type(resource(1), bytes)
assert_type(prompt("x"), list[Message])
assert_type(templated("x"), dict[str, str])
assert_type(names("x"), list[str])


async def use(ctx: Context) -> None:
    assert_type(await later(ctx, 1), int)
    assert_type(await numbers("x"), list[str])
    assert_type(ctx.cancelled, bool)


def plain() -> int:
    return 1


same: Callable[[], int] = server.tool(plain)
Header("Region")

bare("x")  # type: ignore[arg-type]
named(a=1, b=2)  # type: ignore[call-arg]
server.tool(titel="x")  # type: ignore[call-overload]
server.tool(plain, title="x")  # type: ignore[call-overload]
server.resource(plain)  # type: ignore[arg-type]
