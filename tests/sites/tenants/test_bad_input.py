"""A package that is installed and not used, middleware that fails, and clients that leave."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.kit.drivers import headers_for, message
from tests.kit.processes import HOST, Server
from tests.sites.tenants.load import AT_ONCE, HANDSHAKE, MODERN, Client, Load
from tests.sites.tenants.sites import SITES, served

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

ALPHA = {f"alpha-{number}" for number in (1, 2, 3)}
PATIENCE = 30
# Half of the threads that one address gets.
LEAVING = 4


def notes(server: Server) -> dict[str, int]:
    """Return what the functions of the server's process have noted so far."""
    with closing(Client(server, "beta")) as client:
        counts: dict[str, int] = client.call("notes").response["result"]["structuredContent"]
        return counts


def wait_for(server: Server, **expected: int) -> None:
    """Poll until this much is noted.

    Raises:
        AssertionError: it takes too long.
    """
    deadline = time.monotonic() + PATIENCE
    while not expected.items() <= (current := notes(server)).items():
        assert time.monotonic() < deadline, current


def test_a_package_that_is_not_used_takes_no_streams(tmp_path):
    with (
        served("unused", "fast handler", tmp_path, MCP_TEST_THREAD_CONTEXT="False") as server,
        closing(Client(server, "alpha")) as client,
    ):
        for version in (MODERN, HANDSHAKE):
            for tool in ("sync_stream", "async_stream"):
                reply = client.call(tool, version=version)
                assert (reply.is_stream, reply.rows) == (True, ALPHA)
        client.open()
        reply = client.ask_in_session(
            None, verb="GET", accept="text/event-stream", is_open_ended=True
        )
        assert reply.is_stream


def test_a_package_that_is_not_used_takes_no_mounts(tmp_path):
    with (
        served("unused", "raw", tmp_path, MCP_TEST_THREAD_CONTEXT="False") as server,
        closing(Client(server, "alpha")) as client,
    ):
        for version in (MODERN, HANDSHAKE):
            assert client.call("async_items", version=version).rows == ALPHA


def test_a_package_that_is_installed_counts_as_used(tmp_path):
    """No host has a tenant, so nothing is answered until the site says that it has none."""
    for mount in ("fast handler", "raw"):
        with (
            served("unused", mount, tmp_path) as server,
            closing(Client(server, "alpha")) as client,
        ):
            for version in (MODERN, HANDSHAKE):
                reply = client.call("async_items", version=version)
                assert (reply.status, reply.rows) == (404, set())


@pytest.fixture(
    scope="module",
    params=[*((site, "fast handler") for site in SITES), ("schemas", "view under ASGI")],
    ids=", ".join,
)
def server(request, tmp_path_factory):
    """Yield a server with one process, whose functions share what they note."""
    site, mount = request.param
    with served(site, mount, tmp_path_factory.mktemp("bad_input")) as server:
        yield server


def assert_calls_are_right(server: Server) -> None:
    """Assert that each thread serves calls of both tenants correctly."""
    with closing(Load(server)) as load:
        outcome = load.run("async", 4 * AT_ONCE)
        assert (outcome.foreign, outcome.wrong) == (0, 0), outcome.example


def test_middleware_that_fails_after_the_function(server):
    before = notes(server)["noted"]
    with closing(Client(server, "alpha")) as client:
        for number in range(1, AT_ONCE + 1):
            reply = client.call("note", x_fail="1")
            assert (reply.status, reply.rows) == (500, set())
            assert notes(server)["noted"] == before + 3 * number
    assert_calls_are_right(server)


def test_clients_that_leave_while_a_function_waits(server):
    before = notes(server)
    body = message("tools/call", {"name": "wait", "arguments": {}})
    with ExitStack() as clients:
        for _ in range(LEAVING):
            client = socket.create_connection((HOST, server.port), timeout=PATIENCE)
            clients.enter_context(client)
            client.sendall(raw_request(body))
        wait_for(server, waiting=before["waiting"] + 3 * LEAVING)
        assert notes(server)["cancelled"] == before["cancelled"]
    wait_for(server, cancelled=before["cancelled"] + 3 * LEAVING)
    assert_calls_are_right(server)


def raw_request(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    values = headers_for(body, host="alpha.tenants.test", content_length=str(len(content)))
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in values.items())]
    return "\r\n".join([*lines, "", ""]).encode() + content
