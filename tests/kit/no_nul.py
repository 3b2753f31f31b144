"""A database that rejects NUL characters, as PostgreSQL does; SQLite accepts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DataError, connections


@contextmanager
def refusing_nul() -> Iterator[None]:
    """Reject statements that have NUL in a parameter, on every connection of this thread."""
    with ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(_refuse))
        yield


def _refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    for row in params or () if many else (params or (),):
        if any(isinstance(value, str) and "\0" in value for value in row):
            raise DataError("A string literal cannot contain NUL (0x00) characters.")
    return execute(sql, params, many, context)
