"""Fail a test in which a message of the server does not match the published schema."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.published.definitions import IS_AVAILABLE
from tests.published.listening import Verdicts, Violation, complain, verdicts


@pytest.fixture(scope="session", autouse=True)
def _ears():
    """Validate the messages to all clients that are not our own drivers."""
    if IS_AVAILABLE:
        # The import reads settings.
        from tests.published import doors

        doors.install()


def judged(verdicts: Verdicts) -> Generator[None, Any, Any]:
    """Fail with the violations of the block, or add them to the exception that it raises."""
    try:
        result = yield
    except BaseException as exc:
        wrong = verdicts.take()
        if not isinstance(exc, Violation):
            for problem in wrong:
                exc.add_note(f"Besides, the server said {problem}")
        raise
    complain(verdicts.take())
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Check the messages to fixtures."""
    return (yield from judged(verdicts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Check the messages to the test."""
    return (yield from judged(verdicts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """Check the messages at the end of the test."""
    return (yield from judged(verdicts))
