"""Tasks in several processes: web processes, a real worker, and the signals that end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit import databases
from tests.kit.drivers import headers_for, message
from tests.kit.processes import REPOSITORY, Server, serving
from tests.spec import spec
from tests.tasks.shop import WITH_TASKS

pytest.importorskip("django_tasks_db")

SETTINGS = "tests.tasks.live.settings"
APPLICATION = "tests.transports.http_session.asgi:application"
PATIENCE_SECONDS = 120
COMMAND = ("django", "db_worker", "--backend", "database", "--interval", "0.05", "--no-reload")

KINDS = [
    pytest.param("sqlite", marks=pytest.mark.outside),
    pytest.param("postgres", marks=[pytest.mark.requires("postgres", "redis")]),
]


@contextmanager
def working(environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process of the site's task backend."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", *COMMAND, "--no-startup-delay"],
            cwd=REPOSITORY,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS, **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


class Site:
    """A client that sends each request to the web process that the caller names."""

    def __init__(self, http: httpx.Client, directory: Path) -> None:
        self._http = http
        self._directory = directory
        self._count = 0

    def send(self, server: Server, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._count += 1
        capabilities = {"io.modelcontextprotocol/clientCapabilities": WITH_TASKS}
        body = message(method, params, id=self._count, **capabilities)
        headers = headers_for(body, host=None)
        if "taskId" in params:
            headers["mcp-name"] = params["taskId"]
        answer = self._http.post(f"{server.url}/mcp", json=body, headers=headers).json()
        result: dict[str, Any] = answer["result"]
        return result

    def begin(self, server: Server, name: str, **arguments: Any) -> str:
        params = {"name": "work", "arguments": {"place": self.place(name), **arguments}}
        task_id: str = self.send(server, "tools/call", params)["taskId"]
        return task_id

    def task(self, server: Server, task_id: str) -> dict[str, Any]:
        return self.send(server, "tasks/get", {"taskId": task_id})

    def place(self, name: str) -> str:
        return str(self._directory / name)

    def go(self, name: str) -> None:
        Path(f"{self.place(name)}.go").touch()

    def until(self, holds: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def until_begun(self, name: str) -> None:
        self.until(Path(f"{self.place(name)}.begun").exists, f"{name} did not begin")

    def until_status(self, server: Server, task_id: str, status: str) -> dict[str, Any]:
        self.until(lambda: self.task(server, task_id)["status"] == status, f"never {status}")
        return self.task(server, task_id)


@spec("TKE-3", "TKE-10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_outlive_processes(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "SETTINGS", SETTINGS)
    with (
        httpx.Client(timeout=30) as http,
        databases.shared(kind, tmp_path, redis=kind == "postgres") as environ,
    ):
        site = Site(http, tmp_path)

        def web() -> Any:
            return serving("uvicorn", APPLICATION, tmp_path, settings=SETTINGS, **environ)

        with web() as second:
            with web() as first, working(environ, tmp_path / "w1.txt") as worker:
                # The task asks through one process, is answered at another, and the first one is
                # terminated.
                asking = site.begin(first, "a", ask=True)
                task = site.until_status(second, asking, "input_required")
                yes = {"action": "accept", "content": {"value": "Ada"}}
                answers = dict.fromkeys(task["inputRequests"], yes)
                params = {"taskId": asking, "inputResponses": answers}
                site.send(first, "tasks/update", params)
                site.until_begun("a")
                first.terminate()
                first.wait()
                half = site.task(second, asking)
                assert half["status"] == "working"
                site.go("a")
                done = site.until_status(second, asking, "completed")
                assert done["result"]["content"][0]["text"] == "done for Ada"

                # Cancelled through a web process; the function in the worker notices.
                cancelled = site.begin(second, "b")
                site.until_begun("b")
                site.send(second, "tasks/cancel", {"taskId": cancelled})
                ended = Path(f"{site.place('b')}.ended")
                site.until(ended.exists, "the function did not see that it was cancelled")
                assert ended.read_text() == "cancelled"

                # The worker is killed and no longer renews the lease, so the next reader closes the
                # task.
                killed = site.begin(second, "c")
                site.until_begun("c")
                worker.send_signal(signal.SIGKILL)
                worker.wait()
                # No worker has started this task, so it waits for another one.
                waiting = site.begin(second, "d")
            gone = site.until_status(second, killed, "failed")
            assert "that ran this task has stopped" in gone["statusMessage"]
            assert site.task(second, waiting)["status"] == "working"
            with working(environ, tmp_path / "w2.txt"):
                site.go("d")
                assert site.until_status(second, waiting, "completed")["result"]
            assert site.task(second, killed)["status"] == "failed"
