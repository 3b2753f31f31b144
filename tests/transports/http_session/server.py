"""The server of the worker processes: tools that report progress, ask, and publish changes."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time

from django.contrib.contenttypes.models import ContentType
from django.db import connections, transaction
from pydantic import BaseModel

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey

server = MCPServer("sessions", permission=AllowAny)


def gaps(count: int, longest: float, seed: int) -> list[float]:
    """Return the seconds before each number; many are zero, so that one flush sends several."""
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


@server.resource("sessions://things/{number}", subscribe=True)
def thing(number: int) -> str:
    """One of many things that change."""
    return f"thing {number}"


class Changed(BaseModel):
    """A change, and when its transaction had been committed, by the clock of the machine."""

    number: int
    at: float


@server.tool
def churn(times: int, things: int, seed: int) -> list[Changed]:
    """Change things so many times, each in a transaction of its own that takes its time."""
    chance = random.Random(seed)
    never = threading.Event()
    done: list[Changed] = []
    for _ in range(times):
        number = chance.randrange(things)
        with transaction.atomic():
            _change(number, done)
            never.wait(chance.choice((0.0, 0.0, chance.random() * 0.01)))
    return done


@server.tool
def cross(times: int, things: int, seed: int) -> list[Changed]:
    """Change two things at a time, and commit the transaction first that was begun last."""
    chance = random.Random(seed)
    done: list[Changed] = []
    for _ in range(times):
        older, newer = chance.randrange(things), chance.randrange(things)
        is_over = threading.Thread(target=_change_in_thread, args=(newer, done))
        with transaction.atomic():
            _change(older, done)
            is_over.start()
            is_over.join()
    return done


def _change_in_thread(number: int, done: list[Changed]) -> None:
    try:
        with transaction.atomic():
            _change(number, done)
    finally:
        connections.close_all()


def _change(number: int, done: list[Changed]) -> None:
    # A statement, so that there is something to commit.
    ContentType.objects.filter(pk=-1).delete()
    transaction.on_commit(lambda: done.append(Changed(number=number, at=time.monotonic())))
    server.notify_resource_updated(f"sessions://things/{number}")


@server.tool
def sweep(things: int) -> list[Changed]:
    """Change all things in one announcement."""
    topics = [
        TopicKey("sessions", "resource", f"sessions://things/{number}") for number in range(things)
    ]
    at = time.monotonic()
    publish(*topics)
    return [Changed(number=number, at=at) for number in range(things)]


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
