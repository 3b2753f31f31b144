"""JSON arrays as messages: served at 2025-03-26, refused at every other revision."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Session
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
)
from mcp_django.protocol.jsonrpc import MAX_BATCH_MESSAGES
from mcp_django.transports.asgi_handler import RawASGIMount
from tests.kit.drivers import VERSION, message, send
from tests.spec import spec
from tests.transports.http_session.handshakes import (
    STAGE,
    VERSIONS,
    A,
    B,
    C,
    D,
    Peer,
    call,
    code_of,
    encoded,
    initialize,
    notification,
    opened,
    request,
)
from tests.transports.stage import gates, reached

JSON_ONLY = "application/json"
RESPONSE = {"jsonrpc": "2.0", "id": "ask-1-1", "result": {}}
PING = request("ping")


def by_id(entries: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return the entries of an answer by id; no two may have the same id."""
    entries_by_id = {json.dumps(response["id"]): response for response in entries}
    assert len(entries_by_id) == len(entries)
    return entries_by_id


@spec("BAT-1", "BAT-4", "RPC-2", "HTTP-5")
async def test_every_request_gets_one_entry_and_nothing_else_does(mount):
    peer = await opened(mount, version=B)
    batch = [
        request("ping", id=1),
        notification("notifications/unknown"),
        request("ping", id="1"),
        request("tools/dance", id=2),
        request("tools/call", {"name": "echo", "arguments": {"text": "a"}}, id=3),
        request("tools/call", {"name": "echo_sync", "arguments": {"text": "b"}}, id=4),
        request("tools/call", {"name": "nothing"}, id=5),
        request("tools/call", {}, id=6),
    ]
    for accept in (None, JSON_ONLY, "application/json, text/event-stream"):
        answer = await peer.send(batch, accept=accept)
        assert answer.status == 200
        entries = by_id(answer.messages() if answer.is_stream else answer.json())
        assert {*entries} == {"1", '"1"', "2", "3", "4", "5", "6"}
        assert entries["1"]["result"] == entries['"1"']["result"] == {}
        assert entries["2"]["error"]["code"] == METHOD_NOT_FOUND
        assert entries["3"]["result"]["content"][0]["text"] == "a"
        assert entries["4"]["result"]["content"][0]["text"] == "b"
        assert entries["5"]["error"]["code"] == INVALID_PARAMS
        assert entries["6"]["error"]["code"] == INVALID_PARAMS
        assert answer.is_stream is (accept != JSON_ONLY and mount != "wsgi")


@spec("BAT-4")
async def test_one_request_is_still_answered_by_an_array(mount):
    peer = await opened(mount, version=B)
    answer = await peer.send([request("ping", id="only")])
    assert answer.headers["content-type"] == JSON_ONLY
    assert answer.json() == [{"jsonrpc": "2.0", "id": "only", "result": {}}]


@spec("BAT-4", "HTTP-4")
async def test_what_needs_no_answer_gets_none(mount):
    peer = await opened(mount, version=B)
    silent = [
        [notification("notifications/unknown")],
        [notification("notifications/unknown")] * MAX_BATCH_MESSAGES,
        [RESPONSE],
        [RESPONSE, {**RESPONSE, "id": 7}],
    ]
    for batch in silent:
        answer = await peer.send(batch)
        assert (answer.status, answer.body) == (202, b"")


@spec("BAT-2", "BAT-7")
async def test_a_batch_that_is_none_is_refused_as_a_whole(mount):
    peer = await opened(mount, version=B)
    wrong: list[Any] = [
        [],
        [RESPONSE, PING],
        [RESPONSE, notification("notifications/unknown")],
        [PING] * (MAX_BATCH_MESSAGES + 1),
        [notification("notifications/unknown")] * 10_000,
    ]
    for batch in wrong:
        answer = await peer.send(batch)
        assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
        assert "id" not in answer.json()
    for broken in (b"[", b"[1,]", b"[{]"):
        answer = await peer.send(broken)
        assert (answer.status, code_of(answer)) == (400, PARSE_ERROR)


