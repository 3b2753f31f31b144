"""The limits of a channel's memory, and the handling of its two ends.

The tests run in this process, because they check that something does not happen.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import AfterValidator

from mcp_django import MCPServer
from mcp_django.auth.authentication import LocalCaller
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal
from mcp_django.execution.call import Channel
from mcp_django.protocol.errors import BUSY, INTERNAL_ERROR
from mcp_django.transports import conversation as conversations, stdio
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.stdio import LineReader, LineWriter
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.http_session.handshakes import B, call, initialize, notification, request
from tests.transports.stage import PATIENCE, gates, reached, stage

LINE = b'{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}\n'


@pytest.fixture
def pipe():
    """The reading and the writing end of a pipe; a test may close either."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def encoded(method: str, params: Any = None, *, id: Any = 1) -> bytes:
    return json.dumps(message(method, params, id=id)).encode()


class Client:
    """Collects the messages that are sent, once `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.sent: list[Any] = []

    async def take(self, piece: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.reads.wait()
        self.sent += map(json.loads, piece.splitlines())


@asynccontextmanager
async def conversing(
    server: MCPServer = stage, *, client: Client | None = None
) -> AsyncIterator[tuple[Conversation, Client]]:
    client = client or Client()
    conversation = Conversation(
        *(server, LocalCaller()),
        channel=Channel(transport="stdio"),
        send=client.take,
        authorized=anonymous_principal(),
    )
    yield conversation, client
    conversation.cancel_all()
    await conversation.finish(seconds=PATIENCE)


async def spin() -> None:
    """Let every task run that is ready."""
    for _ in range(100):
        await asyncio.sleep(0)


@spec("IO-4")
async def test_who_does_not_read_is_not_read_from(pipe):
    source, sink = pipe
    taken: list[Any] = []
    begun = asyncio.Event()
    async with conversing() as (conversation, client):
        reader = LineReader(source, limit=100, at_end=lambda: None)

        async def read() -> None:
            async for line in reader.lines():
                taken.append(line)
                begun.set()
                await conversation.process_line(line)

        reading = asyncio.create_task(read())
        os.write(sink, b"nonsense\n" * 1000)
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        await spin()
        assert len(taken) == 1
        client.reads.set()
        os.close(sink)
        async with asyncio.timeout(PATIENCE):
            await reading
        assert len(client.sent) == len(taken) == 1000


def broken(value: int) -> int:
    raise RuntimeError("broken")


@pytest.mark.django_db(transaction=True)
@spec("BAT-3")
async def test_a_member_that_fails_leaves_the_others_of_its_batch(caplog):
    server = MCPServer("batched", permission=AllowAny)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool("break")
    def add_broken(a: Annotated[int, AfterValidator(broken)]) -> int:
        return a

    async with conversing(server) as (conversation, client):
        client.reads.set()
        await conversation.process_line(json.dumps(initialize(B)).encode())
        calls = [
            call("break", id="broken", a=1),
            call("add", id="sum", a=1, b=2),
            request("ping", id="ping"),
        ]
        await conversation.process_line(json.dumps(calls).encode())
        await conversation.finish(seconds=PATIENCE)
    _, entries = client.sent
    responses = {response["id"]: response for response in entries}
    assert responses["broken"]["error"]["code"] == INTERNAL_ERROR
    assert "broken" not in responses["broken"]["error"]["message"]
    assert responses["sum"]["result"]["content"][0]["text"] == "3"
    assert responses["ping"]["result"] == {}
    assert "Answering tools/call failed." in caplog.text


def cancelling(id: Any) -> dict[str, Any]:
    return notification("notifications/cancelled", requestId=id)


@pytest.mark.django_db(transaction=True)
@spec("BAT-4", "CAN-1")
async def test_a_member_that_its_batch_cancels_has_no_effect(settings):
    settings.MCP_DJANGO = {"RATE": "2/m"}
    server = MCPServer("batched", permission=AllowAny)
    server.tool("add")(lambda: "sum")
    silent = request("logging/setLevel", {"level": "emergency"}, id="level")
    async with conversing(server) as (conversation, client):
        client.reads.set()
        await conversation.process_line(json.dumps(initialize(B)).encode())
        for batch in (
            [call("add", id=1), cancelling(1), call("add", id=1)],
            [call("add", id=2), call("add", id=3), cancelling(2), cancelling(3)],
            [silent, cancelling("level"), request("ping", id=4)],
            [call("add", id=5)],
        ):
            await conversation.process_line(json.dumps(batch).encode())
            await conversation.finish(seconds=PATIENCE)
        assert conversation._local.agreed is not None
        assert conversation._local.agreed.log_level is None
    answers = [
        [(response["id"], "result" in response) for response in entries]
        for entries in client.sent[1:]
    ]
    assert answers == [[(1, True)], [(4, True)], [(5, True)]]


@spec("IO-4")
async def test_a_client_may_have_only_so_many_requests_open(monkeypatch):
    monkeypatch.setattr(conversations, "MAX_OPEN", 3)
    async with conversing() as (conversation, client):
        for id in range(3):
            await conversation.process_line(encoded("server/discover", id=id))
        refusing = asyncio.create_task(
            conversation.process_line(encoded("server/discover", id="x"))
        )
        await spin()
        # The refusal, too, waits until the client reads.
        assert not refusing.done()
        assert client.sent == []
        client.reads.set()
        await refusing
        await conversation.finish(seconds=PATIENCE)
        refusals = [response for response in client.sent if "error" in response]
        assert [(response["id"], response["error"]["code"]) for response in refusals] == [
            ("x", BUSY)
        ]
        assert [response["id"] for response in client.sent if "result" in response] == [0, 1, 2]
        await conversation.process_line(encoded("server/discover", id="y"))
        await conversation.finish(seconds=PATIENCE)
        assert client.sent[-1]["id"] == "y"


@spec("IO-5", "CAN-1")
async def test_an_answer_that_waits_its_turn_is_taken_back():
    async with conversing() as (conversation, client):
        await conversation.process_line(encoded("server/discover", id=1))
        await conversation.process_line(encoded("server/discover", id=2))
        await spin()
        cancellation = {"method": "notifications/cancelled", "params": {"requestId": 2}}
        await conversation.process_line(json.dumps({"jsonrpc": "2.0", **cancellation}).encode())
        client.reads.set()
        await conversation.finish(seconds=PATIENCE)
        assert [response["id"] for response in client.sent] == [1]


class Eager(Client):
    """Uses the id of a response again as soon as it has the response."""

    conversation: Conversation

    async def take(self, piece: bytes) -> None:
        await super().take(piece)
        if len(self.sent) < 3:
            await self.conversation.process_line(encoded("server/discover", id="same"))


@spec("RPC-4")
async def test_an_id_is_free_as_soon_as_its_response_can_be_read():
    client = Eager()
    client.reads.set()
    async with conversing(client=client) as (client.conversation, _):
        await client.conversation.process_line(encoded("server/discover", id="same"))
        async with asyncio.timeout(PATIENCE):
            while len(client.sent) < 3:
                await client.conversation.finish(seconds=PATIENCE)
    assert [response["id"] for response in client.sent] == ["same"] * 3
    assert all("result" in response for response in client.sent)


class Talkative(MCPServer):
    """A server whose instructions come from the database."""

    @property
    def instructions(self) -> str:
        return f"{User.objects.count()} users"


@pytest.mark.django_db(transaction=True)
@spec("IO-11")
async def test_discovery_may_ask_the_database_where_it_has_to():
    server = Talkative("talkative", permission=AllowAny)
    async with conversing(server) as (conversation, client):
        client.reads.set()
        await conversation.process_line(encoded("server/discover"))
        await conversation.finish(seconds=PATIENCE)
    assert client.sent[0]["result"]["instructions"] == "0 users"


# The ends -----------------------------------------------------------------------------------------


async def test_a_line_is_written_whole_however_little_the_pipe_takes(pipe):
    source, sink = pipe
    writer = LineWriter(sink)
    pieces = [b"x" * 300_000 + b"\n", b"y" * 300_000 + b"\n"]
    writing = [asyncio.create_task(writer.write(piece)) for piece in pieces]
    raw = b""
    while len(raw) < 600_002:
        raw += await asyncio.to_thread(os.read, source, 1000)
    assert await asyncio.gather(*writing) == [True, True]
    assert raw == b"".join(pieces)
    os.close(source)
    assert await writer.write(b"z\n") is False
    writer.close()


async def test_a_line_goes_on_where_the_pipe_stopped(pipe, monkeypatch):
    source, sink = pipe
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    writer = LineWriter(sink)
    assert await writer.write(b"a line that is longer than that\n") is True
    assert os.read(source, 100) == b"a line that is longer than that\n"
    writer.close()


async def test_the_reader_says_at_once_that_the_input_has_ended(pipe):
    source, sink = pipe
    ended = threading.Event()
    lines = LineReader(source, limit=100, at_end=ended.set).lines()
    os.write(sink, b"one\ntw")
    assert await anext(lines) == b"one"
    assert not ended.is_set()
    os.close(sink)
    assert [line async for line in lines] == [b"tw"]
    assert ended.is_set()


async def test_an_input_that_cannot_be_read_has_ended():
    descriptor = os.open("/", os.O_RDONLY)
    try:
        ended = threading.Event()
        reader = LineReader(descriptor, limit=100, at_end=ended.set)
        assert [line async for line in reader.lines()] == []
        assert ended.is_set()
    finally:
        os.close(descriptor)


async def serve(source: int, sink: int, endings: list[str]) -> None:
    channel = stdio.StdioChannel(source, sink, when_ending=lambda: endings.append("ending"))
    async with asyncio.timeout(PATIENCE):
        await channel.serve(stage, LocalCaller(), authorized=anonymous_principal())


@spec("IO-6")
async def test_a_channel_serves_to_the_end_of_its_input(pipe):
    source, sink = pipe
    answers, theirs = os.pipe()
    endings: list[str] = []
    serving = asyncio.create_task(serve(source, theirs, endings))
    os.write(sink, encoded("server/discover") + b"\n")
    first = await asyncio.to_thread(os.read, answers, 100_000)
    assert json.loads(first)["id"] == 1
    assert endings == []
    os.close(sink)
    await serving
    assert endings
    os.close(theirs)
    os.close(answers)


@spec("IO-6")
async def test_a_channel_ends_when_nobody_reads_any_more(pipe):
    source, sink = pipe
    answers, theirs = os.pipe()
    os.close(answers)
    endings: list[str] = []
    os.write(sink, encoded("server/discover") + b"\nnonsense\n")
    await serve(source, theirs, endings)
    assert endings == ["ending"]
    os.close(theirs)


@spec("IO-6", "CAN-9")
async def test_what_does_not_finish_is_stopped_at_the_end(pipe, gate, monkeypatch):
    source, sink = pipe
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.01)
    begun: list[Conversation] = []

    class Noted(Conversation):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            begun.append(self)

    monkeypatch.setattr(stdio, "Conversation", Noted)
    serving = asyncio.create_task(serve(source, sink, []))
    call = {"name": "stay", "arguments": {"gate": gate}}
    os.write(sink, encoded("tools/call", call) + b"\n")
    await reached(gates[gate].entered)
    os.close(sink)
    await serving
    assert begun[0]._tasks == {}
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


async def test_a_bug_of_ours_is_not_taken_for_the_end(pipe, monkeypatch):
    source, sink = pipe

    async def fail(self: Any, line: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(Conversation, "process_line", fail)
    os.write(sink, LINE)
    with pytest.raises(RuntimeError, match="ours"):
        await serve(source, sink, [])
