"""Components that ask: a tool for each kind of question, a prompt, a resource and a template."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from django.urls import reverse
from pydantic import Field

from mcp_django import (
    Context,
    Elicit,
    Header,
    ListRoots,
    MCPServer,
    Message,
    Sample,
    ToolResultBlock,
)
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import ElicitationDeclined
from mcp_django.schema.values import jsonable
from tests.interop.asking_site.forms import Complaint, Refund, Trip
from tests.interop.asking_site.pages import connected

asking = MCPServer("asking", permission=AllowAny)

Units = Literal["metric", "imperial"]
ALTITUDE = {
    "name": "altitude",
    "description": "How high an airport lies, in meters",
    "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}},
}


@asking.tool(needs=["elicitation"])
def refund(ctx: Context, order: int) -> str:
    """Give money back, once the user has confirmed it."""
    answer = ctx.elicit(f"Refund order {order}?", Refund)
    return f"{order}: {'refunded' if answer.confirmed else 'kept'}, {answer.reason}"


@asking.tool
async def greet(ctx: Context) -> str:
    """Greet the user by name, or as one who will not give it."""
    try:
        name = await ctx.aelicit("What is your name?", Annotated[str, Field(min_length=2)])
    except ElicitationDeclined as exc:
        return f"Hello, stranger ({exc.action})."
    return f"Hello, {name}."


@asking.tool
def agree(ctx: Context) -> str:
    """Ask a question without a field."""
    ctx.elicit("The fare has risen. Go on?")
    return "agreed"


@asking.tool
def ship(ctx: Context, region: Annotated[str, Header("Region")]) -> str:
    """Ask about an argument that every round mirrors into a header."""
    ctx.elicit(f"Ship to the {region}?")
    return f"shipped to the {region}"


@asking.tool
def book(ctx: Context) -> dict[str, Any]:
    """Book a trip: a form with a field of every kind."""
    trip = ctx.elicit("Where to?", Trip)
    assert isinstance(trip, Trip)
    return dict(jsonable(asdict(trip)))


@asking.tool
async def complain(ctx: Context) -> dict[str, Any]:
    """Take a complaint: a Django form."""
    form = await ctx.aelicit("What was it?", Complaint)
    return dict(form.cleaned_data)


@asking.tool
async def summarize(ctx: Context, text: str) -> dict[str, str]:
    """Have the client's model summarize a text."""
    reply = await ctx.asample(
        Message(f"Summarize: {text}"),
        max_tokens=50,
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["END"],
        model_preferences={"hints": [{"name": "small"}], "speedPriority": 0.9},
    )
    return {"text": reply.text, "model": reply.model, "stop": reply.stop_reason}


@asking.tool
def compare_altitudes(ctx: Context) -> str:
    """Let the client's model use a tool of ours: two questions, one built on the other."""
    question = "Which lies higher, ZRH or AMS?"
    reply = ctx.sample(question, tools=[ALTITUDE], tool_choice="required")
    results = [
        ToolResultBlock(use.id, {"ZRH": "432", "AMS": "-3"}[use.input["code"]])
        for use in reply.tool_uses
    ]
    final = ctx.sample([question, reply, results], tools=[ALTITUDE], tool_choice="none")
    return f"{len(results)} looked up: {final.text}"


@asking.tool
async def folders(ctx: Context) -> list[dict[str, str]]:
    """Name the folders that the user works in."""
    roots = await ctx.alist_roots()
    return [{"name": root.name, "folder": root.path.as_posix()} for root in roots]


@asking.tool
def survey(ctx: Context) -> str:
    """Ask everything in one round."""
    name, model, roots, units = ctx.ask(
        Elicit("Who are you?", str, key="who"),
        Sample("Say hello", max_tokens=20),
        ListRoots(),
        Elicit("Which units?", Units, key="units"),
    )
    folder = PurePosixPath(roots[0].path).name
    return f"{name} hears {model.text} in {folder}, {units}"


@asking.tool
async def onboard(ctx: Context) -> str:
    """Ask one thing after the other; each depends on what was said before."""
    name = await ctx.aelicit("Who are you?", str)
    units: Units = await ctx.aelicit(f"{name}, which units?", Units)
    reply = await ctx.asample(f"Greet {name} in {units} units")
    (root,) = await ctx.alist_roots()
    return f"{reply.text} {name}, {units}, {root.name}"


@asking.tool(needs=["elicitation.url"])
def connect_account(ctx: Context) -> str:
    """Send the user to a page, and go on once he has been there."""
    page = reverse("account", args=[ctx.interaction_id])
    ctx.elicit_url("Connect your account.", page, done=lambda: ctx.interaction_id in connected)
    return f"connected {ctx.interaction_id}"


@asking.tool
def pack(ctx: Context) -> str:
    """Report before and after a question."""
    for step in (1, 2):
        ctx.report_progress(step, 4, f"step {step}")
        ctx.log("info", f"step {step}")
    box = ctx.elicit("Which box?", Literal["small", "large"])
    for step in (3, 4):
        ctx.report_progress(step, 4, f"step {step}")
        ctx.log("info", f"step {step}")
    return f"packed the {box} box"


@asking.tool
async def pack_later(ctx: Context) -> str:
    """Report before and after a question, on the event loop."""
    for step in (1, 2):
        await ctx.areport_progress(step, 4, f"step {step}")
        await ctx.alog("info", f"step {step}")
    box = await ctx.aelicit("Which box?", Literal["small", "large"])
    for step in (3, 4):
        await ctx.areport_progress(step, 4, f"step {step}")
        await ctx.alog("info", f"step {step}")
    return f"packed the {box} box"


@asking.tool
def offers(ctx: Context) -> dict[str, bool]:
    """What the client can be asked for."""
    names = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")
    return {name: ctx.supports(name) for name in names}


@asking.prompt
def letter(ctx: Context, topic: str) -> str:
    """Write a letter in the tone that the user chooses."""
    tone = ctx.elicit(f"Which tone for {topic}?", Literal["formal", "warm"])
    return f"Write a {tone} letter about {topic}."


@asking.resource("asking://weather")
async def weather(ctx: Context) -> str:
    """The weather where the user is."""
    city = await ctx.aelicit("Which city?", str)
    return f"Fog in {city}"


@asking.resource("asking://rooms/{number}")
def room(ctx: Context, number: int) -> str:
    """One room, in the units of the user."""
    units = ctx.elicit("Which units?", Units)
    return f"Room {number}, {units}"
