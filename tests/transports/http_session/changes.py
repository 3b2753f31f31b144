"""Trouble for GET streams: clients that are cut off, or do not read, while things change.

    python -m tests.transports.http_session.changes --changes 10000 --database postgres --bell

Several worker processes share a database, and change hundreds of resources as fast as they can.
Clients of 2025-11-25 subscribe to all of them, disconnect at random and resume at a random worker
with the last event id that they have read. A resource is missed if no message about it was read
after its last change was committed. The figures are printed; the exit status is 1 if a
check failed.

`MCP_TEST_CHANGES` is the number of changes in the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from mcp_django.transports import durable_streams
from tests.kit.databases import Kind, shared
from tests.kit.fleet import Fleet, fleet
from tests.transports.http_session.client import Client, connections, events, request

CHANGES = int(os.environ.get("MCP_TEST_CHANGES", "10000"))
PREFIX = "sessions://things/"
# How long a client does not read before its connection is reset.
STALLED_SECONDS = 20
# After this many seconds without news, a change without a message counts as missed.
QUIET_SECONDS = 60
CALLERS = 8
# One address gets a quarter of a worker's threads, and all callers may have chosen the same worker.
THREADS = 4 * CALLERS
CHANGES_OF_A_CALL = 50
# The most events of a connection before it is cut.
MOST_EVENTS = 200


@dataclass(kw_only=True)
class Plan:
    """The parameters of a run."""

    workers: int = 4
    things: int = 400
    changes: int = CHANGES
    """The minimum number of changes."""
    cuts: int = 100
    """The minimum number of cuts; changes go on until then."""
    listeners: int = 2
    """How many clients are cut off again and again."""
    stalls: int = 1
    """How many times the client that does not read is reset."""
    crossed: bool = False
    """Whether half of the changes commit in the opposite order of their statements."""


@dataclass(kw_only=True)
class Received:
    """What one client read over all of its connections."""

    at: dict[int, float] = field(default_factory=dict)
    """When a message about a thing was last read."""
    events: int = 0
    connections: int = 0
    cuts: int = 0
    stalls: int = 0
    disorder: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def missed(self, last: Mapping[int, float]) -> list[int]:
        """Return the things about whose last change this client got no message."""
        return [number for number, at in last.items() if self.at.get(number, 0.0) < at]


@dataclass(kw_only=True)
class Report:
    """The results of a run."""

    changes: int = 0
    last: dict[int, float] = field(default_factory=dict)
    """When each thing changed for the last time."""
    clients: list[Received] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def missed(self) -> list[int]:
        """For each client, how many things it missed."""
        return [len(client.missed(self.last)) for client in self.clients]

    @property
    def cuts(self) -> int:
        """How often clients were cut off."""
        return sum(client.cuts for client in self.clients)

    @property
    def disorder(self) -> list[str]:
        """Every event that came before one with a smaller number."""
        return [text for client in self.clients for text in client.disorder]

    @property
    def refusals(self) -> list[str]:
        """Every answer to a reconnecting client that was not a stream."""
        return [text for client in self.clients for text in client.refusals]

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the run."""
        return {
            "changes": self.changes,
            "things": len(self.last),
            "missed": self.missed,
            "events": [client.events for client in self.clients],
            "out of order": len(self.disorder),
            "refusals": self.refusals,
            "connections": [client.connections for client in self.clients],
            "cuts": self.cuts,
            "stalls": sum(client.stalls for client in self.clients),
            "complaining workers": len(self.complaints),
        }


