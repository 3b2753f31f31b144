"""Select the tests of a run: the fast ring, the outside ring, or both.

The fast ring is the default: all tests that run in this process. If a test is parametrized by
mount, the ring has it for one mount, the same in every run; the tests of a file are distributed
over all mounts. Hypothesis tries a tenth of its examples.

The outside ring is the rest: tests marked `outside` or `requires`, the other mounts, and
Hypothesis at full size. `--ring all` runs both, and so does naming a test (`FILE::TEST`).

The heavy tests of the outside ring (the other mounts, and tests marked `heavy`) take turns in CI,
which runs one of three turns (`--turn 2`). The turn is drawn by the name of the test, or given as
`heavy(turn=2)` for tests that share a server. A test that alone proves a requirement of the ledger
runs in each turn.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest

from tests.kit.services import SERVICES, demand, missing

RINGS = ("fast", "outside", "all")
TURNS = ("1", "2", "3")
# Ids of the mounts in the parameters of tests; the `mounts` marker of a file adds more.
MOUNTS = {"wsgi", "view", "lane", "raw", "consumer"}
FULL_EXAMPLES = 100
FAST_EXAMPLES = 10
COMMAND = (
    "pip install -e '.[test,outside]' && "
    "pytest -n auto --dist loadfile --no-loadscope-reorder --ring outside"
)

# No deadline: a slow machine is not a bug.
hypothesis.settings.register_profile("full", max_examples=FULL_EXAMPLES, deadline=None)
hypothesis.settings.register_profile("fast", max_examples=FAST_EXAMPLES, deadline=None)

STARTERS = [(subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn"), (os, "system")]
_forbidden_to = ""

LEFT_OUT = pytest.StashKey[Counter[str]]()
OTHER_TURNS = pytest.StashKey[int]()


def examples(count: int) -> int:
    """Return the number of examples in this ring for a test that has `count` at full size."""
    share: int = hypothesis.settings().max_examples
    return max(1, count * share // FULL_EXAMPLES)


def add_option(parser: pytest.Parser) -> None:
    """Add the options `--ring` and `--turn`."""
    parser.getgroup("rings").addoption(
        "--turn",
        choices=[*TURNS, "all"],
        default="all",
        help="which third of the heavy tests of the outside ring to run (default: all)",
    )
    parser.getgroup("rings").addoption(
        "--ring",
        choices=RINGS,
        help="fast (the default), outside (what fast leaves out), or all; see CONTRIBUTING.md",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the Hypothesis profile before test modules are imported, and report missing services.

    Raises:
        pytest.UsageError: all services are required, and some are missing.
    """
    if demand() == "all" and ring_of(config) == "outside" and not hasattr(config, "workerinput"):
        reasons = [f"{service}: {reason}" for service in SERVICES if (reason := missing(service))]
        if reasons:
            raise pytest.UsageError(
                "\n".join(["MCP_TEST_REQUIRE=all, and these are missing:", *reasons])
            )
    for owner, name in STARTERS:
        setattr(owner, name, _watched(getattr(owner, name)))
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(FromWorkers())
    hypothesis.settings.load_profile("fast" if ring_of(config) == "fast" else "full")


def ring_of(config: pytest.Config) -> str:
    """Return the selected ring; a named test runs whichever ring it belongs to."""
    named = any("::" in argument for argument in config.args)
    return config.getoption("--ring") or ("all" if named else "fast")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the ring, and count the tests that it leaves out."""
    ring = ring_of(config)
    if ring == "all":
        return
    outside = outside_of(items)
    kept, left_out = [], []
    for test in items:
        is_kept = test not in outside if ring == "fast" else test in outside or is_random(test)
        (kept if is_kept else left_out).append(test)
    if ring == "outside":
        others = of_other_turns(kept, items, outside, turn=config.getoption("--turn"))
        config.stash[OTHER_TURNS] = len(others)
        left_out += others
        kept = [test for test in kept if test not in others]
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
    if ring == "outside":
        # Files with the longest timeouts come first, so that no worker runs one alone at the end.
        longest: dict[Path, float] = defaultdict(float)
        for test in items:
            longest[test.path] = max(longest[test.path], _patience(test))
        items.sort(key=lambda test: -longest[test.path])
    if ring == "fast":
        counts = Counter(outside.values())
        counts["small"] = sum(map(is_random, kept))
        config.stash[LEFT_OUT] = counts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Allow a test to start a process only if it is marked `outside` or `requires`."""
    global _forbidden_to  # noqa: PLW0603 - Popen gets no test item
    if not is_outside(item):
        _forbidden_to = item.nodeid
    try:
        return (yield)
    finally:
        _forbidden_to = ""


