"""A server whose tools stop where a test wants them to.

It is for tests of the order of messages and of clients that disconnect. All callers are allowed, so
nothing here needs a database. A gate is opened by the test itself, or by a call of `open_gate` if
the server is another process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from django.core.exceptions import PermissionDenied

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import InvalidParams

PATIENCE = 15

stage = MCPServer("stage", permission=AllowAny)


@dataclass
class Gate:
    """A point where a call waits; `entered` and `left` show the test how far the call is."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    outcome: str = ""

    def leave(self, outcome: str) -> str:
        self.outcome = outcome
        self.left.set()
        return outcome


class Gates(dict[str, Gate]):
    """Gates by name, created on first access; threads that access one at the same time share it."""

    def __missing__(self, name: str) -> Gate:
        return self.setdefault(name, Gate())


gates = Gates()


async def reached(event: threading.Event) -> None:
    """Wait on the event loop until a thread or a task has set an event."""
    async with asyncio.timeout(PATIENCE):
        while not event.is_set():  # noqa: ASYNC110 - the event belongs to a thread
            await asyncio.sleep(0.001)


async def until(condition: Callable[[], object]) -> None:
    """Wait on the event loop until a condition holds that has no event."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@stage.tool
def open_gate(name: str) -> str:
    """Let the call that waits at a gate go on."""
    gates[name].opened.set()
    return name


@stage.tool
async def knock(name: str) -> bool:
    """Say whether a call has reached a gate."""
    return gates[name].entered.is_set()


@stage.tool
async def outcome(name: str) -> str:
    """Say how a call left a gate."""
    await reached(gates[name].left)
    return gates[name].outcome


@stage.tool
def walk(ctx: Context, gate: str) -> str:
    """Report progress on both sides of a gate."""
    ctx.report_progress(1, 2, "before")
    ctx.log("warning", "at the gate")
    gates[gate].entered.set()
    gates[gate].opened.wait(PATIENCE)
    ctx.report_progress(2, 2, "behind")
    return "walked"


@stage.tool
async def walk_later(ctx: Context, gate: str) -> str:
    """Report progress on both sides of a gate, on the event loop."""
    await ctx.areport_progress(1, 2, "before")
    await ctx.alog("warning", "at the gate")
    gates[gate].entered.set()
    await reached(gates[gate].opened)
    await ctx.areport_progress(2, 2, "behind")
    return "walked"


@stage.tool
def stay(ctx: Context, gate: str) -> str:
    """Stay until the gate opens or nobody waits for the answer."""
    gates[gate].entered.set()
    while not gates[gate].opened.wait(0.005):
        if ctx.cancelled:
            return gates[gate].leave("cancelled")
    return gates[gate].leave("opened")


@stage.tool
async def stay_later(gate: str) -> str:
    """Stay until the gate opens, on the event loop."""
    gates[gate].entered.set()
    try:
        await reached(gates[gate].opened)
    except asyncio.CancelledError:
        gates[gate].leave("cancelled")
        raise
    return gates[gate].leave("opened")


@stage.tool
def brief(ctx: Context) -> str:
    """Take a moment, so that a signal finds the call in flight."""
    ctx.report_progress(1)
    threading.Event().wait(0.5)
    return "done"


@stage.tool
async def stay_later_with_context(ctx: Context, gate: str) -> str:
    """Stay on the event loop, with something to say."""
    return await stay_later(gate)


@stage.tool
def walk_and_stay(ctx: Context, gate: str) -> str:
    """Say something, then stay."""
    ctx.report_progress(1)
    return stay(ctx, gate)


@stage.tool
def stagger(ctx: Context) -> str:
    """Report progress that stumbles."""
    ctx.report_progress(1)
    ctx.report_progress(1)
    ctx.report_progress(2.5, 3)
    ctx.report_progress(0)
    ctx.report_progress(float("nan"))
    ctx.report_progress(3, float("inf"), "last")
    return "staggered"


@stage.tool
def chatter(ctx: Context, n: int) -> str:
    """Report more than anybody reads."""
    for step in range(1, n + 1):
        ctx.report_progress(step)
    return "chattered"


@stage.tool
def break_off(ctx: Context) -> str:
    """Answer with an error after the first message."""
    ctx.report_progress(1)
    raise InvalidParams("Not like this.")


@stage.tool(slow=True)
def slow_walk(gate: str) -> str:
    """Take long, and say nothing meanwhile."""
    gates[gate].entered.set()
    gates[gate].opened.wait(PATIENCE)
    return "slow"


@stage.tool(timeout=0.05)
def late(ctx: Context, gate: str) -> str:
    """Take longer than allowed."""
    return stay(ctx, gate)


@stage.tool(timeout=0.05)
async def late_later(gate: str) -> str:
    """Take longer than allowed, on the event loop."""
    return await stay_later(gate)


@stage.resource("stage://props", subscribe=True)
def props() -> str:
    """What stands on the stage."""
    return "chair"


@stage.resource("stage://rooms/{owner}")
def room(owner: str) -> str:
    """A dressing room, which only its owner enters."""
    if owner not in open_rooms:
        raise PermissionDenied
    return f"{owner}'s room"


open_rooms = {"ada"}


@stage.prompt
def cue() -> str:
    """What to say."""
    return "To be"
