"""A tool that asks one question of each kind, and the answers to them."""

from __future__ import annotations

from typing import Any

from mcp_django import Context, Elicit, ListRoots, MCPServer, Sample
from tests.components.questions.site import accept, call, result_of
from tests.kit.servers import open_to_all

SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}
ROOTS = {"roots": [{"uri": "file:///srv"}]}


def everything() -> MCPServer:
    """Return a server with a tool that asks one question of each kind and returns the answers."""
    server = open_to_all()

    @server.tool
    async def ask(ctx: Context) -> str:
        text, message, roots = await ctx.aask(
            Elicit("Text?", str, key="form"),
            Sample("Hello", key="model"),
            ListRoots(key="roots"),
        )
        return f"{text} {message.text} {len(roots)}"

    return server


ALL = everything()
ANSWERS = {"form": accept("a"), "model": SAMPLED, "roots": ROOTS}


def retry(responses: Any, server: MCPServer = ALL, name: str = "ask") -> dict[str, Any]:
    """Return the request that follows the first questions of a tool."""
    result = result_of(server, call(name=name))
    return call(name=name, inputResponses=responses, requestState=result["requestState"])


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text
