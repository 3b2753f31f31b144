"""A server whose components ask questions, and helpers for one round of a call over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.protocol import envelope
from mcp_django.test import MCPClient
from tests.kit.drivers import Answer, headers_for, message
from tests.kit.servers import open_to_all, through_view

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


def asking(name: str = "asking") -> MCPServer:
    """Return a server with a two-round tool under two names, a resource and a prompt.

    None of them opens a transaction, so that tests of messages need no database.
    """
    server = MCPServer(name, permission=AllowAny)
    for tool in ("pay", "refund"):
        server.tool(tool, atomic=False)(pay)
    server.resource("x://{name}", atomic=False)(describe)
    server.prompt("pay", atomic=False)(write)
    return server


def pay(ctx: Context, amount: int = 1, note: dict[str, Any] | None = None) -> str:
    """Ask twice, one after the other."""
    sure = ctx.elicit(f"Pay {amount}?", bool, key="sure")
    why = ctx.elicit("Why?", str, key="why")
    return f"{amount} {sure} {why}"


def describe(ctx: Context, name: str) -> str:
    """Ask once."""
    return name + ctx.elicit("Which part?", str, key="part")


def write(ctx: Context, topic: str = "") -> str:
    """Ask once."""
    return topic + ctx.elicit("Which tone?", str, key="tone")


def accept(value: Any) -> dict[str, Any]:
    """Return the answer to a form with one field."""
    return {"action": "accept", "content": {"value": value}}


def call(method: str = "tools/call", *, id: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request of a client that supports every kind of question."""
    return message(method, params, id=id, **{envelope.CLIENT_CAPABILITIES: EVERYTHING})


def post(
    server: MCPServer, body: Mapping[str, Any], *, text: str | None = None, **changes: str | None
) -> Answer:
    """Send a request to the server's view; `text` replaces the body."""
    raw = json.dumps(body) if text is None else text
    response = through_view(server, raw, headers_for(body, **changes))
    headers = {name.lower(): value for name, value in response.items()}
    return Answer(status=response.status_code, headers=headers, body=response.content)


def result_of(server: MCPServer, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a request, which must succeed."""
    answer = post(server, body).json()
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def error_of(server: MCPServer, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error of a request that is valid but rejected."""
    answer = post(server, body)
    assert answer.status == 200, answer
    error: dict[str, Any] = answer.json()["error"]
    return error


def serving(function: Callable[..., Any], **options: Any) -> MCPClient:
    """Return a client of a server with one tool that opens no transaction."""
    server = open_to_all()
    server.tool("tool", **{"atomic": False, **options})(function)
    return MCPClient(server=server)


def messages(result: Any) -> list[str]:
    """Return the messages of the questions in a result."""
    return [question["params"]["message"] for question in result.questions]


def begun(server: MCPServer, **params: Any) -> str:
    """Return the `requestState` of a call that has asked its first question."""
    result = result_of(server, call(**{"name": "pay", **params}))
    assert result["resultType"] == "input_required"
    state: str = result["requestState"]
    return state


def retry(state: Any, **params: Any) -> dict[str, Any]:
    """Return the request that answers the first question of a call."""
    responses = {"sure": accept(value=True)}
    return call(**{"name": "pay", "inputResponses": responses, "requestState": state, **params})
