"""A client that is asked, and answers."""

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
    """A client that can be asked for everything, or for what is named."""
    peer = Peer(mount, PARLOR, version=version, token=token)
    await peer.open(**(named or EVERYTHING))
    return peer


async def answer(peer: Peer, question: dict[str, Any], result: Any, **changes: Any) -> None:
    """Answer a question, which is taken without a word."""
    body = {"jsonrpc": "2.0", "id": question["id"], "result": result}
    taken = await peer.send(body, **changes)
    assert (taken.status, taken.body) == (202, b"")


@asynccontextmanager
async def asking(peer: Peer, body: dict[str, Any]) -> AsyncIterator[Reader]:
    """The answer to a call as it comes."""
    async with peer.stream(body) as connection:
        yield Reader(connection)


def accept(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def text(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


def said(content: Any = None, **changes: Any) -> dict[str, Any]:
    """What a model says."""
    block = {"type": "text", "text": "hi"} if content is None else content
    return {"role": "assistant", "model": "m", "content": block, **changes}


async def refused(peer: Peer, body: dict[str, Any], **changes: Any) -> str:
    """What the tool says that could not ask."""
    response = (await peer.send(body, **changes)).response()
    assert response["result"]["isError"] is True
    return text(response)
