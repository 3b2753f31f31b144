"""Record the requirements with a test that passed; CI checks that every served one has a test.

pytest --passed FILE
python -m tests.spec --passed FILE [FILE ...]
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.rings import requirements_of

PROPERTY = "spec"


def add_option(parser: pytest.Parser) -> None:
    """Add `--passed`."""
    parser.getgroup("rings").addoption(
        "--passed",
        type=Path,
        metavar="FILE",
        help="write the ids of the requirements that a passed test names to FILE",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the ids to the reports of the tests, also to those from other processes."""
    if config.getoption("--passed"):
        for test in items:
            test.user_properties.append((PROPERTY, sorted(requirements_of(test))))


def pytest_configure(config: pytest.Config) -> None:
    """Collect the ids in the process that was started, not in its workers."""
    path = config.getoption("--passed")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(path))


class Passed:
    """Collects the ids that passed tests name, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            properties = dict(report.user_properties)
            self._ids.update(properties.get(PROPERTY, ()))

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{name}\n" for name in sorted(self._ids)), encoding="utf-8")
