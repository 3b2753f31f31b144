"""Finds functions that write before they ask.

Such a function runs again from its beginning once the answer is there. A transaction takes back
what a synchronous one wrote; what an asynchronous one wrote stays, and is written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|ALTER|DROP|TRUNCATE)\b", re.IGNORECASE
)
# Rows of this package are written outside of the function's transaction, and mean nothing here.
OWN = re.compile(r"[\"`]?mcp_django_", re.IGNORECASE)


class WriteRecorder:
    """Notes the statements that change something, in this thread and on new connections."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._watched: list[BaseDatabaseWrapper] = []

    def start(self) -> None:
        """Watch from now on."""
        connection_created.connect(self._on_connection, weak=False, dispatch_uid=id(self))
        for connection in connections.all(initialized_only=True):
            self._watch(connection)

    def stop(self) -> None:
        """Watch no more."""
        connection_created.disconnect(dispatch_uid=id(self))
        for connection in self._watched:
            connection.execute_wrappers.remove(self._record)
        self._watched.clear()

    def check(self, name: str) -> None:
        """Fail when there was a write.

        Raises:
            AssertionError: naming the component and its first statement.
        """
        if self.statements:
            raise AssertionError(
                f"{name} writes before it asks, and runs again from its beginning once it is "
                f"answered: {self.statements[0][:200]}. Read before the question and write after "
                "it, or pass allow_early_writes=True."
            )

    def _on_connection(self, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        self._watch(connection)

    def _watch(self, connection: BaseDatabaseWrapper) -> None:
        if connection not in self._watched:
            connection.execute_wrappers.append(self._record)
            self._watched.append(connection)

    def _record(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,  # noqa: FBT001 - Django's order
        context: Any,
    ) -> Any:
        if WRITE.match(sql) and not OWN.search(sql):
            self.statements.append(sql)
        return execute(sql, params, many, context)
