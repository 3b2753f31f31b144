"""A session that was ended in one process is immediately gone in every other process."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from tests.kit.databases import shared
from tests.kit.fleet import Fleet, fleet
from tests.spec import spec
from tests.transports.http_session.client import Client, connections, request

pytestmark = [pytest.mark.outside, pytest.mark.heavy(turn=3)]

ROUNDS = 500
AT_ONCE = 10
WORKERS = 4


async def one_life(http: httpx.AsyncClient, workers: Fleet, seen: Counter[str]) -> None:
    """Open a session, use it, end it, and try to use it at other workers."""
    client = Client(http, workers)
    await client.initialize()
    listed = await client.post(request("tools/list"))
    seen[f"list {listed.status_code}"] += 1
    at = workers.any()
    deleted = await client.delete(at=at)
    seen[f"delete {deleted.status_code}"] += 1
    posted = await client.post(request("ping"), at=workers.other_than(at))
    seen[f"post {posted.status_code}"] += 1
    again = await client.delete(at=workers.other_than(at))
    seen[f"delete again {again.status_code}"] += 1
    async with client.get(at=workers.other_than(at)) as response:
        seen[f"get {response.status_code}"] += 1


@spec("SES-4", "SES-5")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.requires("shared"))]
)
async def test_an_ended_session_is_never_found_again(kind, tmp_path):
    seen: Counter[str] = Counter()
    with shared(kind, tmp_path, redis=kind == "postgres") as environ:
        async with (
            fleet(tmp_path, environ, workers=WORKERS) as workers,
            connections(kept=100) as http,
        ):

            async def lives() -> None:
                for _ in range(ROUNDS // AT_ONCE):
                    await one_life(http, workers, seen)

            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(lives())
            assert workers.complaints == []
    assert seen == {
        "list 200": ROUNDS,
        "delete 204": ROUNDS,
        "post 404": ROUNDS,
        "delete again 404": ROUNDS,
        "get 404": ROUNDS,
    }
