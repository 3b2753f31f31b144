"""Which tests a run has: the fast ring, the outside ring, or both.

The fast ring is what a run has that asks for nothing else: all that can be proven in this process.
Where a test is there once for each mount, it has one of them, the same in every run; the tests of a
file are spread over all mounts. Hypothesis tries a tenth of its examples.

The outside ring is the rest: what is marked `outside` or `requires`, the other mounts, and
Hypothesis at full size. `--ring all` runs both, and so does naming a test (`FILE::TEST`).
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest

from tests.services import SERVICES, demand, missing

RINGS = ("fast", "outside", "all")
# What the mounts are called in the parameters of tests; a marker of a file may name more.
MOUNTS = {"wsgi", "view", "lane", "raw", "consumer"}
FULL_EXAMPLES = 100
FAST_EXAMPLES = 10
COMMAND = (
    "pip install -e '.[test,outside]' && "
    "pytest -n auto --dist loadfile --no-loadscope-reorder --ring outside"
)

# A slow machine is not a bug.
hypothesis.settings.register_profile("full", max_examples=FULL_EXAMPLES, deadline=None)
hypothesis.settings.register_profile("fast", max_examples=FAST_EXAMPLES, deadline=None)

STARTERS = [(subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn"), (os, "system")]
_forbidden_to = ""

LEFT_OUT = pytest.StashKey[Counter[str]]()


def examples(count: int) -> int:
    """How many examples Hypothesis tries in this ring where it tries `count` at full size."""
    share: int = hypothesis.settings().max_examples
    return max(1, count * share // FULL_EXAMPLES)


def add_option(parser: pytest.Parser) -> None:
    """Add `--ring`."""
    parser.getgroup("rings").addoption(
        "--ring",
        choices=RINGS,
        help="fast (the default), outside (what fast leaves out), or all; see CONTRIBUTING.md",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the size of Hypothesis before test modules are imported, and say what is missing.

    Raises:
        pytest.UsageError: every service is demanded, and some are missing.
    """
    if demand() == "all" and ring_of(config) == "outside" and not hasattr(config, "workerinput"):
        reasons = [f"{one}: {reason}" for one in SERVICES if (reason := missing(one))]
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
    """The ring that was asked for; a test that is named runs wherever it belongs."""
    named = any("::" in argument for argument in config.args)
    return config.getoption("--ring") or ("all" if named else "fast")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the ring, and count what it leaves out."""
    ring = ring_of(config)
    if ring == "all":
        return
    outside = outside_of(items)
    kept, left_out = [], []
    for item in items:
        is_kept = item not in outside if ring == "fast" else item in outside or is_random(item)
        (kept if is_kept else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
    if ring == "outside":
        # The files that may take longest come first, or one worker has the last of them to itself.
        longest: dict[Path, float] = defaultdict(float)
        for item in items:
            longest[item.path] = max(longest[item.path], _patience(item))
        items.sort(key=lambda item: -longest[item.path])
    if ring == "fast":
        counts = Counter(outside.values())
        counts["small"] = sum(map(is_random, kept))
        config.stash[LEFT_OUT] = counts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test start a process only where it is marked."""
    global _forbidden_to  # noqa: PLW0603 - who starts a process is told nothing of tests
    if not is_outside(item):
        _forbidden_to = item.nodeid
    try:
        return (yield)
    finally:
        _forbidden_to = ""


class ProcessStartedError(RuntimeError):
    """A test that is not marked starts a process."""


def _watched(starter: Callable[..., Any]) -> Callable[..., Any]:
    """What starts a process, and does so for a test that is marked alone."""

    @wraps(starter)
    def start(*args: Any, **kwargs: Any) -> Any:
        if _forbidden_to:
            raise ProcessStartedError(
                f"{_forbidden_to} starts a process; mark it with pytest.mark.outside."
            )
        return starter(*args, **kwargs)

    return start


def outside_of(items: list[pytest.Item]) -> dict[pytest.Item, str]:
    """What the outside ring has of these tests, each with the reason: `outside` or `mounts`."""
    found = {item: "outside" for item in items if is_outside(item)}
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in found:
            alike[_without_mount(item)].append(item)
    for name, group in alike.items():
        group.sort(key=lambda item: item.nodeid)
        del group[crc32(name.encode()) % len(group)]
        found |= dict.fromkeys(group, "mounts")
    return found


def _patience(item: pytest.Item) -> float:
    """The seconds after which a test is ended, where it has a bound of its own."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0


def is_outside(item: pytest.Item) -> bool:
    """Whether a test needs more than this process."""
    return any(item.get_closest_marker(name) for name in ("outside", "requires"))


def is_random(item: pytest.Item) -> bool:
    """Whether Hypothesis runs a test."""
    return hypothesis.is_hypothesis_test(getattr(item, "obj", None))


def _without_mount(item: pytest.Item) -> str:
    """What a test has in common with those that ask another mount the same."""
    if item.get_closest_marker("every_mount"):
        return item.nodeid
    mounts = MOUNTS.union(*(marker.args for marker in item.iter_markers("mounts")))
    before, _, values = item.nodeid.partition("[")
    parts = values.removesuffix("]").split("-")
    return f"{before}[{'-'.join('' if part in mounts else part for part in parts)}]"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this worker what was left out."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))


class FromWorkers:
    """Hears from the workers of pytest-xdist, which all leave out the same."""

    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get("left_out")
        if told is not None:
            node.config.stash[LEFT_OUT] = Counter(told)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in one line what the fast ring left out, and how to run that."""
    counts = config.stash.get(LEFT_OUT, Counter())
    if counts.total():
        terminalreporter.write_line(sentence(counts))


def sentence(counts: Counter[str]) -> str:
    """What was left to the outside ring, in words."""
    return (
        f"Left to the outside ring: {counts['outside']} tests of processes, services and programs, "
        f"{counts['mounts']} of other mounts, {counts['small']} of Hypothesis at full size. "
        f"Run them with: {COMMAND}"
    )
