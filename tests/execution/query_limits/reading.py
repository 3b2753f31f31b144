"""Components that read, or should only read, and helpers that inspect the database around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from mcp_django import MCPServer
from mcp_django.test import CallResult
from tests.kit.servers import open_to_all, real_client

TOLD = (
    "tool 'write_name' may only read data, but tried to write. Nothing was changed. This is a "
    "server error. The error was logged."
)
# It exceeds the time limit on every database, before its first row or after it. MariaDB ends the
# recursion after a thousand rows.
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
SLOW = (
    f"{ENDLESS} SELECT count(*) FROM c, c AS d, c AS e",
    f"{ENDLESS} SELECT c.x FROM c, c AS d, c AS e WHERE c.x + d.x + e.x = 3 OR c.x < 0",
)


def read(function: Callable[..., Any], /, **options: Any) -> CallResult:
    """Call a function that is declared read-only, and return what the client gets."""
    return real_client(server=reader(function, **options)).call_tool(function.__name__, check=False)


def reader(function: Callable[..., Any], /, **options: Any) -> MCPServer:
    """Return a server with this function as a read-only tool."""
    server = open_to_all()
    server.tool(**{"read_only": True, **options})(function)
    return server


def groups(number: int) -> None:
    """Create this many rows."""
    Group.objects.bulk_create(Group(name=f"g{n:05}") for n in range(number))


def names() -> set[str]:
    """Return the names of the rows."""
    return set(Group.objects.values_list("name", flat=True))


def count_names() -> int:
    """Return the number of rows."""
    return Group.objects.count()


def write_name() -> str:
    """Write a row."""
    Group.objects.create(name="written")
    return "written"


def fetch(sql: str) -> list[Any]:
    """Run a statement of the test, and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def say(sql: Any) -> None:
    """Run a statement that has no rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql)


@transaction.atomic
def decorated(*, write: bool) -> str:
    return write_name() if write else str(count_names())


def still_writes() -> bool:
    """Return whether this thread's connection can write, and nothing of a call is left on it."""
    assert connection.execute_wrappers == []
    Group.objects.create(name="afterwards")
    Group.objects.get(name="afterwards").delete()
    return not names() & {"afterwards", "written"}


@contextmanager
def atomic_requests() -> Iterator[None]:
    """Open a transaction for each request, as a site with `ATOMIC_REQUESTS` does."""
    settings = connections["default"].settings_dict
    settings["ATOMIC_REQUESTS"] = True
    try:
        yield
    finally:
        settings["ATOMIC_REQUESTS"] = False
