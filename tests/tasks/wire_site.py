"""Tools that run as tasks, for tests of messages: one server is open, and one authenticates.

Some tools wait at a gate, which a test opens.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from django.contrib.auth.models import Group

from mcp_django import Context, Elicit, MCPServer, ToolError
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import InvalidParams

PATIENCE = 10

everybody = MCPServer("tasks-of-everybody", permission=AllowAny)
members = MCPServer("tasks-of-members")
plain = MCPServer("tasks-of-nobody", permission=AllowAny)


@dataclass
class Name:
    name: str


@dataclass
class Sure:
    sure: bool


@dataclass
class Sum:
    total: int


class Gate:
    """Makes a function wait until a test opens the gate."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def close(self) -> None:
        self.reached.clear()
        self.opened.clear()

    def pass_through(self) -> bool:
        self.reached.set()
        return self.opened.wait(PATIENCE)


gate = Gate()


def add(a: int, b: int) -> Sum:
    """Add."""
    return Sum(a + b)


def held(ctx: Context) -> str:
    """Wait at the gate."""
    ctx.report_progress(1, 2, "at the gate")
    gate.pass_through()
    return f"passed, {'cancelled' if ctx.cancelled else 'wanted'}"


def fail() -> str:
    """Fail as tools do."""
    raise ToolError("Not today.")


def break_down() -> str:
    """Fail as requests do."""
    raise InvalidParams("Not like this.", data={"field": "a"})


def ask_name(ctx: Context) -> str:
    """Ask for a name, as a task."""
    return f"Hello {ctx.elicit('Who?', Name, key='who').name}."


def ask_two(ctx: Context) -> str:
    """Ask two things at once, and a third one under a key that was used."""
    who, sure = ctx.ask(Elicit("Who?", Name, key="who"), Elicit("Sure?", Sure, key="sure"))
    return f"{who.name} is {'sure' if sure.sure else 'not sure'}."


def ask_before(ctx: Context, leave: bool = False) -> str:
    """Ask, and go on as a task."""
    name = ctx.elicit("Who?", Name, key="who").name
    if leave:
        return f"Bye {name}."
    ctx.task.begin()
    Group.objects.create(name=name)
    return f"Hello {name}, {'later' if ctx.task.is_task else 'now'}."


def only(a: int = 1) -> str:
    """Be a task and nothing else."""
    return f"done {a}"


def started() -> str:
    """Give a handle to whoever knows no tasks."""
    return "the result"


@plain.tool
@everybody.tool
def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello {name}."


for server in (everybody, members):
    for function in (add, held, fail, break_down, ask_name, ask_two):
        server.tool(task="optional")(function)
    server.tool(task="optional", ask="before")(ask_before)
    server.tool(task="required")(only)
    server.tool(task="required", polling_fallback=True)(started)

members.tool("staff_only", task="optional", permission="auth.add_user")(only)
members.tool("staff_held", task="optional", permission="auth.add_user")(held)
