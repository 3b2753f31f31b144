"""The tools that the suite runs as tasks, and one that it never runs as a task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mcp_django import Context, Elicit, ToolError
from mcp_django.exceptions import InternalError
from tests.conformance.server import server


@dataclass
class Confirmation:
    confirm: bool


@dataclass
class Name:
    name: str


@server.tool
def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"Computed {label or 'something'} in {seconds:g} seconds"


@server.tool(task="required")
def failing_job() -> str:
    """Fail as tools do."""
    raise ToolError("This job intentionally fails")


@server.tool(task="optional")
def protocol_error_job() -> str:
    """Fail as requests do."""
    raise InternalError("This job intentionally meets a protocol error")


@server.tool(task="optional")
def confirm_delete(ctx: Context, filename: str) -> str:
    """Delete a file once somebody has said so."""
    confirmed = ctx.elicit(f"Delete {filename}?", Confirmation).confirm
    return f"{filename} is {'deleted' if confirmed else 'kept'}"


@server.tool(task="optional")
def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    who, confirmation = ctx.ask(Elicit("What is your name?", Name), Elicit("Go on?", Confirmation))
    return f"{who.name}: {confirmation.confirm}"


@server.tool(task="required", ask="before")
def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name, and go on as a task."""
    who = ctx.elicit("What is your name?", Name, key="user_name")
    ctx.task.begin()
    return f"Hello, {who.name}!"
