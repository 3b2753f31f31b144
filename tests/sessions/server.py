"""The server of the worker processes: tools that count aloud, ask, and change what is listed."""

from __future__ import annotations

import asyncio
import os
import random
import threading

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny

server = MCPServer("sessions", permission=AllowAny)


def gaps(count: int, longest: float, seed: int) -> list[float]:
    """The seconds before each number; many are none, so that several leave in one flush."""
    chance = random.Random(seed)
    return [chance.choice((0.0, chance.random() * longest)) for _ in range(count)]


@server.tool
async def count(ctx: Context, n: int, longest: float, seed: int) -> str:
    """Count to n aloud, on the event loop."""
    for number, seconds in enumerate(gaps(n, longest, seed), 1):
        await asyncio.sleep(seconds)
        await ctx.areport_progress(number, n)
    return f"counted to {n}"


@server.tool
def count_in_thread(ctx: Context, n: int, longest: float, seed: int) -> str:
    """Count to n aloud, in a thread."""
    never = threading.Event()
    for number, seconds in enumerate(gaps(n, longest, seed), 1):
        never.wait(seconds)
        ctx.report_progress(number, n)
    return f"counted to {n}"


@server.tool
def ask(ctx: Context, serial: int) -> str:
    """Ask the user for a word."""
    return ctx.elicit(f"The word of {serial}?", str)


@server.tool
async def ask_later(ctx: Context, serial: int) -> str:
    """Ask the user for a word, on the event loop."""
    return await ctx.aelicit(f"The word of {serial}?", str)


@server.tool
def change() -> str:
    """Say that the list of tools has changed."""
    server.notify_list_changed("tools")
    return "said"


@server.resource("sessions://clock", subscribe=True)
def clock() -> str:
    """What time it is."""
    return "late"


@server.tool
def strike() -> str:
    """Say that the clock has changed."""
    server.notify_resource_updated("sessions://clock")
    return "struck"


@server.tool
async def linger(ctx: Context) -> str:
    """Say one thing, and stay until somebody cancels that."""
    await ctx.areport_progress(1)
    await asyncio.Event().wait()
    return "never"


@server.tool
async def who() -> int:
    """Say which process serves this."""
    return os.getpid()
