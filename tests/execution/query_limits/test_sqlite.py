"""Features of SQLite: a switch on the connection, locks when a transaction begins, a handler."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.test import override_settings

from mcp_django import ToolError
from tests.execution.query_limits.reading import (
    SLOW,
    atomic_requests,
    count_names,
    fetch,
    names,
    read,
    say,
    still_writes,
    write_name,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_statement_cannot_switch_it_off():
    for sql in ("PRAGMA query_only = 0", '/* */ pragma "Query_Only"(OFF)'):

        def escape(sql: str = sql) -> str:
            fetch(sql)
            return write_name()

        def swallow(sql: str = sql) -> str:
            with pytest.raises(ToolError):
                fetch(sql)
            return write_name()

        assert "must not use the pragma" in read(escape).text
        assert "may only read" in read(swallow).text
        assert still_writes()


@pytest.mark.parametrize("sql", ["COMMIT", "/* c */ END", "-- x\nROLLBACK", "; COMMIT"])
def test_a_transaction_in_progress_goes_on(sql):
    def end_it() -> None:
        say(sql)

    with transaction.atomic():
        Group.objects.create(name="undone")
        assert read(end_it).is_error
        assert names() == {"undone"}
        transaction.set_rollback(True)
    assert not names()
    assert still_writes()


def test_a_script_is_refused():
    def run_script() -> None:
        with connection.cursor() as cursor:
            cursor.executescript("INSERT INTO auth_group (name) VALUES ('written')")

    for surroundings in (nullcontext(), transaction.atomic()):
        with surroundings:
            assert "one statement at a time" in read(run_script).text
            assert still_writes()


def test_what_the_site_switched_on_stays_on():
    say("PRAGMA query_only = 1")
    try:
        assert read(count_names).text == "0"
        assert fetch("PRAGMA query_only")[0][0] == 1
    finally:
        say("PRAGMA query_only = 0")


def test_a_row_factory_of_the_site_is_no_trouble():
    connection.ensure_connection()
    connection.connection.row_factory = lambda cursor, row: dict(enumerate(row))
    try:

        def plain() -> str:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 5")
                return str(cursor.fetchone()[0])

        assert read(plain).text == "5"
    finally:
        connection.connection.row_factory = None
    assert still_writes()


@pytest.fixture
def _immediate():
    """Transactions that take the write lock when they begin."""
    connection.close()
    options = connection.settings_dict["OPTIONS"]
    options["transaction_mode"] = "IMMEDIATE"
    yield
    connection.close()
    del options["transaction_mode"]


@pytest.mark.usefixtures("_immediate")
def test_a_reader_takes_no_lock_for_writing():
    def nested() -> int:
        with transaction.atomic():
            return count_names()

    for surroundings in (transaction.atomic, atomic_requests):
        assert read(nested).text == "0"
        with surroundings():
            assert read(nested).text == "0"
            assert "may only read" in read(write_name).text
            assert still_writes()


def test_a_connection_that_the_site_closes_meanwhile_is_held_again():
    def reconnect() -> str:
        count_names()
        connection.close()
        return write_name()

    def close() -> str:
        count_names()
        connection.connection.close()
        return "closed"

    assert "may only read" in read(reconnect).text
    assert still_writes()
    assert read(close).text == "closed"
    connection.close()
    assert still_writes()


@override_settings(MCP_DJANGO={"LIMITS": {"seconds": 0.05}})
def test_the_time_between_two_rows_is_not_the_databases():
    def slow_reader() -> list[Any]:
        groups = Group.objects.order_by("name").iterator(chunk_size=1)
        kept = []
        for group in groups:
            # Longer than the limit, but in Python.
            sum(range(3_000_000))
            kept.append(group.name)
        return kept

    Group.objects.bulk_create(Group(name=name) for name in "abc")
    assert read(slow_reader).structured == ["a", "b", "c"]
    assert read(never_ends).is_error


def never_ends() -> list[Any]:
    return fetch(SLOW[1])


def test_every_database_is_governed(tmp_path, monkeypatch):
    other = {**connections["default"].settings_dict, "NAME": str(tmp_path / "other.sqlite3")}
    monkeypatch.setitem(connections.settings, "other", other)
    try:
        # pytest-django blocks connections that did not exist when the test began.
        connections["other"].connect()
        with connections["other"].cursor() as cursor:
            cursor.execute("CREATE TABLE there (name text)")

        def write_there() -> str:
            count_names()
            with connections["other"].cursor() as cursor:
                cursor.execute("INSERT INTO there VALUES ('x')")
            return "written"

        assert "may only read" in read(write_there).text
        with connections["other"].cursor() as cursor:
            cursor.execute("INSERT INTO there VALUES ('y')")
            cursor.execute("SELECT name FROM there")
            assert cursor.fetchall() == [("y",)]
    finally:
        connections["other"].close()
        del connections["other"]
    assert still_writes()
