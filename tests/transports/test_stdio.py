"""What a client gets over the pipes of `manage.py mcp stdio`: messages, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from itertools import pairwise

import pytest

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNAUTHORIZED,
    UNSUPPORTED_VERSION,
)
from tests.kit.drivers import message
from tests.kit.processes import REPOSITORY
from tests.spec import spec
from tests.transports.stdio_process import CLEAN, SETTINGS, StdioProcess, stdio

pytestmark = pytest.mark.outside

DRAFT = "DRAFT-2026-v1"
# Characters that some readers mistake for the end of a line, and one beyond the first plane.
ODD = "a\u2028b\u2029c\x85d\x0be\r\nf ü \U0001f388 \ufeff \x00"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A process for all tests that leave its state unchanged."""
    with stdio(tmp_path_factory.mktemp("noisy"), "--server", "noisy") as process:
        yield process


@pytest.fixture
def quiet(noisy):
    """The shared process; the test must read everything that it writes."""
    yield noisy
    assert noisy.request("server/discover")["result"]["resultType"] == "complete"


# Requests -----------------------------------------------------------------------------------------


@spec("IO-1", "VER-7", "RPC-2")
def test_every_kind_of_request_is_answered(quiet):
    discovered = quiet.request("server/discover")["result"]
    assert discovered["supportedVersions"][0] == "2026-07-28"
    assert discovered["capabilities"]["tools"] == {"listChanged": True}
    names = [tool["name"] for tool in quiet.request("tools/list")["result"]["tools"]]
    assert "repeat" in names
    assert quiet.call("repeat", text="ab", times=2) == "abab"
    read = quiet.request("resources/read", {"uri": "noisy://sound"})["result"]
    assert read["contents"][0]["text"] == "noise"
    prompt = quiet.request("prompts/get", {"name": "shout", "arguments": {"what": "hey"}})
    assert prompt["result"]["messages"][0]["content"]["text"] == "HEY"
    argument = {"name": "what", "value": "oh"}
    completed = quiet.request(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "shout"}, "argument": argument},
    )
    assert completed["result"]["completion"]["values"] == ["oh!", "oh?"]


def test_a_tool_sees_no_request_of_http(quiet):
    assert json.loads(quiet.call("whoami")) == {"user": "", "request": False}


@spec("IO-1", "RPC-2")
@pytest.mark.parametrize("given", [0, "", "x", -7, 2**60, "\u2028"])
def test_a_response_has_the_id_of_its_request(quiet, given):
    quiet.send(message("server/discover", id=given))
    response_id = quiet.response()["id"]
    assert (response_id, type(response_id)) == (given, type(given))


@spec("RPC-10", "VER-3", "VER-6", "VER-11", "TOOL-6", "PNG-3")
@pytest.mark.parametrize(
    ("method", "params", "changes", "code"),
    [
        ("ping", {}, {}, METHOD_NOT_FOUND),
        ("initialize", {}, {}, METHOD_NOT_FOUND),
        ("tools/call", {"name": "nothing"}, {}, INVALID_PARAMS),
        ("tools/list", {}, {envelope.CLIENT_CAPABILITIES: None}, INVALID_PARAMS),
        ("tools/list", {}, {envelope.PROTOCOL_VERSION: "1.0"}, UNSUPPORTED_VERSION),
        ("server/discover", {}, {envelope.PROTOCOL_VERSION: "1.0"}, UNSUPPORTED_VERSION),
        ("subscriptions/listen", {}, {}, INVALID_PARAMS),
        ("subscriptions/listen", {"notifications": {"taskIds": ["1"]}}, {}, -32021),
        (
            "subscriptions/listen",
            {"notifications": {"taskIds": ["1"]}},
            {envelope.PROTOCOL_VERSION: DRAFT},
            -32003,
        ),
    ],
)
def test_a_request_that_cannot_be_served_gets_an_error(quiet, method, params, changes, code):
    assert quiet.request(method, params, **changes)["error"]["code"] == code


@spec("ERR-5", "RPC-10")
def test_a_bug_of_the_site_ends_its_own_request(tmp_path):
    with stdio(tmp_path, "--server", "cracked") as process:
        answer = process.request("tools/call", {"name": "broken", "arguments": {}})
        # A permission that fails authorizes no caller.
        assert answer["error"]["code"] == UNAUTHORIZED
        assert "secret" not in json.dumps(answer)
        assert "secret detail" in process.stderr
        assert process.call("whole") == "whole"


