"""What the example site exposes: one component of every kind, on three servers.

`mcp` is for authenticated callers, `staff` for members of staff, and `open_server` for everybody.
"""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404
from pydantic import Field

from mcp_django import (
    Audio,
    Context,
    EmbeddedResource,
    Header,
    Image,
    MCPServer,
    Message,
    ResourceLink,
    Text,
    ToolError,
    mcp,
)
from mcp_django.auth.permissions import AllowAny, IsStaff

staff = MCPServer("staff", title="Staff desk", permission=IsStaff, instructions="Staff only.")
open_server = MCPServer("open", permission=AllowAny, page_size=2)


@dataclass(frozen=True, kw_only=True)
class Takings:
    """What was sold on a day."""

    day: date
    orders: int
    total: Decimal


@mcp.tool(title="Add two numbers", read_only=True)
def add(a: Annotated[int, "The first number"], b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(read_only=True)
async def add_later(a: int, b: int = 1) -> str:
    """Add two numbers on the event loop."""
    return str(a + b)


@mcp.tool(read_only=True, idempotent=True, open_world=False)
def takings(day: Annotated[date, "The trading day"]) -> Takings:
    """Number of orders and money taken on one day."""
    return Takings(day=day, orders=3, total=Decimal("12.50"))


@mcp.tool(read_only=True)
def count_groups() -> int:
    """Count the groups, with one query."""
    return Group.objects.count()


@mcp.tool(read_only=True)
async def count_groups_later() -> str:
    """Count the groups from an async function."""
    return str(await Group.objects.acount())


@mcp.tool
def add_group(name: str, fail: bool = False) -> str:
    """Make a group, and fail afterwards if asked to."""
    Group.objects.create(name=name)
    if fail:
        raise ToolError("The group was not kept.")
    return f"Made {name}."


@mcp.tool(atomic=True)
def add_group_atomically(name: str, fail: bool = False) -> str:
    """Make a group in a transaction."""
    return add_group(name, fail)


@mcp.tool
def count_to(ctx: Context, n: Annotated[int, Field(ge=1, le=1000)]) -> str:
    """Count to n and report each step."""
    for step in range(1, n + 1):
        ctx.report_progress(step, n, f"step {step}")
    ctx.log("info", {"counted": n})
    return f"counted to {n}"


@mcp.tool
async def count_to_later(ctx: Context, n: int) -> str:
    """Count to n on the event loop and report each step."""
    for step in range(1, n + 1):
        await ctx.areport_progress(step, n)
    await ctx.alog("warning", "done", logger="counter")
    return f"counted to {n}"


gate = threading.Event()
entered = threading.Event()


@mcp.tool
def wait_at_gate(ctx: Context) -> str:
    """Wait until the test opens the gate or nobody waits for the answer any more."""
    entered.set()
    while not gate.wait(0.01):
        if ctx.cancelled:
            return "left early"
    return "passed"


@mcp.tool
def whoami(ctx: Context) -> dict[str, Any]:
    """Say who is calling, as the tool sees it."""
    request = ctx.request
    return {
        "user": ctx.user.get_username(),
        "backend": ctx.principal.backend,
        "server": ctx.server.name,
        "client": ctx.client.get("name"),
        "protocol_version": ctx.protocol_version,
        "method": request.method if request is not None else None,
    }


@mcp.tool
def fail(kind: str) -> str:
    """Fail in one of the ways that Django knows."""
    failures: dict[str, Exception] = {
        "tool": ToolError("Try 'ok'."),
        "missing": Group.DoesNotExist("Group matching query does not exist."),
        "404": Http404("No such thing."),
        "denied": PermissionDenied("Not yours."),
        "invalid": ValidationError({"name": ["Too long."]}),
        "bug": RuntimeError("secret detail at /etc/passwd"),
    }
    raise failures[kind]


@mcp.tool
def pictures() -> list[str | Text | Image | Audio | EmbeddedResource | ResourceLink]:
    """One block of every kind."""
    return [
        "words",
        Text("more words"),
        Image(PIXEL),
        Audio(b"RIFF"),
        EmbeddedResource("shop://note", text="note"),
        ResourceLink("shop://about", "about"),
    ]


@mcp.tool(permission=IsStaff)
def secret_tool() -> str:
    """Only staff may know of this."""
    return "secret"


@mcp.tool(scopes=["orders:write", "orders:read"])
def scoped_tool() -> str:
    """Needs two scopes."""
    return "scoped"


@mcp.tool
def route(
    region: Annotated[str, Header("Region")], count: Annotated[int, Header("Count")] = 1
) -> str:
    """Mirror two arguments into headers."""
    return f"{region}:{count}"


@mcp.tool(
    input_schema={
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 1}},
        "required": ["x"],
    }
)
def raw_schema(x: int) -> str:
    """Take a schema written by hand."""
    return str(x)


@mcp.resource("shop://about", mime_type="text/markdown", title="About")
def about() -> str:
    """What the shop is."""
    return "# Shop"


@mcp.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    """The logo."""
    return PIXEL


@mcp.resource("shop://groups/{name}", mime_type="application/json")
def group(name: str) -> dict[str, Any]:
    """One group by name."""
    row = Group.objects.get(name=name)
    return {"name": row.name}


@mcp.resource("shop://files/{+path}")
def file(path: str) -> str:
    """A file by its path."""
    return path


@mcp.resource("shop://orders/{number}")
def order(number: int) -> dict[str, int]:
    """An order by number."""
    return {"number": number}


@mcp.resource("shop://vault", permission=IsStaff)
def vault() -> str:
    """Only staff may know of this."""
    return "gold"


@mcp.prompt(title="Apology")
def apologize(
    number: Annotated[str, "The order"], tone: Literal["formal", "warm"] = "warm"
) -> list[Any]:
    """Write to a customer."""
    return [
        Message(f"Apologize for order {number}, {tone}."),
        Message("Of course.", role="assistant"),
    ]


@mcp.prompt(template="example/briefing.txt")
def briefing(topic: str) -> dict[str, str]:
    """Brief the shift."""
    return {"topic": topic}


@mcp.prompt(permission=IsStaff)
def secret_prompt() -> str:
    """Only staff may know of this."""
    return "secret"


@mcp.completion(group, "name")
def group_names(value: str) -> QuerySet[Group, str]:
    """Suggest groups."""
    return (
        Group.objects.filter(name__startswith=value).order_by("name").values_list("name", flat=True)
    )


@mcp.completion("apologize", "number")
async def numbers(value: str, tone: str) -> list[str]:
    """Suggest numbers that depend on the tone chosen already."""
    return [f"{value}{tone}{n}" for n in range(200)]


@staff.tool
def staff_tool() -> str:
    """Do what only staff does."""
    return "done"


@open_server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@open_server.tool
def echo_sync(text: str) -> str:
    """Give the text back from a thread."""
    return text


@open_server.tool(permission="auth.view_group")
def members_tool() -> str:
    """Only those who may view groups."""
    return "members"


def _pixel() -> bytes:
    """Return the smallest picture: one transparent pixel as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 5)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


PIXEL = _pixel()
