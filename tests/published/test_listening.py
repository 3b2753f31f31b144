"""A message belongs to a request and a revision, and a violation of its schema fails the test."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mcp_django.protocol import envelope
from tests.kit.drivers import message
from tests.published import plugin
from tests.published.listening import Exchange, Lines, Verdicts, Violation, odd_on_purpose, verdicts
from tests.transports.http_session.handshakes import VERSIONS, initialize, notification, request

pytest.importorskip("jsonschema_rs")

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
INFO = {"name": "server", "version": "1"}
PROGRESS = notification("notifications/progress", progressToken=1, progress=1, message="half")


@pytest.fixture(autouse=True)
def _on_purpose():
    """Keep violations apart, because these tests cause them on purpose."""
    with verdicts.apart():
        yield


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def result(value: Any, *, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def exchanged(
    question: Any, answer: Any, *, status: int = 200, response_headers: Any = JSON, **headers: str
) -> list[str]:
    """Return the violations of a document."""
    exchange = Exchange("/mcp", {name.replace("_", "-"): value for name, value in headers.items()})
    exchange.ask(encoded(question))
    exchange.start(status, response_headers)
    exchange.hear(answer if isinstance(answer, bytes) else encoded(answer))
    exchange.end()
    return exchange.wrong


def begun(session: str, version: str) -> None:
    agreed = {"protocolVersion": version, "capabilities": {}, "serverInfo": INFO}
    assert (
        exchanged(
            initialize(version),
            result(agreed),
            response_headers={**JSON, "mcp-session-id": session},
        )
        == []
    )


def streamed(question: Any, *events: Any, verb: str = "POST", **headers: str) -> list[str]:
    """Return the violations of a stream that arrives byte by byte."""
    exchange = Exchange("/mcp", {name.replace("_", "-"): value for name, value in headers.items()})
    exchange.ask(encoded(question) if question else b"")
    exchange.start(200, EVENTS)
    body = b"id: 1\ndata:\n\n: a comment\n\n"
    body += b"".join(b"data: " + encoded(event) + b"\n\n" for event in events)
    for byte in body:
        exchange.hear(bytes([byte]))
    exchange.end()
    return exchange.wrong


# The revision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2026-07-28", "DRAFT-2026-v1"])
def test_a_request_names_its_revision_itself(version):
    call = message("tools/call", **{envelope.PROTOCOL_VERSION: version})
    (wrong,) = exchanged(call, result({"content": []}), mcp_protocol_version="2025-06-18")
    assert "2026-07-28" in wrong
    assert exchanged(call, result({"content": [], "resultType": "complete"})) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_has_the_revision_that_it_began_with(version):
    session = f"begun with {version}"
    begun(session, version)
    audio = {"type": "audio", "mimeType": "audio/wav", "data": "aGk="}
    heard = result({"content": [audio]})
    wrong = exchanged(request("tools/call"), heard, mcp_session_id=session)
    assert bool(wrong) == (version == "2024-11-05")
    # Other sessions do not have this revision; without a session, the header names the revision.
    assert exchanged(request("tools/call"), heard) == []
    assert exchanged(request("tools/call"), heard, mcp_protocol_version="2024-11-05")


def test_a_session_begins_with_what_its_revision_has():
    agreed = {"protocolVersion": "2025-06-18", "capabilities": {}}
    (wrong,) = exchanged(initialize("2025-11-25"), result(agreed))
    assert "is no message of 2025-06-18, as an answer to initialize" in wrong
    (wrong,) = exchanged(initialize("2025-11-25"), result({**agreed, "protocolVersion": "1"}))
    assert "'initialize' has no result" in wrong


# What it belongs to -----------------------------------------------------------------------------


def test_a_response_belongs_to_the_request_with_its_id():
    assert exchanged(request("tools/list"), result({"tools": []})) == []
    (wrong,) = exchanged(request("prompts/list"), result({"tools": []}))
    assert "as an answer to prompts/list" in wrong
    (wrong,) = exchanged(request("tools/list"), result({"tools": []}, id="1"))
    assert "None has no result" in wrong


def test_a_point_makes_no_other_id_of_a_whole_number():
    assert exchanged(b'{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}'.decode(), result({})) != []
    exchange = Exchange("/mcp", {})
    exchange.ask(b'{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}')
    exchange.start(200, JSON)
    exchange.hear(encoded(result({})))
    exchange.end()
    assert exchange.wrong == []


def test_each_message_of_a_stream_is_judged():
    call = request("tools/call")
    done = result({"content": []})
    assert streamed(call, PROGRESS, done) == []
    wrong = streamed(call, notification("notifications/progress", progress=1), PROGRESS, result({}))
    assert len(wrong) == 2


def test_a_stream_that_is_taken_up_again_answers_what_the_session_asked():
    begun("taken up", "2025-11-25")
    exchanged(request("tools/list", id=7), b"", status=202, mcp_session_id="taken up")
    answer = result({"tools": []}, id=7)
    assert streamed(None, answer, mcp_session_id="taken up") == []
    (wrong,) = streamed(None, result({"tools": 1}, id=7), mcp_session_id="taken up")
    assert "as an answer to tools/list" in wrong
    assert streamed(None, answer, mcp_session_id="another")


def test_a_batch_is_judged_one_by_one_where_there_are_batches():
    batch = [request("ping", id=1), request("tools/list", id=2)]
    answer = [result({}, id=1), result({"tools": [{}]}, id=2), result({}, id=3)]
    begun("batches", "2025-03-26")
    assert exchanged(batch, answer[:1], mcp_session_id="batches") == []
    assert len(exchanged(batch, answer, mcp_session_id="batches")) == 2
    assert exchanged(batch, [], mcp_session_id="batches")
    begun("no batches", "2025-06-18")
    (wrong,) = exchanged(batch, answer[:1], mcp_session_id="no batches")
    assert "2025-06-18 has none" in wrong


def test_the_stream_of_the_old_transport_answers_what_was_posted():
    stream = Exchange("/mcp/sse", {})
    stream.start(200, EVENTS)
    stream.hear(b"event: endpoint\ndata: messages?session_id=old\n\n")
    Exchange("/mcp/messages?session_id=old", {}).ask(encoded(request("tools/list", id=3)))
    stream.hear(b"data: " + encoded(result({"tools": []}, id=3)) + b"\n\n")
    assert stream.wrong == []
    stream.hear(b"data: " + encoded(result({}, id=3)) + b"\n\n")
    (wrong,) = stream.wrong
    assert "is no message of 2024-11-05, as an answer to tools/list" in wrong


def test_lines_are_judged_in_the_revision_of_each():
    lines = Lines()
    lines.ask(encoded(request("ping", id="early")) + b"\n")
    lines.hear(encoded(result({}, id="early")) + b"\n")
    lines.ask(encoded(initialize("2024-11-05", id=0)) + b"\n" + encoded(message("tools/call"))[:20])
    agreed = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": INFO}
    lines.hear(encoded(result(agreed, id=0)) + b"\n")
    lines.ask(encoded(message("tools/call"))[20:] + b"\n" + encoded(request("ping", id=2)) + b"\n")
    done = result({"content": [], "resultType": "complete"})
    lines.hear(encoded(done) + b"\n" + encoded(result({}, id=2)) + b"\n")
    lines.complain()
    lines.hear(encoded(result({"content": []})) + b"\n")
    with pytest.raises(Violation, match="resultType"):
        lines.complain()


# What is a message ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"nonsense", b'{"a": NaN}', b"\xff"])
def test_what_is_no_json_is_wrong(body):
    (wrong,) = exchanged(request("ping"), body)
    assert "is no JSON" in wrong


def test_a_packed_document_is_judged():
    headers = {**JSON, "content-encoding": "gzip"}
    assert (
        exchanged(request("ping"), gzip.compress(encoded(result({}))), response_headers=headers)
        == []
    )
    assert exchanged(request("ping"), gzip.compress(encoded(result([]))), response_headers=headers)


@pytest.mark.parametrize(
    ("body", "answer", "status"),
    [
        (request("ping"), {"error": "invalid_token", "error_description": "No."}, 401),
        ({"client_name": "x"}, {"client_id": "y"}, 201),
        (b"", {"status": "fine"}, 200),
    ],
)
def test_other_documents_are_none_of_ours(body, answer, status):
    assert exchanged(body or "", answer, status=status) == []


@pytest.mark.parametrize("body", [request("ping"), "nonsense"])
def test_a_refusal_is_a_message(body):
    error = {"code": -32600, "message": "No."}
    assert exchanged(body, {"jsonrpc": "2.0", "error": error}, status=400) == []
    assert exchanged(body, {"error": error}, status=400)
    assert exchanged(body, {"jsonrpc": "2.0", "error": {"code": 1}}, status=400)


# The test that hears it -------------------------------------------------------------------------


def test_what_is_wrong_fails_the_test_at_its_end():
    verdicts = Verdicts()
    hook = plugin.judged(verdicts)
    next(hook)
    verdicts.add("It said no")
    with pytest.raises(Violation, match="It said no"):
        next(hook)
    # Each violation is reported once.
    hook = plugin.judged(verdicts)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send("fine")
    assert ended.value.value == "fine"


def test_a_test_that_fails_says_what_else_was_wrong():
    verdicts = Verdicts()
    hook = plugin.judged(verdicts)
    next(hook)
    verdicts.add("It said no")
    with pytest.raises(ZeroDivisionError) as caught:
        hook.throw(ZeroDivisionError())
    (note,) = caught.value.__notes__
    assert "It said no" in note


def test_what_is_odd_on_purpose_is_not_judged():
    with odd_on_purpose("this is what it is there for"):
        assert exchanged(request("ping"), result([])) == []
    assert exchanged(request("ping"), result([]))
