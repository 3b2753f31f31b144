"""Each test belongs to a ring, and what one ring leaves out is in the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit import rings
from tests.kit.processes import REPOSITORY

MOUNTS = ("view", "lane", "raw", "consumer")


class Item:
    """A stand-in for a collected test, with what the rings read."""

    def __init__(self, name: str, *markers: str, function: Any = None, **more: Any) -> None:
        """`more` has arguments of markers by their names: a tuple, or a dictionary of keywords."""
        self.nodeid = f"tests/test_it.py::{name}"
        self.obj = function
        self._markers = dict.fromkeys(markers, ()) | more

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return next(iter(self.iter_markers(name)), None)

    def iter_markers(self, name: str) -> list[SimpleNamespace]:
        given = self._markers.get(name)
        if given is None:
            return []
        is_named = isinstance(given, dict)
        return [SimpleNamespace(args=() if is_named else given, kwargs=given if is_named else {})]


def left_out(*items: Any) -> dict[str, str]:
    return {item.nodeid.partition("::")[2]: why for item, why in rings.outside_of([*items]).items()}


def test_each_question_is_asked_at_one_mount():
    names = {f"test_{n}[{mount}-{size}]" for n in range(20) for mount in MOUNTS for size in (1, 2)}
    out = left_out(*map(Item, names))
    assert {*out.values()} == {"mounts"}
    kept = names - out.keys()
    assert len(kept) == 40
    assert Counter(name.partition("-")[0].partition("[")[0] for name in kept) == {
        f"test_{n}": 2 for n in range(20)
    }
    assert {name.partition("[")[2].partition("-")[0] for name in kept} == {*MOUNTS}


def test_the_choice_depends_on_nothing_but_the_name():
    items = [Item(f"test_it[{mount}]") for mount in MOUNTS]
    assert left_out(*items) == left_out(*items[::-1])
    assert len(left_out(*items)) == 3


def test_what_differs_in_more_than_its_mount_stays():
    names = ("test_plain", "test_it[1-2]", "test_it[2-2]", "test_named[raw-first]", "test_one[raw]")
    assert left_out(*map(Item, names)) == {}
    assert left_out(*(Item(f"test_it[{mount}]", "every_mount") for mount in MOUNTS)) == {}


def test_a_file_may_call_its_mounts_by_other_names():
    names = ("memory", "stdio")
    assert left_out(*(Item(f"test_it[{mount}]") for mount in names)) == {}
    assert len(left_out(*(Item(f"test_it[{mount}]", mounts=names) for mount in names))) == 1


@pytest.mark.parametrize("marker", ["outside", "requires"])
def test_what_is_marked_is_left_out(marker):
    assert left_out(Item("test_it", marker), Item("test_other")) == {"test_it": "outside"}


@pytest.mark.parametrize(
    ("option", "arguments", "ring"),
    [
        (None, ["tests"], "fast"),
        (None, ["tests/test_it.py::test_it"], "all"),
        ("fast", ["tests/test_it.py::test_it"], "fast"),
        ("outside", ["tests"], "outside"),
    ],
)
def test_a_test_that_is_named_runs_wherever_it_belongs(option, arguments, ring):
    config: Any = SimpleNamespace(args=arguments, getoption=lambda name: option)
    assert rings.ring_of(config) == ring


def test_a_test_that_starts_a_process_unmarked_is_told():
    with pytest.raises(rings.ProcessStartedError, match=r"mark it with pytest\.mark\.outside"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(rings.ProcessStartedError, match=r"test_rings\.py::test_a_test_that_starts"):
        os.system("true")


@pytest.mark.outside
def test_a_marked_one_may_start_one():
    assert subprocess.run([sys.executable, "-c", ""], check=True).returncode == 0


def test_what_was_left_out_is_said_in_one_line():
    sentence = rings.sentence(Counter(outside=2, mounts=3, small=1))
    assert sentence == (
        "Left to the outside ring: 2 tests of processes, services and programs, 3 of other mounts, "
        "1 of Hypothesis at full size. "
        "Run them with: pip install -e '.[test,outside]' && "
        "pytest -n auto --dist loadfile --no-loadscope-reorder --ring outside"
    )


def in_turn(turn: str, *items: Any) -> set[str]:
    outside = rings.outside_of([*items])
    others = rings.of_other_turns([*outside], [*items], outside, turn=turn)
    return {item.nodeid.partition("::")[2] for item in outside if item not in others}


def test_each_heavy_test_has_one_turn():
    heavy = [Item(f"test_heavy[{n}]", "outside", "heavy") for n in range(30)]
    mounts = [Item(f"test_it[{mount}-{n}]") for mount in MOUNTS for n in range(10)]
    by_turn = [in_turn(turn, *heavy, *mounts) for turn in rings.TURNS]
    assert all(by_turn)
    assert sum(map(len, by_turn)) == len(set().union(*by_turn)) == 30 + 3 * 10
    assert set().union(*by_turn) == in_turn("all", *heavy, *mounts)


def test_a_test_that_is_not_heavy_has_every_turn():
    for turn in rings.TURNS:
        assert in_turn(turn, Item("test_it", "outside")) == {"test_it"}


def test_tests_that_share_a_server_have_the_turn_that_they_name():
    items = [Item(f"test_it[{n}]", "outside", heavy={"turn": 2}) for n in range(5)]
    assert [len(in_turn(turn, *items)) for turn in rings.TURNS] == [0, 5, 0]


def test_a_requirement_is_proved_in_each_turn():
    alone = Item("test_alone", "outside", spec=("SES-1", "SES-2"), heavy={"turn": 1})
    again = Item("test_again", "outside", spec=("SES-2",), heavy={"turn": 1})
    quick = Item("test_quick", spec=("SES-2",))
    assert in_turn("3", alone, again, quick) == {"test_alone"}


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTEST_ADDOPTS": "", "MCP_TEST_REQUIRE": "", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.outside
@pytest.mark.parametrize("workers", ["0", "2"])
def test_both_rings_together_are_all_tests(workers):
    file = "tests/transports/test_answer_throttling.py"
    counts = []
    for ring in rings.RINGS:
        done = run("-n", workers, "--ring", ring, file)
        assert done.returncode == 0, done.stdout
        counts.append(int(done.stdout.splitlines()[-1].split(" passed")[0]))
        is_fast = ring == "fast"
        assert ("Left to the outside ring: 1 tests of processes" in done.stdout) is is_fast
    fast, outside, every = counts
    assert 0 < fast < every == fast + outside


@pytest.mark.outside
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_requirements_that_were_proven_are_written_down(workers, tmp_path):
    file = tmp_path / "passed"
    named = "tests/protocol/test_errors.py::test_a_stateless_error_has_the_status_of_its_kind"
    assert run("-n", workers, "--passed", str(file), named).returncode == 0
    assert file.read_text().split() == ["HTTP-24", "HTTP-25", "HTTP-31"]


@pytest.mark.outside
def test_an_unknown_ring_is_refused_with_the_known_ones():
    done = run("--ring", "inner")
    assert done.returncode == 4
    assert "argument --ring: invalid choice: 'inner'" in done.stderr
    assert all(ring in done.stderr for ring in rings.RINGS)


@pytest.mark.outside
def test_what_is_demanded_and_missing_is_listed_before_anything_runs():
    missing = {"MCP_TEST_REQUIRE": "all", "MCP_TEST_CACHE": "/nowhere"}
    done = run("--ring", "outside", "tests/repository/test_rings.py", **missing)
    assert done.returncode == 4
    assert "MCP_TEST_REQUIRE=all, and these are missing:" in done.stderr
    assert "axe: axe-core is not in /nowhere" in done.stderr


@pytest.mark.outside
def test_a_demand_that_means_nothing_is_refused():
    done = run("--ring", "outside", "tests/repository/test_rings.py", MCP_TEST_REQUIRE="some")
    assert done.returncode == 4
    assert "MCP_TEST_REQUIRE is 'some': write 'all', or leave it unset." in done.stderr


# .ci/run --------------------------------------------------------------------------------------


def run_ci(place: Path, *rings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ".ci/run", *rings],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.outside
def test_ci_refuses_an_unknown_ring():
    done = run_ci(REPOSITORY, "lint", "inner")
    assert done.returncode == 2
    assert done.stderr == "No ring named 'inner': there are lint, matrix, outside and sites.\n"


@pytest.mark.outside
@pytest.mark.parametrize("turn", [("4",), ()])
def test_ci_refuses_an_unknown_turn(turn):
    done = run_ci(REPOSITORY, "--turn", *turn)
    assert done.returncode == 2
    assert done.stderr == f"No turn '{''.join(turn)}': there are 1, 2, 3 and all.\n"


@pytest.mark.outside
def test_ci_installs_once_for_the_same_pins(tmp_path):
    script = """
        set -euo pipefail
        source .ci/cache.sh
        install() { echo "installed $1"; touch "$MCP_TEST_CACHE/tool/$1"; }
        keep tool 1 install one
        keep tool 1 install again
        keep tool 2 false || echo failed
        keep tool 2 install two
        ls "$MCP_TEST_CACHE/tool"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=REPOSITORY,
        env={**os.environ, "MCP_TEST_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split("\n") == ["installed one", "failed", "installed two", "two", ""]


@pytest.mark.outside
def test_ci_refuses_what_is_not_committed(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", REPOSITORY.as_uri(), clone], check=True)
    (clone / "left.txt").write_text("not yet")
    done = run_ci(clone, "lint")
    assert done.returncode == 2
    assert "does not contain these changes; commit or stash them:\n?? left.txt" in done.stderr
