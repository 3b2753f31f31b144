"""A caller that uses up its share of threads leaves the shares of other callers free."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

import pytest

from mcp_django import MCPServer
from mcp_django.auth import limits
from mcp_django.auth.limits import Member
from mcp_django.auth.permissions import AllowAny
from mcp_django.execution import threads
from mcp_django.protocol.errors import BUSY
from tests.kit.drivers import connect, message, send
from tests.transports.asgi import MOUNTS
from tests.transports.http_session import legacy
from tests.transports.http_session.handshakes import B, call, encoded, initialize
from tests.transports.stage import PATIENCE, gates, reached, until

THREADS, QUEUE = 4, 8
STAGE = "/stage/mcp"
HERE, THERE, ELSEWHERE = "192.0.2.1", "198.51.100.9", "203.0.113.5"
# The plain view runs in a thread of Django's.
POOLED = ("lane", "raw", "consumer")
ADD = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _small(settings):
    sizes = {"THREADS": THREADS, "QUEUE": QUEUE, "QUEUE_SECONDS": PATIENCE}
    settings.MCP_DJANGO = {**sizes, "PROXIES": 1}


@pytest.fixture(params=POOLED)
def app(request):
    return MOUNTS[request.param]


def stay(gate: str, n: int) -> dict[str, Any]:
    return message("tools/call", {"name": "stay", "arguments": {"gate": gate}}, id=n)


def taken(
    key: limits.ShareKey = limits.ANONYMOUS, *, pool: Literal["tool", "stream"] = "tool"
) -> tuple[int, int]:
    """Return how many threads of a pool a caller has, and how many of its calls wait for one."""
    work = threads.get_pool(pool)
    return work._running.get(key, 0), work._queued.get(key, 0)


async def test_strangers_leave_half_of_the_threads_to_users(app, token, gate):
    most = THREADS // 2 + QUEUE // 2
    async with AsyncExitStack() as stack:
        for n in range(most):
            # Of two addresses, each of which fills its part.
            address = HERE if n % 2 else THERE
            calling = connect(app, STAGE, stay(gate, n), x_forwarded_for=address)
            await stack.enter_async_context(calling)
        await until(lambda: taken() == (THREADS // 2, QUEUE // 2))
        for address in (HERE, ELSEWHERE):
            refused = await send(app, STAGE, stay(gate, most), x_forwarded_for=address)
            assert refused.status == 503
            assert refused.json()["error"]["code"] == BUSY
        # A user is not refused: neither with a token new to this process, nor the next time.
        for _ in range(2):
            answer = await send(app, "/mcp", ADD, authorization=token, x_forwarded_for=HERE)
            assert answer.json()["result"]["content"][0]["text"] == "5"
        assert taken() == (THREADS // 2, QUEUE // 2)
        gates[gate].opened.set()


@pytest.mark.parametrize("address", [HERE, THERE, "2001:db8:1:1::7"])
async def test_an_address_leaves_half_of_what_strangers_have_to_others(address, app, gate):
    mine = Member(limits.ANONYMOUS, limits.rate_limit_source(address))
    async with AsyncExitStack() as stack:
        for n in range(3):
            calling = connect(app, STAGE, stay(gate, n), x_forwarded_for=address)
            await stack.enter_async_context(calling)
        await until(lambda: taken(mine) == (1, 2))
        refused = await send(app, STAGE, stay(gate, 3), x_forwarded_for=address)
        assert refused.status == 503
        # A caller at another address has a thread and need not wait.
        knock = message("tools/call", {"name": "open_gate", "arguments": {"name": f"{gate} too"}})
        for _ in range(2):
            answer = await send(app, STAGE, knock, x_forwarded_for=ELSEWHERE)
            assert answer.status == 200
        assert taken(mine) == (1, 2)
        gates[gate].opened.set()
    gates.pop(f"{gate} too")


async def test_strangers_of_unknown_address_have_what_strangers_have(app, gate):
    async with AsyncExitStack() as stack:
        for n in range(THREADS // 2 + QUEUE // 2):
            calling = connect(app, STAGE, stay(gate, n), x_forwarded_for="unknown")
            await stack.enter_async_context(calling)
        await until(lambda: taken() == (THREADS // 2, QUEUE // 2))
        gates[gate].opened.set()


async def test_a_batch_of_a_stranger_does_not_make_itself_busy(app, gate, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "THREADS": 8, "QUEUE": 1}
    mine = Member(limits.ANONYMOUS, HERE)
    plain: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    plain["x_forwarded_for"] = HERE
    begun = await send(app, STAGE, encoded(initialize(B)), **plain)
    plain["mcp_session_id"] = begun.headers["mcp-session-id"]
    batch = encoded([call("stay", id=n, gate=gate) for n in range(6)])
    sending = asyncio.create_task(send(app, STAGE, batch, **plain))
    await until(lambda: taken(mine) == (2, 0))
    gates[gate].opened.set()
    answer = await sending
    assert answer.is_stream
    assert all("result" in response for response in answer.messages())


async def test_slow_batches_leave_the_threads_for_short_work_to_others(app, gate):
    names, sending = [gate, f"{gate} too"], []
    plain: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    for address, name in zip((HERE, THERE), names, strict=True):
        plain["x_forwarded_for"] = address
        begun = await send(app, STAGE, encoded(initialize(B)), **plain)
        plain["mcp_session_id"] = begun.headers["mcp-session-id"]
        batch = encoded([call("stay", gate=name)])
        calling = send(app, STAGE, batch, accept="application/json", **plain)
        sending.append(asyncio.create_task(calling))
        del plain["mcp_session_id"]
        await reached(gates[name].entered)
    # As many as there are short-task threads.
    assert len(sending) == threads.SHORT_TASK_THREADS
    assert (await send(app, STAGE, message("tools/list"))).status == 200
    for name in names:
        gates[name].opened.set()
    assert [(await task).status for task in sending] == [200, 200]
    gates.pop(names[1])


async def test_an_address_leaves_threads_to_others_on_http_sse(app, gate):
    mine = Member(limits.ANONYMOUS, HERE)
    async with (
        legacy.opened(app, f"{STAGE}/sse", x_forwarded_for=HERE) as stream,
        legacy.opened(app, f"{STAGE}/sse", x_forwarded_for=THERE) as other,
    ):
        for connection in (stream, other):
            await connection.ask(initialize(B))
        for n in range(2):
            await stream.post(call("stay", id=n, gate=gate))
        await until(lambda: taken(mine) == (1, 1))
        assert "result" in await other.ask(call("open_gate", id=7, name=gate))
        for _ in range(2):
            assert "result" in await stream.said()


async def test_streams_of_an_address_leave_threads_to_others(gate):
    server = MCPServer("shared", permission=AllowAny)

    @server.resource("shared://{name}", subscribe=True)
    def read(name: str) -> str:
        """Stay until the gate opens."""
        gates[gate].entered.set()
        assert gates[gate].opened.wait(PATIENCE)
        return name

    mine = Member(limits.ANONYMOUS, HERE)
    async with AsyncExitStack() as stack:
        for n in range(2):
            wanted = {"notifications": {"resourceSubscriptions": [f"shared://{n}"]}}
            body = message("subscriptions/listen", wanted)
            calling = connect(server.asgi, "/mcp", body, x_forwarded_for=HERE)
            connection = await stack.enter_async_context(calling)
            if not n:
                await reached(gates[gate].entered)
        # The check of the second stream waits for that of the first; neither uses a tool thread.
        await until(lambda: taken(mine, pool="stream") == (1, 1))
        assert taken(mine) == (0, 0)
        gates[gate].opened.set()
        assert "acknowledged" in (await connection.event())["method"]


async def test_what_nobody_has_proven_is_counted_by_itself(app, token):
    headers = {"authorization": "Bearer nobody"}
    assert (await send(app, "/mcp", ADD, **headers)).status == 401
    presumed = limits.presumed_caller
    share = partial(limits.presumed_share, source=lambda: HERE)
    assert share(_headers(**headers)) == Member(limits.UNPROVEN, HERE)
    assert share(_headers(cookie="a=b")) == Member(limits.UNPROVEN, HERE)
    assert share(_headers()) == Member(limits.ANONYMOUS, HERE)
    assert limits.presumed_share(_headers(), lambda: None) == limits.ANONYMOUS
    assert presumed(_headers(**headers)) == limits.UNPROVEN
    assert presumed(_headers(authorization=token)) == limits.UNPROVEN
    assert (await send(app, "/mcp", ADD, authorization=token)).status == 200
    assert presumed(_headers(authorization=token)).startswith("user:")
    assert presumed(_headers(cookie="a=b")) == limits.UNPROVEN
    assert presumed(_headers()) == limits.ANONYMOUS


def _headers(**given: str) -> Any:
    from mcp_django.protocol.headers import Headers

    return Headers([(name.encode(), value.encode()) for name, value in given.items()])
