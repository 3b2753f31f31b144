"""GET streams of several processes: whatever breaks, the last change of a thing is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.databases import Kind, shared
from tests.kit.fleet import Fleet, fleet
from tests.kit.processes import Server
from tests.spec import spec
from tests.transports.http_session import changes
from tests.transports.http_session.changes import CHANGES, PREFIX, Listener, Plan
from tests.transports.http_session.client import Client, connections, events, request

pytestmark = [
    pytest.mark.outside,
    # Ends a test that hangs.
    pytest.mark.timeout(1200),
]

on_postgres = pytest.mark.requires("shared")
DATABASES = [
    pytest.param("sqlite", marks=pytest.mark.heavy(turn=2)),
    pytest.param("postgres", marks=[on_postgres, pytest.mark.heavy(turn=1)]),
]
PATIENCE = 90
# How long a process without a heartbeat counts as alive.
LEASE_SECONDS = 2
TOGETHER = 50


@spec("RSM-12", "SUB-2", "SUB-5")
@pytest.mark.parametrize("kind", DATABASES)
async def test_no_last_change_is_missed_and_none_comes_out_of_order(kind, tmp_path):
    """SQLite without a channel layer; PostgreSQL with one that loses half of the messages.

    On PostgreSQL half of the changes are committed in the opposite order of their statements.
    """
    is_shared = kind == "postgres"
    with shared(kind, tmp_path, redis=is_shared, drop=0.5) as environ:
        report = await changes.run(Plan(crossed=is_shared), environ, tmp_path)
    assert report.missed == [0, 0, 0], report.figures
    assert report.disorder == []
    assert report.complaints == []
    assert report.changes >= CHANGES
    assert report.cuts >= Plan.cuts
    assert report.clients[-1].stalls == 1


@asynccontextmanager
async def workers_of(
    kind: Kind, directory: Path, count: int
) -> AsyncIterator[tuple[Fleet, httpx.AsyncClient]]:
    """Start processes and connect to them; those that share PostgreSQL have a channel layer."""
    lease = {"MCP_TEST_LEASE_SECONDS": str(LEASE_SECONDS)}
    with shared(kind, directory, redis=kind == "postgres") as environ:
        async with (
            asyncio.timeout(PATIENCE),
            fleet(directory, {**environ, **lease}, workers=count) as workers,
            connections() as http,
        ):
            yield workers, http
            assert workers.complaints == []


async def subscribed(http: httpx.AsyncClient, workers: Fleet, things: int) -> Client:
    """Return a client that is subscribed to this many things."""
    client = Client(http, workers)
    await client.initialize()
    await Listener(client).subscribe(things)
    return client


async def run_tool(client: Client, tool: str, at: Server, **arguments: int) -> None:
    answer = await client.post(request("tools/call", name=tool, arguments=arguments), at=at)
    assert answer.json()["result"].get("isError") is not True, answer.text


def number_of(message: dict[str, Any]) -> int:
    return int(message["params"]["uri"].removeprefix(PREFIX))


async def heard(client: Client, at: Server, last: str | None, count: int) -> tuple[set[int], str]:
    """Read a stream up to this many things, then cut it; return them and the last event id."""
    things: set[int] = set()
    async with client.get(at=at, last=last) as response, aclosing(events(response)) as coming:
        async for event_id, message in coming:
            last = event_id
            if message is not None:
                things.add(number_of(message))
            if len(things) >= count:
                break
    assert last is not None
    return things, last


@spec("RSM-12")
@pytest.mark.parametrize("kind", DATABASES)
async def test_an_announcement_that_is_cut_in_its_middle_is_told_to_its_end(kind, tmp_path):
    async with workers_of(kind, tmp_path, 2) as (workers, http):
        client = await subscribed(http, workers, TOGETHER)
        here, there = workers.serving
        _, last = await heard(client, here, None, 0)
        await run_tool(client, "sweep", there, things=TOGETHER)
        for count, server in ((1, here), (TOGETHER // 2, there), (TOGETHER - 1, here)):
            _, last = await heard(client, server, last, count)
        things, last = await heard(client, there, last, TOGETHER)
        assert things == set(range(TOGETHER))
        await run_tool(client, "sweep", there, things=1)
        assert (await heard(client, here, last, 1))[0] == {0}


@spec("RSM-9")
@pytest.mark.parametrize("kind", DATABASES)
async def test_the_older_stream_goes_on_when_the_process_of_the_newer_one_is_killed(kind, tmp_path):
    async with workers_of(kind, tmp_path, 3) as (workers, http):
        client = await subscribed(http, workers, 2)
        here, there, beside = workers.serving
        async with client.get(at=here) as response, aclosing(events(response)) as older:
            await anext(older)
            async with client.get(at=there) as newest, aclosing(events(newest)) as newer:
                await anext(newer)
                await run_tool(client, "sweep", beside, things=1)
                _, message = await anext(newer)
                assert message is not None
                assert number_of(message) == 0
                workers.kill(there)
                workers.drop(there)
                # A change at the moment when no stream is the writer.
                await run_tool(client, "sweep", beside, things=2)
                things: set[int] = set()
                while things != {0, 1}:
                    _, message = await anext(older)
                    assert message is not None
                    things.add(number_of(message))
