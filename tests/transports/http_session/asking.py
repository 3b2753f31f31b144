"""A client that answers the requests of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.transports.http_session.handshakes import C, D, Peer
from tests.transports.http_session.reading import Reader

PARLOR = "/parlor/mcp"
EVERYTHING = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
}
FORMS = (C, D)


async def ready(mount: str, *, version: str = D, token: str | None = None, **named: Any) -> Peer:
    """Return a client that declares every capability, or those that are named."""
    peer = Peer(mount, PARLOR, version=version, token=token)
    await peer.open(**(named or EVERYTHING))
    return peer


async def answer(peer: Peer, question: dict[str, Any], result: Any, **changes: Any) -> None:
    """Answer a question; the answer is accepted with an empty body."""
    body = {"jsonrpc": "2.0", "id": question["id"], "result": result}
    taken = await peer.send(body, **changes)
    assert (taken.status, taken.body) == (202, b"")


@asynccontextmanager
async def asking(peer: Peer, body: dict[str, Any]) -> AsyncIterator[Reader]:
    """Send a call, and yield a reader of its answer."""
    async with peer.stream(body) as connection:
        yield Reader(connection)


def accept(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def text(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


def sampled(content: Any = None, **changes: Any) -> dict[str, Any]:
    """Return the result of sampling."""
    block = {"type": "text", "text": "hi"} if content is None else content
    return {"role": "assistant", "model": "m", "content": block, **changes}


async def refused(peer: Peer, body: dict[str, Any], **changes: Any) -> str:
    """Send a call of a tool that cannot ask, and return the text of its error."""
    response = (await peer.send(body, **changes)).response()
    assert response["result"]["isError"] is True
    return text(response)
