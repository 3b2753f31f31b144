"""Situations that each revision wants answered differently, so one answer cannot fit all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.asking import PARLOR, accept, answer, asking, ready
from tests.transports.http_session.handshakes import (
    VERSIONS,
    B,
    C,
    D,
    Peer,
    call,
    notification,
    opened,
    request,
)
from tests.transports.http_session.parlor import parlor
from tests.transports.http_session.reading import Reader
from tests.transports.mounts import ask
from tests.transports.stage import gates, reached

E = "2026-07-28"
CHANGED = "notifications/tools/list_changed"


def progress_of(messages: list[dict[str, Any]]) -> list[tuple[Any, float]]:
    """Return the token and the number of each report."""
    reports = [
        message["params"]
        for message in messages
        if message.get("method") == "notifications/progress"
    ]
    return [(report["progressToken"], report["progress"]) for report in reports]


@spec("HTTP-13", "HTTP-14", "HTTP-15", "LOG-8")
@pytest.mark.parametrize("version", [B, C, D])
async def test_every_message_goes_to_the_one_stream_that_it_belongs_to(version, streaming, gate):
    peer = await opened(streaming, PARLOR, version=version)
    names = {"one": gate, "two": f"{gate} two"}
    bodies = {id: call("walk", id=id, progress=id, gate=name) for id, name in names.items()}
    async with (
        peer.standing() as standing,
        peer.stream(bodies["one"]) as first,
        peer.stream(bodies["two"]) as second,
    ):
        listening = Reader(standing)
        await listening.comment()
        for name in names.values():
            await reached(gates[name].entered)
        await sync_to_async(parlor.notify_list_changed)("tools")
        assert (await listening.message())["method"] == CHANGED
        for name in names.values():
            gates[name].opened.set()
        messages_by_id = {"one": await Reader(first).rest(), "two": await Reader(second).rest()}
        await sync_to_async(parlor.notify_list_changed)("prompts")
        # No message of the calls, not even an answer, came on the GET stream in between.
        assert (await listening.message())["method"] == "notifications/prompts/list_changed"
    for id, messages in messages_by_id.items():
        assert progress_of(messages) == [(id, 1), (id, 2)]
        assert [message["id"] for message in messages if "id" in message] == [id]
        assert messages[-1]["id"] == id
        assert CHANGED not in [message.get("method") for message in messages]


@spec("HTTP-15", "RSM-4")
@pytest.mark.parametrize("version", [B, C, D])
async def test_a_get_carries_a_response_where_it_resumes_a_post_alone(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("count", id=5, progress=1, n=2)) as connection:
        reader = Reader(connection)
        await reader.rest()
    async with peer.standing(last_event_id=reader.ids[0]) as connection:
        assert (await Reader(connection).rest())[-1]["id"] == 5
    async with peer.standing() as connection:
        standing = Reader(connection)
        await standing.comment()
        await peer.send(call("count", id=6, progress=1, n=2))
        assert (await peer.delete()).status == 204
        assert await standing.rest() == []


@spec("HTTP-17", "HTTP-18", "RSM-6")
@pytest.mark.parametrize("version", VERSIONS)
async def test_only_2025_11_25_may_end_a_stream_before_its_response(version, streaming):
    """T22."""
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("hang_up", id=3, progress=1)) as connection:
        reader = Reader(connection)
        first = await reader.rest()
    if version != D:
        assert [message.get("id") for message in first] == [None, None, 3]
        assert b"retry:" not in reader.raw
        return
    # The id to resume with was sent before the connection was closed.
    assert [message.get("id") for message in first] == [None]
    assert b"retry: 250" in reader.raw
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        assert (await Reader(connection).rest())[-1]["id"] == 3


@spec("HTTP-17", "HTTP-28")
async def test_a_stateless_stream_never_ends_before_its_response(streaming):
    """T22."""
    params = {"name": "hang_up", "arguments": {}}
    body = message("tools/call", params)
    body["params"]["_meta"]["progressToken"] = 1
    sent = await ask(streaming, PARLOR, body)
    *before, response = sent.messages()
    assert progress_of(before) == [(1, 1), (1, 2)]
    assert response["result"]["content"][0]["text"] == "back"
    assert b"retry:" not in sent.body
    assert b"id: " not in sent.body


@spec("ASK-12")
@pytest.mark.parametrize("version", [C, D])
async def test_a_form_has_a_mode_where_there_are_two(version, streaming):
    """T38."""
    peer = await ready(streaming, version=version)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        assert question["params"].get("mode") == (None if version == C else "form")
        await answer(peer, question, accept("Ada"))
        assert (await reader.message())["result"]["content"][0]["text"] == "Hello Ada."
    (form,) = (await MCPClient(server=parlor).acall_tool("name")).questions
    assert form["params"]["mode"] == "form"


@spec("MET-2", "MET-6")
@pytest.mark.parametrize(
    "key",
    ["com.mcp/x", "io.modelcontextprotocol/x", "mcp.dev/x", "api.modelcontextprotocol.org/x"],
)
def test_a_key_that_any_revision_reserves_is_refused(key):
    """T40: the second label since 2025-11-25, a label before the last at 2025-06-18."""
    server = MCPServer("labels", permission=AllowAny)
    with pytest.raises((ImproperlyConfigured, ValueError), match="reserved"):
        server.tool(meta={key: 1})(lambda: "x")
    assert not server.tools


@spec("MET-2", "MET-6")
@pytest.mark.parametrize("version", [C, D, E])
def test_a_key_that_none_reserves_passes_at_each(version):
    """T40."""
    free = {"com.example.mcp/x": 1, "mcp/x": 2, "plain": 3}
    server = MCPServer("labels", permission=AllowAny)
    server.tool("free", meta=free)(lambda: "x")
    (tool,) = MCPClient(server=server, protocol_version=version).list_tools()
    assert tool["_meta"] == free


@spec("SUB-10", "SUB-3", "SUB-6")
async def test_a_change_is_told_unasked_to_sessions_alone(streaming, gate):
    """T10 and T11."""
    peer = await opened(streaming, PARLOR)
    body = message("tools/call", {"name": "walk", "arguments": {"gate": gate}})
    body["params"]["_meta"]["progressToken"] = 1
    async with peer.standing() as standing:
        listening = Reader(standing)
        await listening.comment()
        calling = asyncio.create_task(ask(streaming, PARLOR, body))
        await reached(gates[gate].entered)
        await sync_to_async(parlor.notify_list_changed)("tools")
        assert (await listening.message())["method"] == CHANGED
        gates[gate].opened.set()
        methods = [event.get("method") for event in (await calling).messages()]
    assert methods == ["notifications/progress", "notifications/progress", None]


@spec("RPC-2", "RPC-3", "RSM-1")
@pytest.mark.parametrize("version", [C, D])
async def test_ids_of_the_server_are_used_once_and_never_a_clients(version, streaming):
    """T25: a client that reuses an id is served, and only the answer to a question answers it."""
    peer = await ready(streaming, version=version)
    seen: list[Any] = []
    for _ in range(3):
        async with asking(peer, call("two", id="ask-1-1")) as reader:
            for value in (1, 2):
                question = await reader.message()
                seen.append(question["id"])
                # A response under the client's own id answers nothing.
                await answer(peer, {"id": "ask-1-1"}, accept(99))
                await answer(peer, question, accept(value))
            response = (await reader.rest())[-1]
        assert (response["id"], response["result"]["content"][0]["text"]) == ("ask-1-1", "3")
    assert len({*seen}) == len(seen) == 6
    assert "ask-1-1" not in seen


@spec("PRG-1", "RPC-8", "HTTP-4")
async def test_progress_from_the_client_is_taken_and_means_nothing(mount):
    """T34."""
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        for params in ({"progressToken": 1, "progress": 0.5}, {}, {"progress": "x"}):
            taken = await peer.send(notification("notifications/progress", **params))
            assert (taken.status, taken.body) == (202, b"")
        assert await peer.result("ping") == {}


@spec("SES-4", "SES-7", "SES-8")
async def test_a_session_is_known_at_every_mount(streaming):
    peer = Peer(streaming, PARLOR)
    await peer.open(elicitation={})
    await peer.result("logging/setLevel", {"level": "error"})
    await peer.result("resources/subscribe", {"uri": "parlor://table"})
    for mount in MOUNTS:
        other = Peer(mount, PARLOR)
        other.headers = dict(peer.headers)
        sent = await other.send(call("levels"))
        assert [record["params"]["level"] for record in sent.messages()[:-1]] == ["error"]
        async with asking(other, call("name", id=mount)) as reader:
            question = await reader.message()
            await answer(peer, question, accept(mount))
            assert (await reader.message())["result"]["content"][0]["text"] == f"Hello {mount}."
    assert (await peer.delete()).status == 204
    for mount in MOUNTS:
        other = Peer(mount, PARLOR)
        other.headers = dict(peer.headers)
        assert (await other.send(request("ping"))).status == 404
