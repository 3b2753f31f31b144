"""What is read from the files of the suite, and when a scenario counts as passed."""

from __future__ import annotations

import json

import pytest

from tests.conformance import suite
from tests.conformance.suite import Check, Report

AT = "2026-11-21T06-34-30-860Z"


def report(**scenarios: list[str]) -> Report:
    """Return a report of scenarios whose checks have these statuses."""
    checks = {
        name: tuple(
            Check(id=f"c{n}", status=status, message=f"{name}: {status}", details=None)
            for n, status in enumerate(statuses)
        )
        for name, statuses in scenarios.items()
    }
    return Report(scenarios=checks, status=0, output="")


@pytest.mark.parametrize(
    ("statuses", "has_passed"),
    [
        (["SUCCESS", "INFO"], True),
        (["SUCCESS", "WARNING"], True),
        (["SUCCESS", "FAILURE"], False),
        (["SKIPPED"], False),
        ([], False),
    ],
)
def test_a_scenario_passes_that_looked_at_something_and_found_nothing_wrong(statuses, has_passed):
    assert report(one=statuses).has_passed("one") is has_passed


def test_a_scenario_that_was_not_run_has_not_passed():
    assert not report(one=["SUCCESS"]).has_passed("two")


def test_complaints_are_told_of_the_scenarios_asked_for():
    outcome = report(one=["SUCCESS", "FAILURE"], two=["FAILURE"])
    assert outcome.complaints("FAILURE", among=["one"]) == {("one", "c1"): "one: FAILURE"}


def test_results_are_read_from_one_directory_for_each_scenario(tmp_path):
    for name, checks in {
        "server-stateless": [{"id": "a", "status": "SUCCESS", "details": {"result": {}}}],
        "sep-2164": [{"id": "b", "status": "FAILURE", "errorMessage": "no"}],
    }.items():
        (tmp_path / f"server-{name}-{AT}").mkdir()
        (tmp_path / f"server-{name}-{AT}" / "checks.json").write_text(json.dumps(checks))
    assert suite.read(tmp_path) == {
        "sep-2164": (Check(id="b", status="FAILURE", message="no", details=None),),
        "server-stateless": (Check(id="a", status="SUCCESS", message="", details={"result": {}}),),
    }


def test_a_missing_suite_says_where_to_read_on(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "CACHE", tmp_path)
    assert suite.why_missing() == f"{suite.PACKAGE} is not installed; see docs/ref/protocol.md"


def test_another_release_than_the_pinned_one_is_not_run(monkeypatch, tmp_path):
    package = tmp_path / "conformance" / "node_modules" / suite.PACKAGE
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "0.1.16"}')
    monkeypatch.setattr(suite, "CACHE", tmp_path)
    reason = f"{suite.PACKAGE} {suite.PINNED} is needed, 0.1.16 is installed"
    assert suite.why_missing() == reason
