"""Streams that stay open: each tenant's clients are notified of what its own callers change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.kit.processes import Server
from tests.sites.tenants.fill import TENANTS
from tests.sites.tenants.load import (
    HANDSHAKE,
    OPENERS,
    URI,
    Client,
    OlderClient,
    Outcome,
    ask_older,
    hear,
)
from tests.sites.tenants.sites import SITES, served
from tests.transports.http_session.handshakes import request

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

STREAMING_MOUNTS = ("fast handler", "view under ASGI", "raw", "consumer")
TOUCHES = 20


@pytest.fixture(
    scope="module",
    params=[
        *(("schemas", mount) for mount in STREAMING_MOUNTS),
        *((site, "fast handler") for site in SITES[1:]),
    ],
    ids=", ".join,
)
def server(request, tmp_path_factory):
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("streams")) as server:
        yield server
        assert "Traceback" not in server.output, server.output


@pytest.mark.parametrize("kind", OPENERS)
def test_a_stream_hears_of_its_tenant(server, kind):
    assert_right(hear(server, kind, TOUCHES))


def test_http_with_sse_answers_its_tenant(server):
    assert_right(ask_older(server, 2 * TOUCHES))


def assert_right(outcome: Outcome) -> None:
    assert (outcome.foreign, outcome.wrong) == (0, 0), outcome.example


@contextmanager
def clients(server: Server) -> Iterator[dict[str, Client]]:
    with ExitStack() as stack:
        yield {tenant: stack.enter_context(closing(Client(server, tenant))) for tenant in TENANTS}


def test_a_session_of_http_with_sse_is_unknown_to_others(server):
    with clients(server) as asking, OlderClient(asking["alpha"]) as opened:
        assert opened.post(request("ping"), host=asking["beta"]) == 404


def test_a_stream_is_resumed_by_its_tenant_alone(server):
    """An event id of one tenant is not valid in a session of the other."""
    with clients(server) as asking, ExitStack() as stack:
        alpha, beta = asking["alpha"], asking["beta"]
        alpha.open()
        alpha.ask_in_session(request("resources/subscribe", {"uri": URI}))
        stream = stack.enter_context(closing(alpha.open_get_stream()))
        alpha.call("touch")
        stream.next()
        body = request("tools/call", {"name": "async_stream", "arguments": {}})
        body["params"]["_meta"] = {"progressToken": 1}
        reply = alpha.ask_in_session(body)
        ids = [line.removeprefix("id: ") for line in reply.text.splitlines() if "id: " in line]
        assert ids, reply.text
        beta.open()
        answers = set()
        for number in (*ids, "1f-1"):
            resumed = stack.enter_context(closing(beta.open_get_stream(last_event_id=number)))
            answers.add((resumed.status, resumed.text))
        assert len(answers) == 1, answers
        [(status, text)] = answers
        assert status == 400, text
        [session] = alpha.sessions.values()
        headers = {"mcp_protocol_version": HANDSHAKE, "mcp_method": None, "mcp_name": None}
        taken = stack.enter_context(
            closing(beta.listen(None, verb="GET", last_event_id=ids[0], **headers, **session))
        )
        assert taken.status == 404
