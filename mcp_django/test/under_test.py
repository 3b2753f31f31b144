"""The server of a test, as far as the admin is concerned.

What was decided there holds from the next request on, whether or not the test's transaction ever
commits; it costs no query that the test counts, and a test that may not use the database goes on
without: to it, everything is as in code. Nothing of it is left for the next test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from mcp_django.overrides.state import freshness
from mcp_django.server import MCPServer
from mcp_django.storage.databases import tables


class ServerUnderTest:
    """A server whose decisions are looked up for each request."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def refresh(self, *, is_list: bool = False) -> None:
        """See that ``offered`` is of this moment, or as in code where nobody may look."""
        if freshness.is_pinned:
            self._server.refresh(is_list=is_list)
        elif _is_forbidden():
            self._server.as_in_code()
        else:
            freshness.start_over()
            with _uncounted():
                self._server.refresh(is_list=is_list)


def _alias() -> str:
    return router.db_for_write(tables.Component)


def _is_forbidden() -> bool:
    """Whether the test is kept from the database; opens a cursor, and asks nothing."""
    try:
        connections[_alias()].cursor().close()
    except (AssertionError, RuntimeError):
        # Django's own test cases raise the one, pytest-django the other.
        return True
    except (DatabaseError, ImproperlyConfigured):
        # A database that is away, or that there is none, is for the server to tell.
        return False
    return False


@contextmanager
def _uncounted() -> Iterator[None]:
    """Keep queries from being counted: how many they are depends on no call of the test."""
    connection = connections[_alias()]
    logged, connection.force_debug_cursor = connection.force_debug_cursor, False
    try:
        yield
    finally:
        connection.force_debug_cursor = logged
