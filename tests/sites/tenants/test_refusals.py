"""What runs without the site's middleware, or after its answer, is refused with the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import TASKS
from tests.kit.drivers import message
from tests.kit.processes import REPOSITORY
from tests.sites.tenants.load import HANDSHAKE, KINDS, MODERN, Client, Reply
from tests.sites.tenants.sites import HTTP_MOUNTS, SITES, environ_of, served

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

# django-tenants is found by its name, and a router by the setting.
FOUND = ("schemas", "files")
ALPHA = {f"alpha-{number}" for number in (1, 2, 3)}
WITH_TASKS = {CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}}}


@pytest.fixture(
    scope="module",
    params=[*(("schemas", mount) for mount in HTTP_MOUNTS), ("files", "fast handler")],
    ids=", ".join,
)
def site(request, tmp_path_factory):
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("refusals")) as server:
        yield SITES[name], server


@pytest.fixture
def reason(site):
    """What the sentence of a refusal names."""
    return site[0]


@pytest.fixture
def client(site):
    with closing(Client(site[1], "alpha")) as client:
        yield client


def assert_refused(reply: Reply, reason: str) -> None:
    assert reason in reply.refusal, reply.text
    assert not reply.rows


def test_the_site_answers_its_tenant(client):
    for version in (MODERN, HANDSHAKE):
        assert client.call("async_items", version=version).rows == ALPHA


def test_subscriptions_are_refused(client, reason):
    wanted: dict[str, Any] = {"resourceSubscriptions": ["items://pages/1"]}
    for notifications in (wanted, {"toolsListChanged": True}):
        params = {"notifications": notifications}
        reply = client.ask("subscriptions/listen", params, is_open_ended=True)
        assert_refused(reply, reason)


def test_subscriptions_of_a_session_are_refused(client, reason):
    params = {"uri": "items://pages/1"}
    assert_refused(client.ask("resources/subscribe", params, version=HANDSHAKE), reason)


def test_subscriptions_are_not_announced(client):
    resources = client.open().response["result"]["capabilities"]["resources"]
    assert not resources.get("subscribe")
    discovered = client.ask("server/discover", {}).response["result"]
    assert not discovered["capabilities"]["resources"].get("subscribe")


def test_the_get_stream_is_refused(client):
    client.open()
    reply = client.ask_in_session(None, verb="GET", accept="text/event-stream", is_open_ended=True)
    # As under WSGI, which every client knows: it has to do without.
    assert (reply.status, reply.is_stream, reply.rows) == (405, False, set())
    assert "GET" not in reply.headers["allow"]


def test_http_with_sse_is_refused(client, reason):
    reply = client.send(
        None, verb="GET", path="/mcp/sse", accept="text/event-stream", is_open_ended=True
    )
    assert reply.status == 405
    assert_refused(reply, reason)


@pytest.mark.parametrize("tool", ["optional_task", "required_task"])
def test_tasks_are_refused(client, reason, tool):
    params = {"name": tool, "arguments": {}}
    # A client of 2025-11-25 asks for a task itself.
    reply = client.ask("tools/call", {**params, "task": {"ttl": 60_000}}, version=HANDSHAKE)
    assert_refused(reply, reason)
    if tool == "required_task":
        assert_refused(client.send(message("tools/call", params, **WITH_TASKS)), reason)


def test_a_tool_with_optional_tasks_answers_its_tenant(client):
    params = {"name": "optional_task", "arguments": {}}
    reply = client.send(message("tools/call", params, **WITH_TASKS))
    assert (reply.response["result"]["resultType"], reply.rows) == ("complete", ALPHA)
    for version in (MODERN, HANDSHAKE):
        assert client.call("optional_task", version=version).rows == ALPHA


def test_progress_opens_no_stream(client):
    for version in (MODERN, HANDSHAKE):
        for tool in ("sync_stream", "async_stream"):
            reply = client.call(tool, version=version)
            assert (reply.is_stream, reply.rows) == (False, ALPHA)


@pytest.fixture(
    scope="module",
    params=[("schemas", "raw"), ("schemas", "consumer"), ("files", "raw")],
    ids=", ".join,
)
def bare(request, tmp_path_factory):
    """A mount without middleware."""
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("bare")) as server:
        yield SITES[name], server


@pytest.mark.parametrize("kind", KINDS)
def test_a_mount_without_middleware_refuses_calls(bare, kind):
    reason, server = bare
    with closing(Client(server, "alpha")) as client:
        for version in (MODERN, HANDSHAKE):
            _, method, params = KINDS[kind]
            assert_refused(client.ask(method, params, version=version, is_open_ended=True), reason)


def test_a_mount_without_middleware_refuses_streams(bare):
    reason, server = bare
    with closing(Client(server, "alpha")) as client:
        listen = {"notifications": {"toolsListChanged": True}}
        assert_refused(client.ask("subscriptions/listen", listen, is_open_ended=True), reason)
        for path in ("/mcp", "/mcp/sse"):
            reply = client.send(
                None, verb="GET", path=path, accept="text/event-stream", is_open_ended=True
            )
            assert_refused(reply, reason)


@pytest.mark.parametrize("name", FOUND)
def test_stdio_is_refused(name):
    request = message("tools/call", {"name": "async_items", "arguments": {}})
    process = subprocess.run(
        [sys.executable, "-m", "django", "mcp", "stdio", "--server", "tenants"],
        cwd=REPOSITORY,
        env={**os.environ, **environ_of(name)},
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert SITES[name] in process.stderr
