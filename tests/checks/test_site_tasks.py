"""The system checks of the backend that runs tasks."""

from __future__ import annotations

import weakref

import pytest

from mcp_django import MCPServer, server as server_module
from mcp_django.checks import site
from mcp_django.tasks.worker import task_framework
from tests.tasks.shop import make_backends

__all__ = ["make_backends"]


@pytest.fixture(autouse=True)
def server(monkeypatch):
    """Return the only server, which has a tool that may run as a task."""
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())
    made = MCPServer("desk")

    @made.tool(task="optional")
    def work() -> str:
        """Work."""
        return ""

    return made


def ids() -> list[str | None]:
    return [message.id for message in site.check_task_backend(None)]


def test_threads_of_the_web_process_are_for_development(settings, server):
    (message,) = site.check_task_backend(None)
    assert message.id == "mcp_django.W019"
    assert "work on desk" in message.msg
    settings.DEBUG = True
    assert ids() == []
    settings.DEBUG = False
    server.unregister(server.tools["work"])
    assert ids() == []


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ("immediate.ImmediateBackend", "inside the request"),
        ("dummy.DummyBackend", "does not run tasks"),
        ("such.Backend", "cannot be used"),
        (None, "write one of its aliases, or add 'slow'"),
    ],
)
def test_a_backend_that_runs_nothing_elsewhere_is_an_error(settings, backends, backend, word):
    settings.MCP_DJANGO = {"TASK_BACKEND": "slow"}
    backends(
        **{"slow" if backend else "other": {"BACKEND": f"{task_framework()}.backends.{backend}"}}
    )
    (message,) = site.check_task_backend(None)
    assert message.id == "mcp_django.E017"
    assert word in f"{message.msg} {message.hint}"
    assert "'slow'" in message.msg


def test_a_backend_whose_app_is_not_installed_says_so(settings, backends):
    pytest.importorskip("django_tasks_db")
    settings.MCP_DJANGO = {"TASK_BACKEND": "slow"}
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if not app.startswith("django_tasks_db")
    ]
    backends(slow={"BACKEND": "django_tasks_db.DatabaseBackend"})
    (message,) = site.check_task_backend(None)
    # Django reports it when the model is imported; if it was imported before, the package does.
    assert "INSTALLED_APPS" in (message.hint or "")


def test_without_a_framework_the_extra_is_named(settings, monkeypatch):
    settings.MCP_DJANGO = {"TASK_BACKEND": "slow"}
    monkeypatch.setattr(site, "task_backends", lambda: None)
    (message,) = site.check_task_backend(None)
    assert "[tasks]" in (message.hint or "")
