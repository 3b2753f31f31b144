"""The tools and the prompt that ask the user or the client something.

Keys are given where a scenario checks them, and where they make the messages easier to read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mcp_django import Context, Elicit, ListRoots, Sample
from mcp_django.exceptions import ElicitationDeclined
from tests.conformance.server import server

CHOICES = ["option1", "option2", "option3"]
ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": CHOICES},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
}


@dataclass(frozen=True, kw_only=True)
class Name:
    """Who is asked."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Color:
    """What the user likes."""

    color: str


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Whether to go on."""

    ok: bool


@dataclass(frozen=True, kw_only=True)
class Topic:
    """What a prompt is about."""

    context: str


@dataclass(frozen=True, kw_only=True)
class Contact:
    """How to reach somebody."""

    username: str
    email: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A field of every primitive type, each with a default."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def filled_in(ctx: Context, message: str, schema: Any) -> str:
    """Ask the user to fill in a form, and return the outcome as text."""
    try:
        answer = ctx.elicit(message, schema)
    except ElicitationDeclined as exc:
        return f"action={exc.action}, content={{}}"
    content = answer if isinstance(answer, dict) else asdict(answer)
    return f"action=accept, content={json.dumps(content)}"


@server.tool
def test_sampling(ctx: Context, prompt: str) -> str:
    """Ask the client's model."""
    return f"LLM response: {ctx.sample(prompt, max_tokens=100).text}"


@server.tool
def test_elicitation(ctx: Context, message: str) -> str:
    """Ask the user for a name and an address."""
    return f"User response: {filled_in(ctx, message, Contact)}"


@server.tool
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form that is filled in already."""
    message = "Please review and update the form fields with defaults"
    return f"Elicitation completed: {filled_in(ctx, message, Profile)}"


@server.tool
def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user to choose, in every way that a schema can offer choices."""
    message = "Please select options from the enum fields"
    return f"Elicitation completed: {filled_in(ctx, message, ENUMS)}"


@server.tool(needs=["sampling"])
async def test_missing_capability(ctx: Context) -> str:
    """Ask the client's model, and be refused before that where there is none."""
    return (await ctx.asample("Say hello.", max_tokens=100)).text


@server.tool(needs=["elicitation"])
def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask the user."""
    ctx.report_progress(1, 2, "About to ask")
    return f"Confirmed: {ctx.elicit('Go on?', Confirmation).ok}"


@server.tool
def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet the user by name."""
    return f"Hello, {ctx.elicit('What is your name?', Name, key='user_name').name}!"


@server.tool
def test_input_required_result_sampling(ctx: Context) -> str:
    """Hand on what the client's model says."""
    question = "What is the capital of France?"
    return ctx.sample(question, max_tokens=100, key="capital_question").text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Name the folders that the user works in."""
    roots = await ctx.alist_roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Carry on where the state says that the question was asked."""
    answer = await ctx.aelicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.ok}"


@server.tool
def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Carry on only with the state that the server gave out."""
    return f"Confirmed: {ctx.elicit('Please confirm', Confirmation, key='confirm').ok}"


@server.tool
def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for a name, a greeting and the folders at once."""
    who, greeting, roots = ctx.ask(
        Elicit("What is your name?", Name, key="user_name"),
        Sample("Generate a greeting", max_tokens=50, key="greeting"),
        ListRoots(key="client_roots"),
    )
    return f"{greeting.text} {who.name} works in {len(roots)} folders."


@server.tool
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask a second question once the first is answered."""
    who = ctx.elicit("Step 1: What is your name?", Name, key="step1")
    liked = ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{who.name} likes {liked.color}."


@server.tool
def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask whatever the client can be asked; one that can be asked nothing is told so."""
    form = Elicit("What is your name?", Name, key="user_name")
    model = Sample("What is the capital of France?", max_tokens=100, key="capital_question")
    kinds = {"elicitation": form, "sampling": model}
    questions = [question for kind, question in kinds.items() if ctx.supports(kind)]
    return f"Answers: {len(ctx.ask(*(questions or [form])))}"


@server.prompt
def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt about what the user names."""
    answer = ctx.elicit("What context should the prompt use?", Topic, key="user_context")
    return f"Use this context: {answer.context}"
