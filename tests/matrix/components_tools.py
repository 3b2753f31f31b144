"""The tools of the site: one for each way in which a call can go.

Most of them exist as a synchronous and as an asynchronous function, which take different paths.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from pydantic import Field

from mcp_django import Context, Header, Image, MCPServer, ResourceLink, ToolError
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import InvalidParams

FAILURES: dict[str, Exception] = {
    "tool": ToolError("Write a smaller number."),
    "bug": RuntimeError("secret detail"),
    "denied": PermissionDenied("Not yours."),
    "invalid": ValidationError({"name": ["Too long."]}),
    "missing": Http404("No such picture."),
    "absent row": Group.DoesNotExist("Group matching query does not exist."),
    "protocol": InvalidParams("Not like this.", data={"field": "a"}),
}


@dataclass(frozen=True)
class Total:
    """A sum with its parts."""

    parts: list[int]
    total: int


@dataclass(frozen=True)
class Visitor:
    """A visitor."""

    name: str


def declare_tools(server: MCPServer) -> None:
    """Declare every tool on a server."""
    for declare in (
        _declare_plain,
        _declare_named,
        _declare_database,
        _declare_failing,
        _declare_talking,
        _declare_asking,
        _declare_guarded,
        _declare_tasks,
        _declare_results,
    ):
        declare(server)


def _declare_plain(server: MCPServer) -> None:
    @server.tool(read_only=True, title="Add")
    async def add(a: Annotated[int, "The first number"], b: int = 1) -> int:
        """Add two numbers on the event loop."""
        return a + b

    @server.tool(read_only=True)
    def add_sync(a: int, b: int = 1) -> int:
        """Add two numbers in a thread."""
        return a + b

    @server.tool(read_only=True, idempotent=True, open_world=False)
    def total(parts: list[int]) -> Total:
        """Add up numbers."""
        return Total(parts, sum(parts))

    @server.tool
    async def nothing() -> None:
        """Return nothing."""

    @server.tool
    def nothing_sync() -> None:
        """Return nothing from a thread."""

    @server.tool
    def bounded(n: Annotated[int, Field(ge=1, le=9)], color: str = "red") -> str:
        """Take a small number."""
        return f"{n} {color}"


def _declare_named(server: MCPServer) -> None:
    @server.tool(aliases=["former_name"])
    def present_name() -> str:
        """Have another name than before."""
        return "here"

    @server.tool(read_only=True)
    def routed(region: Annotated[str, Header("Region")], count: int = 1) -> str:
        """Repeat an argument in a header."""
        return f"{region} {count}"

    @server.tool(sensitive=["code"], log_arguments=True)
    def logged(name: str, code: str, password: str = "") -> str:
        """Have arguments that are logged, but for two."""
        return f"logged {name}"

    @server.tool(log_arguments=True)
    async def logged_later(name: str) -> str:
        """Have an argument that is logged."""
        return f"logged {name}"


def _declare_database(server: MCPServer) -> None:
    @server.tool
    def write(name: str) -> str:
        """Make a group."""
        return Group.objects.create(name=name).name

    @server.tool
    async def write_later(name: str) -> str:
        """Make a group from the event loop."""
        return (await Group.objects.acreate(name=name)).name

    @server.tool(atomic=True)
    def write_and_fail(name: str) -> str:
        """Make a group and fail."""
        Group.objects.create(name=name)
        raise ToolError("Rolled back.")

    @server.tool(read_only=True)
    def count() -> int:
        """Count the groups."""
        return Group.objects.count()

    @server.tool(read_only=True)
    async def count_later() -> int:
        """Count the groups from the event loop."""
        return await Group.objects.acount()

    @server.tool(read_only=True)
    def count_often() -> int:
        """Count more often than is allowed."""
        return sum(Group.objects.count() for _ in range(9))

    @server.tool(read_only=True)
    async def count_often_later() -> int:
        """Count more often than is allowed from the event loop."""
        return sum([await Group.objects.acount() for _ in range(9)])

    @server.tool(read_only=True)
    def write_refused() -> str:
        """Write, though declared to read."""
        return Group.objects.create(name="refused").name

    @server.tool(read_only=True)
    async def write_refused_later() -> str:
        """Write from the event loop, though declared to read."""
        return (await Group.objects.acreate(name="refused")).name


def _declare_failing(server: MCPServer) -> None:
    @server.tool
    def fail(kind: str) -> str:
        """Fail in one of several ways."""
        raise FAILURES[kind]

    @server.tool(read_only=True)
    async def fail_later(kind: str) -> str:
        """Fail on the event loop."""
        raise FAILURES[kind]

    @server.tool(timeout=0.05)
    async def late() -> None:
        """Take longer than allowed."""
        await asyncio.Event().wait()


def _declare_talking(server: MCPServer) -> None:
    @server.tool
    def walk(ctx: Context, steps: int = 0) -> str:
        """Report each step."""
        for step in range(1, steps + 1):
            ctx.report_progress(step, steps, f"step {step}")
        if steps:
            ctx.log("warning", {"walked": steps}, logger="walker")
        return f"walked {steps}"

    @server.tool
    async def walk_later(ctx: Context, steps: int = 0) -> str:
        """Report each step on the event loop."""
        for step in range(1, steps + 1):
            await ctx.areport_progress(step, steps, f"step {step}")
        if steps:
            await ctx.alog("info", "walked")
        return f"walked {steps}"

    @server.tool
    def walk_and_fail(ctx: Context) -> str:
        """Report a step and fail."""
        ctx.report_progress(1)
        raise InvalidParams("Not like this.")

    @server.tool(slow=True)
    def slow() -> str:
        """Take long, and say nothing meanwhile."""
        return "slow"


def _declare_asking(server: MCPServer) -> None:
    @server.tool
    def ask(ctx: Context) -> str:
        """Ask the user for a name."""
        return f"Hello {ctx.elicit('Who?', Visitor, key='who').name}."

    @server.tool
    async def ask_later(ctx: Context) -> str:
        """Ask the user for a name on the event loop."""
        return f"Hello {(await ctx.aelicit('Who?', Visitor, key='who')).name}."

    @server.tool(needs=["sampling"])
    def needs_sampling(ctx: Context) -> str:
        """Need a capability of the client."""
        return "sampled"

    @server.tool(read_only=True)
    def who(ctx: Context) -> str:
        """Return what the function knows of its caller."""
        return " ".join(
            [
                ctx.user.get_username() or "anonymous",
                ctx.principal.backend or "none",
                ctx.server.name,
                str(ctx.client.get("name")),
                ctx.protocol_version,
                str(ctx.request.method if ctx.request is not None else None),
            ]
        )

    @server.tool
    def reads(ctx: Context, uri: str) -> str:
        """Read a resource within the call."""
        (contents,) = ctx.read_resource(uri)
        return str(contents.content)


def _declare_guarded(server: MCPServer) -> None:
    @server.tool(permission=IsStaff)
    def hidden() -> str:
        """For members of staff."""
        return "hidden"

    @server.tool(permission=IsStaff)
    async def hidden_later() -> str:
        """For members of staff, on the event loop."""
        return "hidden"

    @server.tool(scopes=["matrix:write"])
    def scoped() -> str:
        """Need a scope."""
        return "scoped"

    @server.tool(rate="1/h")
    def rated() -> str:
        """Be called once an hour."""
        return "rated"

    @server.tool(rate="1/h", read_only=True)
    async def rated_later() -> str:
        """Be called once an hour, on the event loop."""
        return "rated"

    @server.tool(approval="caller")
    def approved(name: str) -> str:
        """Wait for the caller's approval."""
        return f"approved {name}"

    @server.tool(approval="staff")
    async def approved_later(name: str) -> str:
        """Wait for the approval of staff."""
        return f"approved {name}"


