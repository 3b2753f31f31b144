"""An answer in two pieces does not wait for the client to acknowledge the first one."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import httpx
import pytest

from tests.kit import databases
from tests.kit.drivers import Connection, headers_for, message
from tests.kit.processes import HOST, serving
from tests.transports.asgi import MOUNTS

PING = message("tools/list")
# The least time by which a system delays an acknowledgment, except for a connection's first
# answers.
DELAY_SECONDS = 0.040
FIRST, ATTEMPTS = 30, 60


@pytest.fixture
async def transport():
    """A connection whose socket does not report that it uses TCP, as in uvicorn's workers."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listening, socket.socket() as client:
        listening.bind((HOST, 0))
        listening.listen()
        client.setblocking(False)
        await loop.sock_connect(client, listening.getsockname())
        accepted, _ = listening.accept()
        made, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        yield made
        made.abort()


def is_delayed(transport: Any) -> bool:
    sock = transport.get_extra_info("socket")
    return not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class Shown(Connection):
    """A request whose server exposes its transport, as uvicorn does."""

    transport: Any = None


async def ask(mount: str, transport: Any) -> int:
    """Return the status of an answer over a connection."""
    connection = Shown(MOUNTS[mount], "/open/mcp", encoded(), headers_for(PING), "POST")
    # The application has not begun.
    connection.transport = transport
    try:
        await connection.start()
        return (await connection.rest()).status
    finally:
        await connection.close()


def encoded() -> bytes:
    return httpx.Request("POST", "http://testserver", json=PING).content


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mount", ["lane", "raw", "consumer"])
async def test_every_fast_mount_sends_at_once(mount, transport, settings):
    settings.ROOT_URLCONF = "tests.transports.urls"
    assert is_delayed(transport)
    assert await ask(mount, transport) == 200
    assert not is_delayed(transport)


class Closed(asyncio.Transport):
    """A connection that is closed already."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        sock = socket.socket()
        sock.close()
        return sock


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("shown", [None, object(), asyncio.Transport(), Closed()])
async def test_a_server_that_shows_no_socket_is_left_alone(shown, settings):
    settings.ROOT_URLCONF = "tests.transports.urls"
    assert await ask("lane", shown) == 200


@pytest.mark.outside
def test_no_answer_of_several_workers_waits_for_an_acknowledgment(tmp_path):
    with databases.shared("sqlite", tmp_path) as environ:
        app = "tests.transports.http_session.asgi:application"
        with (
            serving(
                "uvicorn, two workers", app, tmp_path, settings=databases.SETTINGS, **environ
            ) as server,
            httpx.Client(trust_env=False, timeout=60) as client,
        ):
            times = []
            for _ in range(ATTEMPTS):
                began = time.monotonic()
                answer = client.post(f"{server.url}/mcp", json=PING, headers=headers_for(PING))
                times.append(time.monotonic() - began)
                assert answer.status_code == 200
    assert min(times[FIRST:]) < DELAY_SECONDS, times
