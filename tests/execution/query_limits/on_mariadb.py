"""Features of MariaDB and MySQL: session variables, engines, transactions begun before the call.

`test_mariadb.py` runs this file on such a database.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import override_settings

from mcp_django import Context
from mcp_django.exceptions import InternalError
from tests.execution.query_limits.reading import (
    atomic_requests,
    count_names,
    fetch,
    names,
    read,
    reader,
    say,
    still_writes,
    write_name,
)
from tests.kit.servers import open_to_all, real_client

WRITE = "INSERT INTO auth_group (name) VALUES ('written')"
PROCEDURES = {"writing": WRITE, "committing": "COMMIT", "reading": "SELECT 1"}
VARIABLES = "SELECT @@session.tx_read_only, @@session.max_statement_time, @@session.autocommit"
# Each of these is rejected as a whole, by the server or before it.
ESCAPES: list[Any] = [
    f"COMMIT; {WRITE}",
    f"SELECT 1; SET SESSION TRANSACTION READ WRITE; {WRITE}",
    "SET SESSION TRANSACTION READ WRITE",
    "SET TRANSACTION READ/**/WRITE",
    "/* a */ -- b\n set @@session.tx_read_only = 0",
    "START TRANSACTION READ WRITE",
    f"SET STATEMENT tx_read_only = 0 FOR {WRITE}",
    f"EXECUTE IMMEDIATE '{WRITE}'",
    "PREPARE x FROM 'SET SESSION TRANSACTION READ WRITE'",
    "/*!50000 SET SESSION TRANSACTION READ WRITE */",
    "/*M! SET SESSION TRANSACTION READ WRITE */",
    "XA START 'x'",
    f"  # a\n({WRITE})",
    f"/* SELECT */ {WRITE}",
    "REPLACE INTO auth_group (id, name) VALUES (1, 'written')",
    "CREATE TABLE written (id int)",
    "CREATE TEMPORARY TABLE written (id int)",
    "DROP TABLE auth_group",
    "TRUNCATE auth_group",
    "LOCK TABLES auth_group WRITE",
    "SELECT * FROM auth_group FOR UPDATE",
    "INSERT INTO unsafe VALUES (1)",
    "--\x01\nSET SESSION tx_read_only = 0",
    "SELECT 1; ANALYZE TABLE auth_group",
    "SELECT 1; FLUSH TABLES",
    "SELECT 1; GRANT SELECT ON *.* TO nobody@localhost",
    "SELECT 1; REVOKE SELECT ON *.* FROM nobody@localhost",
    "SELECT 1; OPTIMIZE TABLE auth_group",
    "SELECT 1; /* ; */ TRUNCATE auth_group",
    "SET autocommit = 0",
    "/* c */ SET autocommit = 1",
    "SET SESSION completion_type = 'CHAIN'",
    "SET @a = 1, completion_type = 2",
    "SET GLOBAL long_query_time = 10.5",
    "USE mysql",
    "LOCK TABLES auth_group READ",
    b"SET SESSION tx_read_only = 0",
]
# Each of these is harmless by itself, but commits or rolls back a transaction in progress.
ENDS: list[Any] = [
    "ROLLBACK",
    "/* c */ ROLLBACK",
    "-- x\nROLLBACK",
    "--\nROLLBACK /*\nSELECT */",
    "/* c */ SET/**/autocommit = 1",
    "SET STATEMENT max_statement_time = 1 FOR COMMIT",
    "SET STATEMENT max_statement_time = 1 FOR DROP TABLE IF EXISTS nowhere",
    "SET STATEMENT max_statement_time = 1 FOR TRUNCATE TABLE unsafe",
    "SET STATEMENT max_statement_time = 1 FOR CREATE TABLE written (id int)",
    "SET PASSWORD = ''",
    "SET DEFAULT ROLE NONE",
    "SET ROLE NONE",
    "SET @a = 1, ROLE NONE",
    "SET @a = '(', ROLE NONE, @b = ')'",
    "SET foreign_key_checks = 0",
    b"ROLLBACK",
]
HARMLESS = [
    "SET @a = 1, @b := (SELECT count(*) FROM auth_group)",
    "/* c */ SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET @@group_concat_max_len = 2048",
    "SAVEPOINT x",
]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["autocommit", "atomic requests", "a new transaction", "a transaction"])
def is_inside(request, transactional_db):
    """Outside of a transaction and within each kind; one kind has also begun on the server."""
    surroundings: Any = nullcontext()
    if "transaction" in request.param:
        surroundings = transaction.atomic()
    elif request.param == "atomic requests":
        surroundings = atomic_requests()
    with surroundings:
        if request.param == "a transaction":
            count_names()
        yield "transaction" in request.param


@pytest.fixture(autouse=True)
def _unsafe(transactional_db):
    """A table of an engine without transactions, and stored procedures."""
    say("CREATE TABLE IF NOT EXISTS unsafe (id int) ENGINE=MyISAM")
    for name, body in PROCEDURES.items():
        say(f"CREATE OR REPLACE PROCEDURE {name}() {body}")
    yield
    say("DROP TABLE IF EXISTS unsafe")
    for name in PROCEDURES:
        say(f"DROP PROCEDURE {name}")


def test_no_statement_escapes(is_inside):
    before = fetch(VARIABLES)
    for escape in ESCAPES:

        def attack(sql: Any = escape) -> str:
            say(sql)
            return "done"

        assert read(attack).is_error, escape
        assert not names(), escape
        assert connection.in_atomic_block is is_inside
        assert fetch(VARIABLES) == before, escape
        assert not fetch("SELECT * FROM unsafe"), escape
        assert still_writes()


def test_neither_do_several_in_a_row(is_inside):
    before = fetch(VARIABLES)
    for first in ("COMMIT", "ROLLBACK", "BEGIN", "SET autocommit = 1", "SAVEPOINT x", *ESCAPES[:6]):

        def attack(sql: str = first) -> None:
            try:
                say(sql)
            finally:
                say(WRITE)

        assert read(attack).is_error, first
        assert not names(), first
        assert fetch(VARIABLES) == before
        assert still_writes()


@pytest.mark.parametrize("sql", [*ESCAPES, *ENDS])
def test_no_statement_ends_a_transaction_in_progress(sql):
    def attack() -> str:
        say(sql)
        return "done"

    with transaction.atomic():
        Group.objects.create(name="undone")
        assert read(attack).is_error
        assert names() == {"undone"}
        transaction.set_rollback(True)
    assert not names()
    assert still_writes()


def test_harmless_statements_run_in_a_transaction_in_progress():
    def run_all() -> int:
        for sql in HARMLESS:
            say(sql)
        return count_names()

    with transaction.atomic():
        Group.objects.create(name="kept")
        assert read(run_all).text == "1"
    assert names() == {"kept"}
    connection.close()


def call_procedure(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.callproc(name)
        return str(cursor.fetchall())


def test_a_procedure_that_writes_is_rejected(is_inside):
    def attack() -> str:
        return call_procedure("writing")

    def attack_late() -> str:
        count_names()
        return call_procedure("writing")

    for function in (attack, attack_late):
        assert "may only read" in read(function).text
        assert not names()
        assert still_writes()
    call_procedure("writing")
    assert names() == {"written"}
    assert not {"make_cursor", "make_debug_cursor"} & vars(connection).keys()


def test_a_procedure_does_not_commit_a_transaction_in_progress():
    def attack() -> str:
        return call_procedure("committing")

    with transaction.atomic():
        Group.objects.create(name="undone")
        assert "may only read" in read(attack).text
        transaction.set_rollback(True)
    assert not names()


@override_settings(MCP_DJANGO={"LIMITS": {"statements": 2}})
def test_procedures_count_as_statements():
    def repeat(times: int) -> str:
        return [call_procedure("reading") for _ in range(times)][-1]

    server = reader(repeat)
    assert real_client(server=server).call_tool("repeat", {"times": 2}).text == "((1,),)"
    result = real_client(server=server).call_tool("repeat", {"times": 3}, check=False)
    assert "more than 2 database statements" in result.text


def test_what_was_written_before_stays_and_can_go_on(is_inside):
    server = open_to_all()

    @server.resource("x://reads", read_only=True)
    def reads() -> str:
        with transaction.atomic():
            return str(count_names())

    @server.resource("x://writes", read_only=True)
    def writes() -> str:
        with transaction.atomic():
            return write_name()

    @server.tool
    def work(ctx: Context) -> str:
        with transaction.atomic(), transaction.atomic():
            # No statement has begun this transaction on the database server yet.
            contents = [ctx.read_resource("x://reads")[0].content]
            with pytest.raises(InternalError):
                ctx.read_resource("x://writes")
            Group.objects.create(name="a")
            contents.append(ctx.read_resource("x://reads")[0].content)
            with pytest.raises(InternalError):
                ctx.read_resource("x://writes")
            Group.objects.create(name="b")
        with transaction.atomic():
            Group.objects.create(name="undone")
            ctx.read_resource("x://reads")
            transaction.set_rollback(True)
        return " ".join(map(str, contents))

    assert real_client(server=server).call_tool("work").text == "0 1"
    assert names() == {"a", "b"}
    assert connection.in_atomic_block is is_inside


def test_what_a_function_of_the_database_writes_is_rejected_or_undone():
    say(f"CREATE FUNCTION writes() RETURNS INT BEGIN {WRITE}; RETURN 1; END")
    try:

        def call_it() -> str:
            return str(fetch("SELECT writes()"))

        assert "may only read" in read(call_it).text
        with transaction.atomic():
            Group.objects.create(name="before")
            assert not read(call_it).is_error
        assert names() == {"before"}
    finally:
        say("DROP FUNCTION writes")


@override_settings(MCP_DJANGO={"LIMITS": {"seconds": 0.2}})
def test_a_statement_that_takes_too_long_is_stopped(is_inside):
    before = fetch(VARIABLES)

    def slowly() -> Any:
        return fetch("SELECT SLEEP(60)")

    assert "more than 0.2 seconds of database time" in read(slowly).text
    assert fetch(VARIABLES) == before
    assert still_writes()


@pytest.mark.parametrize(("own", "seen"), [(0.25, 0.25), (0, 10), (3600, 10)])
def test_a_shorter_limit_of_the_site_stays(is_inside, own, seen):
    say(f"SET SESSION max_statement_time = {own}")
    try:

        def look() -> str:
            return str(fetch("SELECT @@session.max_statement_time")[0][0])

        assert float(read(look).text) == seen
        assert fetch("SELECT @@session.max_statement_time")[0][0] == own
    finally:
        say("SET SESSION max_statement_time = 0")


def test_a_session_that_the_site_made_read_only_stays_so():
    say("SET SESSION TRANSACTION READ ONLY")
    try:
        assert read(count_names).text == "0"
        assert fetch("SELECT @@session.tx_read_only")[0][0] == 1
    finally:
        say("SET SESSION TRANSACTION READ WRITE")


def test_a_connection_that_is_lost_within_a_call_is_made_anew():
    def lose() -> list[Any]:
        connection.connection.close()
        return fetch("SELECT 1")

    def lose_after_reading() -> list[Any]:
        count_names()
        return lose()

    def lose_last() -> str:
        count_names()
        connection.connection.close()
        return "lost"

    for loses in (lose, lose_after_reading, lose_last):
        read(loses)
        assert not connection.in_atomic_block
        connection.close_if_unusable_or_obsolete()
        assert "may only read" in read(write_name).text
        assert still_writes()


def test_a_call_that_closes_its_connection_is_held_to_it_on_the_next():
    def reconnect() -> str:
        count_names()
        connection.close()
        return write_name()

    assert "may only read" in read(reconnect).text
    assert still_writes()


def test_a_transaction_that_a_call_leaves_open_is_ended():
    def leave_open() -> str:
        say("BEGIN")
        count_names()
        return "left"

    assert read(leave_open).text == "left"
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
