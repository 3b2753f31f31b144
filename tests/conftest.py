"""Rules for the whole suite: what a marker means, and that no assertion looks at a clock."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextvars import copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

import pytest
from _pytest.runner import runtestprotocol

from tests import rings
from tests.published import plugin as published
from tests.services import do_without, missing
from tests.spec import passed

if TYPE_CHECKING:
    from mcp_django import MCPServer
    from mcp_django.execution.call_record import Entry
    from mcp_django.storage.call_rows import CallLog

# The awkward site has settings of its own; its directory says how it is run.
AWKWARD = os.environ.get("DJANGO_SETTINGS_MODULE") == "tests.awkward.settings"
collect_ignore = [] if AWKWARD else ["awkward"]

# The servers that modules declare, which live as long as the process.
_declared: WeakSet[MCPServer] = WeakSet()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Let `tests.rings` choose what a run has, and `tests.spec.passed` note what it proved."""
    for plugin in (rings, passed):
        pluginmanager.register(plugin)
        plugin.add_option(parser)
    pluginmanager.register(published)


def pytest_collection_finish() -> None:
    """Keep what was imported out of later garbage collections: a full one takes 0.5 s otherwise."""
    from mcp_django import server

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    _declared.update(server._servers)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that requires a missing service, or fail it where every service is demanded."""
    for marker in item.iter_markers("requires"):
        for service in marker.args:
            reason = missing(service)
            if reason is not None:
                do_without(f"requires {service}: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run each test in a context of its own.

    Django keeps a variable for every URLconf that was ever looked into, and asgiref carries all of
    them over with every step between thread and loop: the last tests would carry thousands.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    copy_context().run(runtestprotocol, item, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session", autouse=True)
def _shortcuts() -> None:
    """Tests that change the URLconf or commit are many here."""
    # Django's test cases read settings.
    from tests import django_shortcuts

    django_shortcuts.install()


@pytest.fixture(autouse=True)
def _nobody_was_here_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test tried, and who was let in, counts for no other test in the same process.

    No window of a limit ends while a test fills it, unless the test moves a clock of its own.
    """
    # The package reads settings, which pytest-django makes ready after this file is imported.
    from django.core.cache import cache

    from mcp_django.auth import authentication, limits, limits as brute_force, security_log

    now = time.time()
    monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    cache.clear()
    brute_force.known_good.clear()
    security_log.sparingly.clear()
    authentication.token_cache.clear()


@pytest.fixture(autouse=True)
def _nothing_is_managed() -> Iterator[None]:
    """Nobody has decided anything in the admin, and no test asks the database whether.

    Whatever is saved there in this process ends that, as it does for any process that saves it.
    """
    from mcp_django.overrides.state import freshness

    freshness.pin()
    yield
    freshness.pin()


@pytest.fixture
def unpinned(_nothing_is_managed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that knows nothing yet and looks decisions up, as on any site.

    What it has seen stays fresh until the test says that a second is over.
    """
    from mcp_django.overrides import state as module
    from mcp_django.server import all_servers

    freshness = module.freshness
    freshness.forget()
    freshness.start_over()
    monkeypatch.setattr(module, "FRESH_SECONDS", 1e9)
    yield
    freshness.start_over()
    for server in all_servers():
        server.as_in_code()


@pytest.fixture
def few_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those of the example are there, and what a test adds.

    The admin looks for servers by their names, and those of earlier tests live until they are
    collected.
    """
    from mcp_django import server as module
    from tests.example import mcp as example

    example.mcp.name  # noqa: B018 - made at first use
    known = {example.mcp.itself, example.staff, example.open_server}
    monkeypatch.setattr(module, "_servers", WeakSet(known))


@pytest.fixture
def only_declared_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those that modules declare are there, and what a test adds."""
    from mcp_django import server as module
    from mcp_django.auth import endpoints
    from tests.example import mcp as example

    example.mcp.name  # noqa: B018 - made at first use
    known = {*_declared, example.mcp.itself}
    monkeypatch.setattr(module, "_servers", WeakSet(known))
    named = {url: one for url, one in endpoints._declared.items() if one in known}
    monkeypatch.setattr(endpoints, "_declared", WeakValueDictionary(named))


@pytest.fixture(autouse=True)
def _calls_are_not_logged() -> Iterator[None]:
    """A test that is about the call log asks for ``call_log``; others may have no database."""
    from mcp_django.storage.call_rows import call_log

    call_log.is_muted = True
    yield
    call_log.flush()
    call_log.is_muted = True
    call_log.is_hurrying = False


@pytest.fixture
def call_log(_calls_are_not_logged: None, monkeypatch: pytest.MonkeyPatch) -> CallLog:
    """The call log, switched on for what begins from now on."""
    from django.utils import timezone

    from mcp_django.execution import call_log as keeping
    from mcp_django.execution.call_log import patience
    from mcp_django.storage.call_rows import call_log

    began, given_up = timezone.now(), keeping.given_up

    def of_this_test(entry: Entry) -> None:
        # Calls of earlier tests are collected at any moment.
        if entry.at >= began:
            given_up(entry)

    monkeypatch.setattr(keeping, "given_up", of_this_test)
    patience.clear()
    call_log.is_muted = False
    call_log.lost = 0
    return call_log
