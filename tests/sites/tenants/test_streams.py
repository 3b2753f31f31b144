"""Streams that stay open: each tenant's clients are notified of what its own callers change."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Self
from urllib.parse import urljoin

import pytest

from tests.kit.drivers import message
from tests.kit.processes import Server
from tests.sites.tenants.fill import TENANTS
from tests.sites.tenants.load import HANDSHAKE, PATH, Client, Stream
from tests.sites.tenants.sites import SITES, served
from tests.transports.http_session.handshakes import INITIALIZED, A, initialize, request

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

STREAMING_MOUNTS = ("fast handler", "view under ASGI", "raw", "consumer")
URI = "items://pages/1"
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


@contextmanager
def clients(server: Server) -> Iterator[dict[str, Client]]:
    with ExitStack() as stack:
        yield {tenant: stack.enter_context(closing(Client(server, tenant))) for tenant in TENANTS}


def touched_in_turn(clients: dict[str, Client], streams: dict[str, Stream]) -> None:
    """Each touch is heard by the streams of its tenant, and by no other."""
    for tenant in random.choices(TENANTS, k=TOUCHES):
        assert clients[tenant].call("touch").rows == {f"{tenant}-{n}" for n in (1, 2, 3)}
        heard = streams[tenant].next()
        assert heard["method"] == "notifications/resources/updated"
        assert heard["params"]["uri"] == URI
    for stream in streams.values():
        # Longer than another process would need to notice a change.
        with pytest.raises(queue.Empty):
            stream.events.get(timeout=1)


def test_a_get_stream_hears_of_its_tenant(server):
    with clients(server) as asking, ExitStack() as stack:
        streams = {}
        for tenant, client in asking.items():
            client.open()
            subscribed = client.ask_in_session(request("resources/subscribe", {"uri": URI}))
            assert subscribed.response["result"] == {}, subscribed
            streams[tenant] = stack.enter_context(closing(client.open_get_stream()))
            assert streams[tenant].status == 200
        touched_in_turn(asking, streams)


def test_a_listener_hears_of_its_tenant(server):
    body = message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [URI]}})
    with clients(server) as asking, ExitStack() as stack:
        streams = {}
        for tenant, client in asking.items():
            stream = streams[tenant] = stack.enter_context(closing(client.listen(body)))
            assert stream.status == 200
            assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
        touched_in_turn(asking, streams)


def test_http_with_sse_answers_its_tenant(server):
    tools = {
        "sync_items": "tools/call",
        "async_items": "tools/call",
        "thread_items": "tools/call",
    }
    calls = [
        *(request(method, {"name": name, "arguments": {}}) for name, method in tools.items()),
        request("resources/read", {"uri": URI}),
        request("prompts/get", {"name": "summary"}),
    ]
    with clients(server) as asking, ExitStack() as stack:
        opened = {
            tenant: stack.enter_context(OlderClient(client)) for tenant, client in asking.items()
        }
        for number in range(TOUCHES * 2):
            tenant = random.choice(TENANTS)
            body = {**random.choice(calls), "id": number}
            answer = opened[tenant].ask(body)
            other = next(name for name in TENANTS if name != tenant)
            assert f"{tenant}-1" in str(answer), answer
            assert f"{other}-" not in str(answer)


class OlderClient:
    """A client of HTTP+SSE."""

    def __init__(self, client: Client) -> None:
        self._client = client
        headers = {"mcp_protocol_version": None, "mcp_method": None}
        self.stream = client.listen(None, verb="GET", path=f"{PATH}/sse", **headers)
        self._path = urljoin(f"{PATH}/sse", self.stream.events.get(timeout=60).data)

    def __enter__(self) -> Self:
        assert self.ask(initialize(A, id="first"))["result"]["protocolVersion"] == A
        self.post(INITIALIZED)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.close()

    def post(self, body: Any, *, host: Client | None = None) -> int:
        headers = {"mcp_protocol_version": None, "mcp_method": None, "mcp_name": None}
        return (host or self._client).send(body, path=self._path, **headers).status

    def ask(self, body: Any) -> Any:
        assert self.post(body) == 202
        while (answer := self.stream.next()).get("id") != body["id"]:
            pass
        return answer


def test_a_session_of_http_with_sse_is_unknown_to_others(server):
    with clients(server) as asking, OlderClient(asking["alpha"]) as opened:
        assert opened.post(request("ping"), host=asking["beta"]) == 404


def test_a_stream_is_resumed_by_its_tenant_alone(server):
    """An event id of one tenant says nothing in a session of the other."""
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
