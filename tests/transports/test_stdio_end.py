"""How the process ends: soon, quietly, and whatever it is doing."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.stdio_process import StdioProcess, stdio

pytestmark = pytest.mark.outside

# Tools that run for longer than a test waits, and the text that each prints when it begins.
STUBBORN = {
    "sleep": "sleeping",
    "sleep_elsewhere": "sleeping",
    "block": "blocking",
    "refuse_to_end": "staying",
    "tidy_up": "begun",
}
WAYS = ["end of input", "SIGTERM", "SIGINT"]


def end(process: StdioProcess, way: str) -> None:
    if way == "end of input":
        process.close_input()
    else:
        process.process.send_signal(getattr(signal, way))


@spec("IO-6")
@pytest.mark.parametrize("way", WAYS)
def test_an_idle_process_ends(tmp_path, way):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.request("server/discover")
        end(process, way)
        assert process.rest() == []
        assert process.wait() == 0
    assert "Traceback" not in process.stderr


@spec("IO-6")
@pytest.mark.parametrize(
    ("tool", "way"),
    [*((tool, WAYS[0]) for tool in STUBBORN), ("sleep", "SIGTERM"), ("block", "SIGINT")],
)
def test_no_call_keeps_the_process(tmp_path, tool, way):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.begin_call(tool)
        process.wait_for_print(STUBBORN[tool])
        end(process, way)
        assert process.rest() == []
        assert process.wait() == 0
    assert "Traceback" not in process.stderr
    if tool == "tidy_up":
        assert "tidied up" in process.stderr


@spec("IO-6")
def test_a_subscription_ends_with_its_input_without_a_word(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        process.next()
        process.close_input()
        assert process.rest() == []
        assert process.wait() == 0


@spec("IO-6", "IO-10")
@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_line_that_breaks_off_is_no_request(tmp_path, cut):
    call = message("tools/call", {"name": "repeat", "arguments": {"text": "x"}})
    raw = StdioProcess.encode(call)
    with stdio(tmp_path, "--server", "noisy") as process:
        process.write(StdioProcess.encode({**call, "id": "whole"}) + raw[:cut])
        process.close_input()
        whole = {response.get("id"): response for response in process.rest()}
        assert process.wait() == 0
    assert whole["whole"]["result"]["content"][0]["text"] == "x"
    assert whole[None]["error"]["code"] == -32700
    assert len(whole) == 2


@spec("IO-6")
def test_a_client_that_died_ends_the_process_quietly(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.begin_call("sleep")
        process.wait_for_print("sleeping")
        assert process.process.stdout is not None
        process.process.stdout.close()
        process.begin("server/discover")
        assert process.wait() == 0
    assert "Traceback" not in process.stderr
    assert "BrokenPipe" not in process.stderr


@spec("IO-6")
def test_a_client_that_never_reads_does_not_keep_the_process(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.begin_call("repeat", text="x", times=90_000)
        process.begin_call("repeat", text="x", times=90_000)
        process.begin_call("sleep")
        process.wait_for_print("sleeping")
        process.close_input()
        assert process.wait() == 0


@spec("IO-6")
def test_a_second_signal_changes_nothing(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.begin_call("refuse_to_end")
        process.wait_for_print("staying")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            process.process.send_signal(number)
        process.close_input()
        assert process.wait() == 0


def answered(process: StdioProcess) -> list[Any]:
    return [response["id"] for response in process.rest()]


@spec("IO-6")
def test_what_was_asked_before_the_end_is_answered(tmp_path):
    with stdio(tmp_path, "--server", "noisy") as process:
        process.send(*(message("tools/list", id=n) for n in range(20)))
        process.close_input()
        assert sorted(answered(process)) == [*range(20)]
        assert process.wait() == 0
