"""What one process publishes reaches others: with a channel layer, a lossy one, and without any.

Two real servers share a database. With a reliable layer, the processes hardly poll, so that what
arrives was sent through the layer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_django.protocol import envelope, sse
from mcp_django.protocol.errors import REQUEST_CANCELLED
from tests.kit import databases
from tests.kit.drivers import headers_for, message
from tests.kit.processes import Server, serving
from tests.spec import spec
from tests.transports.http_session.client import VERSION, Client, call, connections, events, request

pytestmark = pytest.mark.outside

PATIENCE = 90
CLOCK = "sessions://clock"
CHANGES = ("notifications/tools/list_changed", "notifications/resources/updated")
SETTINGS = "tests.transports.http_session.fan_settings"
BELLS = [
    pytest.param("core", marks=[pytest.mark.requires("shared"), pytest.mark.heavy(turn=1)]),
    pytest.param("pubsub", marks=[pytest.mark.requires("shared"), pytest.mark.heavy(turn=2)]),
    pytest.param("lossy", marks=[pytest.mark.requires("shared"), pytest.mark.heavy(turn=3)]),
    pytest.param("none", marks=pytest.mark.heavy(turn=2)),
]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers: `here` has the streams, and things happen `there`."""

    environ: dict[str, str]
    here: Server
    there: Server

    def any(self) -> Server:
        """Return the server for messages of a client that names none."""
        return self.there

    @contextmanager
    def handing(self, server: Server) -> Iterator[str]:
        """Yield the address of a server, which runs all the time."""
        yield f"{server.url}/mcp"

    async def run(self, *arguments: str) -> str:
        """Run a module in a third process."""
        return await asyncio.to_thread(databases.run, self.environ, *arguments)


@pytest.fixture(scope="module", params=BELLS)
def pair(request, tmp_path_factory):
    """Two servers, with each kind of channel layer in turn."""
    bell = request.param
    directory: Path = tmp_path_factory.mktemp(bell)
    with databases.shared(
        "sqlite", directory, redis=bell != "none", drop=0.5 if bell == "lossy" else 0
    ) as shared:
        environ = {**shared, "MCP_TEST_BELL": bell, "DJANGO_SETTINGS_MODULE": SETTINGS}
        app = "tests.transports.http_session.asgi:application"
        with (
            serving("uvicorn", app, directory, settings=SETTINGS, **_rest(environ)) as here,
            serving("uvicorn", app, directory, settings=SETTINGS, **_rest(environ)) as there,
        ):
            yield Pair(environ, here, there)
            for server in (here, there):
                assert "Traceback" not in server.output, server.output
                assert "never retrieved" not in server.output, server.output


def _rest(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name != "DJANGO_SETTINGS_MODULE"}


@asynccontextmanager
async def session(
    pair: Pair, *, version: str = VERSION, **capabilities: Any
) -> AsyncIterator[Client]:
    """Open a session at `there`."""
    async with connections() as http, asyncio.timeout(PATIENCE):
        client = Client(http, pair, version=version)
        await client.initialize(**capabilities)
        yield client


@asynccontextmanager
async def hearing(response: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the messages of a stream, without the first event, which has no data."""
    async with response as opened, aclosing(events(opened)) as coming:
        yield (message async for _, message in coming if message is not None)


async def over(response: Any) -> list[dict[str, Any]]:
    """Return every message up to the end of a stream."""
    async with hearing(response) as coming:
        return [message async for message in coming]


async def by_server(pair: Pair, tool: str) -> None:
    """Publish a change from a tool of another server process."""
    async with session(pair) as other:
        answer = await other.post(call_of(tool), at=pair.there)
        assert answer.status_code == 200


def call_of(tool: str) -> dict[str, Any]:
    return request("tools/call", name=tool, arguments={})


async def by_command(pair: Pair, tool: str) -> None:
    """Publish a change from a management command."""
    await pair.run("django", "mcp", "call", tool, "--server", "sessions")


async def by_wsgi(pair: Pair, tool: str) -> None:
    """Publish a change from a process without an event loop."""
    await pair.run("tests.transports.http_session.saying", tool)


ORIGINS = [by_server, by_command, by_wsgi]


@spec("SUB-3", "SUB-2")
@pytest.mark.parametrize("say", ORIGINS)
async def test_a_session_hears_of_changes_in_another_process(pair, say):
    async with session(pair) as client:
        await client.post(request("resources/subscribe", uri=CLOCK), at=pair.there)
        async with hearing(client.get(at=pair.here)) as coming:
            # A change that is published before the stream has begun is sent at its beginning.
            await say(pair, "change")
            await until(coming, "notifications/tools/list_changed")
            await say(pair, "strike")
            struck = await until(coming, "notifications/resources/updated")
            assert struck["params"] == {"uri": CLOCK}


async def until(coming: AsyncIterator[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return the next message with a method; earlier changes may be sent before it."""
    while (message := await anext(coming))["method"] != method:
        assert message["method"] in CHANGES
    return message


@spec("SUB-11")
@pytest.mark.parametrize("say", ORIGINS)
async def test_a_listener_hears_of_changes_in_another_process(pair, say):
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [CLOCK]}
    body = message("subscriptions/listen", {"notifications": wanted}, id="me")
    headers = headers_for(body, host=None)
    async with connections() as http, asyncio.timeout(PATIENCE):
        url = f"{pair.here.url}/mcp"
        async with http.stream("POST", url, json=body, headers=headers) as opened:
            coming = messages_of(opened)
            assert (await anext(coming))["method"].endswith("/acknowledged")
            await say(pair, "change")
            changed = await until(coming, "notifications/tools/list_changed")
            assert changed["params"]["_meta"][envelope.SUBSCRIPTION_ID] == "me"
            await say(pair, "strike")
            struck = await until(coming, "notifications/resources/updated")
            assert struck["params"]["uri"] == CLOCK


