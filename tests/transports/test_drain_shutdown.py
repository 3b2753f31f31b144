"""SIGTERM while streams are open: each gets its closing result and the process ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mcp_django.protocol import envelope, sse
from tests.kit.drivers import headers_for, message
from tests.kit.processes import COMMANDS, Server, serving
from tests.spec import spec

pytestmark = pytest.mark.outside

LISTENERS = 5


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    decoder = sse.EventDecoder()
    async for part in response.aiter_bytes():
        for event in decoder.feed(part):
            yield json.loads(event.data)


class Visitor:
    """One open stream, read to its end in a task of its own."""

    def __init__(self, client: httpx.AsyncClient, server: Server, body: dict[str, Any]) -> None:
        self.first = asyncio.Event()
        self.received: list[dict[str, Any]] = []
        self._request = client.stream(
            "POST", f"{server.url}/stage/mcp", json=body, headers=headers_for(body, host=None)
        )
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> list[dict[str, Any]]:
        async with self._request as response:
            if response.headers["content-type"] == "application/json":
                return [json.loads(await response.aread())]
            async for event in events(response):
                self.received.append(event)
                self.first.set()
        return self.received


async def leave(client: httpx.AsyncClient, server: Server) -> None:
    """Close the stream of a call that would not end by itself, and check that it is cancelled."""

    def call(tool: str, **arguments: str) -> dict[str, Any]:
        return message(
            "tools/call", {"name": tool, "arguments": arguments}, **{envelope.PROGRESS_TOKEN: 1}
        )

    leaver = Visitor(client, server, call("walk_and_stay", gate="leaver"))
    await leaver.first.wait()
    leaver.reading.cancel()
    visitor = Visitor(client, server, call("outcome", name="leaver"))
    [answer] = await visitor.reading
    assert answer["result"]["content"] == [{"type": "text", "text": "cancelled"}]


@spec("SUB-12", "HTTP-26")
@pytest.mark.parametrize("target", ["application", "raw"])
@pytest.mark.parametrize("kind", COMMANDS)
async def test_sigterm_ends_streams_and_lets_a_short_call_finish(kind, target, tmp_path):
    with serving(
        kind, f"tests.transports.asgi:{target}", tmp_path, settings="tests.transports.settings"
    ) as server:
        async with httpx.AsyncClient(timeout=60) as client, asyncio.timeout(120):
            wanted = {"notifications": {"toolsListChanged": True}}
            listeners = [
                Visitor(client, server, message("subscriptions/listen", wanted, id=n))
                for n in range(LISTENERS)
            ]
            call = {"name": "brief", "arguments": {}}
            extra = {envelope.PROGRESS_TOKEN: 1}
            caller = Visitor(client, server, message("tools/call", call, id="c", **extra))
            for visitor in (*listeners, caller):
                await visitor.first.wait()
            await leave(client, server)
            server.terminate()
            streams = [await visitor.reading for visitor in listeners]
            answers = await caller.reading
        status = await asyncio.to_thread(server.wait)
    for number, (acknowledged, closing) in enumerate(streams):
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert closing["id"] == number
        assert closing["result"]["resultType"] == "complete"
        assert closing["result"]["_meta"][envelope.SUBSCRIPTION_ID] == number
    assert answers[-1]["result"]["content"] == [{"type": "text", "text": "done"}]
    assert status in {0, -15}, server.output
    assert "Traceback" not in server.output
