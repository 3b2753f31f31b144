"""The official suite: where the pinned release is installed, how it is run and what it reports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.kit.processes import CACHE

REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""The revisions that the suite can test; it supports neither HTTP+SSE nor stdio."""
EVERYTHING = "all"
"""All scenarios, each at a revision that the suite chooses, those of extensions too."""
PACKAGE = "@modelcontextprotocol/conformance"
PINNED: str = json.loads((Path(__file__).parent / "package.json").read_text())["dependencies"][
    PACKAGE
]
WIRE = "wire-schema-valid"
# The suite's own limit for one scenario is 30 seconds; all of them take a few seconds on a healthy
# server.
RUN_SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a scenario."""

    id: str
    status: str
    message: str
    details: Any
    """What the scenario recorded, the server's answer in most cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the suite found; `status` is its exit status and `output` what it printed."""

    scenarios: Mapping[str, tuple[Check, ...]]
    status: int
    output: str

    def has_passed(self, scenario: str) -> bool:
        """Return whether a scenario ran, checked something and found nothing wrong.

        The suite itself counts a scenario as passed even if every check was skipped.
        """
        statuses = {check.status for check in self.scenarios.get(scenario, ())}
        return "SUCCESS" in statuses and "FAILURE" not in statuses

    def complaints(self, status: str, *, among: Iterable[str]) -> dict[tuple[str, str], str]:
        """Return the messages of these scenarios' checks of this status, by scenario and check."""
        return {
            (name, check.id): check.message
            for name in among
            for check in self.scenarios.get(name, ())
            if check.status == status
        }


def directory() -> Path:
    """Return the folder in the cache where npm installed the package."""
    return CACHE / "conformance" / "node_modules" / PACKAGE


def why_missing() -> str | None:
    """Return why the suite cannot be run, or None if it can."""
    manifest = directory() / "package.json"
    if not manifest.exists():
        return f"{PACKAGE} is not installed; see docs/ref/protocol.md"
    version = json.loads(manifest.read_text())["version"]
    return None if version == PINNED else f"{PACKAGE} {PINNED} is needed, {version} is installed"


@cache
def applicable(revision: str) -> tuple[str, ...]:
    """Return the scenarios that the suite has for a revision, without those of extensions."""
    listed = _node("list", "--server", "--spec-version", revision)
    assert listed.returncode == 0, listed.stderr
    return tuple(re.findall(r"^  - (\S+) \[", listed.stdout, re.MULTILINE))


@cache
def required(revision: str) -> tuple[str, ...]:
    """Return the scenarios that decide whether a server conforms to a revision, in their order.

    If the suite has no frozen set for the revision, all its scenarios are required.
    """
    frozen = _frozen(revision)
    if frozen is None:
        return applicable(revision)
    section = re.search(r"^server:\n((?:  - \S+\n)+)", frozen, re.MULTILINE)
    assert section is not None
    return tuple(re.findall(r"- (\S+)", section[1]))


@cache
def unscored(revision: str) -> Mapping[str, str]:
    """Return the scenarios that are run with them but do not count, each with the reason."""
    pattern = r"^  - scenario: (\S+)\n    leg: server\n    reason: (\S+)$"
    return dict(re.findall(pattern, _frozen(revision) or "", re.MULTILINE))


def _frozen(revision: str) -> str | None:
    file = directory() / "requirements" / f"{revision}.yaml"
    return file.read_text() if file.exists() else None


def run(url: str, results: Path, *, revision: str) -> Report:
    """Run all that a revision requires, or `EVERYTHING`, against a server that is known to be up.

    Raises:
        RuntimeError: the suite itself failed.
    """
    selected = ["--requirements", revision]
    if revision == EVERYTHING:
        selected = ["--suite", "all"]
    elif _frozen(revision) is None:
        selected = ["--suite", "all", "--spec-version", revision]
    done = _node("server", "--url", url, *selected, "--output-dir", str(results))
    output = done.stdout + done.stderr
    if not (scenarios := read(results)):
        raise RuntimeError(f"The suite ran no scenario.\n{output}")
    return Report(scenarios=scenarios, status=done.returncode, output=output)


def run_scenarios(url: str, results: Path, names: Iterable[str]) -> Report:
    """Run scenarios by name, against a server that is known to be up; the worst status counts.

    Raises:
        RuntimeError: the suite itself failed.
    """
    processes = [
        _node("server", "--url", url, "--scenario", name, "--output-dir", str(results))
        for name in names
    ]
    output = "".join(process.stdout + process.stderr for process in processes)
    if not (scenarios := read(results)):
        raise RuntimeError(f"The suite ran no scenario.\n{output}")
    return Report(
        scenarios=scenarios, status=max(process.returncode for process in processes), output=output
    )


def _node(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = directory() / "dist" / "index.js"
    return subprocess.run(
        ["node", str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )


def read(results: Path) -> dict[str, tuple[Check, ...]]:
    """Read the suite's results: a directory `server-<scenario>-<time>` for each scenario."""
    scenarios = {}
    for file in sorted(results.glob("server-*/checks.json")):
        match = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", file.parent.name)
        assert match is not None, file
        scenarios[match[1]] = tuple(
            Check(
                id=check["id"],
                status=check["status"],
                message=check.get("errorMessage", ""),
                details=check.get("details"),
            )
            for check in json.loads(file.read_text())
        )
    return scenarios
