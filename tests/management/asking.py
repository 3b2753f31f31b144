"""A server whose tools ask, and calls of them at a terminal and with prepared answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_django import Context, ListRoots, MCPServer, Sample
from tests.management.console import Outcome, attempt, server_of, terminal


@dataclass
class Order:
    size: Annotated[Literal["small", "large"], Field(description="Of the box")]
    count: Annotated[int, Field(ge=1, le=9)] = 2
    gift: bool = False
    note: str | None = None
    extras: list[Literal["bow", "card", "wrap"]] = field(default_factory=list)


@dataclass
class Visit:
    day: date
    at: datetime
    price: float
    mail: Annotated[str, Field(json_schema_extra={"format": "email"})]
    code: Annotated[str, Field(min_length=3, max_length=4)]


def order(ctx: Context) -> str:
    """Ask for everything at once."""
    return repr(ctx.elicit("What do you want?", Order))


def visit(ctx: Context) -> str:
    """Ask for what has a format."""
    return repr(ctx.elicit("When?", Visit))


def confirm(ctx: Context) -> str:
    """Ask for a yes."""
    ctx.elicit("Really?")
    return "done"


def number(ctx: Context) -> str:
    """Ask for one number, and for another one."""
    first = ctx.elicit("A number?", int)
    second = ctx.elicit("Another one?", int)
    return str(first + second)


done: list[bool] = []


def page(ctx: Context) -> str:
    """Send the user to a page."""
    ctx.elicit_url(
        "Pay there.", "https://pay.example/1", done=lambda: done.pop(0) if done else False
    )
    return "paid"


def sample(ctx: Context) -> str:
    """Ask a model."""
    message = ctx.sample("Say hi.", system_prompt="Be brief.", max_tokens=50)
    return f"{message.text}|{message.model}|{message.stop_reason}"


def roots(ctx: Context) -> list[str]:
    """Ask for directories."""
    return [root.uri for root in ctx.list_roots()]


def several(ctx: Context) -> list[Any]:
    """Ask two things in one round."""
    message, where = ctx.ask(Sample("Say hi."), ListRoots())
    return [message.text, [root.uri for root in where]]


def asking_server() -> MCPServer:
    return server_of(order, visit, confirm, number, page, sample, roots, several, title="The shop")


def call_at_terminal(server: MCPServer, tool: str, *lines: str, ended: bool = False) -> Outcome:
    """Call a tool at a terminal where these lines are typed."""
    with terminal(*lines, ended=ended) as stdin:
        return attempt("call", tool, "--server", server.name, stdin=stdin)


def answered(server: MCPServer, tool: str, *answers: str) -> Outcome:
    """Call a tool with prepared answers."""
    options = [part for answer in answers for part in ("--answer", answer)]
    return attempt("call", tool, "--server", server.name, *options)
