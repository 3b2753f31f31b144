"""Sessions: their beginning, notifications, client requests, batches and end."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from mcp_django.models import Session
from mcp_django.test import DECLINE, MCPClient
from mcp_django.testing.transports import HTTPChannel, LineChannel
from tests.execution.telemetry.site import PATH, RECEIVED, TRACE_ID, traced
from tests.spec import spec
from tests.transports.http_session.handshakes import B, D, Peer, initialize, opened, request

pytestmark = pytest.mark.usefixtures("site")

DURATION = "mcp.server.session.duration"


async def test_a_session_over_http_is_told_from_its_beginning_to_its_end(recorder):
    peer = await opened("lane", PATH)
    digest = (await Session.objects.aget()).digest
    assert (await peer.delete()).status == 204
    spans = recorder.spans()
    assert set(spans) == {"initialize", "notifications/initialized"}
    for span in spans.values():
        assert span.kind is SpanKind.SERVER
        assert span.attributes["mcp.protocol.version"] == D
        # A digest of the id, because the id itself is only for the client.
        assert span.attributes["mcp.session.id"] == digest
    assert "jsonrpc.request.id" not in spans["notifications/initialized"].attributes
    (point,) = recorder.points(DURATION)
    assert dict(point.attributes) == {
        "mcp.protocol.version": D,
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert point.count == 1


async def test_known_callers_and_sessions_are_counted(recorder, settings):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1}

    def counted() -> dict[tuple[str, str], int]:
        points = recorder.points("mcp_django.cache.values")
        return {
            (point.attributes["cache"], point.attributes["event"]): point.value for point in points
        }

    before = counted()
    peer = await opened("lane", PATH)
    assert await peer.result("ping") == {}
    after = counted()
    events = {event for name, event in after if name == "callers"}
    assert events == {"hits", "asked", "confirmed"}
    assert after["sessions", "asked"] == before["sessions", "asked"] + 1
    assert after["sessions", "hits"] > before["sessions", "hits"]


async def test_an_initialize_that_fails_is_told(recorder):
    await Peer("lane", PATH).send(initialize(None))
    span = recorder.only()
    assert (span.name, span.attributes["error.type"]) == ("initialize", "-32602")


def test_a_session_over_lines_lasts_as_long_as_they_do(recorder):
    with MCPClient(server=traced, protocol_version=D, transport="stdio") as client:
        client.call_tool("here")
        assert recorder.points(DURATION) == []
    assert set(recorder.names()) >= {"initialize", "notifications/initialized", "tools/call here"}
    (point,) = recorder.points(DURATION)
    assert dict(point.attributes) == {"mcp.protocol.version": D, "network.transport": "pipe"}
    assert point.count == 1


@spec("MET-4")
async def test_each_request_of_a_batch_is_a_span_of_its_own(recorder):
    peer = await opened("lane", PATH, version=B)
    recorder.clear()
    calls = [
        request("tools/call", {"name": tool, "arguments": {}, "_meta": RECEIVED}, id=tool)
        for tool in ("here", "later", "fail")
    ]
    answer = await peer.send([*calls, request("ping", id="ping")], accept="application/json")
    seen = {response["id"]: response["result"] for response in answer.json()}
    spans = recorder.spans()
    assert set(spans) == {"ping", *(f"tools/call {tool}" for tool in ("here", "later", "fail"))}
    for name in ("here", "later"):
        span = spans[f"tools/call {name}"]
        assert format_trace_id(span.context.trace_id) == TRACE_ID
        assert format_span_id(span.context.span_id) in seen[name]["content"][0]["text"]
    assert spans["tools/call fail"].attributes["error.type"] == "tool_error"


async def test_a_batch_over_a_limit_is_told(recorder, settings):
    peer = await opened("lane", PATH, version=B)
    recorder.clear()
    settings.MCP_DJANGO = {"RATE": ["1/h"]}
    calls = [request("tools/call", {"name": "here"}, id=request_id) for request_id in (1, 2)]
    await peer.send(calls, accept="application/json")
    assert recorder.names() == ["tools/call here", "tools/call here"]
    errors = {span.attributes.get("error.type") for span in recorder._exporter.get_finished_spans()}
    assert None not in errors


@spec("MET-3", "MET-4")
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_question_is_a_span_whose_trace_travels_with_it(transport, recorder, monkeypatch):
    messages: list[dict[str, Any]] = []
    note(messages, HTTPChannel if transport == "http" else LineChannel, monkeypatch)
    with MCPClient(server=traced, protocol_version=D, transport=transport) as client:
        assert client.call_tool("name", answers=["Ada"]).text == "Ada"
    question, call = recorder.spans()["elicitation/create"], recorder.spans()["tools/call name"]
    assert question.kind is SpanKind.CLIENT
    assert question.parent is not None
    assert question.parent.span_id == call.context.span_id
    assert question.status.status_code is StatusCode.UNSET
    (sent,) = [message for message in messages if message.get("method") == "elicitation/create"]
    assert question.attributes["jsonrpc.request.id"] == sent["id"]
    context = question.context
    ids = format_trace_id(context.trace_id), format_span_id(context.span_id)
    parent = f"00-{ids[0]}-{ids[1]}-{context.trace_flags:02x}"
    assert sent["params"]["_meta"] == {"traceparent": parent}
    (point,) = recorder.points("mcp.client.operation.duration")
    assert point.attributes["mcp.method.name"] == "elicitation/create"
    # The request includes the question to the user.
    assert call.start_time <= question.start_time <= question.end_time <= call.end_time


def note(messages: list[dict[str, Any]], channel: Any, patch: pytest.MonkeyPatch) -> None:
    """Record the messages that the server sends."""
    exchange = channel.exchange

    async def noting(self: Any, body: dict[str, Any]) -> Any:
        async with aclosing(exchange(self, body)) as coming:
            async for message in coming:
                messages.append(message)
                yield message

    patch.setattr(channel, "exchange", noting)


def test_a_declined_question_is_no_error_of_the_question(recorder):
    with MCPClient(server=traced, protocol_version=D, transport="stdio") as client:
        assert client.call_tool("name", answers=[DECLINE], check=False).is_error
    assert recorder.spans()["elicitation/create"].status.status_code is StatusCode.UNSET
    assert recorder.spans()["tools/call name"].attributes["error.type"] == "tool_error"


def test_a_question_that_nobody_answers_ends_with_its_call(recorder):
    with MCPClient(server=traced, protocol_version=D, transport="stdio") as client:
        assert client.call_tool("name").questions
    assert recorder.spans()["elicitation/create"].attributes["error.type"] == "cancelled"
    assert recorder.spans()["tools/call name"].attributes["error.type"] == "cancelled"
