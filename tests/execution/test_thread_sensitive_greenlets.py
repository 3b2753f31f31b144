"""Async functions in gevent greenlets, which share a thread with other greenlets."""

import asyncio
import json
import os
import selectors
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from mcp_django.execution.thread_sensitive import close_idle_loops, run_coroutine
from tests.kit.drivers import PATIENCE, headers_for, message
from tests.kit.processes import REPOSITORY, START_SECONDS, serving

SETTINGS, SITE = "tests.execution.greenlet_settings", "tests.execution.greenlet_site:wsgi"
TOOLS = ("sync", "wait", "query", "generate", "gather")
CALLERS, CALLS = 12, 25


@pytest.fixture
def switching(monkeypatch):
    """A list of functions that run in place of other greenlets while a loop waits."""
    close_idle_loops()
    others = []
    select = selectors.DefaultSelector.select

    def switch(self, timeout=None):
        while others:
            others.pop()()
        return select(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", switch)
    yield others
    close_idle_loops()


async def generate():
    yield 1
    await asyncio.sleep(0)
    yield 2


async def consume() -> list[int]:
    return [number async for number in generate()]


@pytest.mark.django_db
def test_others_may_use_the_database_while_a_loop_waits(switching):
    counts = []

    async def wait() -> object:
        switching.append(lambda: counts.append(Group.objects.count()))
        await asyncio.sleep(0.001)
        return asyncio.get_running_loop()

    assert run_coroutine(wait) is not None
    assert counts == [0]


@pytest.mark.django_db
def test_others_may_have_loops_of_their_own_meanwhile(switching):
    inner = []

    async def wait() -> list[int]:
        switching.append(lambda: inner.append(run_coroutine(consume)))
        await asyncio.sleep(0.001)
        hooks = sys.get_asyncgen_hooks()
        assert hooks.firstiter is not None
        # Sync work also lets other greenlets run.
        await sync_to_async(lambda: inner.append(run_coroutine(consume)))()
        assert sys.get_asyncgen_hooks() == hooks
        return await consume()

    assert run_coroutine(wait) == [1, 2]
    assert inner == [[1, 2], [1, 2]]
    assert sys.get_asyncgen_hooks() == (None, None)


def call(url: str, tool: str) -> str:
    body = message("tools/call", {"name": tool, "arguments": {}})
    headers = headers_for(body, host=None)
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        result = json.load(answer)
    return result["result"]["content"][0]["text"] if "result" in result else str(result)


@pytest.mark.outside
def test_many_functions_share_the_thread_of_a_worker(tmp_path):
    pytest.importorskip("gevent")
    database = str(tmp_path / "site.sqlite3")
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0"],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS, "MCP_TEST_DATABASE": database},
        check=True,
        timeout=START_SECONDS,
    )
    environ = {"MCP_TEST_DATABASE": database}
    with serving("gunicorn, greenlets", SITE, tmp_path, settings=SETTINGS, **environ) as server:
        url = f"{server.url}/mcp"

        def call_all(caller: int) -> list[str]:
            return [call(url, TOOLS[(caller + n) % len(TOOLS)]) for n in range(CALLS)]

        with ThreadPoolExecutor(CALLERS) as callers:
            answers = [text for texts in callers.map(call_all, range(CALLERS)) for text in texts]
        assert answers == ["done"] * CALLERS * CALLS, server.output
