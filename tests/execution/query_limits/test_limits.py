"""How much of the database one call may use, and the errors and logs when it exceeds a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import override_settings

from mcp_django import Context
from mcp_django.exceptions import MCPError
from mcp_django.execution.query_limits import LimitReached
from tests.execution.query_limits.reading import (
    SLOW,
    atomic_requests,
    count_names,
    fetch,
    groups,
    read,
    still_writes,
)
from tests.kit.servers import open_to_all, person, real_client

TOO_MANY_ROWS = (
    "This call read more than 20 rows of the database, which is the limit. "
    "Filter, or ask for one page at a time."
)
TOO_MANY_STATEMENTS = (
    "This call needs more than 10 database statements, which is the limit. "
    "Ask for fewer objects at a time."
)
TOO_LONG = (
    "This call needs more than 0.05 seconds of database time, which is the limit. "
    "Use more specific filters, or ask for less at a time."
)


def limited(**limits: float) -> override_settings:
    return override_settings(MCP_DJANGO={"LIMITS": limits})


def by_list() -> list[str]:
    return [group.name for group in Group.objects.all()]


def by_iterator() -> list[str]:
    return [group.name for group in Group.objects.iterator(chunk_size=5)]


def by_values() -> list[str]:
    return list(Group.objects.values_list("name", flat=True))


def lazily() -> Iterator[str]:
    yield from Group.objects.values_list("name", flat=True).iterator()


def in_portions() -> int:
    return sum(len(Group.objects.all()[n : n + 7]) for n in range(0, 21, 7))


def by_fetchall() -> int:
    return len(fetch("SELECT name FROM auth_group"))


def by_fetchmany() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM auth_group")
        return sum(len(rows) for rows in iter(lambda: list(cursor.fetchmany(4)), []))


def by_fetchone() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM auth_group")
        return sum(1 for _ in iter(cursor.fetchone, None))


def by_looping() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM auth_group")
        return sum(1 for _ in cursor)


def by_what_execute_returns() -> int:
    with connection.cursor() as cursor:
        result = cursor.execute("SELECT name FROM auth_group")
        # PostgreSQL and SQLite return the cursor, MariaDB the number of rows.
        result = result if hasattr(result, "fetchall") else cursor
        return len(result.fetchall())


READERS = [
    by_list,
    by_iterator,
    by_values,
    lazily,
    in_portions,
    by_fetchall,
    by_fetchmany,
    by_fetchone,
    by_looping,
    by_what_execute_returns,
]


# Rows -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@limited(rows=20)
def test_rows_are_counted_whichever_way_they_are_fetched():
    groups(20)
    for reader in READERS:
        assert not read(reader).is_error
        one_too_many = Group.objects.create(name="one too many")
        result = read(reader)
        assert result.is_error
        assert result.text == TOO_MANY_ROWS
        one_too_many.delete()
        assert not read(reader).is_error


@pytest.mark.django_db
@limited(rows=20)
def test_within_the_transaction_of_a_test_too():
    groups(21)
    assert read(by_list).text == TOO_MANY_ROWS
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@limited(rows=20)
def test_counting_in_the_database_is_free():
    groups(21)
    assert read(count_names).text == "21"


@pytest.mark.django_db(transaction=True)
@limited(rows=20)
def test_who_is_not_governed_reads_what_he_likes():
    groups(21)
    assert len(read(by_list, enforce=False).structured) == 21
    assert len(read(by_list, read_only=None).structured) == 21


@pytest.mark.django_db(transaction=True)
@limited(rows=20)
def test_what_a_call_reads_through_others_counts():
    groups(15)
    server = open_to_all()
    server.resource("x://groups", read_only=True)(by_list)

    @server.tool(read_only=True)
    def twice(ctx: Context) -> str:
        ctx.read_resource("x://groups")
        with pytest.raises(MCPError, match="more than 20 rows"):
            ctx.read_resource("x://groups")
        # The limit stays exceeded, even if the function catches the exception.
        with pytest.raises(LimitReached):
            by_list()
        return "seen"

    client = real_client(server=server)
    assert client.call_tool("twice").text == "seen"
    # Each call has limits of its own.
    assert client.read_resource("x://groups")
    assert client.read_resource("x://groups")


@pytest.mark.django_db(transaction=True)
@limited(rows=20)
def test_a_cursor_that_outlives_its_call_is_not_counted():
    groups(21)
    kept: list[Any] = []

    def keep() -> int:
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM auth_group LIMIT 3")
        kept.append(cursor)
        return 1

    def reuse() -> int:
        kept[0].execute("SELECT name FROM auth_group")
        return len(kept[0].fetchall())

    assert not read(keep).is_error
    kept[0].execute("SELECT name FROM auth_group")
    assert len(kept[0].fetchall()) == 21
    assert read(reuse).text == TOO_MANY_ROWS
    kept[0].close()


# Statements -----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@limited(statements=10)
def test_a_query_in_a_loop_is_stopped_and_the_log_says_where(caplog):
    groups(5)
    for n in range(12):
        person(f"u{n}").groups.set(Group.objects.all())

    def n_plus_one() -> list[list[str]]:
        people = get_user_model().objects.order_by("pk")
        return [[group.name for group in user.groups.all()] for user in people]

    def prefetched() -> list[list[str]]:
        people = get_user_model().objects.prefetch_related("groups")
        return [[group.name for group in user.groups.all()] for user in people]

    result = read(n_plus_one)
    assert result.is_error
    assert result.text == TOO_MANY_STATEMENTS
    assert (
        "tool 'n_plus_one' was stopped by a limit: 10 statements, 9 of them the same query on "
        "auth_group: select_related() or prefetch_related() is missing."
    ) in caplog.text
    assert len(read(prefetched).structured) == 12
    assert still_writes()


@pytest.mark.django_db(transaction=True)
@limited(statements=10)
def test_different_statements_are_counted_too(caplog):
    def several() -> int:
        return sum(fetch(f"SELECT {n}")[0][0] for n in range(11))

    assert read(several).text == TOO_MANY_STATEMENTS
    assert "10 statements, all of them different" in caplog.text


@pytest.mark.django_db(transaction=True)
@limited(statements=10)
def test_entering_transactions_is_no_statement():
    def nested() -> int:
        for _ in range(20):
            with transaction.atomic(), transaction.atomic():
                pass
        return sum(count_names() for _ in range(10))

    assert read(nested).text == "0"
    with atomic_requests():
        assert read(nested).text == "0"


# Time -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("sql", SLOW)
@limited(seconds=0.05)
def test_a_statement_that_takes_too_long_is_stopped(sql, caplog):
    def slow() -> list[Any]:
        return fetch(sql)

    def caught() -> list[Any]:
        with pytest.raises(LimitReached):
            fetch(sql)
        return fetch("SELECT 1")

    for result in (read(slow), read(caught)):
        assert result.is_error
        assert result.text == TOO_LONG
    assert "tool 'slow' was stopped by a limit: LIMITS['seconds'] is 0.05." in caplog.text
    assert still_writes()


@pytest.mark.django_db
@limited(seconds=0.05)
def test_so_it_is_within_the_transaction_of_a_test():
    assert read(never_ends).text == TOO_LONG
    assert still_writes()


def never_ends() -> list[Any]:
    return fetch(SLOW[0])
