"""Results that are too large for one server-sent event, but not for a document."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context, Image, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Call
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.test import MCPClient
from tests.kit.drivers import Answer, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session import legacy
from tests.transports.http_session.handshakes import B, D, call, initialize, opened, request
from tests.transports.http_session.reading import Reader

pytestmark = pytest.mark.django_db(transaction=True)

PICTURE = b"\x89PNG" + b"x" * 1_500_000
LIMIT = 1024 * 1024
PROGRESS = {envelope.PROGRESS_TOKEN: "p"}


@pytest.fixture
def studio():
    """A server with pictures of 1.5 MB."""
    server = MCPServer("studio", permission=AllowAny)

    @server.tool
    def paint(ctx: Context) -> Image:
        """Paint, and tell how it goes."""
        ctx.report_progress(1)
        return Image(PICTURE)

    @server.tool
    async def paint_later(ctx: Context) -> Image:
        """Paint on the event loop."""
        ctx.report_progress(1)
        return Image(PICTURE)

    @server.tool
    def copy(ctx: Context) -> Image:
        """Say nothing."""
        return Image(PICTURE)

    @server.tool(slow=True)
    def develop() -> Image:
        """Take long."""
        return Image(PICTURE)

    @server.tool
    def talk(ctx: Context) -> str:
        """Say more than fits."""
        ctx.log("info", "x" * 2_000_000)
        ctx.report_progress(1, message="x" * 2_000_000)
        ctx.report_progress(2)
        return "talked"

    @server.resource("studio://picture", mime_type="image/png")
    def picture() -> bytes:
        """A picture."""
        return PICTURE

    return server


def is_whole(response: dict[str, Any]) -> bool:
    [block] = response["result"]["content"]
    return bool(block["type"] == "image" and base64.b64decode(block["data"]) == PICTURE)


def says_too_large(response: dict[str, Any]) -> bool:
    [block] = response["result"]["content"]
    assert response["result"]["isError"]
    text: str = block["text"]
    return f"at most {LIMIT} can be sent" in text and "The result has 20" in text


def largest_event(answer: Answer) -> int:
    return max(map(len, answer.body.split(b"\n\n")))


@spec("SSE-11")
@pytest.mark.parametrize("tool", ["paint", "paint_later"])
async def test_a_large_result_on_a_stream_is_an_error_that_names_the_limit(
    tool, studio, call_log, caplog, settings
):
    params = {"name": tool, "arguments": {}}
    document = await send(studio.asgi, "/", message("tools/call", params))
    assert not document.is_stream
    assert is_whole(document.json())
    answer = await send(studio.asgi, "/", message("tools/call", params, **PROGRESS))
    assert answer.is_stream
    notice, response = answer.messages()
    assert notice["method"] == "notifications/progress"
    assert says_too_large(response)
    assert largest_event(answer) <= LIMIT
    assert await sync_to_async(call_log.flush)()
    lines = Call.objects.order_by("id").values_list("outcome", "reason")
    assert [line async for line in lines] == [
        ("ok", ""),
        ("failed", "the result is larger than MAX_EVENT_BYTES"),
    ]
    [record] = [logged for logged in caplog.records if logged.name == "mcp_django"]
    assert record.levelno == logging.WARNING
    assert f"tools/call {tool} on server 'studio' has 20" in record.getMessage()
    settings.MCP_DJANGO = {"MAX_EVENT_BYTES": None}
    answer = await send(studio.asgi, "/", message("tools/call", params, **PROGRESS))
    assert is_whole(answer.messages()[-1])


async def test_a_large_result_that_is_ready_before_the_stream_is_whole(studio):
    body = message("tools/call", {"name": "copy", "arguments": {}}, **PROGRESS)
    answer = await send(studio.asgi, "/", body)
    assert not answer.is_stream
    assert is_whole(answer.json())


@pytest.mark.parametrize("version", [B, D])
async def test_a_stored_event_is_not_too_large_either(version, studio, monkeypatch):
    monkeypatch.setitem(MOUNTS, "studio", studio.asgi)
    peer = await opened("studio", "/", version=version)
    assert is_whole((await peer.send(call("paint"))).response())
    async with peer.stream(call("paint", progress="p")) as connection:
        reader = Reader(connection)
        messages = [await reader.message(), await reader.message()]
    assert messages[0]["method"] == "notifications/progress"
    assert says_too_large(messages[1])
    answer = await peer.get(last_event_id=reader.ids[0])
    assert answer.messages()[-1] == messages[1]
    if version == B:
        batch = [call("paint", id=1), call("paint", id=2)]
        assert all(
            says_too_large(response) for response in (await peer.send(batch)).messages()[-2:]
        )


async def test_everything_is_an_event_over_http_and_sse(studio):
    async with legacy.opened(studio.asgi, "/sse") as stream:
        await stream.ask(initialize(B))
        await stream.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert says_too_large(await stream.ask(call("develop")))
        response = await stream.ask(request("resources/read", {"uri": "studio://picture"}))
        assert response["error"]["code"] == INTERNAL_ERROR
        assert f"at most {LIMIT} can be sent" in response["error"]["message"]
        assert len(await stream.ask([request("ping", id=1), request("ping", id=2)])) == 2


async def test_a_batch_that_is_too_large_together_is_several_events(studio):
    for name in ("half", "other"):
        studio.resource(f"studio://{name}")(lambda: "x" * 600_000)
    async with legacy.opened(studio.asgi, "/sse") as stream:
        await stream.ask(initialize(B))
        reads = [
            request("resources/read", {"uri": f"studio://{name}"}, id=name)
            for name in ("half", "other")
        ]
        responses = [await stream.ask(reads), await stream.said()]
        assert {response["id"] for response in responses} == {"half", "other"}


async def test_a_notification_that_is_too_large_is_left_out(studio, caplog):
    body = message(
        "tools/call",
        {"name": "talk", "arguments": {}},
        **{**PROGRESS, envelope.LOG_LEVEL: "debug"},
    )
    answer = await send(studio.asgi, "/", body)
    notice, response = answer.messages()
    assert notice["params"]["progress"] == 2
    assert response["result"]["content"] == [{"type": "text", "text": "talked"}]
    warnings = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert [warning.split(" has ")[0] for warning in warnings] == [
        "notifications/message",
        "notifications/progress",
    ]


def test_transports_without_events_have_no_limit(studio):
    result = MCPClient(server=studio).call_tool("paint")
    assert result.progress
    assert base64.b64decode(result.content[0]["data"]) == PICTURE