@spec("BAT-7", "RPC-11", "RPC-12")
async def test_a_broken_member_gets_an_entry_of_its_own(mount):
    peer = await opened(mount, version=B)
    broken = [1, "x", None, [], [PING], {}, {"jsonrpc": "1.0", "method": "ping"}, {"id": None}]
    answer = await peer.send([*broken, request("ping", id=9), {**PING, "id": 8, "params": [1]}])
    assert answer.status == 200
    *entries, last, ping = sorted(answer.json(), key=lambda response: response.get("id", 0))
    assert [response["error"]["code"] for response in entries] == [INVALID_REQUEST] * len(broken)
    # The null id of base JSON-RPC fits no schema: a client that validates would reject all entries.
    assert not any("id" in response for response in entries)
    assert (last["id"], last["error"]["code"]) == (8, INVALID_PARAMS)
    assert ping == {"jsonrpc": "2.0", "id": 9, "result": {}}


@spec("BAT-4", "VER-18")
@pytest.mark.usefixtures("_stage", "transactional_db")
async def test_a_member_that_needs_a_capability_is_told_so_in_a_code_of_its_revision():
    needy = MCPServer("needy", permission=AllowAny)

    @needy.prompt(needs=["elicitation"], atomic=False)
    def brief(ctx: Context) -> str:
        """A brief."""
        return ctx.elicit("Which tone?", str)

    app = RawASGIMount(needy)
    plain: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    begun = await send(app, "/mcp", encoded(initialize(B)), **plain)
    plain["mcp_session_id"] = begun.headers["mcp-session-id"]
    member = request("prompts/get", {"name": "brief"}, id=7)
    for body in (member, [member]):
        answer = await send(app, "/mcp", encoded(body), **plain)
        assert answer.status == 200
        (response,) = answer.json() if isinstance(body, list) else [answer.json()]
        assert (response["id"], response["error"]["code"]) == (7, INVALID_PARAMS)


@spec("BAT-3", "VER-19")
async def test_initialize_does_not_come_in_a_batch(mount):
    for batch in ([initialize(B)], [initialize(B), request("tools/list", id=2)]):
        answer = await Peer(mount).send(batch)
        assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
        assert "mcp-session-id" not in answer.headers
    assert not await Session.objects.aexists()
    peer = await opened(mount, version=B)
    answer = await peer.send([initialize(D, id=5), request("ping", id=6)])
    entries = by_id(answer.json())
    assert entries["5"]["error"]["code"] == INVALID_REQUEST
    assert entries["6"]["result"] == {}
    assert "mcp-session-id" not in answer.headers
    assert await Session.objects.acount() == 1


@spec("BAT-5", "BAT-6", "HTTP-20")
async def test_sessions_of_other_revisions_have_no_batches(mount):
    for version, header in product((A, C, D), (None, *VERSIONS)):
        peer = await opened(mount, version=version)
        for batch in ([PING], [notification("notifications/unknown")], [RESPONSE]):
            answer = await peer.send(batch, mcp_protocol_version=header)
            assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
            assert "id" not in answer.json()


@spec("BAT-1", "BAT-8", "HTTP-20")
async def test_a_session_of_2025_03_26_has_them_whatever_the_header_says(mount):
    peer = await opened(mount, version=B)
    for header in (None, *VERSIONS):
        answer = await peer.send([PING], mcp_protocol_version=header)
        assert answer.json() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


@spec("BAT-8", "SES-3", "SES-4")
async def test_a_batch_without_its_session_is_told_to_initialize(mount):
    for header, batch in product(
        (None, *VERSIONS), ([PING], [notification("notifications/x")], [RESPONSE], [1])
    ):
        peer = Peer(mount)
        answer = await peer.send(batch, mcp_protocol_version=header)
        assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
        assert "initialize" in answer.json()["error"]["message"]
        answer = await peer.send(batch, mcp_protocol_version=header, mcp_session_id="x" * 43)
        assert (answer.status, code_of(answer)) == (404, INVALID_REQUEST)


@spec("BAT-9", "BAT-5", "HTTP-19")
async def test_a_modern_batch_is_refused(mount):
    peer = await opened(mount, version=B)
    modern = message("tools/list")
    for batch in ([modern], [PING, modern], [notification("x", **modern["params"]), PING]):
        for header in (None, B, VERSION):
            answer = await peer.send(batch, mcp_protocol_version=header)
            assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
    answer = await peer.send([PING], mcp_protocol_version=VERSION)
    assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
    answer = await peer.send([PING], mcp_protocol_version="nonsense")
    assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)


@spec("BAT-5")
async def test_without_2025_03_26_nobody_has_batches(settings, mount):
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": [VERSION, D, C, A]}
    answer = await Peer(mount).send([PING])
    assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)


