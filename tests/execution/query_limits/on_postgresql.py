"""Features of PostgreSQL: settings of a transaction, and several statements in one string.

`test_postgresql.py` runs this file on such a database.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.models import CharField, Func, Value
from django.test import override_settings
from psycopg.sql import SQL

from tests.execution.query_limits.reading import (
    count_names,
    fetch,
    names,
    read,
    say,
    still_writes,
    write_name,
)

WRITE = "INSERT INTO auth_group (name) VALUES ('written')"
SETTINGS = ("default_transaction_read_only", "transaction_read_only", "statement_timeout")
ESCAPES = [
    f"COMMIT; {WRITE}",
    f"commit;{WRITE};",
    f"SELECT 1; /* ' */ ROLLBACK; {WRITE}",
    f"END; {WRITE}",
    f"ABORT ; {WRITE}",
    f"PREPARE TRANSACTION 'x'; {WRITE}",
    f"SET TRANSACTION READ WRITE; {WRITE}",
    f"SET transaction_read_only = off; {WRITE}",
    f"SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; {WRITE}",
    f"SELECT set_config('transaction_read_only', 'off', false); {WRITE}",
    f"BEGIN READ WRITE; {WRITE}",
    f"DO $$ BEGIN COMMIT; {WRITE}; END $$",
    f"WITH x AS ({WRITE} RETURNING 1) SELECT * FROM x",
    f"SELECT 1; {WRITE}",
    f"SAVEPOINT x; RELEASE x; {WRITE}",
    "SELECT nextval('auth_group_id_seq')",
]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[False, True])
def is_inside(request, transactional_db):
    """Once outside of a transaction, and once within one that continues after the call."""
    with transaction.atomic() if request.param else nullcontext():
        yield request.param


def settings() -> dict[str, str]:
    return {name: fetch(f"SHOW {name}")[0][0] for name in SETTINGS}


def test_one_string_of_several_statements_does_not_escape(is_inside):
    before = settings()
    for escape in ESCAPES:

        def attack(sql: str = escape) -> None:
            say(sql)

        result = read(attack)
        assert result.is_error, escape
        assert not names(), escape
        assert connection.in_atomic_block is is_inside
        assert settings() == before, escape
        assert still_writes()


def test_neither_do_several_in_a_row():
    before = settings()
    for first in ("COMMIT", "ROLLBACK", "SET TRANSACTION READ WRITE", "RELEASE SAVEPOINT x"):

        def attack(sql: str = first) -> None:
            say(sql)
            return say(WRITE)

        assert read(attack).is_error, first
        assert not names(), first
        assert settings() == before
        assert still_writes()


ENDS = [
    "COMMIT",
    "/* c */ END",
    "-- x\n/* a /* b */ c */ COMMIT AND CHAIN",
    b"COMMIT",
    SQL("COMMIT"),
    "ROLLBACK",
    "ABORT",
    "PREPARE/**/TRANSACTION 'x'",
]


@pytest.mark.parametrize("sql", ENDS, ids=str)
def test_a_transaction_in_progress_goes_on(sql):
    def end_it() -> None:
        say(sql)

    with transaction.atomic():
        Group.objects.create(name="undone")
        assert "may only read" in read(end_it).text
        assert names() == {"undone"}
        transaction.set_rollback(True)
    assert not names()
    assert still_writes()


def test_a_keyword_after_a_comment_ends_nothing():
    def choose() -> str:
        return str(fetch("/* commit */ SELECT CASE WHEN true THEN 'a' END")[0][0])

    with transaction.atomic():
        Group.objects.create(name="kept")
        assert read(choose).text == "a"
    assert names() == {"kept"}


def test_what_runs_without_execute_is_rejected_too(is_inside):
    say(f"CREATE FUNCTION pg_temp.writing() RETURNS void LANGUAGE sql AS $$ {WRITE} $$")

    def call_procedure() -> None:
        with connection.cursor() as cursor:
            cursor.callproc(SQL("pg_temp.writing"))

    def copy() -> None:
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY auth_group (name) FROM STDIN") as rows,
        ):
            rows.write_row(["written"])

    def stream() -> None:
        with connection.cursor() as cursor:
            list(cursor.stream(f"{WRITE} RETURNING id"))

    for function in (call_procedure, copy, stream):
        assert read(function).is_error
        assert not names()
        assert still_writes()


def test_nothing_is_set_for_the_session(is_inside):
    before = settings()
    within: list[dict[str, str]] = []

    def look() -> str:
        within.append(settings())
        say("SET search_path TO pg_catalog")
        say("SET ROLE pg_read_all_data")
        return "looked"

    path = fetch("SHOW search_path")
    assert read(look).text == "looked"
    (seen,) = within
    assert seen["transaction_read_only"] == "on"
    assert seen["statement_timeout"] == "10s"
    assert seen["default_transaction_read_only"] == "off"
    assert settings() == before
    assert fetch("SHOW search_path") == path
    assert fetch("SHOW role") == [("none",)]
    assert still_writes()


@pytest.mark.parametrize(("own", "seen"), [("250ms", "250ms"), ("0", "10s"), ("1h", "10s")])
def test_a_shorter_limit_of_the_site_stays(is_inside, own, seen):
    fetch(f"SELECT set_config('statement_timeout', '{own}', false)")
    try:

        def look() -> str:
            return str(fetch("SHOW statement_timeout")[0][0])

        assert read(look).text == seen
        assert fetch("SHOW statement_timeout")[0][0] == own
    finally:
        fetch("SELECT set_config('statement_timeout', '0', false)")


@override_settings(MCP_DJANGO={"LIMITS": {"rows": 20, "seconds": 0.05}})
def test_a_cursor_on_the_server_is_held_to_it_too(is_inside):
    Group.objects.bulk_create(Group(name=f"g{n}") for n in range(21))

    def by_iterator() -> list[str]:
        return [group.name for group in Group.objects.iterator(chunk_size=5)]

    def slowly() -> list[Any]:
        sleep = Func(Value(60.0), function="pg_sleep", output_field=CharField())
        return list(Group.objects.values_list(sleep).iterator(chunk_size=1))

    assert "more than 20 rows" in read(by_iterator).text
    assert "seconds of database time" in read(slowly).text
    assert still_writes()


def test_an_error_that_is_caught_ends_the_reading_and_nothing_else():
    def go_on() -> int:
        with pytest.raises(Exception, match="nowhere"):
            fetch("SELECT 1 FROM nowhere")
        return count_names()

    def go_on_after_a_block() -> int:
        with pytest.raises(Exception, match="nowhere"), transaction.atomic():
            fetch("SELECT 1 FROM nowhere")
        return count_names()

    assert read(go_on).is_error
    assert read(go_on_after_a_block).text == "0"
    assert still_writes()


def test_a_connection_that_is_lost_within_a_call_is_made_anew():
    def lose() -> list[Any]:
        fetch("SELECT pg_terminate_backend(pg_backend_pid())")
        return fetch("SELECT 1")

    def lose_first() -> list[Any]:
        # Before the call has sent a statement to the database.
        connection.ensure_connection()
        connection.connection.close()
        return fetch("SELECT 1")

    for loses in (lose, lose_first):
        assert read(loses).is_error
        assert not connection.in_atomic_block
        connection.close_if_unusable_or_obsolete()
        assert "may only read" in read(write_name).text
        assert still_writes()


def test_a_site_without_autocommit_is_left_as_it_was():
    connection.set_autocommit(False)
    try:
        Group.objects.create(name="before")
        assert "may only read" in read(write_name).text
        assert read(count_names).text == "1"
        Group.objects.create(name="after")
        connection.commit()
        assert read(count_names).text == "2"
        Group.objects.create(name="last")
        connection.commit()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert names() == {"before", "after", "last"}
