"""Fifty calls wait for their users, in processes of two threads, and block nothing."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from mcp_django.protocol.errors import INTERNAL_ERROR
from tests.kit.databases import shared
from tests.kit.fleet import fleet
from tests.spec import spec
from tests.transports.http_session.account import End, is_response, text_of
from tests.transports.http_session.client import Client, call, connections, events, request

pytestmark = pytest.mark.outside

CALLS = 50
PATIENCE = 150
BUSY = 503
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.requires("shared"))]


def asking(serial: int) -> dict[str, Any]:
    """Return a call of a sync or async tool that asks, with or without a progress token."""
    tool = random.choice(("ask", "ask_later"))
    if serial % 2:
        return call(tool, serial=serial)
    return request("tools/call", name=tool, arguments={"serial": serial})


def word(question: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the user's answer to a question of one field."""
    [name] = question["params"]["requestedSchema"]["properties"]
    result = {"action": "accept", "content": {name: text}}
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


class Crowd:
    """Calls that wait together until the test lets their users answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting = 0
        self._all_wait = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def until_all_wait(self, calls: list[asyncio.Task[str]]) -> None:
        """Wait until each user was asked; fail with the result of a call that did not ask."""
        waiting = asyncio.create_task(self._all_wait.wait())
        ended, _ = await asyncio.wait([waiting, *calls], return_when=asyncio.FIRST_COMPLETED)
        assert ended == {waiting}, [task.result() for task in ended]

    async def text_of_call(self, serial: int) -> str:
        """Return the text of a call's result; send the call again if a busy worker refused it."""
        while True:
            async with self._client.stream(asking(serial)) as response:
                if response.status_code != BUSY:
                    assert response.is_success, (response.status_code, await response.aread())
                    return await self._answered(response, serial)

    async def _answered(self, response: Any, serial: int) -> str:
        async with aclosing(events(response)) as coming:
            async for _, message in coming:
                if message is None:
                    continue
                if is_response(message):
                    return text_of(message)
                assert message["method"] == "elicitation/create"
                self._waiting += 1
                if self._waiting == CALLS:
                    self._all_wait.set()
                await self.may_answer.wait()
                answer = await self._client.post(word(message, f"word {serial}"))
                assert answer.status_code == 202
        raise AssertionError("The stream ended without a response.")


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_for_answers_takes_no_thread(kind, tmp_path):
    async with AsyncExitStack() as stack:
        environ = stack.enter_context(shared(kind, tmp_path, redis=kind == "postgres"))
        environ["MCP_TEST_THREADS"] = "2"
        workers = await stack.enter_async_context(fleet(tmp_path, environ, workers=2))
        http = await stack.enter_async_context(connections(patience=PATIENCE))
        client = Client(http, workers)
        await client.initialize(elicitation={})
        crowd = Crowd(client)
        async with asyncio.timeout(PATIENCE):
            calls = [asyncio.create_task(crowd.text_of_call(serial)) for serial in range(CALLS)]
            await crowd.until_all_wait(calls)
            for server in workers.serving:
                assert (await client.post(request("ping"), at=server)).json()["result"] == {}
                listed = await client.post(request("tools/list"), at=server)
                assert "ask" in {tool["name"] for tool in listed.json()["result"]["tools"]}
                counted = call("count_in_thread", n=3, longest=0.01, seed=1)
                account = await client.follow(counted, restless=0, at=server)
                assert account.end is End.COMPLETE, account
            crowd.may_answer.set()
            texts = await asyncio.gather(*calls)
        assert texts == [f"word {serial}" for serial in range(CALLS)]
        assert workers.complaints == []


@spec("RSM-11")
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_call_that_waited_ends_with_one_error(kind, tmp_path):
    async with AsyncExitStack() as stack:
        environ = stack.enter_context(shared(kind, tmp_path, redis=kind == "postgres"))
        environ["MCP_TEST_LEASE_SECONDS"] = "1.5"
        workers = await stack.enter_async_context(fleet(tmp_path, environ, workers=2))
        client = Client(await stack.enter_async_context(connections()), workers)
        await client.initialize(elicitation={})
        victim = workers.any()
        message = asking(1)
        async with asyncio.timeout(PATIENCE):
            ids, question = await first_question(client.stream(message, at=victim))
            # Another worker sends the same question, so it is stored.
            elsewhere = client.get(last=ids[0], at=workers.other_than(victim))
            assert await first_question(elsewhere) == ([ids[-1]], question)
            workers.kill(victim)
            workers.drop(victim)
            # The answer comes too late, which is not the client's error.
            assert (await client.post(word(question, "word"))).status_code == 202
            for after, before in ((ids[-1], []), (ids[0], [question])):
                async with client.get(last=after) as response:
                    messages = [event async for _, event in events(response) if event is not None]
                assert messages[:-1] == before
                assert messages[-1]["id"] == message["id"]
                assert messages[-1]["error"]["code"] == INTERNAL_ERROR


async def first_question(opening: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the first message of a stream and the ids up to it, and close the connection."""
    ids = []
    async with opening as response, aclosing(events(response)) as coming:
        async for event_id, message in coming:
            ids.append(event_id)
            if message is not None:
                return ids, message
    raise AssertionError("Nothing was asked.")
