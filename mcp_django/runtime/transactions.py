"""Which transactions are opened around a component.

The runtime owns them, not the mount: they enclose the developer's function alone, so a
``ToolError`` rolls back and rows of this package are written outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from mcp_django.core.component import Component


class LeftOpen(Exception):
    """The site's function entered a transaction and did not leave it: a bug like any other."""


class Surrounding(transaction.Atomic):
    """A transaction that the runtime opens below whatever the site's function enters later."""

    is_surrounding = True

    def __init__(self, using: str) -> None:
        super().__init__(using, savepoint=True, durable=False)
        # The function may enter a durable block, as it may without us.
        self._from_testcase = True


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
                if isinstance(connection.atomic_blocks[-1], Surrounding):
                    # Not the function's: whoever entered it leaves it, later.
                    break
                found = True
                connection.atomic_blocks[-1].__exit__(LeftOpen, failure, None)
    if found:
        raise failure


def aliases(component: Component) -> list[str]:
    """The databases to open a transaction on; an async function gets none automatically.

    A function that asks gets one, since it runs again: what it wrote before its question must not
    be written twice.
    """
    if component.function.is_async or component.atomic is False:
        return []
    found = [alias for alias in connections if connections[alias].settings_dict["ATOMIC_REQUESTS"]]
    # ``ctx.task.begin()`` is left like a question, and what was written before it is not to stay.
    runs_again = component.function.asks or getattr(component, "ask", "") == "before"
    wanted = runs_again if component.atomic is None else component.atomic
    if wanted and DEFAULT_DB_ALIAS not in found and _has_database(component):
        found.append(DEFAULT_DB_ALIAS)
    return found


def _has_database(component: Component) -> bool:
    """Whether there is a database to open the transaction on that nobody has asked for by name."""
    engine = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
    return bool(component.atomic) or engine != "django.db.backends.dummy"


def after_commit(function: Callable[[], Any], *, using: str | None = None) -> None:
    """Run a function once the current transaction is committed, at once outside of one.

    ``transaction.on_commit`` alone would open a connection to find out, which an event loop may
    not do.
    """

    # Not a partial object: Django logs the name of what failed, and that has none.
    def work() -> None:
        if _held_back.waiting is None:
            function()
        else:
            _held_back.waiting.append((function, using))

    connection = connections[using or DEFAULT_DB_ALIAS]
    if connection.in_atomic_block:
        transaction.on_commit(work, using=using, robust=True)
    else:
        work()


class _HeldBack(threading.local):
    """What waits until this thread may write again; ``None``: it may."""

    waiting: list[tuple[Callable[[], Any], str | None]] | None = None


_held_back = _HeldBack()


def hold_back() -> None:
    """Let what is to happen after a commit wait, since it may write rows of ours."""
    _held_back.waiting = []


def let_go(*, succeeded: bool) -> None:
    """Do what was held back, or forget it."""
    waiting, _held_back.waiting = _held_back.waiting, None
    for function, using in waiting or () if succeeded else ():
        after_commit(function, using=using)
