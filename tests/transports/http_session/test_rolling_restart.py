"""Every worker is replaced under load: no session, no message and no notification is lost."""

from __future__ import annotations

import asyncio
import random
import time

import httpx
import pytest

from tests.kit.databases import shared
from tests.kit.fleet import Fleet, fleet
from tests.kit.processes import Server
from tests.spec import spec
from tests.transports.http_session.account import Account, End
from tests.transports.http_session.client import Client, call, connections, request
from tests.transports.http_session.listener import Listener

pytestmark = [pytest.mark.outside, pytest.mark.heavy(turn=2)]

WORKERS = 3
CALLERS = 12
LISTENERS = 4
# Every worker four times.
RESTARTS = 4 * WORKERS
# Longer than the polling interval of the hub, since pub/sub messages get lost.
NEWS_SECONDS = 15


class Load:
    """The load on the workers while they are replaced."""

    def __init__(self, http: httpx.AsyncClient, workers: Fleet) -> None:
        self._http = http
        self._workers = workers
        self._is_over = False
        self.accounts: list[Account] = []
        self.statuses: list[int] = []
        self.listeners: list[Listener] = []
        self.changes = 0
        self.missed: list[str] = []

    async def client(self) -> Client:
        client = Client(self._http, self._workers)
        await client.initialize()
        return client

    async def call(self) -> None:
        """Repeatedly call, list and ping in one session."""
        client = await self.client()
        while not self._is_over:
            counting = call(
                random.choice(("count", "count_in_thread")),
                n=random.randint(2, 40),
                longest=0.05,
                seed=random.randrange(1 << 30),
            )
            self.accounts.append(await client.follow(counting, restless=0.3))
            for method in ("ping", "tools/list"):
                self.statuses.append((await client.post(request(method))).status_code)

    async def change(self) -> None:
        """Repeatedly publish a change, and check that every listener is notified."""
        client = await self.client()
        while not self._is_over:
            began = time.monotonic()
            answer = await client.post(request("tools/call", name="change", arguments={}, _meta={}))
            self.statuses.append(answer.status_code)
            self.changes += 1
            heard = await asyncio.gather(
                *(listener.hears(after=began, within=NEWS_SECONDS) for listener in self.listeners)
            )
            self.missed += [
                f"change {self.changes}, listener {number}"
                for number, has_heard in enumerate(heard)
                if not has_heard
            ]

    async def restart_all(self) -> list[int]:
        """Replace workers, the oldest first; return the exit statuses of those that left."""
        return [await self._replace(self._workers.serving[0]) for _ in range(RESTARTS)]

    async def _replace(self, server: Server) -> int:
        await self._workers.grow()
        await self._workers.retire(server)
        server.terminate()
        return await asyncio.to_thread(server.wait)

    def end(self) -> None:
        self._is_over = True


@spec("SES-8", "RSM-6")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.requires("shared"))]
)
async def test_a_rolling_restart_loses_nothing(kind, tmp_path):
    with shared(kind, tmp_path, redis=kind == "postgres", drop=0.5) as environ:
        async with fleet(tmp_path, environ, workers=WORKERS) as workers, connections() as http:
            load = Load(http, workers)
            load.listeners = [Listener(await load.client()) for _ in range(LISTENERS)]
            reading = [asyncio.create_task(listener.listen()) for listener in load.listeners]
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(load.call())
                group.create_task(load.change())
                exits = await load.restart_all()
                load.end()
            for task in reading:
                task.cancel()
            assert workers.complaints == []
    assert [str(account) for account in load.accounts if account.end is not End.COMPLETE] == []
    assert set(load.statuses) == {200}
    assert [listener.refusals for listener in load.listeners] == [[]] * LISTENERS
    assert load.missed == []
    assert load.changes
    assert set(exits) <= {0, -15}
