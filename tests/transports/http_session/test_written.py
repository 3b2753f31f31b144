"""The rows that processes write of calls and sessions: they fork, stop, die, or share a pool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.conformance.shared import connect, database
from tests.kit.databases import run, shared
from tests.kit.drivers import headers_for, message
from tests.kit.processes import Server, serving
from tests.transports.http_session.client import connections, request

pytestmark = pytest.mark.outside

APPLICATION = "tests.transports.http_session.logged_asgi:application"
SETTINGS = "tests.transports.http_session.settings_logged"
KINDS = pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.requires("shared"))]
)
CALLERS = 16
PATIENCE = 60


def written(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of the database."""
    variables = {**environ, "DJANGO_SETTINGS_MODULE": SETTINGS}
    for name in ("MCP_TEST_KILLED", "MCP_TEST_PRELOAD"):
        variables.pop(name, None)
    contents: dict[str, Any] = json.loads(run(variables, "tests.transports.http_session.written"))
    return contents


async def call(http: httpx.AsyncClient, server: Server, tool: str, **arguments: Any) -> Any:
    """Call a tool without a session."""
    body = message("tools/call", {"name": tool, "arguments": arguments})
    answer = await http.post(f"{server.url}/mcp", json=body, headers=headers_for(body))
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert not result.get("isError"), result
    return result["content"][0]["text"]


async def initialize(http: httpx.AsyncClient, server: Server) -> None:
    """Open a session."""
    body = request(
        "initialize",
        protocolVersion="2025-11-25",
        capabilities={},
        clientInfo={"name": "writer", "version": "1"},
    )
    headers = {"accept": "application/json, text/event-stream"}
    answer = await http.post(f"{server.url}/mcp", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


# Dying --------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    ("killed", "tool", "groups", "outcomes"),
    [
        ("first", "write", [], []),
        ("", "die", ["mine"], [["die", "started"]]),
        ("last", "write", ["mine"], [["write", "started"]]),
    ],
    ids=["before the first row", "in the function", "before the last row"],
)
async def test_the_log_tells_whether_a_call_had_begun_when_its_process_died(
    kind, killed, tool, groups, outcomes, tmp_path
):
    with shared(kind, tmp_path) as found_by:
        environ = {**found_by, "MCP_TEST_KILLED": killed}
        with serving("uvicorn", APPLICATION, tmp_path, settings=SETTINGS, **environ) as server:
            async with connections() as http:
                with pytest.raises(httpx.TransportError):
                    await call(http, server, tool, name="mine")
            assert server.wait() == -9
        contents = written(environ)
        assert contents["groups"] == groups
        assert contents["calls"] == outcomes


# Stopping -----------------------------------------------------------------------------------------


async def write_until_it_stops(
    http: httpx.AsyncClient, server: Server, caller: int, answered: list[str]
) -> None:
    """Write one group after the other, until the server no longer accepts calls."""
    for number in range(1_000_000):
        name = f"{caller} {number}"
        try:
            answered.append(await call(http, server, "write", name=name))
        except httpx.TransportError:
            return


@KINDS
async def test_a_process_that_stops_under_load_leaves_no_call_unfinished(kind, tmp_path):
    with (
        shared(kind, tmp_path) as environ,
        serving("uvicorn", APPLICATION, tmp_path, settings=SETTINGS, **environ) as server,
    ):
        answered: list[str] = []
        async with connections() as http, asyncio.timeout(PATIENCE):
            writing = [
                asyncio.create_task(write_until_it_stops(http, server, caller, answered))
                for caller in range(CALLERS)
            ]
            while len(answered) < 3 * CALLERS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            server.terminate()
            await asyncio.gather(*writing)
        server.wait()
        contents = written(environ)
    # A call whose answer did not arrive has run too.
    assert set(answered) <= set(contents["groups"])
    assert [outcome for _, outcome in contents["calls"]] == ["ok"] * len(contents["groups"])
    assert contents["tokens"] == len(contents["calls"])


# Forking ------------------------------------------------------------------------------------------


@KINDS
async def test_processes_forked_after_a_call_write_for_themselves(kind, tmp_path):
    with shared(kind, tmp_path) as found_by:
        environ = {**found_by, "MCP_TEST_PRELOAD": "1"}
        with serving(
            "gunicorn, preloaded", APPLICATION, tmp_path, settings=SETTINGS, **environ
        ) as server:
            async with connections() as http, asyncio.timeout(PATIENCE):
                names = [str(number) for number in range(40)]
                for some in zip(*[iter(names)] * 4, strict=True):
                    calls = (call(http, server, "write", name=name) for name in some)
                    answers = await asyncio.gather(*calls, initialize(http, server))
                    assert answers[:4] == [*some]
            server.terminate()
            server.wait()
            assert "Traceback" not in server.output, server.output
        contents = written(environ)
    assert contents["groups"] == sorted([*names, "preloaded"])
    assert contents["calls"] == [["write", "ok"]] * (len(names) + 1)
    assert contents["tokens"] == len(names) + 1
    assert contents["sessions"] == 10


# A pool -------------------------------------------------------------------------------------------


@contextmanager
def counting(environ: Mapping[str, str]) -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many connections are in a transaction."""
    url = environ["MCP_TEST_DATABASE_URL"]
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state = 'idle in transaction'"
    )
    with connect(url) as connection:
        yield lambda: connection.execute(query, [database(url)["NAME"]]).fetchone()[0]


@pytest.mark.requires("shared")
async def test_the_writer_needs_no_connection_of_a_tool(tmp_path):
    """Tools hold eight of the ten connections of psycopg's pool."""
    gate = tmp_path / "gate"
    with shared("postgres", tmp_path) as found_by:
        environ = {**found_by, "MCP_TEST_POOL": "10", "MCP_TEST_THREADS": "36"}
        with serving("uvicorn", APPLICATION, tmp_path, settings=SETTINGS, **environ) as server:
            async with connections() as http, asyncio.timeout(PATIENCE):
                holding = [
                    asyncio.create_task(call(http, server, "hold", gate=str(gate)))
                    for _ in range(8)
                ]
                with counting(environ) as count:
                    while await asyncio.to_thread(count) < 8:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                # Calls that came while the pool opened its connections had to wait.
                waited = await call(http, server, "waits")
                for number in range(20):
                    await call(http, server, "write_nothing", name=str(number))
                    await initialize(http, server)
                assert await call(http, server, "waits") == waited
                gate.touch()
                await asyncio.gather(*holding)
            assert "Traceback" not in server.output, server.output
        contents = written(environ)
    assert contents["calls"].count(["write_nothing", "ok"]) == 20
    assert contents["sessions"] == 20
