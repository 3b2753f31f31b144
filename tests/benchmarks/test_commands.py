"""The commands of the benchmarks, run from beginning to end with as little work as possible."""

import json

import pytest

from benchmarks.works import ADD, DISCOVER, FLOOR, OWN
from tests.benchmarks.conftest import run

pytestmark = [pytest.mark.outside, pytest.mark.heavy(turn=1)]


def test_the_stages_are_those_of_the_code(cache):
    printed = run("-m", "benchmarks.stages", "--iterations", "2", "--batches", "1", cache=cache)
    stages = [line.split("|")[1].strip() for line in printed.splitlines() if "|" in line]
    for stage in ("receive", "· decode", "authorize and admit", "call", "respond", "send"):
        assert stage in stages


def test_a_quick_run_measures_what_was_chosen(cache, tmp_path):
    file = tmp_path / "figures.json"
    chosen = ("--only", DISCOVER, "--no-peers", "--streams", "3", "--json", str(file))
    printed = run("-m", "benchmarks", "--quick", *chosen, cache=cache)
    assert f"| {DISCOVER} " in printed
    figures = json.loads(file.read_text())
    measured = [(row["work"], row["column"]) for row in figures["rows"]]
    assert measured == [(ADD, FLOOR)] * 3 + [(DISCOVER, OWN)]
    assert all(row["cpu_us"]["least"] > 0 for row in figures["rows"])
    assert len(figures["memory_mb"]) == 2
    assert all(20 < size < 500 for size in figures["memory_mb"].values())
    assert [stream["mount"] for stream in figures["streams"]] == ["/mcp", "/raw"] * 2
    # Streams use no connection. The process uses two: to look for changes, and to confirm what it
    # has cached.
    assert all(stream["database_connections"] <= 2 for stream in figures["streams"])
    assert figures["environment"]["django"]
