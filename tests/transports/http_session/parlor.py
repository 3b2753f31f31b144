"""A server whose tools send requests to the client, for tests of sessions; all may call it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal

from django.contrib.auth.models import Group
from django.urls import path

from mcp_django import Audio, Context, Elicit, ElicitURL, ListRoots, MCPServer, Message, Sample
from mcp_django.auth.permissions import AllowAny, IsAuthenticated
from mcp_django.exceptions import ElicitationDeclined
from tests.transports.stage import room, stagger, stay, stay_later, walk, walk_later

parlor = MCPServer("parlor", permission=AllowAny)

for tool in (walk, walk_later, stay, stay_later, stagger):
    parlor.tool(tool)


@parlor.tool
def count(ctx: Context, n: int) -> str:
    """Count to n aloud."""
    for number in range(1, n + 1):
        ctx.report_progress(number, n)
    return f"counted to {n}"


@parlor.tool
def levels(ctx: Context) -> str:
    """Say something at every level."""
    for level in ("debug", "info", "warning", "error"):
        ctx.log(level, {"said": level}, logger="parlor")
    return "said"


@parlor.tool
def name(ctx: Context) -> str:
    """Ask for a name."""
    return f"Hello {ctx.elicit('Your name?', str)}."


@parlor.tool
async def name_later(ctx: Context) -> str:
    """Ask for a name between two queries."""
    before = await Group.objects.acount()
    given = await ctx.aelicit("Your name?", str)
    await Group.objects.acreate(name=given)
    return f"{before} groups, then {await Group.objects.acount()}"


@parlor.tool
def keep_name(ctx: Context) -> str:
    """Write, ask, and write what was answered."""
    Group.objects.create(name="before")
    Group.objects.create(name=ctx.elicit("Your name?", str))
    return "kept"


@parlor.tool
def two(ctx: Context) -> str:
    """Ask twice, and say something before each."""
    ctx.report_progress(1)
    first = ctx.elicit("First?", int)
    ctx.report_progress(2)
    second = ctx.elicit("Second?", int)
    ctx.report_progress(3)
    return str(first + second)


@parlor.tool
def consent(ctx: Context) -> str:
    """Ask for a yes, and take a no."""
    try:
        ctx.elicit("Really?")
    except ElicitationDeclined as exc:
        return exc.action
    return "accept"


@parlor.tool
def everything(ctx: Context) -> str:
    """Ask the user, the model and the client at once."""
    word, reply, roots = ctx.ask(Elicit("A word?", str), Sample("Say hi."), ListRoots())
    return f"{word} {reply.text} {roots[0].uri}"


class Size(Enum):
    """Two sizes."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, kw_only=True)
class Order:
    """A form with a field of every kind."""

    what: str = "tea"
    day: date = date(2026, 1, 2)
    size: Size = Size.SMALL
    cups: int = 2
    strength: float = 0.5
    milk: bool = True
    kind: Literal["green", "black"] = "green"


@parlor.tool
def order(ctx: Context) -> str:
    """Ask for an order."""
    given = ctx.elicit("What would you like?", Order)
    return f"{given.cups} {given.size.value} {given.kind} {given.what} {given.day}"


LABELED = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}], "default": "r"}
    },
}


@parlor.tool
def color(ctx: Context) -> str:
    """Ask for a choice with a label."""
    return str(ctx.elicit("Which color?", LABELED)["color"])


@dataclass(frozen=True, kw_only=True)
class Extras:
    """A form with several choices."""

    extras: list[Literal["milk", "sugar"]]


@parlor.tool
def extras(ctx: Context) -> str:
    """Ask for several choices."""
    return ", ".join(ctx.elicit("Anything else?", Extras).extras)


@parlor.tool
def think(ctx: Context) -> str:
    """Ask the model."""
    reply = ctx.sample(
        ["Hi.", Message("Hello.", role="assistant"), "And?"],
        max_tokens=9,
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["."],
        model_preferences={"hints": [{"name": "small"}], "speedPriority": 1},
        metadata={"a": 1},
    )
    return f"{reply.role} {reply.model} {reply.stop_reason}: {reply.text}"


@parlor.tool
def think_again(ctx: Context) -> str:
    """Ask the model, and go on from what it said."""
    reply = ctx.sample("One?")
    return ctx.sample(["One?", reply, "Two?"]).text


@parlor.tool
def listen_to(ctx: Context) -> str:
    """Let the model hear something."""
    return ctx.sample(Message(Audio(b"RIFF"))).text


WEATHER = {"name": "weather", "description": "The weather.", "inputSchema": {"type": "object"}}


@parlor.tool
def use_tools(ctx: Context) -> str:
    """Lend the model a tool."""
    reply = ctx.sample("Rain?", tools=[WEATHER], tool_choice="auto")
    return ", ".join(use.name for use in reply.tool_uses)


@parlor.tool
def places(ctx: Context) -> str:
    """List the user's folders."""
    return ", ".join(f"{root.name}={root.uri}" for root in ctx.list_roots())


paid: set[str] = set()


@parlor.tool
def pay(ctx: Context, bill: str) -> str:
    """Send the user to the cashier."""
    ctx.elicit_url("Please pay.", "https://pay.example/desk", done=lambda: bill in paid)
    return f"paid {bill}"


@parlor.tool
async def pay_later(ctx: Context, bill: str) -> str:
    """Send the user to the cashier, on the event loop."""
    await ctx.aelicit_url("Please pay.", "https://pay.example/desk", done=lambda: bill in paid)
    return f"paid {bill}"


@parlor.tool(needs=["elicitation.url"])
def pay_or_nothing(ctx: Context, bill: str) -> str:
    """Be there for those alone who can be sent somewhere."""
    return pay(ctx, bill)


@parlor.tool
def pay_twice(ctx: Context) -> str:
    """Send the user to two places."""
    ctx.ask(ElicitURL("One.", "https://pay.example/1"), ElicitURL("Two.", "https://pay.example/2"))
    return "paid twice"


@parlor.tool
def pay_and_sign(ctx: Context) -> str:
    """Send the user away and ask for a name in one round."""
    ctx.ask(ElicitURL("One.", "https://pay.example/1"), Elicit("Your name?", str))
    return "paid and signed"


@parlor.tool
def can(ctx: Context, what: str) -> bool:
    """Say whether the client can be asked for something."""
    return ctx.supports(what)


@parlor.resource("parlor://table", subscribe=True)
def table() -> str:
    """What stands on the table."""
    return "cups"


@parlor.resource("parlor://safe", subscribe=True, permission=IsAuthenticated)
def safe() -> str:
    """What is in the safe."""
    return "gold"


parlor.resource("parlor://rooms/{owner}", subscribe=True)(room)


@parlor.resource("parlor://chairs/{number}", subscribe=True)
def chair(number: int) -> str:
    """One of many chairs."""
    return f"chair {number}"


@parlor.resource("parlor://guests/{name}")
def guest(name: str, ctx: Context) -> str:
    """A guest, who is asked first."""
    return f"{name} {ctx.elicit('Your age?', int)}"


@parlor.prompt
def toast(ctx: Context) -> str:
    """A toast to somebody who is asked for."""
    return f"To {ctx.elicit('To whom?', str)}!"


@parlor.tool
def hang_up(ctx: Context) -> str:
    """Let the client go in the middle of a call."""
    ctx.report_progress(1)
    ctx.close_stream(0.25)
    ctx.report_progress(2)
    return "back"


# For WSGI; the other mounts are in `tests.transports.asgi`.
urlpatterns = [path("parlor/mcp", parlor.urls)]