@spec("IO-8", "VER-2", "VER-20", "LOG-4")
def test_one_request_leaves_nothing_to_the_next(tmp_path):
    with stdio(tmp_path, "--server", "stage") as process:
        call = {"name": "stagger", "arguments": {}}
        extra = {
            envelope.PROTOCOL_VERSION: DRAFT,
            envelope.PROGRESS_TOKEN: "t",
            envelope.LOG_LEVEL: "debug",
        }
        id = process.begin("tools/call", call, **extra)
        heard = [process.next() for _ in range(4)]
        assert [reply.get("method") for reply in heard] == [*["notifications/progress"] * 3, None]
        assert heard[-1]["id"] == id
        # Neither the token, nor the level, nor the revision of the previous request applies.
        process.request("tools/call", call)
        unknown = process.request("tools/list", **{envelope.PROTOCOL_VERSION: "1.0"})
        assert unknown["error"]["code"] == UNSUPPORTED_VERSION


@spec("IO-3", "MRT-1")
def test_a_question_is_a_result_and_no_request(quiet):
    able = {envelope.CLIENT_CAPABILITIES: {"elicitation": {"form": {}}}}
    call = {"name": "turn_up", "arguments": {}}
    result = quiet.request("tools/call", call, **able)["result"]
    assert result["resultType"] == "input_required"
    ((key, question),) = result["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    answers = {key: {"action": "accept", "content": {"level": 11, "reason": "louder"}}}
    again = {**call, "inputResponses": answers, "requestState": result["requestState"]}
    done = quiet.request("tools/call", again, **able)["result"]
    assert done["content"][0]["text"] == "11 (louder)"


# Lines --------------------------------------------------------------------------------------------


@spec("IO-1")
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_is_utf_8_whatever_the_locale(tmp_path, locale):
    environ = {"LC_ALL": locale, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with stdio(tmp_path, "--server", "noisy", **environ) as process:
        assert process.call("repeat", text=ODD) == ODD
        raw = json.dumps(message("tools/call", {"name": "repeat", "arguments": {"text": ODD}}))
        process.write(json.dumps(json.loads(raw), ensure_ascii=False).encode() + b"\n")
        assert process.response()["result"]["content"][0]["text"] == ODD
        assert len(process.lines) == 2
        assert "\u2028".encode() in process.lines[0]
        assert b"\r" not in process.lines[0]


@spec("IO-1", "IO-4")
def test_several_messages_may_come_in_one_piece(quiet):
    quiet.send(*(message("server/discover", id=f"piece {n}") for n in range(50)))
    ids = {quiet.response()["id"] for _ in range(50)}
    assert ids == {f"piece {n}" for n in range(50)}


@spec("IO-1")
def test_a_message_may_come_in_many_pieces(quiet):
    for byte in json.dumps(message("server/discover", id="slow"), ensure_ascii=False).encode():
        quiet.write(bytes([byte]))
    quiet.write(b"\n")
    assert quiet.response()["id"] == "slow"


@spec("IO-10")
def test_other_line_ends_and_blank_lines_are_tolerated(quiet):
    raw = json.dumps(message("server/discover", id="crlf")).encode()
    # The first line of a client in .NET begins with a byte order mark.
    quiet.write(b"\n\r\n  \t\r\n\xef\xbb\xbf" + raw + b"\r\n\n")
    assert quiet.response()["id"] == "crlf"


@spec("IO-10", "RPC-9", "RPC-11", "RPC-12", "BAT-5", "BAT-9")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1', PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b'"\xc3"', PARSE_ERROR),
        (b"\xef\xbb\xbf{}", INVALID_REQUEST),
        (b"\x00", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b"null", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', INVALID_REQUEST),
        (b"x" * (5 * 1024 * 1024), PARSE_ERROR),
        (b'"' + b"x" * (5 * 1024 * 1024) + b'"', PARSE_ERROR),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_line_that_cannot_be_read_is_refused_and_the_next_one_served(quiet, line, code):
    quiet.write(line + b"\n")
    refused = quiet.response()
    assert refused["error"]["code"] == code
    # The id could not be read, and this revision does not allow null instead.
    assert "id" not in refused
    assert quiet.call("repeat", text="on") == "on"


@spec("IO-10", "RPC-12")
@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"jsonrpc": "1.0", "method": "x"}, INVALID_REQUEST),
        ({"jsonrpc": "2.0", "method": 5}, INVALID_REQUEST),
        ({"jsonrpc": "2.0", "method": "x", "params": [1]}, INVALID_PARAMS),
    ],
)
def test_a_broken_request_is_refused_under_its_id(quiet, broken, code):
    quiet.send({**broken, "id": "broken"})
    refused = quiet.response()
    assert (refused["id"], refused["error"]["code"]) == ("broken", code)


