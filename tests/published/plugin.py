"""Lets a test fail in which the server said something that is not as published."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.published.definitions import IS_AVAILABLE
from tests.published.listening import Verdicts, Violation, complain, verdicts


@pytest.fixture(scope="session", autouse=True)
def _ears():
    """Hear what goes out of the doors that are not ours."""
    if IS_AVAILABLE:
        # Reads settings.
        from tests.published import doors

        doors.install()


def judged(verdicts: Verdicts) -> Generator[None, Any, Any]:
    """Fail with what was wrong meanwhile, or let what fails anyway say it."""
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
    """Judge what was said to fixtures."""
    return (yield from judged(verdicts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Judge what was said in the test."""
    return (yield from judged(verdicts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """Judge what was said at its end."""
    return (yield from judged(verdicts))
