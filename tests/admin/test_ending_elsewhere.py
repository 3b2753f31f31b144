"""What is ended in the admin of one process ends in the others, where its streams are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from mcp_django.protocol import sse
from tests.kit.databases import run, shared
from tests.kit.drivers import headers_for, message
from tests.kit.fleet import Fleet, fleet
from tests.kit.processes import Server
from tests.transports.http_session.client import Client, connections, request

pytestmark = pytest.mark.outside

# A bound for a machine in distress; without a bell a process looks twice a second.
PATIENCE = 60
BY_HAND = "tests.admin.by_hand"
CONFIRM_SECONDS = 1


@asynccontextmanager
async def site(
    directory: Path,
) -> AsyncIterator[tuple[Fleet, httpx.AsyncClient, dict[str, str]]]:
    """Two workers that share a database and no bell."""
    with shared("sqlite", directory) as environ:
        async with fleet(directory, environ, workers=2) as workers, connections() as http:
            yield workers, http, environ
            assert workers.complaints == []


async def in_the_admin(environ: dict[str, str], word: str) -> str:
    """Do something in the admin, in a third process."""
    return await asyncio.to_thread(run, environ, BY_HAND, word)


@pytest.mark.timeout(600)
async def test_a_terminated_session_ends_where_its_stream_is(tmp_path):
    async with site(tmp_path) as (workers, http, environ):
        client, (here, there) = Client(http, workers), workers.serving
        await client.initialize()
        async with client.get(at=here) as response, asyncio.timeout(PATIENCE):
            assert response.status_code == 200
            parts = response.aiter_raw()
            await anext(parts)
            await in_the_admin(environ, "terminate")
            # It ends: nothing but signs of life came before that.
            async with aclosing(parts):
                assert not [part async for part in parts if b"data:" in part]
        # A process that has no stream of the session notices within a second.
        async with asyncio.timeout(3 * CONFIRM_SECONDS):
            for worker in (here, there):
                while (refused := await client.post(request("ping"), at=worker)).status_code == 200:
                    pass
                assert refused.status_code == 404


@asynccontextmanager
async def listening(
    http: httpx.AsyncClient, worker: Server, bearer: str
) -> AsyncIterator[httpx.Response]:
    """A stream of 2026-07-28, which is in no table."""
    body = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    headers = headers_for(body, authorization=f"Bearer {bearer}", host=None)
    async with http.stream("POST", f"{worker.url}/mcp", json=body, headers=headers) as response:
        assert response.status_code == 200
        yield response


@pytest.mark.timeout(600)
async def test_a_token_that_is_revoked_ends_streams_in_every_process(tmp_path):
    async with site(tmp_path) as (workers, http, environ):
        bearer = await in_the_admin(environ, "make")
        here, there = workers.serving
        async with (
            listening(http, here, bearer) as first,
            listening(http, there, bearer) as second,
            asyncio.timeout(PATIENCE),
        ):
            streams = [first.aiter_raw(), second.aiter_raw()]
            for parts in streams:
                await anext(parts)
            await in_the_admin(environ, "revoke")
            for parts in streams:
                decoder = sse.EventDecoder()
                events = [event async for part in parts for event in decoder.feed(part)]
                assert [b"complete" in event.data.encode() for event in events] == [True]
        body = message("tools/list")
        headers = headers_for(body, authorization=f"Bearer {bearer}", host=None)
        # A stream asks the database; requests may use what was confirmed up to a second ago.
        async with asyncio.timeout(3 * CONFIRM_SECONDS):
            for worker in (here, there):
                url = f"{worker.url}/mcp"
                while (refused := await http.post(url, json=body, headers=headers)).is_success:
                    pass
                assert refused.status_code == 401
