"""Callers of tools that run as tasks, over a mount that does everything in the test's own thread,
and a worker that runs what was enqueued when the test says so.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
from asgiref.local import Local

from mcp_django import MCPServer, server as server_module
from mcp_django.models import Task
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import TASKS
from mcp_django.tasks import runs as task_runs, worker as task_worker
from tests.kit.drivers import headers_for, message
from tests.kit.servers import through_view
from tests.kit.services import do_without

FORM: dict[str, Any] = {"elicitation": {}}
WITH_TASKS: dict[str, Any] = {"extensions": {TASKS: {}}, **FORM}


def send(
    server: MCPServer,
    method: str,
    params: Mapping[str, Any],
    *,
    capabilities: Mapping[str, Any] = WITH_TASKS,
    token: str | None = None,
    address: str | None = None,
) -> dict[str, Any]:
    """Send a request of 2026-07-28, from this address behind a proxy, and return the response."""
    body = message(method, params, **{envelope.CLIENT_CAPABILITIES: capabilities})
    headers = headers_for(body)
    if "taskId" in params:
        headers["mcp-name"] = params["taskId"]
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if address is not None:
        headers["x-forwarded-for"] = address
    answer: dict[str, Any] = json.loads(through_view(server, json.dumps(body), headers).content)
    return answer


def call(server: MCPServer, tool: str, **options: Any) -> dict[str, Any]:
    """Call a tool and return the result; options may have ``arguments`` and a round's answers."""
    known = {"arguments", "inputResponses", "requestState"}
    params = {name: options.pop(name) for name in known & options.keys()}
    answer = send(server, "tools/call", {"name": tool, "arguments": {}, **params}, **options)
    result: dict[str, Any] = answer["result"]
    return result


def text_of(result: Mapping[str, Any]) -> str:
    """Return the text that the model reads."""
    return "\n".join(block["text"] for block in result["content"])


class Worker:
    """Runs enqueued tasks in this thread, when the test calls `run`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int]] = []

    def run(self) -> Task:
        """Run the waiting tasks, and return the row of the last one."""
        pk = ""
        while self.waiting:
            pk, number = self.waiting.pop(0)
            taken = task_runs.take_lease(pk, number)
            if taken is not None:
                taken.perform()
        return Task.objects.get(pk=pk)


@pytest.fixture(name="worker")
def make_worker(monkeypatch):
    """A worker that replaces the task threads."""
    made = Worker()
    # Servers of other tests have the same name and may be around.
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())
    monkeypatch.setattr(task_worker, "enqueue", lambda pk, run: made.waiting.append((pk, run)))
    # The renewer's thread would not see what a test has written in its transaction.
    monkeypatch.setattr(task_runs.lease_renewer, "_thread", threading.current_thread())
    yield made
    assert not made.waiting


@pytest.fixture(name="backends")
def make_backends(settings):
    """A function that sets ``TASKS``, which is otherwise read once, and returns the backends."""
    backends = task_worker.task_backends()
    if backends is None:
        do_without("requires django-tasks: it is not installed")

    def configure(**configured: dict[str, Any]) -> Any:
        settings.TASKS = configured
        forget()
        return backends

    def forget() -> None:
        backends.__dict__.pop("settings", None)
        backends._settings = None
        backends._connections = Local()

    yield configure
    forget()
