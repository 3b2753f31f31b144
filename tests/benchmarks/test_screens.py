"""The admin's lists, opened with few rows, stay within the limits that hold for many rows."""

from __future__ import annotations

import pytest

from benchmarks.rounds import Spread
from benchmarks.screens import Page, PageMeasurement, build_report, pages
from tests.benchmarks.conftest import run

LIST = Page(name="a list", path="/list/", queries=4, milliseconds=100)


def opened(*, queries: int = 4, least: float = 50) -> PageMeasurement:
    """Return the measurement of a page in a few rounds, of which the last was slow."""
    took = Spread(median=2 * least, least=least, most=1000)
    return PageMeasurement(page=LIST, shown=10, queries=queries, milliseconds=took)


def test_a_page_may_be_slow_in_some_of_its_rounds():
    assert not [*opened().faults()]
    assert not [*opened(least=100).faults()]


@pytest.mark.parametrize(
    ("screen", "fault"),
    [
        (opened(queries=5), "a list: 5 queries, limit is 4"),
        (opened(least=101), "a list: 202 (101 to 1000) ms, limit is 100"),
    ],
    ids=["queries", "time"],
)
def test_a_page_that_is_over_its_bound_is_told(screen, fault):
    assert [*screen.faults()] == [fault]


def test_without_a_clock_only_queries_count():
    assert not [*opened(least=101).faults(timed=False)]


def test_every_page_has_a_name_and_a_path_of_its_own():
    all_pages = pages(last_of_components=10, last_of_calls=100)
    assert (
        len({page.name for page in all_pages})
        == len({page.path for page in all_pages})
        == len(all_pages)
    )


def test_the_table_says_what_a_page_may():
    cells = [
        cell.strip() for cell in build_report([opened()]).splitlines()[-1].strip("|").split("|")
    ]
    assert cells == ["a list", "10", "4 of 4", "100 (50.0 to 1000)", "100"]


@pytest.mark.heavy(turn=2)
@pytest.mark.outside
def test_all_pages_of_the_admin_keep_to_their_queries(cache):
    few = ("--components", "230", "--calls", "2000", "--tasks", "200")
    printed = run("-m", "benchmarks.screens", *few, "--rounds", "1", "--untimed", cache=cache)
    lines = [line.split("|") for line in printed.splitlines() if "|" in line]
    shown = {line[1].strip(): int(line[2]) for line in lines[2:]}
    assert (shown["components"], shown["calls, the newest"]) == (50, 100)
    assert shown["components, all"] == 230
    assert shown["calls, one trace"] == shown["components, searched"] == 1
    assert shown["calls, an unknown user"] == 0
    assert shown["tasks"] == 100
    assert shown["tasks, one user"] == 4


@pytest.mark.heavy(turn=2)
@pytest.mark.outside
def test_a_page_that_asks_too_much_fails_the_command(cache, tmp_path):
    script = tmp_path / "strict.py"
    script.write_text(
        "from dataclasses import replace\n"
        "from benchmarks import screens\n"
        "every = screens.pages\n"
        "screens.pages = lambda **last: [replace(every(**last)[0], queries=1)]\n"
        "assert screens.main(['--components', '60', '--calls', '10', '--tasks', '10',"
        " '--rounds', '1']) == 1\n"
    )
    printed = run(str(script), cache=cache, PYTHONPATH=".")
    assert "front page: " in printed
    assert "queries, limit is 1" in printed
