"""Every request is a span, named by the semantic conventions, and a measurement."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from channels.routing import URLRouter
from django.test import override_settings
from django.urls import re_path
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.models import Call
from mcp_django.storage.call_rows import CallRow
from mcp_django.test import MCPClient
from tests.execution.telemetry.site import CLIENT, PATH, TRACE_ID, begun, call, traced
from tests.kit.drivers import Answer, connect, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import in_thread, wsgi

pytestmark = pytest.mark.usefixtures("site")

raw = URLRouter([re_path("^traced/mcp$", traced.asgi)])
APPS = {"lane": MOUNTS["lane"], "view": MOUNTS["view"], "raw": raw}
DURATION = "mcp.server.operation.duration"


async def ask(mount: str, body: Any, **changes: str | None) -> Answer:
    """Send a request to this mount and return the response."""
    if mount == "wsgi":
        return await in_thread(wsgi, PATH, body, **changes)
    return await send(APPS[mount], PATH, body, **changes)


def client(**options: Any) -> MCPClient:
    """Return a client that sees a bug as a remote client does."""
    return MCPClient(server=traced, raise_exceptions=False, **options)


# Where it runs --------------------------------------------------------------------------------


@spec("MET-3", "MET-4")
@pytest.mark.parametrize("mount", ["wsgi", *APPS])
async def test_a_function_runs_within_the_span_of_its_request(mount, recorder):
    for tool in ("here", "later"):
        answer = (await ask(mount, call(tool))).json()
        span = recorder.spans()[f"tools/call {tool}"]
        result = answer["result"]["structuredContent"]
        assert set(result["spans"]) == {format_span_id(span.context.span_id)}
        # The client's baggage is passed on to whatever the tool calls, but is not in the response.
        assert result["baggage"] == ({"k": "v"} if tool == "here" else {})
        assert TRACE_ID not in json.dumps(answer)
        assert format_trace_id(span.context.trace_id) == TRACE_ID
        assert span.parent is not None
        assert format_span_id(span.parent.span_id) == CLIENT
        assert span.context.trace_state.to_header() == "a=1"
    assert recorder.names() == ["tools/call here", "tools/call later"]


async def test_a_stream_is_within_the_span_too(recorder):
    answer = await ask("lane", message("tools/call", {"name": "walk"}, progressToken=1))
    assert answer.is_stream
    (seen,) = answer.response()["result"]["structuredContent"]["spans"]
    assert seen == format_span_id(recorder.only().context.span_id)


@pytest.mark.parametrize("transport", ["memory", "stdio"])
def test_lines_and_memory_have_spans(transport, recorder):
    with client(transport=transport) as mine:
        seen = [mine.call_tool(tool).structured["spans"] for tool in ("here", "later")]
    spans = [recorder.spans()[f"tools/call {tool}"] for tool in ("here", "later")]
    expected = [{format_span_id(span.context.span_id)} for span in spans]
    assert [set(ids) for ids in seen] == expected
    network = {"stdio": "pipe", "memory": None}[transport]
    assert {span.attributes.get("network.transport") for span in spans} == {network}


async def test_the_span_of_a_web_server_is_the_parent_or_linked(recorder):
    tracer = trace.get_tracer("web", tracer_provider=recorder.traces)
    with tracer.start_as_current_span("POST") as way:
        await ask("raw", call("here"))
        await ask("raw", message("tools/call", {"name": "later"}))
    linked, child = recorder.spans()["tools/call here"], recorder.spans()["tools/call later"]
    assert [link.context for link in linked.links] == [way.get_span_context()]
    assert (child.parent, child.links) == (way.get_span_context(), ())


@spec("MET-4")
async def test_an_invalid_trace_begins_one_of_its_own(recorder):
    body = message("tools/call", {"name": "here"}, traceparent="00-1-2-01", tracestate="a=1")
    assert "result" in (await ask("raw", body)).json()
    assert recorder.only().parent is None
    assert format_trace_id(recorder.only().context.trace_id) != TRACE_ID


# What it says ---------------------------------------------------------------------------------


async def test_a_span_has_the_attributes_of_the_conventions(recorder):
    await ask("lane", call("here", id="seven"))
    span = recorder.only()
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "jsonrpc.request.id": "seven",
        "client.address": "127.0.0.1",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "here",
    }
    assert span.status.status_code is StatusCode.UNSET
    (point,) = recorder.points(DURATION)
    assert dict(point.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "here",
    }
    assert (point.count, point.explicit_bounds[0], point.explicit_bounds[-1]) == (1, 0.01, 300)


async def test_nothing_that_a_client_makes_up_is_a_name_or_a_label(recorder):
    made_up = "made-up-" * 1000
    for body in (
        message(made_up, {}),
        message("tools/call", {"name": made_up}, traceparent=made_up, baggage=made_up),
        message("resources/read", {"uri": f"traced://orders/{made_up}"}, tracestate=made_up),
        message("skills/get", {"uri": f"skill://{made_up}"}),
        message("completion/complete", {"ref": {"type": "ref/prompt", "name": made_up}}),
        message("prompts/get", {"name": made_up}, id=made_up),
    ):
        await ask("lane", body)
        span = recorder.only()
        recorder.clear()
        shown = {**span.attributes, "name": span.name, "said": span.status.description}
        # The id of the request is only on the span, truncated.
        assert len(shown.pop("jsonrpc.request.id")) <= 101
        assert "made-up" not in str(shown)
    assert "made-up" not in str([dict(point.attributes) for point in recorder.points(DURATION)])


def test_every_method_has_a_span(recorder):
    mine = client()
    mine.discover()
    mine.list_tools()
    mine.read_resource("traced://about")
    mine.get_prompt("greet", {"who": "Eve"})
    (seen,) = mine.complete("greet", "who", "E")
    spans = recorder.spans()
    assert set(spans) == {
        "server/discover",
        "tools/list",
        "resources/read",
        "prompts/get greet",
        "completion/complete",
    }
    assert seen == format_span_id(spans["completion/complete"].context.span_id)
    assert spans["prompts/get greet"].attributes["gen_ai.prompt.name"] == "greet"
    assert spans["resources/read"].attributes["mcp.resource.uri"] == "traced://about"
    assert "gen_ai.operation.name" not in spans["prompts/get greet"].attributes


def test_the_uri_of_a_template_is_told_where_arguments_are(recorder):
    client().read_resource("traced://orders/47114711471147")
    assert recorder.only().attributes["mcp.resource.uri"] == "traced://orders/{number}"
    recorder.clear()
    with override_settings(MCP_DJANGO={"LOG_ARGUMENTS": True}):
        client().read_resource("traced://orders/47114711471147")
    assert recorder.only().attributes["mcp.resource.uri"] == "traced://orders/47114711471147"


def test_arguments_are_told_where_they_are_logged_and_secrets_never(recorder):
    client().call_tool("pay", {"number": "A-7", "card": "4111", "note": "for Eve"})
    arguments = json.loads(recorder.only().attributes["gen_ai.tool.call.arguments"])
    assert arguments == {"number": "A-7", "card": "[hidden]", "note": "[hidden]"}
    recorder.clear()
    client().call_tool("wait", {"name": 47114711471147}, check=False)
    assert "47114711471147" not in recorder.only().to_json()


# How it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "description"),
    [
        ("fail", "ToolError"),
        ("stumble", "ZeroDivisionError"),
        ("hang", "took longer than 0.01 seconds"),
        ("pay", None),
    ],
)
def test_an_error_within_a_result_is_a_tool_error(tool, description, recorder):
    assert client().call_tool(tool, check=False).is_error
    span = recorder.only()
    assert span.attributes["error.type"] == "tool_error"
    assert "rpc.response.status_code" not in span.attributes
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
    assert "47114711471147" not in span.to_json()
    (point,) = recorder.points(DURATION)
    assert point.attributes["error.type"] == "tool_error"


async def test_an_error_is_told_by_its_code(recorder):
    await ask("raw", message("tools/call", {"name": "made up 47114711471147"}))
    span = recorder.only()
    # A name that the client made up is not used for a span or a measurement.
    assert span.name == "tools/call"
    assert span.attributes["error.type"] == span.attributes["rpc.response.status_code"] == "-32602"
    assert "47114711471147" not in span.to_json()
    recorder.clear()
    # The code as it was sent: revisions use different numbers for the same error.
    for version, code in (("2025-11-25", "-32002"), ("2026-07-28", "-32602")):
        with client(protocol_version=version) as mine, pytest.raises(MCPError):
            await mine.aread_resource("traced://nothing")
        assert recorder.spans()["resources/read"].attributes["rpc.response.status_code"] == code
        recorder.clear()
    await ask("raw", message("tools/made-up"))
    assert recorder.only().name == "_OTHER"
    assert recorder.only().attributes["mcp.method.name"] == "_OTHER"


def test_a_refusal_is_an_error(recorder):
    with pytest.raises(AccessRefused):
        client().call_tool("guarded")
    span = recorder.only()
    assert span.name == "tools/call guarded"
    assert span.attributes["error.type"].startswith("-")
    assert span.status.status_code is StatusCode.ERROR


async def test_who_hangs_up_cancels(recorder):
    begun["gone"] = asyncio.Event()
    async with connect(raw, PATH, call("wait", name="gone")):
        async with asyncio.timeout(5):
            await begun["gone"].wait()
        assert recorder.names() == []
    span = recorder.only()
    assert span.attributes["error.type"] == "cancelled"
    assert [point.attributes["error.type"] for point in recorder.points(DURATION)] == ["cancelled"]


async def test_a_subscription_ends_its_span_when_it_is_acknowledged(recorder):
    wanted = {"notifications": {"toolsListChanged": True}}
    async with connect(raw, PATH, message("subscriptions/listen", wanted)) as connection:
        await connection.event()
        assert recorder.names() == ["subscriptions/listen"]


# With others ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("call_log")
async def test_the_call_log_has_the_trace_of_the_span(recorder):
    await ask("lane", message("tools/call", {"name": "fail"}))
    line = await Call.objects.aget()
    assert line.trace_id == format_trace_id(recorder.only().context.trace_id)


@pytest.mark.parametrize("tool", ["reads", "fail"])
def test_a_span_ends_when_the_end_of_its_call_cannot_be_logged(
    tool, recorder, call_log, monkeypatch
):
    insert = call_log.insert

    def break_at_the_end(row: CallRow) -> None:
        if row.is_end:
            raise ValueError("The log is broken")
        insert(row)

    monkeypatch.setattr(call_log, "insert", break_at_the_end)
    with pytest.raises(ValueError, match="The log is broken"):
        MCPClient(server=traced).call_tool(tool)
    assert recorder.only().name == f"tools/call {tool}"
    assert recorder.only().status.status_code is StatusCode.ERROR


def test_it_can_be_switched_off(recorder):
    with override_settings(MCP_DJANGO={"TELEMETRY": False}):
        seen = client().call_tool("here").structured
    assert seen["spans"] == ["0" * 16]
    assert recorder.names() == []
    assert recorder.points(DURATION) == []


def test_an_asked_question_ends_the_round_without_error(recorder):
    assert client().call_tool("name", answers=["Ada"]).text == "Ada"
    first, second = recorder._exporter.get_finished_spans()
    assert first.name == second.name == "tools/call name"
    assert {span.status.status_code for span in (first, second)} == {StatusCode.UNSET}
    # The questions in a result carry no trace context (MET-4).
    assert TRACE_ID not in first.to_json()


def test_a_component_that_reads_another_is_one_request(recorder):
    assert client().call_tool("reads").text == "about"
    assert recorder.names() == ["tools/call reads"]