@spec("BAT-4", "RPC-2")
async def test_two_members_may_have_the_same_id(mount):
    peer = await opened(mount, version=B)
    echo = [request("tools/call", {"name": "echo", "arguments": {"text": t}}) for t in "ab"]
    answer = await peer.send(echo)
    entries = answer.messages() if answer.is_stream else answer.json()
    assert [response["id"] for response in entries] == [1, 1]
    assert {response["result"]["content"][0]["text"] for response in entries} == {"a", "b"}


@spec("BAT-4", "HTTP-6", "HTTP-17", "PRG-1")
async def test_members_run_side_by_side_on_one_stream(streaming, gate):
    peer = await opened(streaming, STAGE, version=B)
    batch = [
        call("walk", id=1, progress="sync", gate=gate),
        call("walk_later", id=2, progress="async", gate=gate),
        request("ping", id=3),
        call("open_gate", id=4, name="another"),
    ]
    async with peer.stream(batch) as stream:
        answer = await stream.start()
        assert answer.headers["content-type"] == "text/event-stream"
        early = [await stream.event() for _ in range(6)]
        responses = {message["id"] for message in early if "id" in message}
        assert responses == {3, 4}
        tokens = {
            message["params"].get("progressToken") for message in early if "method" in message
        }
        assert {"sync", "async"} <= tokens
        gates[gate].opened.set()
        rest = [await stream.event() for _ in range(4)]
        assert {message["id"] for message in rest if "id" in message} == {1, 2}
        assert (await stream.rest()).body.strip() == b""


@spec("BAT-4", "CAN-1", "CAN-3")
@pytest.mark.parametrize("place", [0, 1], ids=["the first", "the last"])
@pytest.mark.parametrize("tool", ["stay", "stay_later_with_context"])
async def test_a_member_may_be_canceled_and_the_others_go_on(tool, place, streaming, gate):
    peer = await opened(streaming, STAGE, version=B)
    doomed, other = call(tool, id=1, gate=gate), f"{gate} of the other"
    batch = [call("stay", id=2, gate=other)]
    batch.insert(place, doomed)
    async with peer.stream(batch) as stream:
        await stream.start()
        await reached(gates[gate].entered)
        await reached(gates[other].entered)
        await peer.send(notification("notifications/cancelled", requestId=1))
        await reached(gates[gate].left)
        assert gates[gate].outcome == "cancelled"
        gates[other].opened.set()
        response = await stream.event()
        assert response["id"] == 2
        assert response["result"]["content"][0]["text"] == "opened"
        stream.answer.body = b""
        assert b"data" not in (await stream.rest()).body


@spec("BAT-4", "CAN-1")
async def test_a_batch_whose_members_are_all_canceled_ends(streaming, gate):
    peer = await opened(streaming, STAGE, version=B)
    async with peer.stream([call("stay", id=n, gate=f"{gate}{n}") for n in (1, 2)]) as stream:
        await stream.start()
        for number in (1, 2):
            await reached(gates[f"{gate}{number}"].entered)
            await peer.send(notification("notifications/cancelled", requestId=number))
            await reached(gates[f"{gate}{number}"].left)
        assert b"data" not in (await stream.rest()).body


@spec("BAT-4", "CAN-1", "CAN-8")
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
async def test_a_canceled_member_has_an_entry_in_a_document_that_says_so(tool, streaming, gate):
    peer = await opened(streaming, STAGE, version=B)
    names = [gate, f"{gate} two"]
    batch = [call(tool, id=n, gate=name) for n, name in enumerate(names)]
    for others in ([request("ping", id=9)], []):
        asking = asyncio.create_task(peer.send([*batch, *others], accept=JSON_ONLY))
        await reached(gates[gate].entered)
        # The second call is cancelled before it begins: the calls of a document share one thread.
        for number in (1, 0):
            await peer.send(notification("notifications/cancelled", requestId=number))
        answer = await asking
        assert answer.status == 200
        responses = answer.json()
        codes = {response["id"]: response.get("error", {}).get("code") for response in responses}
        assert codes == {
            **{member["id"]: None for member in others},
            **dict.fromkeys((0, 1), REQUEST_CANCELLED),
        }
        assert gates.pop(gate).outcome == "cancelled"
        assert names[1] not in gates
