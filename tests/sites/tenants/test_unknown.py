"""What one tenant has is unknown at the other one's host: ids, cursors, tasks, states and pages."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest

from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from tests.kit.drivers import message
from tests.sites.tenants.load import HANDSHAKE, MODERN, PATH, PATIENCE, Client
from tests.sites.tenants.sites import SITES, served
from tests.transports.http_session.handshakes import request

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

TASK = {"name": "required_task", "arguments": {}}


@pytest.fixture(
    scope="module",
    params=[
        *((site, "fast handler") for site in SITES),
        ("schemas", "raw"),
        ("schemas", "WSGI"),
        ("schemas", "view under ASGI"),
    ],
    ids=", ".join,
)
def server(request, tmp_path_factory):
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("unknown")) as server:
        yield server
        assert "Traceback" not in server.output, server.output


@pytest.fixture
def alpha(server):
    with closing(Client(server, "alpha")) as client:
        yield client


@pytest.fixture
def beta(server):
    with closing(Client(server, "beta")) as client:
        yield client


def test_a_session(alpha, beta):
    alpha.open()
    [session] = alpha.sessions.values()
    for session_id in (session["mcp_session_id"], "unknown"):
        reply = beta.send(
            request("ping"),
            mcp_protocol_version=HANDSHAKE,
            mcp_method=None,
            mcp_session_id=session_id,
        )
        assert reply.status == 404, reply.text
    assert alpha.ask_in_session(request("ping")).response["result"] == {}


def test_a_cursor(alpha, beta):
    first = alpha.ask("resources/list", {}).response["result"]
    assert len(first["resources"]) == 2
    params = {"cursor": first["nextCursor"]}
    assert len(alpha.ask("resources/list", params).response["result"]["resources"]) == 1
    for cursor in (first["nextCursor"], "unknown"):
        error = beta.ask("resources/list", {"cursor": cursor}).response["error"]
        assert error["code"] == -32602


@pytest.mark.parametrize("version", [MODERN, HANDSHAKE])
def test_a_task(alpha, beta, version):
    done = alpha.run_task(TASK, version=version)
    assert done.rows == {f"alpha-{number}" for number in (1, 2, 3)}
    task_id = alpha.task_id
    assert "result" in alpha.ask_for_task(task_id, version=version).response
    answers = []
    for name in (task_id, "unknown"):
        error = beta.ask_for_task(name, version=version).response["error"]
        answers.append((error["code"], error["message"].replace(name[:80], "…")))
    assert answers[0] == answers[1]


def test_the_state_of_a_question(alpha, beta):
    capabilities = {CLIENT_CAPABILITIES: {"elicitation": {"form": {}}}}
    params: dict[str, Any] = {"name": "asking", "arguments": {}}
    result = alpha.send(message("tools/call", params, **capabilities)).response["result"]
    [key] = result["inputRequests"]
    params |= {
        "inputResponses": {key: {"action": "accept", "content": {}}},
        "requestState": result["requestState"],
    }
    body = message("tools/call", params, **capabilities)
    assert "belongs to another request" in beta.send(body).response["error"]["message"]
    assert alpha.send(body).rows == {f"alpha-{number}" for number in (1, 2, 3)}


def test_each_row_has_its_tenant(server, alpha, beta):
    for client, calls in ((alpha, 3), (beta, 2)):
        before = counts(client)
        for _ in range(calls):
            client.call("async_items", version=HANDSHAKE)
        client.run_task(TASK)
        wanted = {
            "Task": before["Task"].get(client.tenant, 0) + 1,
            "Call": before["Call"].get(client.tenant, 0) + calls + 1,
            "Session": 1,
        }
        # Rows are written soon after the answers.
        deadline = time.monotonic() + PATIENCE
        while any(
            (after := counts(client))[name].get(client.tenant, 0) < n for name, n in wanted.items()
        ):
            assert time.monotonic() < deadline, (before, after)
        assert all(set(after[name]) <= {"alpha", "beta"} for name in wanted), after


def counts(client: Client) -> dict[str, dict[str, int]]:
    """Return how many rows each tenant has by now."""
    row_counts: dict[str, dict[str, int]] = client.call("own_rows").response["result"][
        "structuredContent"
    ]
    return row_counts


def test_a_host_without_a_tenant(server):
    with closing(Client(server, "gamma")) as client:
        for version in (MODERN, HANDSHAKE):
            reply = client.call("sync_items", version=version)
            assert (reply.status, reply.rows) == (404, set()), reply.text
        assert client.send(None, verb="GET", path=PATH).status == 404