def _declare_tasks(server: MCPServer) -> None:
    @server.tool(task="optional")
    def job(a: int = 1) -> Total:
        """Run as a task where the client can wait for one."""
        return Total([a], a)

    @server.tool(task="optional")
    async def job_later(a: int = 1) -> str:
        """Run as a task on the event loop."""
        await sync_to_async(Group.objects.count)()
        return f"done {a}"

    @server.tool(task="required")
    def only_job() -> str:
        """Run as a task only."""
        return "done"

    @server.tool(task="optional")
    def failing_job() -> str:
        """Fail as a task."""
        raise ToolError("Not today.")

    @server.tool(task="required", polling_fallback=True)
    def polled() -> str:
        """Run as a task, and be asked for where the client knows none."""
        return "polled"

    @server.tool(task="optional", ask="before")
    def ask_before(ctx: Context) -> str:
        """Ask before the task starts."""
        name = ctx.elicit("Who?", Visitor, key="who").name
        ctx.task.begin()
        return f"Hello {name}."


def _declare_results(server: MCPServer) -> None:
    @server.tool
    def surrogate() -> str:
        """Return what is no text."""
        return "\ud800"

    @server.tool
    async def surrogate_later() -> str:
        """Return what is no text, on the event loop."""
        return "\ud800"

    @server.tool
    def not_a_number() -> float:
        """Return what JSON does not have."""
        return float("nan")

    @server.tool
    async def wrong_type() -> int:
        """Return what the schema does not allow."""
        return "text"

    @server.tool
    def large(size: int) -> str:
        """Return a long text."""
        return "x" * size

    @server.tool
    def blocks() -> list[str | Image | ResourceLink]:
        """Return several blocks."""
        return ["words", Image(b"\x89PNG"), ResourceLink("matrix://text", "text")]