class Listener:
    """A client that is subscribed to all things, and reconnects."""

    def __init__(self, client: Client, *, stalls: int = 0) -> None:
        self._client = client
        self._stalls = stalls
        self._last: str | None = None
        self.received = Received()

    async def subscribe(self, things: int) -> None:
        """Subscribe to this many things."""
        for number in range(things):
            wanted = request("resources/subscribe", uri=f"{PREFIX}{number}")
            (await self._client.post(wanted)).raise_for_status()

    async def listen(self) -> None:
        """Read, and reconnect after each end, until this is cancelled."""
        while True:
            try:
                await self._connect()
            except httpx.HTTPError as exc:
                self.received.refusals.append(type(exc).__name__)
                await asyncio.sleep(0.02)

    async def _connect(self) -> None:
        self.received.connections += 1
        async with self._client.get(last=self._last) as response:
            if response.status_code != 200:
                self.received.refusals.append(f"{response.status_code} {await response.aread()!r}")
                await asyncio.sleep(0.1)
                return
            async with aclosing(events(response)) as coming:
                await self._read(coming)

    async def _read(self, coming: Any) -> None:
        left = random.randint(1, MOST_EVENTS)
        before: tuple[int, int] = (-1, 0)
        async for event_id, message in coming:
            cursor = durable_streams.decode_event_id(event_id)
            assert cursor is not None, event_id
            place = (cursor.position, cursor.beyond or 0)
            if place <= before:
                self.received.disorder.append(f"{event_id} after {before}")
            before = place
            self._last = event_id
            if message is None:
                continue
            self.received.events += 1
            self.received.at[int(message["params"]["uri"].removeprefix(PREFIX))] = time.monotonic()
            left -= 1
            if left:
                continue
            if self._stalls > self.received.stalls:
                # Nothing is read, and what the server writes meanwhile is lost with the connection.
                await asyncio.sleep(STALLED_SECONDS)
                self.received.stalls += 1
            self.received.cuts += 1
            return


async def run(plan: Plan, environ: Mapping[str, str], directory: Path) -> Report:
    """Change things while clients listen; wait until nothing is missed, or no news arrives."""
    report = Report()
    places = {"MCP_TEST_THREADS": str(THREADS)}
    async with (
        fleet(directory, {**environ, **places}, workers=plan.workers) as workers,
        connections(kept=CALLERS, patience=QUIET_SECONDS) as http,
    ):
        listeners = [Listener(await _begun(http, workers)) for _ in range(plan.listeners)]
        listeners.append(Listener(await _begun(http, workers), stalls=plan.stalls))
        report.clients = [listener.received for listener in listeners]
        await asyncio.gather(*(listener.subscribe(plan.things) for listener in listeners))
        listening = [asyncio.create_task(listener.listen()) for listener in listeners]
        calls = _calls(plan, report)
        await asyncio.gather(*(_change(http, workers, calls, report) for _ in range(CALLERS)))
        await _settled(report, plan)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        report.complaints = workers.complaints
    return report


def _calls(plan: Plan, report: Report) -> Iterator[dict[str, Any]]:
    made = 0
    while made < plan.changes or report.cuts < plan.cuts:
        is_crossed = plan.crossed and random.random() < 0.5
        made += CHANGES_OF_A_CALL
        yield request(
            "tools/call",
            name="cross" if is_crossed else "churn",
            arguments={
                "times": CHANGES_OF_A_CALL // (2 if is_crossed else 1),
                "things": plan.things,
                "seed": random.randrange(1 << 30),
            },
        )


async def _begun(http: httpx.AsyncClient, workers: Fleet) -> Client:
    client = Client(http, workers)
    await client.initialize()
    return client


async def _change(
    http: httpx.AsyncClient, workers: Fleet, calls: Iterator[dict[str, Any]], report: Report
) -> None:
    client = await _begun(http, workers)
    for message in calls:
        answer = await client.post(message)
        assert answer.status_code == 200, answer.text
        for change in answer.json()["result"]["structuredContent"]["result"]:
            report.changes += 1
            report.last[change["number"]] = max(
                change["at"], report.last.get(change["number"], 0.0)
            )


async def _settled(report: Report, plan: Plan) -> None:
    """Wait until nothing is missed, or no news arrives for `QUIET_SECONDS`."""
    before, since = report.missed, time.monotonic()
    while any(report.missed) or report.clients[-1].stalls < plan.stalls:
        await asyncio.sleep(0.1)
        if report.missed != before:
            before, since = report.missed, time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS:
            return


def main() -> int:
    """Run from the command line; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.transports.http_session.changes")
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--things", type=int, default=400)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--bell", action="store_true", help="ring through Redis; all poll else")
    parser.add_argument("--crossed", action="store_true", help="commit in the opposite order")
    options = parser.parse_args()
    plan = Plan(changes=options.changes, things=options.things, crossed=options.crossed)
    kind: Kind = options.database
    with TemporaryDirectory() as place:
        directory = Path(place)
        with shared(kind, directory, redis=options.bell, drop=0.5) as environ:
            report = asyncio.run(run(plan, environ, directory))
    sys.stdout.write(json.dumps(report.figures, indent=2) + "\n")
    failed = any(report.missed) or report.disorder or report.complaints
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
