"""What a server of this site has: a component for each thing that a session can do."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mcp_django import Context, MCPServer
from mcp_django.exceptions import ElicitationDeclined

WATCHED = "site://board"
PAGE = "https://bank.example/consent"
WORDS = ("paris", "park", "party")
LEVELS = ("debug", "info", "warning", "error")
# A call that was cancelled has to stop within this time.
STOP_SECONDS = 10
PAUSE_SECONDS = 0.02


def declare(server: MCPServer) -> None:
    """Register all components with a server."""
    for function in (add, count, greet, consent, summarize, folders, narrate, wait, has_stopped):
        server.tool(function)
    # Answered with a stream whether progress is wanted or not, so that it can be interrupted.
    server.tool(slow=True)(step_aside)
    server.prompt(letter)
    server.completion(letter, "topic")(topics)
    server.resource(WATCHED)(board)

    @server.tool
    def repaint() -> str:
        """Change the board."""
        server.notify_resource_updated(WATCHED)
        return "repainted"

    @server.tool
    def rearrange() -> str:
        """Change the list of tools."""
        server.notify_list_changed("tools")
        return "rearranged"


def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


async def count(ctx: Context, to: int) -> str:
    """Count aloud."""
    for number in range(1, to + 1):
        await ctx.areport_progress(number, to, f"number {number}")
    return f"counted to {to}"


async def greet(ctx: Context) -> str:
    """Greet the user by name, or as one who will not give it."""
    try:
        name = await ctx.aelicit("What is your name?", Annotated[str, Field(min_length=2)])
    except ElicitationDeclined as exc:
        return f"Hello, stranger ({exc.action})."
    return f"Hello, {name}."


def consent(ctx: Context) -> str:
    """Send the user to a page."""
    ctx.elicit_url("Please agree.", PAGE)
    return "agreed"


def summarize(ctx: Context, text: str) -> str:
    """Have the client's model summarize a text."""
    reply = ctx.sample(f"Summarize: {text}", max_tokens=50)
    return f"{reply.model} says: {reply.text}"


def folders(ctx: Context) -> str:
    """Name the folders that the user works in."""
    return ", ".join(root.uri for root in ctx.list_roots())


def narrate(ctx: Context) -> str:
    """Log something of each urgency."""
    for level in LEVELS:
        ctx.log(level, f"this is {level}", logger="narrator")
    return "narrated"


async def step_aside(ctx: Context) -> str:
    """Say something, close the connection where clients know how to come back, and go on."""
    await ctx.areport_progress(1, 3)
    await ctx.aclose_stream(0.1)
    await ctx.areport_progress(2, 3)
    await ctx.areport_progress(3, 3)
    return "here again"


def wait(ctx: Context, mark: str) -> str:
    """Say that it has begun, and wait to be cancelled."""
    ctx.report_progress(1)
    pause = threading.Event()
    while not ctx.cancelled:
        pause.wait(PAUSE_SECONDS)
    _place(mark).touch()
    return "too late"


def has_stopped(mark: str) -> bool:
    """Whether a call of `wait` has been cancelled, in whichever process it ran."""
    pause = threading.Event()
    for _ in range(round(STOP_SECONDS / PAUSE_SECONDS)):
        if _place(mark).exists():
            return True
        pause.wait(PAUSE_SECONDS)
    return False


def _place(mark: str) -> Path:
    return Path(os.environ["MCP_TEST_MARKS"]) / f"{mark}.mark"


def letter(topic: str) -> str:
    """Write a letter."""
    return f"Write a letter about {topic}."


def topics(value: str) -> list[str]:
    """Suggest topics that begin like this."""
    return [word for word in WORDS if word.startswith(value)]


def board() -> str:
    """What the board says."""
    return "Nothing new."
