"""Fixtures and hooks of the whole suite: markers, and isolation between tests."""

from __future__ import annotations

import gc
import os
import time
from contextvars import copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

import pytest
from _pytest.runner import runtestprotocol

from tests.kit import rings
from tests.kit.services import do_without, missing
from tests.published import plugin as published
from tests.spec import passed

if TYPE_CHECKING:
    from mcp_django import MCPServer
    from mcp_django.execution.call_record import CallRecord

# These sites have their own settings; their packages document how to run them.
SITES = ["audit", "awkward", "helpdesk", "oscar", "wagtail"]
SETTINGS = os.environ.get("DJANGO_SETTINGS_MODULE", "")
collect_ignore = [
    f"sites/{site}" for site in SITES if not SETTINGS.startswith(f"tests.sites.{site}.")
]

# Servers that modules declare, which exist as long as the process.
_declared: WeakSet[MCPServer] = WeakSet()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register plugins: `tests.kit.rings` selects tests, `tests.spec.passed` records results."""
    for plugin in (rings, passed):
        pluginmanager.register(plugin)
        plugin.add_option(parser)
    pluginmanager.register(published)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Do without the fixtures of pytest-django that a test has no use for."""
    from tests.kit import django_shortcuts

    django_shortcuts.do_without_fixtures(items)


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection; a full collection would take 0.5 s."""
    from mcp_django import server

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    _declared.update(server._servers)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that requires a missing service, or fail it if all services are required."""
    for marker in item.iter_markers("requires"):
        for service in marker.args:
            reason = missing(service)
            if reason is not None:
                do_without(f"requires {service}: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run each test in its own context (`contextvars`).

    Django keeps a variable for every URLconf that it resolved, and asgiref copies all of them with
    every switch between thread and event loop: the last tests would copy thousands.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    copy_context().run(runtestprotocol, item, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session", autouse=True)
def _shortcuts():
    """Install shortcuts for tests that change the URLconf or commit, which are many here."""
    # Django's test cases read settings.
    from tests.kit import django_shortcuts

    django_shortcuts.install()


@pytest.fixture(autouse=True)
def _isolation():
    """Keep tests from affecting each other, in one fixture since every test has it.

    Rate limits, throttling, caches and mails are cleared. The clock of the limits is frozen, so
    that no window ends during a test, unless the test advances its own clock.

    There are no overrides from the admin, and no queries for them. Saving an override in this
    process ends this state, as in any process that saves one.

    The call log is disabled: tests of it use ``call_log``, others may not have a database.
    """
    # The package reads settings, which pytest-django sets up after this file is imported.
    from django.core import mail
    from django.core.cache import cache

    from mcp_django.auth import limits, limits as brute_force, security_log
    from mcp_django.overrides.state import override_version
    from mcp_django.storage import cache as confirmed
    from mcp_django.storage.call_rows import call_log
    from mcp_django.storage.writer import row_writer

    now, clock = time.time(), limits.time
    limits.time = SimpleNamespace(time=lambda: now, monotonic=time.monotonic)
    cache.clear()
    mail.outbox.clear()
    brute_force.accepted_credentials.clear()
    security_log.event_limiter.clear()
    confirmed.clear_caches()
    override_version.pin()
    call_log.is_disabled = True
    yield
    for writer in (call_log, row_writer):
        writer.flush()
        writer.is_stopping = False
    call_log.is_disabled = True
    override_version.pin()
    limits.time = clock


@pytest.fixture
def unpinned(_isolation, monkeypatch):
    """Begin as a process that has not read overrides yet, and queries them as on any site.

    Overrides that it has read do not become stale until the test lets a second pass.
    """
    from mcp_django.overrides import state as module
    from mcp_django.server import all_servers

    freshness = module.override_version
    freshness.record_change()
    freshness.reset()
    monkeypatch.setattr(module, "FRESH_SECONDS", 1e9)
    yield
    freshness.reset()
    for server in all_servers():
        server.overrides.reset()


@pytest.fixture
def few_servers(monkeypatch):
    """Register only the servers of the example site, and those that a test adds.

    The admin looks servers up by name, and servers of earlier tests exist until they are garbage
    collected.
    """
    from mcp_django import server as module
    from tests.sites.example import mcp as example

    example.mcp.name  # noqa: B018 - created at first use
    known = {example.mcp.unwrapped, example.staff, example.open_server}
    monkeypatch.setattr(module, "_servers", WeakSet(known))


@pytest.fixture
def only_declared_servers(monkeypatch):
    """Register only the servers that modules declare, and those that a test adds."""
    from mcp_django import server as module
    from mcp_django.auth import endpoints
    from tests.sites.example import mcp as example

    example.mcp.name  # noqa: B018 - created at first use
    known = {*_declared, example.mcp.unwrapped}
    monkeypatch.setattr(module, "_servers", WeakSet(known))
    servers_by_url = {
        url: server for url, server in endpoints._declared_servers.items() if server in known
    }
    monkeypatch.setattr(endpoints, "_declared_servers", WeakValueDictionary(servers_by_url))


@pytest.fixture
def call_log(_isolation, monkeypatch):
    """Return the call log, enabled for calls that begin from now on."""
    from django.utils import timezone

    from mcp_django.execution.call_log import anonymous_limiter
    from mcp_django.execution.call_record import CallRecord
    from mcp_django.storage.call_rows import call_log

    began, end = timezone.now(), CallRecord.__del__

    def end_of_this_test(record: CallRecord) -> None:
        # Calls of earlier tests may be garbage collected at any time.
        if record.given and record.given["at"] >= began:
            end(record)

    monkeypatch.setattr(CallRecord, "__del__", end_of_this_test)
    anonymous_limiter.clear()
    call_log.is_disabled = False
    call_log.lost = 0
    return call_log
