"""What a forked child calls, and what is called when a setting changes."""

from __future__ import annotations

import re

import pytest
from django.core.signals import setting_changed
from django.test import override_settings

from mcp_django import process
from tests.kit.processes import REPOSITORY, run_python

FORK = """
import os
from mcp_django.process import at_fork, before_fork

calls = []

@at_fork
def in_child():
    calls.append("child")

@before_fork
def in_parent():
    calls.append("before")

at_fork(lambda: calls.append("second"))
pid = os.fork()
print(calls, flush=True)
if pid:
    os.waitpid(pid, 0)
"""


@pytest.fixture
def connected():
    """Remove the receivers that a test connects."""
    before = list(setting_changed.receivers)
    yield
    setting_changed.receivers = before
    setting_changed.sender_receivers_cache.clear()


@pytest.mark.outside
def test_a_forked_child_calls_what_was_registered_in_order():
    lines = run_python("-c", FORK).splitlines()
    assert sorted(lines) == ["['before', 'child', 'second']", "['before']"]


def test_a_platform_without_fork_registers_nothing(monkeypatch):
    monkeypatch.delattr(process.os, "register_at_fork")
    assert process.at_fork(len) is process.before_fork(len) is len


@pytest.mark.usefixtures("connected")
def test_a_function_is_called_when_one_of_its_settings_changes():
    calls = []

    @process.on_settings_change("MCP_DJANGO", "DEBUG")
    def named_settings():
        calls.append("named")

    @process.on_settings_change()
    def any_setting():
        calls.append("any")

    with override_settings(DEBUG=True):
        assert calls == ["named", "any"]
    with override_settings(LANGUAGES=[]):
        assert calls == ["named", "any"] * 2 + ["any"]


@pytest.mark.usefixtures("connected")
def test_a_function_that_is_registered_twice_is_called_once():
    calls = []

    def note():
        calls.append("called")

    for _ in range(2):
        process.on_settings_change()(note)
    with override_settings(DEBUG=True):
        assert calls == ["called"]


def test_no_other_module_registers_for_forks_and_settings():
    users = [
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "mcp_django").rglob("*.py")
        if re.search(
            r"register_at_fork|import .*setting_changed|setting_changed\.connect", path.read_text()
        )
    ]
    assert users == ["mcp_django/process.py"]
