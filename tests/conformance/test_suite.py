"""The official suite against the fixture, at every revision: over every mount, behind every server.

Each way of serving is started once and tested at each of its revisions; each test checks a part of
the suite's report.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance import process, suite
from tests.conformance.fixture import Fixture
from tests.conformance.score import score
from tests.conformance.suite import REVISIONS, Report
from tests.kit.processes import REPOSITORY, free_port

PAGE = REPOSITORY / "docs" / "ref" / "protocol.md"
REQUIRED = {"2025-03-26": 1, "2025-06-18": 27, "2025-11-25": 30, "2026-07-28": 37}
UNSCORED = {
    "2025-03-26": set(),
    "2025-06-18": set(),
    "2025-11-25": {"json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"},
    "2026-07-28": {
        "json-schema-2020-12",
        "http-header-validation",
        "http-custom-header-server-validation",
    },
}
# These send and read without the suite's own client, which is what validates the messages.
RAW = {
    "dns-rebinding-protection",
    "server-session-lifecycle",
    "server-sse-multiple-streams",
    "server-sse-polling",
    "server-stateless",
}

BOTH_ERAS = ("2025-11-25", "2026-07-28")
WAYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fast handler on uvicorn": ((), REVISIONS),
    "raw on uvicorn": (("--mount", "raw"), BOTH_ERAS),
    "view on uvicorn": (("--mount", "view"), BOTH_ERAS),
    "fast handler on daphne": (("--server", "daphne"), BOTH_ERAS),
    "fast handler on granian": (("--server", "granian"), BOTH_ERAS),
    "fast handler on uvicorn, PostgreSQL and Redis": (("--shared",), ("2025-11-25",)),
    "fast handler on uvicorn, four workers": (("--workers", "4"), REVISIONS),
}
# These also run all scenarios in one run: with tasks in the process itself, and in workers.
BARE = (
    "fast handler on uvicorn",
    "fast handler on uvicorn, PostgreSQL and Redis",
    "fast handler on uvicorn, four workers",
)
# The suite itself reports that it skips this scenario, which will be rewritten.
SKIPPED = {"tasks-status-notifications"}
SHARED = {"fast handler on uvicorn, PostgreSQL and Redis", "fast handler on uvicorn, four workers"}

pytestmark = [
    pytest.mark.requires("node", "conformance"),
    # The first test of each way of serving waits for its server and for the suite.
    pytest.mark.timeout(process.START_SECONDS + len(REVISIONS) * suite.RUN_SECONDS),
]


@pytest.fixture(scope="session")
def judge(tmp_path_factory):
    """Return a function that returns the suite's reports about a way of serving, run once."""
    reports: dict[str, dict[str, Report]] = {}

    def judge(way: str) -> dict[str, Report]:
        if way not in reports:
            options, revisions = WAYS[way]
            if way in BARE:
                revisions = (*revisions, suite.EVERYTHING)
            directory = tmp_path_factory.mktemp("score")
            reports[way] = score(*options, directory=directory, revisions=revisions)
        return reports[way]

    return judge


def served(way: str, *values: str) -> Any:
    """Return a parameter that is skipped if what the way of serving shares is missing."""
    # All revisions of a way of serving run in one turn.
    marks = [pytest.mark.heavy(turn=1 + [*WAYS].index(way) % 3)]
    if way in SHARED:
        marks.append(pytest.mark.requires("shared"))
    return pytest.param(way, *values, marks=marks, id=" at ".join((way, *values)))


@pytest.fixture(params=[served(way) for way in WAYS])
def reports(request, judge):
    """Return a way of serving and its reports."""
    return request.param, judge(request.param)


every_report = pytest.mark.parametrize(
    ("way", "revision"),
    [served(way, revision) for way, (_, revisions) in WAYS.items() for revision in revisions],
)


@pytest.fixture
def report(way, revision, judge):
    return judge(way)[revision]


@every_report
def test_every_required_scenario_passes(report, revision):
    required = suite.required(revision)
    assert len(required) == REQUIRED[revision]
    assert report.complaints("FAILURE", among=required) == {}
    assert [name for name in required if not report.has_passed(name)] == []
    assert report.status == 0, report.output


@every_report
def test_the_scenarios_that_do_not_count_pass_too(report, revision):
    # Scenarios of extensions are checked together.
    names = {name for name, reason in suite.unscored(revision).items() if reason != "extension"}
    assert names == UNSCORED[revision]
    assert report.complaints("FAILURE", among=names) == {}
    assert [name for name in sorted(names) if not report.has_passed(name)] == []


