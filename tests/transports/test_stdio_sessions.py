"""`manage.py mcp stdio` in the handshake revisions: one session while the pipes are open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.http_session.handshakes import (
    INITIALIZED,
    VERSIONS,
    A,
    B,
    C,
    D,
    call,
    initialize,
    notification,
    request,
)
from tests.transports.stdio_process import StdioProcess, stdio

pytestmark = pytest.mark.outside

TOOLS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@contextmanager
def session(
    directory: Path, version: str = D, *, server: str = "noisy", **capabilities: Any
) -> Iterator[StdioProcess]:
    """Start a process and initialize its session."""
    with stdio(directory, "--server", server) as process:
        process.send(initialize(version, capabilities=capabilities))
        assert process.response()["result"]["protocolVersion"] == version
        process.send(INITIALIZED)
        yield process


def ask(process: StdioProcess, body: Any) -> dict[str, Any]:
    """Send a message and return its response; nothing else may come before it."""
    process.write(json.dumps(body).encode() + b"\n")
    return process.response()


@spec("IO-1", "VER-12", "VER-13", "VER-14", "VER-1", "RPC-7", "LOG-2", "PNG-1")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_the_handshake_is_served(version, tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        result = ask(process, initialize(version))["result"]
        assert result["protocolVersion"] == version
        assert {*result} == {"protocolVersion", "capabilities", "serverInfo"}
        assert result["capabilities"] == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "logging": {},
            **({"completions": {}} if version != A else {}),
        }
        # Requests are served before the client has sent `notifications/initialized`, too.
        assert ask(process, request("ping", id="p")) == {"jsonrpc": "2.0", "id": "p", "result": {}}
        process.send(INITIALIZED)
        listed = ask(process, request("tools/list"))["result"]
        assert {*listed} == {"tools"}
        answer = ask(process, call("repeat", text="ab", times=2))
        assert answer["result"]["content"] == [{"type": "text", "text": "abab"}]
        for method, params in (
            ("logging/setLevel", {"level": "error"}),
            ("resources/subscribe", {"uri": "noisy://sound"}),
            ("resources/unsubscribe", {"uri": "noisy://sound"}),
        ):
            assert ask(process, request(method, params))["result"] == {}
        assert ask(process, request("server/discover"))["error"]["code"] == METHOD_NOT_FOUND
        process.close_input()
        assert process.wait() == 0
        assert process.rest() == []


@spec("VER-13", "VER-15")
def test_a_version_is_negotiated_or_asked_for_again(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        for wrong in (None, 5, [D]):
            error = ask(process, initialize(wrong))["error"]
            assert error["code"] == INVALID_PARAMS
            assert error["data"] == {"supported": VERSIONS, "requested": wrong}
        assert ask(process, initialize("2026-07-28"))["result"]["protocolVersion"] == D


@spec("VER-19", "PNG-1", "RPC-8")
def test_before_initialize_there_are_pings_and_enveloped_requests(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        assert ask(process, request("ping"))["result"] == {}
        for method in ("tools/list", "tools/call", "logging/setLevel", "resources/subscribe"):
            assert ask(process, request(method, {}))["error"]["code"] == INVALID_REQUEST
        process.send(INITIALIZED, notification("notifications/unknown"))
        assert ask(process, message("tools/list"))["result"]["resultType"] == "complete"
        assert ask(process, initialize(C))["result"]["protocolVersion"] == C


@spec("VER-19")
def test_a_process_is_initialized_once(tmp_path):
    with session(tmp_path, B) as process:
        assert ask(process, initialize(D, id="x"))["error"]["code"] == INVALID_REQUEST
        # The revision of the first initialize stays: only B has batches.
        (answer,) = process.batch([request("ping", id=3)])
        assert answer["id"] == 3


@spec("VER-1", "VER-2", "IO-8", "IO-11", "SUB-9")
def test_both_eras_share_the_pipes(tmp_path):
    with session(tmp_path, C) as process:
        assert ask(process, request("logging/setLevel", {"level": "debug"}))["result"] == {}
        assert "resultType" not in ask(process, request("tools/list"))["result"]
        assert ask(process, message("tools/list"))["result"]["resultType"] == "complete"
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
            assert ask(process, message(method))["error"]["code"] == METHOD_NOT_FOUND
        discovered = ask(process, message("server/discover"))["result"]
        assert discovered["supportedVersions"] == ["2026-07-28", *VERSIONS]
        for version in VERSIONS:
            body = message("tools/list", **{envelope.PROTOCOL_VERSION: version})
            error = ask(process, body)["error"]
            assert error["code"] == UNSUPPORTED_VERSION
            assert error["data"]["supported"] == ["2026-07-28"]
        # Neither the level nor a notification of the session is in a modern answer.
        modern = message("tools/call", {"name": "repeat", "arguments": {"text": "x"}}, id="m")
        assert ask(process, modern)["id"] == "m"


@spec("IO-4", "VER-12", "VER-16")
def test_a_whole_session_may_be_written_at_once(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        requests = [
            request("tools/list", id=2),
            request("prompts/list", id=3),
            request("ping", id=4),
        ]
        process.send(initialize(D), INITIALIZED, *requests)
        process.close_input()
        responses = {response["id"]: response for response in process.rest()}
        assert {*responses} == {1, 2, 3, 4}
        assert responses[2]["result"]["tools"]
        assert responses[3]["result"]["prompts"]
        assert process.wait() == 0


@spec("SUB-3", "VER-16")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_was_written_at_once_hears_of_changes(version, tmp_path, transactional_db):
    database = str(connection.settings_dict["NAME"])
    with stdio(tmp_path, "--server", "noisy", MCP_TEST_DATABASE=database) as process:
        process.send(initialize(version), INITIALIZED, request("ping", id=2))
        assert [process.response()["id"] for _ in range(2)] == [1, 2]
        subscribed = ask(process, request("resources/subscribe", {"uri": "noisy://sound"}))
        assert subscribed["result"] == {}
        process.send(call("change", kind="tools", id="c"))
        replies = [process.next(), process.next()]
        assert [reply for reply in replies if "method" in reply] == [TOOLS_CHANGED]


@spec("BAT-1", "BAT-3", "BAT-4", "BAT-7", "RPC-11")
def test_a_line_of_2025_03_26_may_hold_several_messages(tmp_path):
    with session(tmp_path, B) as process:
        batch = [
            request("ping", id=1),
            notification("notifications/unknown"),
            call("repeat", text="x", id="two"),
            request("tools/dance", id=3),
            initialize(B, id=4),
            5,
            {"jsonrpc": "1.0", "method": "ping"},
        ]
        responses = process.batch(batch)
        assert len(responses) == 6
        by_id = {response["id"]: response for response in responses if "id" in response}
        assert {*by_id} == {1, "two", 3, 4}
        assert by_id[1]["result"] == {}
        assert by_id["two"]["result"]["content"][0]["text"] == "x"
        assert by_id[3]["error"]["code"] == METHOD_NOT_FOUND
        assert by_id[4]["error"]["code"] == INVALID_REQUEST
        broken = [response["error"]["code"] for response in responses if "id" not in response]
        assert broken == [INVALID_REQUEST] * 2
        mixed = [{"jsonrpc": "2.0", "id": "server-1", "result": {}}, request("ping")]
        for wrong in ([], mixed, [message("tools/list"), request("ping")]):
            error = ask(process, wrong)
            assert (error.get("id", "none"), error["error"]["code"]) == ("none", INVALID_REQUEST)
        assert ask(process, request("ping", id=9))["id"] == 9


@spec("BAT-4", "CAN-1", "BAT-2")
def test_what_needs_no_answer_gets_none_and_so_does_what_is_canceled(tmp_path):
    with session(tmp_path, B) as process:
        response = {"jsonrpc": "2.0", "id": "server-9", "result": {}}
        for member in (notification("notifications/x"), response, call("tidy_up", id="doomed")):
            process.write(json.dumps([member]).encode() + b"\n")
        process.wait_for_print("begun")
        off = notification("notifications/cancelled", requestId="doomed")
        assert [answer["id"] for answer in process.batch([off, request("ping", id=1)])] == [1]
        process.close_input()
        assert process.wait() == 0
        assert process.rest() == []


@spec("BAT-4", "IO-4")
def test_a_member_whose_id_is_open_is_refused_alone(tmp_path):
    with session(tmp_path, B) as process:
        twice = [call("repeat", text=text, id="same") for text in ("a", "b")]
        responses = process.batch([*twice, request("ping", id=2)])
        assert sorted(
            "result" in response for response in responses if response["id"] == "same"
        ) == [False, True]
        assert [response["result"] for response in responses if response["id"] == 2] == [{}]
        # The id is free again.
        assert ask(process, request("ping", id="same"))["result"] == {}


@spec("BAT-5", "BAT-6", "RPC-11")
@pytest.mark.parametrize("version", [A, C, D])
def test_a_line_of_any_other_revision_holds_one(version, tmp_path):
    with session(tmp_path, version) as process:
        for batch in ([request("ping")], [notification("notifications/x")], []):
            error = ask(process, batch)
            assert error["error"]["code"] == INVALID_REQUEST
            assert "id" not in error
        assert ask(process, request("ping"))["result"] == {}


@spec("RPC-11", "RPC-9", "RPC-12", "IO-10")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_whose_id_could_not_be_read(version, tmp_path):
    with session(tmp_path, version) as process:
        unreadable = [
            b"{",
            b"nonsense",
            b'"',
            b"1",
            b'{"jsonrpc": "2.0", "id": null, "method": "x"}',
        ]
        for line, code in zip(unreadable, [PARSE_ERROR] * 3 + [INVALID_REQUEST] * 2, strict=True):
            process.write(line + b"\r\n\n")
            error = process.response()
            assert error["error"]["code"] == code
            assert "id" not in error


@spec("CAN-1", "CAN-2", "RPC-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_canceled_request_gets_no_answer(version, tmp_path):
    with session(tmp_path, version) as process:
        process.send(call("tidy_up", id="doomed"))
        process.wait_for_print("begun")
        process.cancel("doomed", reason="enough")
        process.cancel("unknown")
        assert ask(process, request("ping", id="p"))["id"] == "p"
        process.close_input()
        assert process.wait() == 0
        assert process.rest() == []


@spec("ASK-1", "RPC-3", "VER-18")
@pytest.mark.parametrize("version", [C, D])
def test_a_question_is_a_request_with_an_id_of_its_own(version, tmp_path):
    with session(tmp_path, version, elicitation={}) as process:
        ids = []
        for number in (1, 2):
            process.send(call("turn_up", id=f"server-{number}"))
            question = process.next()
            assert question["method"] == "elicitation/create"
            ids.append(question["id"])
            content = {"level": number, "reason": "party"}
            process.send(
                {"jsonrpc": "2.0", "id": "server-99", "result": {}},
                {
                    "jsonrpc": "2.0",
                    "id": question["id"],
                    "result": {"action": "accept", "content": content},
                },
            )
            answer = process.response()
            assert answer["id"] == f"server-{number}"
            assert answer["result"]["content"][0]["text"] == f"{number} (party)"
        assert len({*ids}) == 2


@spec("VER-18", "VER-17")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_is_not_asked_for_what_it_did_not_declare(version, tmp_path):
    declared = {} if version in (C, D) else {"elicitation": {}}
    with session(tmp_path, version, **declared) as process:
        answer = ask(process, call("turn_up"))
        assert answer["result"]["isError"] is True
        assert "How loud?" not in json.dumps(answer)
