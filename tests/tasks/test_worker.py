"""Where tasks run: in threads of this process, or in the site's task backend."""

from __future__ import annotations

import threading
from queue import Queue

import pytest
from django.db import DatabaseError

from mcp_django import Context
from mcp_django.execution import threads as pools
from mcp_django.execution.threads import BoundedPool
from mcp_django.models import Task
from mcp_django.storage import task_rows
from mcp_django.tasks import runs as task_runs, worker as task_worker
from tests.kit.drivers import PATIENCE
from tests.kit.servers import open_to_all
from tests.tasks.shop import call, make_backends, send, text_of

__all__ = ["make_backends"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(name="threads")
def make_threads(monkeypatch, few_servers):
    """Task threads, of which there is only one."""
    made = BoundedPool("task", threads=1, queue=2, queue_seconds=PATIENCE)
    monkeypatch.setitem(pools._pools, "task", made)
    yield made
    assert made.close(seconds=PATIENCE)
    keeper = task_runs.lease_renewer._thread
    if keeper is not None:
        keeper.join(PATIENCE)


class Steps:
    """A tool that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.go, self.ended = (threading.Semaphore(0) for _ in range(3))

    def __call__(self, ctx: Context) -> bool:
        """Work until told to stop."""
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE)
        self.ended.release()
        return ctx.cancelled


def test_tasks_wait_for_a_thread_with_a_lease(threads):
    server, steps = open_to_all(), Steps()
    server.tool("work", task="optional")(steps)
    ids = [call(server, "work")["taskId"] for _ in range(2)]
    assert steps.begun.acquire(timeout=PATIENCE)
    assert Task.objects.filter(lease_until__isnull=False).count() == 2
    steps.go.release()
    assert steps.begun.acquire(timeout=PATIENCE)
    first = send(server, "tasks/get", {"taskId": ids[0]})["result"]
    assert (first["status"], text_of(first["result"])) == ("completed", "false")
    # The second is cancelled while it runs; its lease renewer notices.
    send(server, "tasks/cancel", {"taskId": ids[1]})
    steps.go.release()
    assert steps.ended.acquire(timeout=PATIENCE)
    assert steps.ended.acquire(timeout=PATIENCE)
    assert Task.objects.get(pk=ids[1]).status == "cancelled"


def test_a_full_process_says_so(threads):
    server, steps = open_to_all(), Steps()
    server.tool("work", task="optional")(steps)
    call(server, "work")
    assert steps.begun.acquire(timeout=PATIENCE)
    call(server, "work")
    answer = send(server, "tools/call", {"name": "work", "arguments": {}})
    assert "wait for a thread" in answer["error"]["message"]
    assert Task.objects.filter(status="failed").count() == 1
    steps.go.release(2)
    assert steps.begun.acquire(timeout=PATIENCE)


def test_an_address_leaves_threads_and_places_to_others(threads, monkeypatch, settings):
    settings.MCP_DJANGO = {"PROXIES": 1}
    more = BoundedPool("task", threads=4, queue=8, queue_seconds=PATIENCE)
    monkeypatch.setitem(pools._pools, "task", more)
    server, began, go = open_to_all(), Queue[str](), threading.Semaphore(0)

    @server.tool(task="optional")
    def work(name: str) -> None:
        """Say that it has begun, and wait."""
        began.put(name)
        assert go.acquire(timeout=PATIENCE)

    def begin(name: str, address: str) -> str:
        status: str = call(server, "work", arguments={"name": name}, address=address)["status"]
        return status

    # All strangers get two threads and four places, and one of them gets half of each.
    for n in range(1 + 2):
        assert begin(f"mine {n}", "192.0.2.1") == "working"
    assert began.get(timeout=PATIENCE) == "mine 0"
    params = {"name": "work", "arguments": {"name": "mine too"}}
    refused = send(server, "tools/call", params, address="192.0.2.1")
    assert "too many tasks wait for a thread" in refused["error"]["message"]
    assert begin("other", "198.51.100.9") == "working"
    assert began.get(timeout=PATIENCE) == "other"
    assert begin("third", "203.0.113.5") == "working"
    rest = []
    for _ in range(3):
        go.release()
        rest.append(began.get(timeout=PATIENCE))
    # Which one ends first varies.
    assert rest in (["mine 1", "third", "mine 2"], ["third", "mine 1", "mine 2"])
    go.release(2)
    assert more.close(seconds=PATIENCE)


def test_a_backend_that_takes_nothing_is_told(settings, backends):
    backends(other={"BACKEND": ""})
    settings.MCP_DJANGO = {"TASK_BACKEND": "gone"}
    server = open_to_all()

    @server.tool(task="optional")
    def work() -> str:
        """Work."""
        return ""

    answer = send(server, "tools/call", {"name": "work", "arguments": {}})
    assert answer["error"]["code"] == -32603
    row = Task.objects.get()
    assert (row.status, row.engine) == ("failed", "gone")


def test_what_is_handed_over_is_an_id_and_a_number(settings, backends, few_servers):
    settings.MCP_DJANGO = {"TASK_BACKEND": "dummy"}
    configured = backends(
        dummy={"BACKEND": f"{task_worker.task_framework()}.backends.dummy.DummyBackend"}
    )
    server = open_to_all()

    @server.tool(task="optional")
    def work(secret: str) -> str:
        """Work."""
        return secret

    begun = call(server, "work", arguments={"secret": "hush"})
    (handed,) = configured["dummy"].results
    assert (handed.args, handed.kwargs) == ([begun["taskId"], 1], {})
    handed.task.call(*handed.args)
    # Running it twice has the effect of running it once.
    handed.task.call(*handed.args)
    assert Task.objects.get().status == "completed"


def test_a_keeper_outlives_a_database_that_is_away(monkeypatch):
    class Held:
        pk, run = "x", 1
        stopped = False

        def cancel(self) -> None:
            self.stopped = True

        def write_message(self) -> None:
            """Nothing was reported."""

    def away(_: object) -> None:
        raise problems.pop()

    problems: list[Exception] = [DatabaseError("gone"), ValueError("a bug")]
    keeper, held = task_runs.LeaseRenewer(), Held()
    monkeypatch.setattr(task_runs.LeaseRenewer, "_run", lambda self: None)
    keeper.add(held)
    monkeypatch.setattr(task_rows, "filter_wanted", away)
    while problems:
        assert not keeper._check_runs(renew=True)
    assert not held.stopped
    monkeypatch.undo()
    assert keeper._check_runs(renew=True)
    assert held.stopped