@pytest.mark.parametrize("way", [served(way) for way in BARE])
def test_every_scenario_that_there_is_passes(way, judge):
    report = judge(way)[suite.EVERYTHING]
    scenarios = {*report.scenarios}
    assert scenarios >= {*suite.required("2025-11-25"), *suite.required("2026-07-28")}
    assert len([name for name in scenarios if name.startswith("tasks-")]) == 10
    for status in ("FAILURE", "WARNING"):
        assert report.complaints(status, among=scenarios) == {}
    assert {name for name, _ in report.complaints("SKIPPED", among=scenarios)} == SKIPPED
    assert {name for name in scenarios if not report.has_passed(name)} == SKIPPED
    assert report.status == 0, report.output
    counts = re.findall(r"it runs (\d+) scenarios", PAGE.read_text())
    assert counts == [str(len(scenarios))]


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_that_the_suite_has_for_a_revision_is_left_out(revision):
    assert {*suite.applicable(revision)} == {*suite.required(revision)} | UNSCORED[revision]


@every_report
def test_the_suite_warns_of_nothing(report):
    assert report.complaints("WARNING", among=report.scenarios) == {}


@every_report
def test_no_check_was_skipped(report, revision):
    assert report.complaints("SKIPPED", among=suite.applicable(revision)) == {}


@every_report
def test_every_message_is_valid_against_the_schema_of_the_revision(report, revision):
    checked = {
        name: [check.status for check in report.scenarios[name] if check.id == suite.WIRE]
        for name in suite.applicable(revision)
    }
    assert {name for name, statuses in checked.items() if not statuses} == RAW & checked.keys()
    assert all(statuses == ["SUCCESS"] for name, statuses in checked.items() if name not in RAW)


@every_report
def test_a_client_that_is_sent_away_comes_back_for_the_rest(report, revision):
    # The suite also accepts a server that never closes the connection.
    checks = report.scenarios.get("server-sse-polling", ())
    statuses = [check.status for check in checks if check.id == "server-sse-disconnect-resume"]
    assert statuses == (["SUCCESS"] if revision == "2025-11-25" else [])


@every_report
def test_the_answers_to_questions_reach_the_functions(report, revision):
    # The suite accepts every result without another question, also one with `isError`.
    assert texts(report) == ANSWERED[revision]


FORM = '{"username": "testuser", "email": "test@example.com"}'
ASKED_BY_REQUEST = {
    "tools-call-elicitation": f"User response: action=accept, content={FORM}",
    "tools-call-sampling": "LLM response: This is a test response from the client",
}
ANSWERED = {
    "2025-03-26": {},
    "2025-06-18": ASKED_BY_REQUEST,
    "2025-11-25": ASKED_BY_REQUEST,
    "2026-07-28": {
        "sep-2322-elicitation-complete": "Hello, Alice!",
        "sep-2322-ignore-unexpected-params": "Hello, Alice!",
        "sep-2322-list-roots-complete": "Roots: file:///test/root",
        "sep-2322-multi-round-r3": "Alice likes blue.",
        "sep-2322-multiple-inputs-complete": "Hello there! Alice works in 1 folders.",
        "sep-2322-non-tool-complete": "Use this context: test context",
        "sep-2322-request-state-complete": "state-ok: True",
        "sep-2322-sampling-complete": "The capital of France is Paris.",
    },
}
# The scenarios whose result contains an answer of the client.
ASKING = ("input-required-result-", "tools-call-elicitation", "tools-call-sampling")


def texts(report: Report) -> dict[str, str]:
    """Return the first text of each complete result, by check."""
    return {
        check.id: text
        for name, checks in report.scenarios.items()
        if name.startswith(ASKING)
        for check in checks
        if (text := _text((check.details or {}).get("result") or {})) is not None
    }


def _text(result: dict[str, Any]) -> str | None:
    if not result or result.get("resultType", "complete") != "complete":
        return None
    blocks = [
        *result.get("content", ()),
        *(message["content"] for message in result.get("messages", ())),
    ]
    text: str = blocks[0]["text"]
    return text


def test_the_page_tells_what_was_found(reports):
    way, reports_by_revision = reports
    (row,) = re.findall(rf"^\| {way} \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row.split(" | ") == [
        summary(reports_by_revision[revision], revision)
        if revision in reports_by_revision
        else "\u2013"
        for revision in REVISIONS
    ]


def summary(report: Report, revision: str) -> str:
    """Return how many scenarios pass, as the page writes it."""
    groups = [suite.required(revision), sorted(UNSCORED[revision])]
    return " + ".join(
        f"{sum(map(report.has_passed, group))} of {len(group)}" for group in groups if group
    )


def test_the_page_names_the_pinned_release():
    assert f"`{suite.PACKAGE}@{suite.PINNED}`" in PAGE.read_text()


@contextmanager
def serving_nothing(*options: str, directory: Path) -> Iterator[Fixture]:
    """Yield a fixture whose server has ended."""
    with subprocess.Popen([sys.executable, "-c", ""], text=True) as ended:
        yield Fixture(process=ended, port=free_port(), line="")


def test_a_server_that_is_not_up_is_not_scored(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.conformance.score.serving", serving_nothing)
    monkeypatch.setattr(suite, "run", lambda *_, **__: pytest.fail("The suite was run."))
    with pytest.raises(httpx.ConnectError):
        score(directory=tmp_path, revisions=REVISIONS)