@spec("RPC-8", "IO-3")
def test_notifications_and_responses_are_never_answered(quiet):
    envelope = message("x")["params"]
    for params in ({}, envelope, [], "x"):
        for method in ("notifications/initialized", "notifications/nothing", "tools/list"):
            quiet.send({"jsonrpc": "2.0", "method": method, "params": params})
    quiet.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    quiet.send({"jsonrpc": "2.0", "id": 1, "result": []})
    quiet.send({"jsonrpc": "2.0", "error": {"code": 1, "message": "x"}})
    quiet.send({"jsonrpc": "2.0", "id": 1, "error": 5})
    assert quiet.call("repeat", text="still here") == "still here"


# Standard output ----------------------------------------------------------------------------------


@spec("IO-2")
def test_whatever_else_is_printed_goes_to_standard_error(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        assert process.call("mutter") == "quiet"
        # Immediately, and not when the process ends: a developer may be watching.
        assert "muttered by a tool" in process.stderr
        assert process.call("chat") == "quiet"
        process.close_input()
        assert process.rest() == []
        assert process.wait() == 0
    assert len(process.lines) == 2
    for text in (
        "printed by the settings",
        "printed by the URLconf",
        "printed by a tool",
        "written by a tool",
        "written to the first standard output",
        "written to the descriptor",
        "printed by a child",
        "printed by a shell",
        "logged by a tool",
    ):
        assert text in process.stderr


@spec("IO-2")
def test_what_runs_before_the_first_message_says_nothing(tmp_path):
    # A site with warnings: no cache, no CSRF cookie, DEBUG as it is.
    with stdio(tmp_path, "--server", "noisy", PYTHONWARNINGS="always") as process:
        process.close_input()
        assert process.rest() == []
        assert process.wait() == 0


@spec("IO-2")
def test_children_of_tools_do_not_read_the_messages(quiet):
    waiting = quiet.begin_call("read_input")
    behind = quiet.begin_call("repeat", text="behind")
    contents = {
        response["id"]: response["result"]["content"]
        for response in (quiet.response(), quiet.response())
    }
    assert json.loads(contents[waiting][0]["text"]) == ["", ""]
    assert contents[behind][0]["text"] == "behind"


# Several at once ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_stage(tmp_path_factory):
    """A process whose tools wait at gates; each test has gates of its own."""
    with stdio(tmp_path_factory.mktemp("stage"), "--server", "stage") as process:
        yield process


@pytest.fixture
def stage(on_stage):
    yield on_stage
    assert on_stage.request("server/discover")["result"]["resultType"] == "complete"


@pytest.fixture
def gate(request):
    name: str = request.node.name
    return name


def wait_at(process: StdioProcess, gate: str) -> None:
    """Wait until a call has reached a gate."""
    while process.call("knock", name=gate) != "true":
        pass


@spec("IO-4")
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
def test_a_slow_request_holds_up_no_other(stage, gate, tool):
    slow = stage.begin_call(tool, gate=gate)
    wait_at(stage, gate)
    opening = stage.begin_call("open_gate", name=gate)
    assert {stage.response()["id"], stage.response()["id"]} == {slow, opening}


@spec("PRG-1", "PRG-2", "PRG-3", "LOG-4")
@pytest.mark.parametrize("tool", ["walk", "walk_later"])
def test_messages_of_a_call_come_while_it_runs(stage, gate, tool):
    extra = {envelope.PROGRESS_TOKEN: "t", envelope.LOG_LEVEL: "info"}
    call = stage.begin("tools/call", {"name": tool, "arguments": {"gate": gate}}, **extra)
    before, logged = stage.next(), stage.next()
    assert before["params"] == {
        "progressToken": "t",
        "progress": 1,
        "total": 2,
        "message": "before",
    }
    assert logged["params"] == {"level": "warning", "data": "at the gate"}
    opening = stage.begin_call("open_gate", name=gate)
    rest = [stage.next() for _ in range(3)]
    assert [reply["params"]["progress"] for reply in rest if "params" in reply] == [2]
    responses = [reply["id"] for reply in rest if "id" in reply]
    assert sorted(responses) == [call, opening]


@spec("IO-4", "RPC-4")
def test_lines_of_many_requests_do_not_mix(quiet):
    texts = {quiet.begin_call("repeat", text=f"{n:02}", times=20_000): f"{n:02}" for n in range(30)}
    for _ in range(30):
        response = quiet.response()
        assert response["result"]["content"][0]["text"] == texts.pop(response["id"]) * 20_000


@spec("RPC-2", "IO-4")
def test_a_number_and_a_text_are_two_ids(stage, gate):
    call = {"name": "stay_later", "arguments": {"gate": gate}}
    stage.send(message("tools/call", call, id=1_000_001))
    stage.send(message("tools/call", call, id="1000001"))
    wait_at(stage, gate)
    stage.begin_call("open_gate", name=gate)
    ids = {stage.response()["id"] for _ in range(3)}
    assert {1_000_001, "1000001"} < ids


@spec("IO-4", "RPC-4")
def test_an_id_that_is_open_cannot_be_used_again(stage, gate):
    call = message("tools/call", {"name": "stay_later", "arguments": {"gate": gate}}, id="twice")
    stage.send(call, call)
    refused = stage.response()
    assert (refused["id"], refused["error"]["code"]) == ("twice", INVALID_REQUEST)
    stage.begin_call("open_gate", name=gate)
    responses = [stage.response(), stage.response()]
    assert [
        response["result"]["content"][0]["text"]
        for response in responses
        if response["id"] == "twice"
    ] == ["opened"]
    # The id is free now.
    stage.send(call)
    assert stage.response()["id"] == "twice"


def test_an_id_can_be_used_again_as_soon_as_its_response_is_read(quiet):
    for _ in range(50):
        quiet.send(message("tools/call", {"name": "repeat", "arguments": {"text": "x"}}, id=0))
        assert "result" in quiet.response()


@spec("IO-4")
def test_answers_wait_for_a_client_that_does_not_read(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        arguments = {"text": "x", "times": 50_000}
        requests = [
            message("tools/call", {"name": "repeat", "arguments": arguments}, id=n)
            for n in range(60)
        ]
        writing = threading.Thread(target=process.send, args=requests)
        writing.start()
        # The answers, far more than a pipe holds, are read only from here on.
        ids = {process.response()["id"] for _ in requests}
        writing.join()
    assert ids == {*range(60)}


@spec("IO-10")
def test_a_flood_of_nonsense_is_refused_line_by_line(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        lines = 3000
        writing = threading.Thread(target=process.write, args=(b"nonsense\n" * lines,))
        writing.start()
        assert {process.response()["error"]["code"] for _ in range(lines)} == {PARSE_ERROR}
        writing.join()
        assert process.call("repeat", text="calm") == "calm"


# Files instead of pipes ---------------------------------------------------------------------------


@spec("IO-6", "IO-10")
@pytest.mark.parametrize("end", [b"\n", b"", b'\n{"jsonrpc": "2.0", "id": 9, "meth'])
def test_requests_from_a_file_are_answered_to_the_last(tmp_path, end):
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    calls = [
        message("tools/call", {"name": "repeat", "arguments": {"text": str(n)}}, id=n)
        for n in range(3)
    ]
    requests.write_bytes(b"\n".join(json.dumps(call).encode() for call in calls) + end)
    with requests.open("rb") as given, answers.open("wb") as written:
        done = subprocess.run(
            [sys.executable, "-m", "django", "mcp", "stdio", "--server", "noisy"],
            cwd=REPOSITORY,
            env={**os.environ, **CLEAN, "DJANGO_SETTINGS_MODULE": SETTINGS},
            stdin=given,
            stdout=written,
            check=True,
            timeout=120,
        )
    assert done.returncode == 0
    replies = [json.loads(line) for line in answers.read_bytes().splitlines()]
    texts = {
        reply["id"]: reply["result"]["content"][0]["text"] for reply in replies if "result" in reply
    }
    assert texts == {0: "0", 1: "1", 2: "2"}
    errors = [reply["error"]["code"] for reply in replies if "error" in reply]
    assert errors == ([PARSE_ERROR] if end.endswith(b"meth") else [])


def test_pipes_that_do_not_block_are_waited_for(tmp_path):
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "mcp", "stdio", "--server", "noisy"],
        cwd=REPOSITORY,
        env={**os.environ, **CLEAN, "DJANGO_SETTINGS_MODULE": SETTINGS},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    assert process.stdout is not None
    with process, process.stdout:
        os.write(ours, json.dumps(message("server/discover")).encode() + b"\n")
        assert json.loads(process.stdout.readline())["id"] == 1
        os.write(ours, json.dumps(message("server/discover", id=2)).encode() + b"\n")
        assert json.loads(process.stdout.readline())["id"] == 2
        os.close(ours)
    assert process.returncode == 0


def test_a_chatty_call_is_heard_in_order(stage):
    call = {"name": "chatter", "arguments": {"n": 3000}}
    stage.begin("tools/call", call, **{envelope.PROGRESS_TOKEN: 1})
    heard = []
    while "method" in (reply := stage.next()):
        heard.append(reply["params"]["progress"])
    assert reply["result"]["content"][0]["text"] == "chattered"
    assert heard[-1] == 3000
    assert all(earlier < later for earlier, later in pairwise(heard))
