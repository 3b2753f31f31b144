"""Schemas that are built when they are first used, and again when they are old."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import OperationalError, connection, transaction

from mcp_django.schema import deferred
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.compiled import JSONSchemaArguments
from mcp_django.schema.deferred import Deferred, DeferredArguments
from mcp_django.tenants import as_tenant, current_tenant


class Clock:
    """A clock that tests advance."""

    now = 1000.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of the module."""
    made = Clock()
    monkeypatch.setattr(deferred, "time", made)
    return made


class Source:
    """Builds arguments with these names, or raises."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.error: Exception | None = None
        self.number = 0

    def __call__(self) -> JSONSchemaArguments:
        self.number += 1
        if self.error is not None:
            raise self.error
        properties: dict[str, Any] = {name: {"type": "string"} for name in self.names}
        return JSONSchemaArguments({"type": "object", "properties": properties})


def arguments_of(build: Callable[[], Any]) -> DeferredArguments:
    return DeferredArguments(Deferred(build, what="the tool"))


def test_nothing_is_built_before_it_is_used(clock):
    source = Source("a")
    arguments = arguments_of(source)
    assert source.number == 0
    assert list(arguments.json_schema["properties"]) == ["a"]
    assert source.number == 1
    # A call sends what the site accepts now.
    source.names = ("b",)
    assert arguments.parse(b'{"b": "x"}') == {"b": "x"}
    assert list(arguments.json_schema["properties"]) == ["a"]


def test_it_is_built_again_when_it_is_old(clock):
    source = Source("a")
    arguments = arguments_of(source)
    assert arguments.problem == ""
    state = arguments.schema_state()
    clock.now += deferred.MAX_AGE + 1
    # An old schema never has an equal state, so that no page is cached for it.
    assert arguments.schema_state() != arguments.schema_state()
    assert arguments.problem == ""
    # Nothing has changed, so cached pages of lists are still right.
    assert arguments.schema_state() == state
    source.names = ("a", "b")
    clock.now += deferred.MAX_AGE + 1
    assert list(arguments.json_schema["properties"]) == ["a", "b"]
    assert arguments.schema_state() != state


def test_what_cannot_be_built_is_logged_once_and_tried_again(clock, caplog):
    source = Source("a")
    source.error = OperationalError("no such table: fields")
    arguments = arguments_of(source)
    assert arguments.problem == "OperationalError: no such table: fields"
    assert arguments.json_schema["properties"] == {}
    with pytest.raises(InvalidArguments, match="the tool is not available") as caught:
        arguments.parse(b"{}")
    assert "fields" not in str(caught.value)
    clock.now += deferred.RETRY_AFTER + 1
    number = source.number
    assert arguments.problem
    assert source.number == number + 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    source.error = None
    clock.now += deferred.RETRY_AFTER + 1
    assert arguments.problem == ""
    assert arguments.parse(b"{}") == {}


def test_an_error_of_the_declaration_is_kept_and_logged(clock, caplog):
    source = Source("a")
    source.error = ImproperlyConfigured("a file")
    made: Deferred[Any] = Deferred(source, what="the tool")
    assert made.problem == "a file"
    assert made.exception is source.error
    assert [record.getMessage() for record in caplog.records] == [
        "the tool cannot be described: a file"
    ]


def test_what_may_not_run_on_an_event_loop_is_left_to_a_thread(clock):
    source = Source("a")
    source.error = SynchronousOnlyOperation("not here")
    arguments = arguments_of(source)
    assert arguments.problem == ""
    with pytest.raises(SynchronousOnlyOperation):
        arguments.parse(b"{}")
    source.error = None
    assert list(arguments.json_schema["properties"]) == ["a"]


@pytest.mark.django_db
def test_a_failed_statement_leaves_the_transaction_usable(clock):
    def build() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM a_table_that_is_missing")

    with transaction.atomic():
        assert "a_table_that_is_missing" in arguments_of(build).problem
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")


@pytest.mark.outside
def test_a_lock_of_the_parent_stops_no_child():
    made: Deferred[Any] = Deferred(Source("a"), what="the tool")
    with made._built.lock:
        child = os.fork()
        if not child:
            os._exit(0 if made.problem == "" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_each_tenant_has_a_value_of_its_own(settings):
    """The value may depend on rows, such as the choices of a form."""
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    built = []

    def build():
        built.append(current_tenant())
        return built[-1]

    deferred = Deferred(build, what="a tool")
    for _ in range(2):
        for tenant in ("alpha", "beta"):
            with as_tenant(tenant):
                assert deferred.get() == tenant
    assert built == ["alpha", "beta"]