async def messages_of(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    decoder = sse.EventDecoder()
    async for part in response.aiter_raw():
        for event in decoder.feed(part):
            yield json.loads(event.data)


@spec("RSM-9")
async def test_a_standing_stream_is_taken_over_by_another_process(pair):
    async with session(pair) as client, client.get(at=pair.here) as first:
        coming = events(first)
        await anext(coming)
        async with hearing(client.get(at=pair.there)) as newer:
            await by_server(pair, "change")
            await until(newer, "notifications/tools/list_changed")
        # The older stream is silent as long as there is a newer one, and no longer.
        await by_server(pair, "change")
        message = await anext(message async for _, message in coming if message)
        assert message["method"] == "notifications/tools/list_changed"


@spec("SES-5", "SES-7")
async def test_a_session_that_ends_in_another_process_loses_its_stream(pair):
    async with session(pair) as client, client.get(at=pair.here) as standing:
        coming = events(standing)
        await anext(coming)
        assert (await client.delete(at=pair.there)).status_code == 204
        assert [message async for _, message in coming if message] == []


@spec("SUB-2", "SUB-5")
async def test_a_subscription_made_in_another_process_is_heard_of(pair):
    async with session(pair) as client, client.get(at=pair.here) as standing:
        coming = events(standing)
        await anext(coming)
        await client.post(request("resources/subscribe", uri=CLOCK), at=pair.there)
        await by_server(pair, "strike")
        _, message = await anext(coming)
        assert message is not None
        assert message["params"] == {"uri": CLOCK}


@spec("ASK-4")
@pytest.mark.parametrize("tool", ["ask", "ask_later"])
async def test_an_answer_arrives_in_another_process(pair, tool):
    async with session(pair, elicitation={}) as client:
        asking = request("tools/call", name=tool, arguments={"serial": 1})
        async with hearing(client.stream(asking, at=pair.here)) as coming:
            question = await anext(coming)
            result = {"action": "accept", "content": {"value": "word"}}
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": result}
            assert (await client.post(reply, at=pair.there)).status_code == 202
            response = await anext(coming)
            assert response["result"]["content"][0]["text"] == "word"


@spec("CAN-4", "CAN-1")
async def test_a_cancellation_arrives_in_another_process(pair):
    async with session(pair) as client:
        lingering = call("linger")
        async with hearing(client.stream(lingering, at=pair.here)) as coming:
            assert (await anext(coming))["params"]["progress"] == 1
            params = {"requestId": lingering["id"]}
            off = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            assert (await client.post(off, at=pair.there)).status_code == 202
            assert [message async for message in coming] == []


@spec("CAN-4", "CAN-1")
async def test_a_call_that_is_answered_with_a_document_is_cancelled_from_another_process(pair):
    async with session(pair) as client:
        client.headers["accept"] = "application/json"
        lingering = call("linger")
        calling = asyncio.create_task(client.post(lingering, at=pair.here))
        params = {"requestId": lingering["id"]}
        off = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        # The call and its cancellation may arrive in either order.
        assert (await client.post(off, at=pair.there)).status_code == 202
        answer = await calling
        assert answer.status_code == 200
        assert answer.json()["error"]["code"] == REQUEST_CANCELLED


@spec("CAN-4", "CAN-1", "BAT-4")
async def test_the_cancellation_of_a_member_arrives_in_another_process(pair):
    async with session(pair, version="2025-03-26", elicitation={}) as client:
        lingering, counting = call("linger"), call("count_in_thread", n=1, longest=0.0, seed=1)
        async with hearing(client.stream([lingering, counting], at=pair.here)) as coming:
            messages = [await anext(coming) for _ in range(3)]
            assert [message["id"] for message in messages if "id" in message] == [counting["id"]]
            params = {"requestId": lingering["id"]}
            off = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            assert (await client.post(off, at=pair.there)).status_code == 202
            assert [message async for message in coming] == []


@spec("RSM-4", "RSM-9")
async def test_a_stream_goes_on_in_another_process(pair):
    async with session(pair, elicitation={}) as client:
        asking = request("tools/call", name="ask", arguments={"serial": 1})
        async with client.stream(asking, at=pair.here) as first:
            coming = events(first)
            primed, _ = await anext(coming)
            _, question = await anext(coming)
            assert question is not None
            async with hearing(client.get(at=pair.there, last=primed)) as rest:
                assert await anext(rest) == question
                result = {"action": "accept", "content": {"value": "word"}}
                reply = {"jsonrpc": "2.0", "id": question["id"], "result": result}
                assert (await client.post(reply, at=pair.there)).status_code == 202
                response = await anext(rest)
                assert response["result"]["content"][0]["text"] == "word"
