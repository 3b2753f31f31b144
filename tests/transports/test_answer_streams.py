"""Calls that send messages before their answer, and clients that do not wait for the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import BUSY, INVALID_PARAMS
from mcp_django.transports import answer as transport_answer, drain
from mcp_django.transports.outgoing import Mailbox
from tests.kit.drivers import connect, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import EVERY_MOUNT, ask
from tests.transports.stage import PATIENCE, gates, reached

PATH = "/stage/mcp"
PROGRESS = {envelope.PROGRESS_TOKEN: "p"}
# Django does not notify the plain view that the client of a document has disconnected.
SEES_LEAVING = ("lane", "raw", "consumer")


def call(tool: str, *, id: Any = 1, extra: Any = None, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, id=id, **(extra or {}))


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


@spec("HTTP-5", "HTTP-6", "HTTP-7", "HTTP-9", "HTTP-27", "HTTP-33", "PRG-1", "PRG-3", "RSM-10")
@pytest.mark.parametrize("tool", ["walk", "walk_later"])
async def test_messages_leave_while_the_tool_runs(tool, app, gate):
    async with connect(app, PATH, call(tool, gate=gate, extra=PROGRESS)) as connection:
        answer = await connection.start()
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
        first = await connection.part()
        assert first["body"].startswith(b":")
        assert not gates[gate].opened.is_set()
        before = await connection.event()
        assert before["params"]["progressToken"] == "p"
        assert before["params"]["progress"] == 1
        gates[gate].opened.set()
        behind = await connection.event()
        response = await connection.event()
        assert behind["params"]["progress"] == 2
        assert text_of(response) == "walked"
        with pytest.raises(EOFError):
            await connection.event()
    raw = b"".join(part.get("body", b"") for part in connection.sent)
    assert b"\nid:" not in raw
    assert raw.count(b"event: message\n") == 3


@spec("PRG-1", "LOG-4")
async def test_who_asks_for_nothing_gets_a_document(app, gate):
    gates[gate].opened.set()
    for tool in ("walk", "walk_later"):
        answer = await send(app, PATH, call(tool, gate=gate))
        assert answer.headers["content-type"] == "application/json"
        assert text_of(answer.json()) == "walked"


@spec("PRG-1", "LOG-4")
@pytest.mark.parametrize("name", [*SEES_LEAVING, "view"])
async def test_a_call_that_ends_soon_and_says_nothing_is_a_document(name, gate):
    gates[gate].opened.set()
    body = call("stay_later_with_context", gate=gate, extra=PROGRESS)
    answer = await send(MOUNTS[name], PATH, body)
    assert text_of(answer.response()) == "opened"
    # Django has sent the head before the view's stream begins.
    assert answer.is_stream == (name == "view")
    assert "x-accel-buffering" in answer.headers or name != "view"
    assert answer.headers["cache-control"] == (
        "no-cache, no-transform" if name == "view" else "no-store"
    )
    answer = await send(MOUNTS[name], PATH, body, accept="text/event-stream")
    assert answer.is_stream


@pytest.mark.parametrize("name", SEES_LEAVING)
async def test_a_call_that_says_nothing_for_long_is_a_stream(name, gate, settings):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.05}
    body = call("stay_later_with_context", gate=gate, extra=PROGRESS)
    async with connect(MOUNTS[name], PATH, body) as connection:
        answer = await connection.start()
        assert answer.is_stream
        assert (await connection.part())["body"].startswith(b":")
        gates[gate].opened.set()
        assert text_of(await connection.event()) == "opened"


@spec("LOG-4", "LOG-1", "PRG-1", "HTTP-28")
@pytest.mark.parametrize(
    ("extra", "methods"),
    [
        ({envelope.LOG_LEVEL: "debug"}, ["message"]),
        ({envelope.LOG_LEVEL: "warning"}, ["message"]),
        ({envelope.LOG_LEVEL: "error"}, []),
        ({envelope.LOG_LEVEL: "debug", **PROGRESS}, ["progress", "message", "progress"]),
        ({envelope.LOG_LEVEL: "emergency", **PROGRESS}, ["progress", "progress"]),
    ],
)
async def test_only_what_was_asked_for_is_sent(extra, methods, app, gate):
    gates[gate].opened.set()
    answer = await send(app, PATH, call("walk", gate=gate, extra=extra))
    *notices, response = answer.messages()
    assert [notice["method"] for notice in notices] == [f"notifications/{m}" for m in methods]
    assert text_of(response) == "walked"


@spec("PRG-2", "PRG-5")
async def test_progress_only_grows(app):
    answer = await send(app, PATH, call("stagger", extra=PROGRESS))
    *notices, response = answer.messages()
    assert [notice["params"] for notice in notices] == [
        {"progressToken": "p", "progress": 1},
        {"progressToken": "p", "progress": 2.5, "total": 3},
        {"progressToken": "p", "progress": 3, "message": "last"},
    ]
    assert text_of(response) == "staggered"


@spec("PRG-1")
@pytest.mark.parametrize("progress_token", [0, "", "0", 2**60])
async def test_a_progress_token_comes_back_as_it_was(progress_token, app):
    body = call("stagger", extra={envelope.PROGRESS_TOKEN: progress_token})
    answer = await send(app, PATH, body)
    assert [m["params"]["progressToken"] for m in answer.messages()[:-1]] == [progress_token] * 3


@spec("HTTP-8", "HTTP-9")
@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream;q=0"])
async def test_who_takes_no_stream_gets_a_document(accept, app, gate):
    gates[gate].opened.set()
    answer = await send(app, PATH, call("walk", gate=gate, extra=PROGRESS), accept=accept)
    assert text_of(answer.json()) == "walked"
    slow = await send(app, PATH, call("slow_walk", gate=gate), accept=accept)
    assert text_of(slow.json()) == "slow"


async def test_wsgi_answers_with_one_document(gate):
    gates[gate].opened.set()
    extra = {envelope.LOG_LEVEL: "debug", **PROGRESS}
    for tool, text in (("walk", "walked"), ("walk_later", "walked"), ("slow_walk", "slow")):
        answer = await ask("wsgi", PATH, call(tool, gate=gate, extra=extra))
        assert text_of(answer.json()) == text


@spec("HTTP-7")
async def test_a_slow_tool_is_kept_alive_by_comments(app, gate, settings):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.01}
    async with connect(app, PATH, call("slow_walk", gate=gate)) as connection:
        answer = await connection.start()
        assert answer.is_stream
        for _ in range(4):
            assert (await connection.part())["body"].startswith(b":")
        gates[gate].opened.set()
        assert text_of(await connection.event()) == "slow"


@spec("HTTP-9")
async def test_what_is_wrong_before_the_tool_runs_keeps_its_status(app):
    unknown = await send(app, PATH, call("nothing", extra=PROGRESS))
    assert not unknown.is_stream
    assert unknown.json()["error"]["code"] == INVALID_PARAMS
    wrong = await send(app, PATH, call("walk", extra=PROGRESS))
    assert not wrong.is_stream
    assert wrong.json()["result"]["isError"] is True


@spec("ERR-4")
async def test_an_error_after_the_first_byte_is_an_event(app):
    answer = await send(app, PATH, call("break_off", extra=PROGRESS))
    assert answer.status == 200
    notice, response = answer.messages()
    assert notice["method"] == "notifications/progress"
    assert response["id"] == 1
    assert response["error"] == {"code": INVALID_PARAMS, "message": "Not like this."}


@spec("PRG-6", "RPC-4")
async def test_calls_with_one_id_and_one_token_do_not_meet(app, settings):
    # With one more call, the caller would have no thread left to open the gates.
    settings.MCP_DJANGO = {"THREADS": 16}
    names = [f"crossing-{n}" for n in range(3)]
    async with asyncio.timeout(5):
        answers = await asyncio.gather(
            *(send(app, PATH, call("walk", gate=name, extra=PROGRESS)) for name in names),
            *(ask_to_open(app, name) for name in names),
        )
    for answer in answers[: len(names)]:
        assert [m["params"]["progress"] for m in answer.messages()[:-1]] == [1, 2]
    for name in names:
        del gates[name]


async def ask_to_open(app: Any, name: str) -> Any:
    await reached(gates[name].entered)
    return await send(app, PATH, call("open_gate", name=name))


# Leaving ------------------------------------------------------------------------------------------


@pytest.fixture
def begun(monkeypatch):
    """Streams that begin immediately, as they otherwise do after a while without a message."""
    monkeypatch.setattr(transport_answer, "START_SECONDS", 0)


@pytest.mark.usefixtures("begun")
@spec("HTTP-26", "CAN-5", "CAN-9")
@pytest.mark.parametrize("tool", ["stay", "stay_later_with_context"])
async def test_leaving_a_stream_cancels_the_call(tool, app, gate):
    async with connect(app, PATH, call(tool, gate=gate, extra=PROGRESS)) as connection:
        await connection.start()
        await reached(gates[gate].entered)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("HTTP-26", "CAN-5", "CAN-9")
@pytest.mark.parametrize("name", SEES_LEAVING)
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
async def test_leaving_before_a_document_cancels_the_call(tool, name, gate):
    async with connect(MOUNTS[name], PATH, call(tool, gate=gate)) as connection:
        await reached(gates[gate].entered)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"
    assert connection.sent == []


@pytest.mark.usefixtures("begun")
@spec("HTTP-30", "CAN-2", "CAN-5")
@pytest.mark.parametrize("tool", ["stay", "stay_later_with_context"])
async def test_a_posted_cancellation_cancels_nothing(tool, app, gate):
    async with connect(app, PATH, call(tool, gate=gate, extra=PROGRESS)) as connection:
        await reached(gates[gate].entered)
        for params in (
            {"requestId": 1},
            {"requestId": 1},
            {"requestId": "x"},
            {"requestId": []},
            {},
        ):
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            answer = await send(app, PATH, note)
            assert (answer.status, answer.body) == (202, b"")
        gates[gate].opened.set()
        assert text_of(await connection.event()) == "opened"


# Time limits --------------------------------------------------------------------------------------


# Nothing can interrupt the thread that a view runs in, so a synchronous tool has no limit there.
LIMITED = [
    *(("late", mount) for mount in ("lane", "raw", "consumer")),
    *(("late_later", mount) for mount in EVERY_MOUNT),
]


@pytest.mark.parametrize(("tool", "mount"), LIMITED)
async def test_a_call_may_not_take_longer_than_its_limit(tool, mount, gate):
    answer = await ask(mount, PATH, call(tool, gate=gate))
    result = answer.json()["result"]
    assert answer.status == 200
    assert result["isError"] is True
    assert "took longer than 0.05 seconds" in result["content"][0]["text"]
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@pytest.mark.usefixtures("begun")
async def test_a_stream_ends_at_the_limit(app, gate):
    answer = await send(app, PATH, call("late", gate=gate, extra=PROGRESS))
    assert answer.is_stream
    assert answer.response()["result"]["isError"] is True
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


# Full pools ---------------------------------------------------------------------------------------


@pytest.fixture
def one_thread(settings):
    """A pool of one tool thread, with a short queue timeout."""
    settings.MCP_DJANGO = {"THREADS": 1, "QUEUE": 1, "QUEUE_SECONDS": 0.02}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", SEES_LEAVING)
async def test_a_full_pool_says_so_and_lists_go_on(name, gate):
    app = MOUNTS[name]
    async with connect(app, PATH, call("stay", gate=gate, id="first")) as running:
        await reached(gates[gate].entered)
        waited = await send(app, PATH, call("open_gate", name="other", id="second"))
        assert waited.status == 503
        assert waited.headers["retry-after"] == "1"
        assert waited.json()["id"] == "second"
        assert waited.json()["error"]["code"] == BUSY
        assert (await send(app, PATH, message("tools/list"))).status == 200
        gates[gate].opened.set()
        await running.start()
        assert text_of((await running.rest()).json()) == "opened"
    assert (await send(app, PATH, call("open_gate", name="other"))).status == 200
    gates.pop("other", None)


@pytest.mark.usefixtures("one_thread")
async def test_a_stream_says_that_the_pool_is_full(app, gate):
    async with connect(app, PATH, call("stay", gate=gate, extra=PROGRESS)):
        await reached(gates[gate].entered)
        # The fast ASGI handler and the raw mount need a tool thread to check the second call.
        answer = await send(app, PATH, call("walk", gate=gate, extra=PROGRESS))
        assert answer.response()["error"]["code"] == BUSY
        gates[gate].opened.set()


# The mailbox --------------------------------------------------------------------------------------


@spec("PRG-5", "LOG-7")
async def test_a_full_mailbox_lets_old_notices_go():
    mailbox = Mailbox(3)
    mailbox.put("log 1", "log")
    mailbox.put("progress 1", "progress")
    mailbox.put("progress 2", "progress")
    mailbox.put("progress 3", "progress")
    assert mailbox.take() == ["log 1", "progress 2", "progress 3"]
    assert mailbox.take() == []


async def test_a_mailbox_never_drops_what_has_no_key_for_what_has_one():
    mailbox = Mailbox(2)
    mailbox.put("answer")
    mailbox.put("progress 1", "progress")
    mailbox.put("log 1", "log")
    assert "answer" in mailbox.take()


@spec("PRG-2", "PRG-5")
async def test_a_chatty_thread_wakes_the_loop_once_for_all_that_nobody_took_yet(monkeypatch):
    loop = asyncio.get_running_loop()
    waking = loop.call_soon_threadsafe
    woken: list[Any] = []

    def count(callback: Any, *args: Any) -> Any:
        if getattr(callback, "__self__", None) is mailbox._filled:
            woken.append(callback)
        return waking(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    mailbox = Mailbox(3)

    def chatter() -> None:
        for step in range(1000):
            mailbox.post(step, key="progress")

    for times in (1, 2):
        await asyncio.to_thread(chatter)
        assert len(woken) == times
        assert await mailbox.wait(PATIENCE)
        assert mailbox.take() == [997, 998, 999]


async def test_a_slow_reader_of_a_chatty_tool_gets_bounded_news_and_the_answer(app):
    answer = await send(app, PATH, call("chatter", n=5000, extra=PROGRESS))
    *notices, response = answer.messages()
    values = [notice["params"]["progress"] for notice in notices]
    assert values == sorted(set(values))
    assert values[-1] == 5000
    assert text_of(response) == "chattered"


# Draining -----------------------------------------------------------------------------------------


@pytest.fixture
def draining():
    yield
    drain._drain.draining = False


@pytest.mark.usefixtures("draining")
async def test_a_call_that_outlives_the_drain_gets_its_last_word(app, gate, settings):
    settings.MCP_DJANGO = {"DRAIN_SECONDS": 0.01}
    async with connect(app, PATH, call("stay", gate=gate, extra=PROGRESS)) as connection:
        await reached(gates[gate].entered)
        drain.begin_drain()
        await connection.start()
        response = (await connection.rest()).response()
    assert response["error"]["message"] == "The server is shutting down; send the request again."
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@pytest.mark.usefixtures("draining")
@pytest.mark.parametrize("name", SEES_LEAVING)
async def test_a_process_that_stops_closes_the_connections_of_its_clients(name):
    app = MOUNTS[name]
    before = await send(app, PATH, call("open_gate", name="other"))
    drain.begin_drain()
    after = await send(app, PATH, call("open_gate", name="other"))
    assert (before.headers.get("connection"), after.headers.get("connection")) == (None, "close")
    assert text_of(after.messages()[-1]) == text_of(before.messages()[-1])
