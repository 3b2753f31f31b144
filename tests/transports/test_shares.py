"""Whoever takes all the threads there are for one takes them from nobody else."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from mcp_django.auth import limits
from mcp_django.execution import threads
from mcp_django.protocol.errors import BUSY
from tests.drivers import connect, message, send
from tests.transports.asgi import MOUNTS
from tests.transports.stage import PATIENCE, gates, until

THREADS, QUEUE = 4, 8
STAGE = "/stage/mcp"
# The plain view runs in a thread of Django's.
POOLED = ("lane", "raw", "consumer")
ADD = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _small(settings: Any) -> None:
    settings.MCP_DJANGO = {"THREADS": THREADS, "QUEUE": QUEUE, "QUEUE_SECONDS": PATIENCE}


@pytest.fixture(params=POOLED)
def app(request: pytest.FixtureRequest) -> Any:
    return MOUNTS[request.param]


def stay(gate: str, n: int) -> dict[str, Any]:
    return message("tools/call", {"name": "stay", "arguments": {"gate": gate}}, id=n)


def taken() -> tuple[int, int]:
    """The threads that strangers have, and their calls that wait for one."""
    work = threads.get_pool("tool")
    waiting = work._waiting.get(limits.ANONYMOUS, ())
    return work._running[limits.ANONYMOUS], len(waiting)


async def test_strangers_leave_half_of_the_threads_to_users(
    app: Any, token: str, gate: str
) -> None:
    most = THREADS // 2 + QUEUE // 2
    async with AsyncExitStack() as stack:
        for n in range(most):
            await stack.enter_async_context(connect(app, STAGE, stay(gate, n)))
        await until(lambda: taken() == (THREADS // 2, QUEUE // 2))
        refused = await send(app, STAGE, stay(gate, most))
        assert refused.status == 503
        assert refused.json()["error"]["code"] == BUSY
        # Neither one whose token this process has never seen, nor the next time.
        for _ in range(2):
            answer = await send(app, "/mcp", ADD, authorization=token)
            assert answer.json()["result"]["content"][0]["text"] == "5"
        assert taken() == (THREADS // 2, QUEUE // 2)
        gates[gate].opened.set()


async def test_what_nobody_has_proven_is_counted_by_itself(app: Any, token: str) -> None:
    headers = {"authorization": "Bearer nobody"}
    assert (await send(app, "/mcp", ADD, **headers)).status == 401
    presumed = limits.presumed_caller
    assert presumed(_headers(**headers)) == limits.UNPROVEN
    assert presumed(_headers(authorization=token)) == limits.UNPROVEN
    assert (await send(app, "/mcp", ADD, authorization=token)).status == 200
    assert presumed(_headers(authorization=token)).startswith("user:")
    assert presumed(_headers(cookie="a=b")) == limits.UNPROVEN
    assert presumed(_headers()) == limits.ANONYMOUS


def _headers(**given: str) -> Any:
    from mcp_django.protocol.headers import Headers

    return Headers([(name.encode(), value.encode()) for name, value in given.items()])
