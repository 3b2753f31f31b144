"""Texts of clients that some databases cannot store: they are refused or cleaned, never a 500.

`tests/storage/test_other_databases.py` runs this file on PostgreSQL, which cannot store NUL.
"""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.models import Session
from mcp_django.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND
from mcp_django.protocol.jsonrpc import MAX_ID_LENGTH
from tests.spec import spec
from tests.transports.http_session.asking import PARLOR, answer, asking, ready
from tests.transports.http_session.handshakes import (
    VERSIONS,
    B,
    D,
    Peer,
    call,
    code_of,
    initialize,
    notification,
    opened,
    request,
)
from tests.transports.http_session.reading import Reader

NUL = "a\x00b"


@spec("VER-12", "SES-8", "ERR-5")
async def test_what_a_client_says_of_itself_is_kept_without_nul(mount):
    for version in VERSIONS:
        odd = {"name": NUL, "version": NUL, NUL: [NUL, {NUL: NUL}, 10**30, 0.5, None, True]}
        peer = Peer(mount, version=version)
        begun = await peer.send(initialize(version, clientInfo=odd, capabilities={NUL: {}}))
        assert begun.status == 200, begun.body
        peer.headers["mcp_session_id"] = begun.headers["mcp-session-id"]
        assert await peer.result("ping") == {}
        row = await Session.objects.order_by("-pk").afirst()
        clean = "a\ufffdb"
        assert row.client_info["name"] == clean
        assert row.client_info[clean] == [clean, {clean: clean}, 10**30, 0.5, None, True]
        assert row.capabilities == {clean: {}}


@spec("VER-12", "RPC-10")
async def test_what_is_nested_too_deep_to_be_kept_is_refused(mount):
    deep: Any = {}
    for _ in range(400):
        deep = {"x": deep}
    for changes in ({"clientInfo": deep}, {"capabilities": deep}):
        answered = await Peer(mount).send(initialize(D, **changes))
        assert code_of(answered) == INVALID_PARAMS
        assert "mcp-session-id" not in answered.headers
    assert not await Session.objects.aexists()


@spec("RPC-2", "PRG-1", "RSM-3")
async def test_ids_and_tokens_come_back_as_they_were(streaming):
    for version in (B, D):
        peer = await opened(streaming, PARLOR, version=version)
        for odd in (NUL, "\x00", "\\u0000", "x" * 10_000):
            async with peer.stream(call("count", id=odd, progress=odd, n=1)) as connection:
                reader = Reader(connection)
                messages = await reader.rest()
            assert [message.get("id") for message in messages] == [None, odd]
            assert messages[0]["params"]["progressToken"] == odd
            async with peer.standing(last_event_id=reader.ids[0]) as connection:
                assert (await Reader(connection).rest())[-1] == messages[-1]


@spec("RPC-2", "PRG-1")
async def test_ids_and_tokens_that_are_too_long_to_be_kept_are_refused(streaming):
    peer = await opened(streaming, PARLOR)
    long = "x" * (MAX_ID_LENGTH + 1)
    refused = await peer.send(call("count", id=long, n=1))
    assert (refused.status, code_of(refused)) == (400, INVALID_REQUEST)
    assert f"at most {MAX_ID_LENGTH} characters" in refused.json()["error"]["message"]
    refused = await peer.send(call("count", progress=long, n=1))
    assert code_of(refused) == INVALID_PARAMS
    assert f"at most {MAX_ID_LENGTH} characters" in refused.json()["error"]["message"]
    assert len(refused.body) < 1000


@spec("RPC-10", "SUB-4", "LOG-2", "PAG-3")
async def test_parameters_with_nul_are_refused(streaming):
    wrong = [
        ("tools/list", {"cursor": NUL}, INVALID_PARAMS),
        ("resources/list", {"cursor": "\x00"}, INVALID_PARAMS),
        ("logging/setLevel", {"level": NUL}, INVALID_PARAMS),
        ("logging/setLevel", {"level": "info\x00"}, INVALID_PARAMS),
        ("tools/call", {"name": NUL}, INVALID_PARAMS),
        ("prompts/get", {"name": NUL}, INVALID_PARAMS),
        ("resources/subscribe", {"uri": NUL}, RESOURCE_NOT_FOUND),
        ("resources/subscribe", {"uri": "parlor://table\x00"}, RESOURCE_NOT_FOUND),
        ("resources/subscribe", {"uri": "parlor://rooms/\x00"}, RESOURCE_NOT_FOUND),
        ("resources/read", {"uri": NUL}, RESOURCE_NOT_FOUND),
    ]
    for version in VERSIONS:
        peer = await opened(streaming, PARLOR, version=version)
        for method, params, code in wrong:
            answered = await peer.send(request(method, params))
            assert (answered.status, code_of(answered)) == (200, code), (method, params)
        assert await peer.result("resources/unsubscribe", {"uri": NUL}) == {}
        assert await peer.result("ping") == {}


@spec("CAN-2", "ASK-4", "HTTP-22")
async def test_what_names_nothing_is_dropped(mount):
    peer = await opened(mount, PARLOR)
    ids: list[Any] = [NUL, "ask-1-\x00", "ask-\x00-1", f"ask-{'f' * 400}-1", f"ask-1-{'9' * 400}"]
    for odd in (*ids, "ask-1_0-1", "ask-+1-1", "ask-1-\u0661", 2**63, -1):
        for body in (
            notification("notifications/cancelled", requestId=odd, reason=NUL),
            {"jsonrpc": "2.0", "id": odd, "result": {"action": NUL}},
            {"jsonrpc": "2.0", "id": odd, "error": {"code": -1, "message": NUL}},
        ):
            taken = await peer.send(body)
            assert (taken.status, taken.body) == (202, b""), body
    assert await peer.result("ping") == {}


@spec("ASK-5", "ASK-14")
async def test_an_answer_with_nul_is_an_answer(streaming):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        await answer(peer, question, {"action": "accept", "content": {"value": NUL}})
        text = (await reader.message())["result"]["content"][0]["text"]
    assert text == f"Hello {NUL}."


@spec("ASK-5")
@pytest.mark.parametrize(
    "raw", ['{"action": 1e400}', '{"action": "accept", "content": ' + "[" * 500 + "]" * 500 + "}"]
)
async def test_an_answer_that_nobody_can_read_ends_the_question(raw, streaming):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        body = f'{{"jsonrpc": "2.0", "id": "{question["id"]}", "result": {raw}}}'
        taken = await peer.send(body.encode())
        assert (taken.status, taken.body) == (202, b"")
        result = (await reader.message())["result"]
    assert result["isError"] is True
    assert "not valid JSON" in result["content"][0]["text"]
