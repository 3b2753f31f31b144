"""Two servers that a test client meets over every transport."""

from __future__ import annotations

from typing import Annotated

from django.contrib.auth.models import Group

from mcp_django import Context, Header, MCPServer, ToolError
from mcp_django.auth.permissions import AllowAny

shop = MCPServer("transported", permission=AllowAny, page_size=2)
staff = MCPServer("transported-staff")


@shop.tool
def add(a: int, b: int) -> dict[str, int]:
    """Add."""
    return {"sum": a + b}


@shop.tool
def fail() -> str:
    """Fail."""
    raise ToolError("Not today.")


@shop.tool
def stumble() -> str:
    """Have a bug."""
    raise ZeroDivisionError("a bug")


@shop.tool
def count(ctx: Context, n: int) -> str:
    """Count aloud."""
    for number in range(1, n + 1):
        ctx.report_progress(number, n)
    ctx.log("info", "done")
    return f"counted to {n}"


@shop.tool
async def people(ctx: Context) -> str:
    """Ask and write."""
    name = await ctx.aelicit("Your name?", str)
    await Group.objects.acreate(name=name)
    return f"{await Group.objects.acount()} and {name}"


@shop.tool
def greet(ctx: Context) -> str:
    """Ask twice."""
    return f"{ctx.elicit('A word?', str)} {ctx.elicit('A name?', str)}"


@shop.tool
def pause(ctx: Context) -> str:
    """Let the client go in the middle."""
    ctx.report_progress(1)
    ctx.close_stream(0.05)
    ctx.report_progress(2)
    return "back"


@shop.tool
def think(ctx: Context) -> str:
    """Ask the model."""
    return ctx.sample("Hi.").text


@shop.tool
def mirrored(region: Annotated[str, Header("Region")]) -> str:
    """Take an argument that is repeated in a header."""
    return region


@shop.tool(scopes=["shop:write"])
def ship() -> str:
    """Need a scope."""
    return "shipped"


@shop.resource("transported://table", subscribe=True)
def table() -> str:
    """What stands on the table."""
    return "cups"


@shop.prompt
def toast(name: str) -> str:
    """A toast."""
    return f"To {name}!"


@shop.completion(toast, "name")
def _names(value: str) -> list[str]:
    return [name for name in ("Ada", "Ben") if name.startswith(value)]


@staff.tool
def whoami(ctx: Context) -> str:
    """Say who calls."""
    return str(ctx.user.get_username())
