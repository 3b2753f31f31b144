"""`python -m tests.conformance` reports when it serves, ends on a signal, and cleans up."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conformance import process
from tests.conformance.fixture import STOP_SECONDS, serving
from tests.interop.wire import Wire
from tests.kit.processes import REPOSITORY, free_port

pytestmark = [pytest.mark.outside, pytest.mark.timeout(2 * process.START_SECONDS + STOP_SECONDS)]
ONE = [(kind, "1") for kind in process.COMMANDS]
SEVERAL = [("uvicorn", "2"), ("granian", "2")]


@pytest.mark.parametrize(
    ("kind", "workers"),
    [*ONE, *(pytest.param(*pair, marks=pytest.mark.requires("shared")) for pair in SEVERAL)],
)
def test_it_prints_one_line_and_ends_with_its_server(kind, workers, tmp_path):
    with serving("--server", kind, "--workers", workers, directory=tmp_path) as fixture:
        assert fixture.line == f"Serving {fixture.url}\n"
        with Wire(fixture.url) as wire:
            assert wire.call("test_simple_text")["content"][0]["type"] == "text"
        assert fixture.end() == ""
        assert fixture.process.returncode == 0
        assert not process.is_taken(fixture.port)
    # Only its log is left, which the test itself writes there.
    assert [path.name for path in tmp_path.iterdir()] == [f"fixture-{fixture.port}.txt"]


def test_it_ends_when_interrupted_at_a_terminal(tmp_path):
    with serving(directory=tmp_path) as fixture:
        fixture.end(signal.SIGINT)
        assert fixture.process.returncode == 0
        assert not process.is_taken(fixture.port)


def test_a_client_that_still_listens_does_not_hold_it_up(tmp_path):
    wanted = {"notifications": {"toolsListChanged": True}}
    with (
        serving(directory=tmp_path) as fixture,
        Wire(fixture.url) as wire,
        wire.stream("subscriptions/listen", wanted) as messages,
    ):
        assert next(messages)["method"] == "notifications/subscriptions/acknowledged"
        fixture.end()
        assert fixture.process.returncode == 0


def test_a_list_really_changes_when_its_listeners_are_told(tmp_path):
    with serving(directory=tmp_path) as fixture, Wire(fixture.url) as wire:

        def names(kind: str) -> set[str]:
            return {component["name"] for component in wire.result(f"{kind}/list")[kind]}

        for kind, trigger in (
            ("tools", "test_trigger_tool_change"),
            ("prompts", "test_trigger_prompt_change"),
        ):
            before = names(kind)
            wire.call(trigger)
            (changed,) = before ^ names(kind)
            wire.call(trigger)
            assert names(kind) == before
            assert changed.startswith("test_sometimes")


def refusal(*options: str) -> str:
    """Return the error output of a fixture that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=process.START_SECONDS,
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_daphne_with_several_workers_is_refused():
    message = refusal("--port", str(free_port()), "--server", "daphne", "--workers", "2")
    assert "daphne is one process" in message


def test_a_port_that_is_taken_is_refused(tmp_path):
    with serving(directory=tmp_path) as fixture:
        assert "already" in refusal("--port", str(fixture.port))
