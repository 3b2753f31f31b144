"""Which transactions are opened around a component.

The runtime owns them, not the mount: they enclose the developer's function alone, so a
``ToolError`` rolls back and rows of this package are written outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from mcp_django.components.component import Component


class LeftOpen(Exception):
    """The site's function entered a transaction and did not leave it: a bug like any other."""


@contextmanager
def around(component: Component) -> Iterator[None]:
    """Open what the component declares; inside a transaction it is a savepoint."""
    with ExitStack() as stack:
        for alias in aliases(component):
            stack.enter_context(transaction.atomic(using=alias))
        with all_left():
            yield


@contextmanager
def all_left() -> Iterator[None]:
    """Roll back what is entered inside and never left.

    Django keeps a connection that is in a transaction, so the next call in this thread would
    write into it, and nothing would be committed any more.

    Raises:
        LeftOpen: there was something to roll back, and nothing else had failed.
    """
    before = {one.alias: len(one.atomic_blocks) for one in connections.all(initialized_only=True)}
    failure = LeftOpen("left a transaction open, which was rolled back")
    found = False
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            while len(connection.atomic_blocks) > before.get(connection.alias, 0):
                found = True
                connection.atomic_blocks[-1].__exit__(LeftOpen, failure, None)
    if found:
        raise failure


def aliases(component: Component) -> list[str]:
    """The databases to open a transaction on; an async function gets none automatically."""
    if component.function.is_async or component.atomic is False:
        return []
    found = [alias for alias in connections if connections[alias].settings_dict["ATOMIC_REQUESTS"]]
    if component.atomic and DEFAULT_DB_ALIAS not in found:
        found.append(DEFAULT_DB_ALIAS)
    return found


def after_commit(function: Callable[[], Any], *, using: str | None = None) -> None:
    """Run a function once the current transaction is committed, at once outside of one.

    ``transaction.on_commit`` alone would open a connection to find out, which an event loop may
    not do.
    """
    connection = connections[using or DEFAULT_DB_ALIAS]
    if connection.in_atomic_block:
        transaction.on_commit(function, using=using, robust=True)
    else:
        function()