class ProcessStartedError(RuntimeError):
    """A test without the marker `outside` or `requires` started a process."""


def _watched(starter: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that starts a process; it raises an error in tests that are not marked."""

    @wraps(starter)
    def start(*args: Any, **kwargs: Any) -> Any:
        if _forbidden_to:
            raise ProcessStartedError(
                f"{_forbidden_to} starts a process; mark it with pytest.mark.outside."
            )
        return starter(*args, **kwargs)

    return start


def outside_of(items: list[pytest.Item]) -> dict[pytest.Item, str]:
    """Return the tests of the outside ring, each with the reason: `outside` or `mounts`."""
    reasons = {test: "outside" for test in items if is_outside(test)}
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for test in items:
        if test not in reasons:
            alike[_without_mount(test)].append(test)
    for name, group in alike.items():
        group.sort(key=lambda test: test.nodeid)
        del group[crc32(name.encode()) % len(group)]
        reasons |= dict.fromkeys(group, "mounts")
    return reasons


def of_other_turns(
    kept: list[pytest.Item],
    items: list[pytest.Item],
    outside: Mapping[pytest.Item, str],
    *,
    turn: str,
) -> set[pytest.Item]:
    """Return the heavy tests of `kept` that run in another turn."""
    if turn == "all":
        return set()
    others = {test for test in kept if _turn_of(test, outside) not in {None, turn}}
    proven = {id for test in items if test not in others for id in requirements_of(test)}
    return {test for test in others if requirements_of(test) <= proven}


def _turn_of(test: pytest.Item, outside: Mapping[pytest.Item, str]) -> str | None:
    """Return the turn of a heavy test, or None if the test runs in each turn."""
    marker = test.get_closest_marker("heavy")
    if marker is None and outside.get(test) != "mounts":
        return None
    drawn = TURNS[crc32(test.nodeid.encode()) % len(TURNS)]
    return str(marker.kwargs.get("turn", drawn)) if marker else drawn


def requirements_of(test: pytest.Item) -> set[str]:
    """Return the ids of the requirements that a test proves."""
    return {id for marker in test.iter_markers("spec") for id in marker.args}


def _patience(test: pytest.Item) -> float:
    """Return the timeout of a test in seconds if it has its own, otherwise 0."""
    marker = test.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0


def is_outside(test: pytest.Item) -> bool:
    """Return whether a test needs more than this process."""
    return any(test.get_closest_marker(name) for name in ("outside", "requires"))


def is_random(test: pytest.Item) -> bool:
    """Return whether a test is a Hypothesis test."""
    return hypothesis.is_hypothesis_test(getattr(test, "obj", None))


def _without_mount(test: pytest.Item) -> str:
    """Return the id of a test without its mount, which is equal for all mounts."""
    if test.get_closest_marker("every_mount"):
        return test.nodeid
    mounts = MOUNTS.union(*(marker.args for marker in test.iter_markers("mounts")))
    before, _, values = test.nodeid.partition("[")
    parts = values.removesuffix("]").split("-")
    return f"{before}[{'-'.join('' if part in mounts else part for part in parts)}]"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of tests left out from a worker to the controller of pytest-xdist."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))
        output["other_turns"] = session.config.stash.get(OTHER_TURNS, 0)


class FromWorkers:
    """Receive the counts from the workers of pytest-xdist, which all leave out the same tests."""

    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        node.config.stash[LEFT_OUT] = Counter(output.get("left_out"))
        node.config.stash[OTHER_TURNS] = output.get("other_turns", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report in one line the tests that the ring left out, and how to run them."""
    counts = config.stash.get(LEFT_OUT, Counter())
    if counts.total():
        terminalreporter.write_line(sentence(counts))
    if others := config.stash.get(OTHER_TURNS, 0):
        terminalreporter.write_line(
            f"Turn {config.getoption('--turn')} of {len(TURNS)}: {others} heavy tests were left to "
            "the others. Run all of them with: --turn all"
        )


def sentence(counts: Counter[str]) -> str:
    """Return the report of the tests that were left to the outside ring."""
    return (
        f"Left to the outside ring: {counts['outside']} tests of processes, services and programs, "
        f"{counts['mounts']} of other mounts, {counts['small']} of Hypothesis at full size. "
        f"Run them with: {COMMAND}"
    )
