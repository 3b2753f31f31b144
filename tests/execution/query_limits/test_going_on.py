"""What a read-only call may still do, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from mcp_django import ToolError
from mcp_django.execution import query_limits
from mcp_django.execution.query_limits import _ConnectionMonitor
from mcp_django.execution.threads import run_after_commit
from mcp_django.models import Topic
from tests.execution.query_limits.reading import (
    TOLD,
    count_names,
    decorated,
    fetch,
    read,
    reader,
    still_writes,
    write_name,
)
from tests.kit.servers import open_to_all, real_client


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_surroundings")
def test_it_reads_in_blocks_and_lazily():
    def several() -> Iterator[str]:
        with transaction.atomic(), transaction.atomic():
            count_names()
        decorated(write=False)
        with transaction.atomic():
            transaction.set_rollback(True)
        yield from Group.objects.order_by("name").values_list("name", flat=True).iterator()

    Group.objects.create(name="a")
    assert read(several).structured == ["a"]
    Group.objects.all().delete()
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_a_durable_block_may_be_entered_as_it_may_without_us():
    def durable() -> int:
        count_names()
        with transaction.atomic(durable=True):
            return count_names()

    assert read(durable).text == "0"
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_for_a_commit_is_done_unless_the_call_fails(fails):
    done: list[int] = []

    def notify() -> str:
        count_names()
        with transaction.atomic():
            run_after_commit(lambda: done.append(1))
            run_after_commit(lambda: done.append(2))
            if fails:
                raise ToolError("no")
        return "yes"

    assert read(notify).is_error is fails
    assert done == ([] if fails else [1, 2])
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_surroundings")
@pytest.mark.parametrize("fails", [False, True])
def test_a_change_that_was_noticed_is_announced_once_the_call_is_over(fails):
    server = open_to_all()

    @server.tool(read_only=True)
    def look() -> str:
        server.notify_list_changed("tools")
        count_names()
        server.notify_list_changed("prompts")
        with transaction.atomic():
            server.notify_resource_updated("x://a")
        with transaction.atomic():
            server.notify_resource_updated("x://never")
            transaction.set_rollback(True)
        if fails:
            raise ToolError("no")
        return "looked"

    assert real_client(server=server).call_tool("look", check=False).is_error is fails
    if connection.in_atomic_block:
        # A transaction of the caller, which continues.
        assert len(connection.run_on_commit) == 3
    else:
        assert Topic.objects.filter(seq__gt=0).count() == (0 if fails else 3)
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_left_open_is_still_found(caplog):
    def careless() -> int:
        count = count_names()
        transaction.atomic().__enter__()
        return count + count_names()

    assert read(careless).is_error
    assert "left a transaction open" in caplog.text
    assert not connection.in_atomic_block
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("exception", [ToolError, ValueError, SystemExit])
def test_failures_of_its_own_leave_nothing_behind(exception):
    def fail() -> str:
        count_names()
        raise exception("no")

    assert read(fail).is_error
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_is_wrong_is_a_bug_like_any_other(caplog):
    def wrong() -> list[Any]:
        return fetch("SELECT nothing FROM nowhere")

    assert "because of a server error" in read(wrong).text
    assert "nowhere" in caplog.text
    assert still_writes()


@pytest.mark.django_db(transaction=True)
def test_what_the_site_says_to_a_new_connection_outlasts_the_call():
    def greet(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SET application_name TO 'greeted'")
            else:
                cursor.execute("CREATE TEMPORARY TABLE greeted (name text)")

    connection.close()
    connection_created.connect(greet)
    try:
        assert read(write_name).text == TOLD
        assert still_writes()
    finally:
        connection_created.disconnect(greet)
    if connection.vendor == "postgresql":
        assert fetch("SHOW application_name") == [("greeted",)]
    else:
        assert fetch("SELECT * FROM greeted") == []
    connection.close()


@pytest.mark.django_db
def test_a_count_of_queries_has_none_of_ours():
    count_names()
    with CaptureQueriesContext(connection) as captured:
        assert read(count_names).text == "0"
        assert read(write_name).is_error
    assert len(captured) == 2


def test_a_function_without_a_database_opens_none():
    # The test suite rejects connections from tests that do not request a database.
    def plain() -> str:
        return "plain"

    assert read(plain).text == "plain"


def test_arguments_out_of_reason_are_refused_when_declared():
    with pytest.raises(Exception, match="enforce is 'no'; write True or False"):
        reader(count_names, enforce="no")


@pytest.mark.django_db
def test_the_limits_of_a_call_are_freed_without_the_garbage_collector(monkeypatch):
    def nothing() -> str:
        return "done"

    monitors: list[weakref.ref[Any]] = []

    class Watched(_ConnectionMonitor):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            monitors.append(weakref.ref(self))

    monkeypatch.setattr(query_limits, "_ConnectionMonitor", Watched)
    gc.collect()
    gc.disable()
    try:
        assert read(nothing).text == "done"
        assert {monitor() for monitor in monitors} == {None}
    finally:
        gc.enable()
