"""Resuming a stream (RSM): after any event, and only by the client of its session."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django.models import Event, Stream
from mcp_django.protocol.errors import INVALID_REQUEST
from mcp_django.transports import durable_streams
from tests.kit.drivers import message, send
from tests.kit.servers import token_for
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import (
    STAGE,
    VERSIONS,
    B,
    C,
    D,
    Peer,
    call,
    code_of,
    opened,
)
from tests.transports.http_session.reading import Reader
from tests.transports.stage import gates, reached

PARLOR = "/parlor/mcp"
STREAMABLE = (B, C, D)


def walk(gate: str, *, id: Any = 7) -> dict[str, Any]:
    return call("walk", id=id, progress="p", gate=gate)


def numbers(messages: list[dict[str, Any]]) -> list[float]:
    return [message["params"]["progress"] for message in messages if "method" in message]


async def resumed(peer: Peer, last: str, **changes: Any) -> tuple[Reader, list[dict[str, Any]]]:
    """Resume a stream after an event; return the reader and every message of it."""
    async with peer.standing(last_event_id=last, **changes) as connection:
        reader = Reader(connection)
        return reader, await reader.rest()


@spec("RSM-1", "RSM-3", "RSM-4", "HTTP-16")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_a_client_that_left_comes_back_for_the_rest(version, streaming, gate):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(walk(gate)) as connection:
        reader = Reader(connection)
        assert (await reader.message())["params"]["progress"] == 1
        await reached(gates[gate].entered)
    async with peer.standing(last_event_id=reader.ids[-1]) as again:
        second = Reader(again)
        await second.comment()
        gates[gate].opened.set()
        rest = await second.rest()
    assert [message.get("method") for message in rest] == [
        "notifications/message",
        "notifications/progress",
        None,
    ]
    assert (rest[-1]["id"], rest[-1]["result"]["content"][0]["text"]) == (7, "walked")
    assert len({*reader.ids, *second.ids}) == len(reader.ids) + len(second.ids)


@spec("RSM-3", "RSM-7")
async def test_what_was_said_between_two_connections_is_not_lost(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(walk(gate)) as connection:
        reader = Reader(connection)
        await reader.message()
        await reached(gates[gate].entered)
    gates[gate].opened.set()
    await ended(peer)
    _, rest = await resumed(peer, reader.ids[-1])
    assert numbers(rest[1:]) == [2]
    assert rest[-1]["id"] == 7


async def ended(peer: Peer) -> None:
    """Wait until no call of this process is left."""
    for stream in list(durable_streams._owned.values()):
        await reached_end(stream)


async def reached_end(stream: durable_streams.OwnedStream) -> None:
    async for _ in stream.live():
        pass


@spec("RSM-3", "RSM-7")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_every_event_of_a_finished_stream_can_be_returned_to(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("count", id=1, progress=1, n=4)) as connection:
        reader = Reader(connection)
        whole = await reader.rest()
    ids = reader.ids if version == D else [f"{reader.ids[0].split('-')[0]}-0", *reader.ids]
    assert len(ids) == len(whole) + 1
    for place, event_id in enumerate(ids):
        again, rest = await resumed(peer, event_id)
        assert rest == whole[place:]
        assert again.ids == ids[place + 1 :]
        # Resuming once more gives the same: replayed events stay stored.
        assert (await resumed(peer, event_id))[1] == rest


@spec("RSM-2", "RSM-3")
async def test_only_the_stream_of_the_event_is_replayed(streaming):
    peer = await opened(streaming, PARLOR)
    readers = []
    for request_id in (1, 2):
        async with peer.stream(
            call("count", id=request_id, progress=request_id, n=3)
        ) as connection:
            readers.append(Reader(connection))
            await readers[-1].rest()
    first, second = readers
    assert not {*first.ids} & {*second.ids}
    assert len({event_id.split("-")[0] for event_id in first.ids}) == 1
    _, rest = await resumed(peer, second.ids[0])
    assert rest[-1]["id"] == 2
    assert [message["params"]["progressToken"] for message in rest[:-1]] == [2, 2, 2]


@spec("RSM-5")
@pytest.mark.parametrize("version", VERSIONS)
async def test_only_clients_that_know_it_get_an_event_without_a_message(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("count", id=1, progress=1, n=1)) as connection:
        reader = Reader(connection)
        first = await reader.event()
        await reader.rest()
    assert (first.data == "", first.id is not None) == (version == D, True)
    assert (b"retry: " in reader.raw) == (version == D)
    async with peer.standing() as connection:
        standing = Reader(connection)
        await standing.comment()
    assert (b"id: " in standing.raw) == (version == D)


@spec("RSM-6")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_call_hangs_up_on_those_alone_who_know_how_to_come_back(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("hang_up", id=3, progress=1)) as connection:
        reader = Reader(connection)
        first = await reader.rest()
    if version != D:
        assert (numbers(first), first[-1]["id"]) == ([1, 2], 3)
        return
    assert (numbers(first), first[-1].get("id")) == ([1], None)
    assert reader.raw.endswith(b"retry: 250\n\n")
    _, rest = await resumed(peer, reader.ids[-1])
    assert (numbers(rest), rest[-1]["id"]) == ([2], 3)


@spec("RSM-8")
@pytest.mark.parametrize(
    "last", ["nonsense", "1-1", "-", "g-1", "ffffffffffffffff-1", "7fffffffffffffff-0", "1-", "é-1"]
)
@pytest.mark.parametrize("version", STREAMABLE)
async def test_an_event_that_is_unknown_is_refused_and_the_session_lives(version, last, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    answer = await peer.get(last_event_id=last.encode().decode("latin-1"))
    assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
    assert "id" not in answer.json()
    assert await peer.result("ping") == {}


async def streamed(peer: Peer) -> str:
    """Run a call to its end, and return the id of the first event of its stream."""
    async with peer.stream(call("count", id=1, progress=1, n=2)) as connection:
        reader = Reader(connection)
        await reader.rest()
    return reader.ids[0]


@spec("RSM-8", "SES-6")
async def test_nobody_else_reads_a_stream(streaming):
    ada, ben = [
        await sync_to_async(User.objects.create_user)(username) for username in ("ada", "ben")
    ]
    tokens = [f"Bearer {(await sync_to_async(token_for)(user))[1]}" for user in (ada, ben)]
    mine = await opened(streaming, PARLOR, token=tokens[0])
    event_id = await streamed(mine)
    # Sessions of the same user, of another and of none; then the right session by other callers.
    for stranger in (tokens[0], tokens[1], None):
        other = await opened(streaming, PARLOR, token=stranger)
        assert (await other.get(last_event_id=event_id)).status == 400
    for thief in (tokens[1], None):
        stolen = await mine.get(last_event_id=event_id, authorization=thief)
        assert stolen.status == 404
    _, rest = await resumed(mine, event_id)
    assert rest[-1]["id"] == 1


@spec("RSM-8")
async def test_a_stream_of_another_server_is_unknown(streaming):
    peer = await opened(streaming, PARLOR)
    event_id = await streamed(peer)
    other = await opened(streaming, STAGE)
    assert (await other.get(last_event_id=event_id)).status == 400


@spec("RSM-11", "RSM-8")
async def test_what_was_swept_up_is_unknown(streaming):
    peer = await opened(streaming, PARLOR)
    event_id = await streamed(peer)
    await Stream.objects.all().adelete()
    assert (await peer.get(last_event_id=event_id)).status == 400


@spec("SES-4", "RSM-8")
async def test_a_session_that_ended_takes_its_streams_along(streaming):
    peer = await opened(streaming, PARLOR)
    event_id = await streamed(peer)
    assert (await peer.delete()).status == 204
    assert (await peer.get(last_event_id=event_id)).status == 404


@spec("RSM-9")
async def test_a_newer_connection_gets_what_follows_alone(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(walk(gate)) as connection:
        first = Reader(connection)
        await first.message()
        await reached(gates[gate].entered)
        await first.message()
        async with peer.standing(last_event_id=first.ids[-1]) as again:
            second = Reader(again)
            await second.comment()
            assert await first.rest() == []
            async with peer.standing(last_event_id=first.ids[-1]) as once_more:
                third = Reader(once_more)
                await third.comment()
                assert await second.rest() == []
                gates[gate].opened.set()
                rest = await third.rest()
    assert (numbers(rest), rest[-1]["id"]) == ([2], 7)


@spec("RSM-11", "ASK-4")
async def test_a_question_that_is_open_is_asked_again_under_its_id(streaming):
    peer = Peer(streaming, PARLOR)
    await peer.open(elicitation={})
    async with peer.stream(call("name", id=1, progress=1)) as connection:
        reader = Reader(connection)
        question = await reader.message()
    async with peer.standing(last_event_id=reader.ids[0]) as again:
        second = Reader(again)
        assert await second.message() == question
        reply = {"action": "accept", "content": {"value": "Ada"}}
        answer = await peer.send({"jsonrpc": "2.0", "id": question["id"], "result": reply})
        assert (answer.status, answer.body) == (202, b"")
        (response,) = await second.rest()
    assert response["result"]["content"][0]["text"] == "Hello Ada."


async def test_an_id_of_the_future_gets_the_end_and_nothing_else(streaming):
    peer = await opened(streaming, PARLOR)
    stream = (await streamed(peer)).split("-")[0]
    _, rest = await resumed(peer, f"{stream}-ffff")
    assert rest == []


@spec("RSM-10")
async def test_nothing_is_stored_for_one_document_or_for_the_stateless_revision(streaming):
    peer = await opened(streaming, PARLOR)
    await peer.send(call("count", n=2))
    token = {"progressToken": 1}
    body = message("tools/call", {"name": "count", "arguments": {"n": 2}}, **token)
    answer = await send(MOUNTS[streaming], PARLOR, body)
    assert (answer.is_stream, b"id: " in answer.body) == (True, False)
    assert await Stream.objects.acount() == await Event.objects.acount() == 0
