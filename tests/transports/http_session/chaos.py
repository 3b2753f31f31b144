"""Trouble for durable streams: disconnects, lost pub/sub messages, killed and halted workers.

    python -m tests.transports.http_session.chaos --rounds 20 --database postgres --bell

Several worker processes share a database. Clients of 2025-11-25 call tools that report numbers as
progress, disconnect at random and resume at a random worker. Each client has to see all numbers and
the result, or a prefix of the numbers and one error. A run ends when each kind of trouble has
happened a certain number of times, however long that takes. The figures are printed; the exit
status is 1 if a check failed.

`MCP_TEST_CHAOS_ROUNDS` is that number in the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.kit import databases
from tests.kit.fleet import Fleet, fleet
from tests.kit.processes import Server
from tests.transports.http_session.account import Account, End, tally
from tests.transports.http_session.client import PATIENCE, Client, call, connections

ROUNDS = int(os.environ.get("MCP_TEST_CHAOS_ROUNDS", "10"))
CALLS = 50 * ROUNDS
TOOLS = ("count", "count_in_thread")
MOST_NUMBERS = 60
# The longest that a tool keeps silent between two numbers.
LONGEST_GAP = 0.05
RESTLESS = 0.7
# A worker is killed within this time after it was sent calls, or after clients have listened.
AMBUSH_SECONDS = 0.015
LISTENING_SECONDS = 0.3
VOLLEY = 6
# A client gives up on a worker that was halted for this long.
HALTED_SECONDS = 4


@dataclass(kw_only=True)
class Plan:
    """The parameters of a run."""

    workers: int = 3
    callers: int = 24
    lease: float = 2.0
    calls: int = 0
    """The minimum number of calls that end."""
    kills: int = ROUNDS
    halts: int = ROUNDS
    cuts: int = 0
    """How many times the connections to the database break; only PostgreSQL has connections."""


@dataclass(kw_only=True)
class Report:
    """The results of a run."""

    accounts: list[Account] = field(default_factory=list)
    ambushed: list[Account] = field(default_factory=list)
    kills: int = 0
    halts: int = 0
    cuts: int = 0
    has_calls: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when as many calls have ended as were planned."""
    may_fail: bool = False
    """Whether an internal error is an allowed answer."""
    complaints: list[str] = field(default_factory=list)
    streams: dict[str, Any] = field(default_factory=dict)
    """The streams in the database at the end, from `tests.transports.http_session.audit`."""

    @property
    def failures(self) -> list[str]:
        """The calls whose end is not allowed, and the streams that are stored wrongly."""
        wrong = (End.BAD, End.UNKNOWN, End.STUCK)
        bad = [
            str(account)
            for account in (*self.accounts, *self.ambushed)
            if account.end in wrong or ("500" in account.connections and not self.may_fail)
        ]
        return [*bad, *self.streams.get("broken", ())]

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers of the run."""
        accounts = [*self.accounts, *self.ambushed]
        return {
            "calls": len(accounts),
            **tally(accounts),
            "connections": sum(len(account.connections) for account in accounts),
            "events": sum(len(account.messages) for account in accounts),
            "ambushed": tally(self.ambushed),
            "kills": self.kills,
            "halts": self.halts,
            "cuts": self.cuts,
            "streams": {name: n for name, n in self.streams.items() if name != "broken"},
            "complaining workers": len(self.complaints),
        }


async def run(plan: Plan, environ: Mapping[str, str], directory: Path) -> Report:
    """Cause the planned trouble, wait for the last client, and check the stored streams."""
    report = Report(may_fail=plan.cuts > 0)
    environ = {**environ, "MCP_TEST_LEASE_SECONDS": str(plan.lease)}
    async with (
        fleet(directory, environ, workers=plan.workers) as workers,
        connections(patience=HALTED_SECONDS if plan.halts else PATIENCE) as http,
        asyncio.TaskGroup() as group,
    ):
        over = asyncio.Event()
        for _ in range(plan.callers):
            group.create_task(_call(over, plan, http, workers, report))
        async with asyncio.TaskGroup() as troubles:
            killed, halted = await _begun(http, workers), await _begun(http, workers)
            troubles.create_task(_kill(plan.kills, killed, workers, report))
            troubles.create_task(_halt(plan, halted, workers, report))
            troubles.create_task(_cut(plan.cuts, environ, report))
        if len(report.accounts) < plan.calls:
            await report.has_calls.wait()
        over.set()
    report.complaints = workers.complaints
    stored = await asyncio.to_thread(
        databases.run, dict(environ), "tests.transports.http_session.audit"
    )
    report.streams = json.loads(stored)
    return report


def _counting() -> dict[str, Any]:
    return call(
        random.choice(TOOLS),
        n=random.randint(2, MOST_NUMBERS),
        longest=random.choice((0.0, LONGEST_GAP)),
        seed=random.randrange(1 << 30),
    )


async def _call(
    over: asyncio.Event, plan: Plan, http: httpx.AsyncClient, workers: Fleet, report: Report
) -> None:
    client = await _begun(http, workers)
    while not over.is_set():
        report.accounts.append(await client.follow(_counting(), restless=RESTLESS))
        if len(report.accounts) >= plan.calls:
            report.has_calls.set()


async def _begun(http: httpx.AsyncClient, workers: Fleet) -> Client:
    """Return a client with a session; try again while a worker is in trouble."""
    while True:
        client = Client(http, workers)
        try:
            await client.initialize()
        except httpx.HTTPError:
            await asyncio.sleep(0.1)
        else:
            return client


async def _kill(times: int, client: Client, workers: Fleet, report: Report) -> None:
    """Repeatedly send calls to a worker, kill it while it serves them, and start another."""
    while report.kills < times:
        victim = workers.any()
        calls = _volley(client, victim)
        if random.random() < 0.5:
            # Some clients have received messages by then.
            await asyncio.wait(calls, timeout=random.random() * LISTENING_SECONDS)
        await asyncio.sleep(random.random() * AMBUSH_SECONDS)
        workers.kill(victim)
        workers.drop(victim)
        report.kills += 1
        await workers.grow()
        report.ambushed += await asyncio.gather(*calls)


async def _halt(plan: Plan, client: Client, workers: Fleet, report: Report) -> None:
    """Repeatedly halt a worker for longer than its lease, in the middle of calls."""
    while report.halts < plan.halts:
        victim = workers.any()
        calls = _volley(client, victim)
        await asyncio.sleep(random.random() * LISTENING_SECONDS)
        workers.stop(victim)
        report.halts += 1
        await asyncio.sleep(plan.lease * (1.2 + random.random()))
        workers.proceed(victim)
        report.accounts += await asyncio.gather(*calls)


async def _cut(times: int, environ: Mapping[str, str], report: Report) -> None:
    """Repeatedly end the connections to the database, even in the middle of transactions."""
    while report.cuts < times:
        await asyncio.sleep(random.random())
        # An attempt that ended no connection does not count.
        report.cuts += bool(await asyncio.to_thread(databases.cut, environ))


def _volley(client: Client, victim: Server) -> list[asyncio.Task[Account]]:
    return [
        asyncio.create_task(client.follow(_counting(), restless=0, at=victim))
        for _ in range(VOLLEY)
    ]


def main() -> int:
    """Run from the command line; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.transports.http_session.chaos")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind of trouble")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--bell", action="store_true", help="ring through Redis, else poll")
    parser.add_argument("--drop", type=float, default=0.5, help="share of the rings that get lost")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--callers", type=int, default=24)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--calm", action="store_true", help="disconnects alone")
    parser.add_argument("--cut", action="store_true", help="break connections to the database")
    parser.add_argument("--keep", type=Path, help="an empty directory for what the workers log")
    options = parser.parse_args()
    plan = Plan(
        calls=0 if options.cut or not options.calm else 50 * options.rounds,
        workers=options.workers,
        callers=options.callers,
        lease=options.lease,
        kills=0 if options.calm else options.rounds,
        halts=0 if options.calm else options.rounds,
        cuts=options.rounds if options.cut else 0,
    )
    with TemporaryDirectory(prefix="mcp-chaos-") as temporary:
        directory = options.keep or Path(temporary)
        with databases.shared(
            options.database, directory, redis=options.bell, drop=options.drop
        ) as environ:
            report = asyncio.run(run(plan, environ, directory))
    for failure in report.failures:
        print(failure)
    for output in report.complaints:
        print(output[-4000:], file=sys.stderr)
    print(json.dumps(report.figures))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
