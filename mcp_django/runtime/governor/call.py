"""One governed call: a watch on each database of its thread, and what all of them have spent."""

from __future__ import annotations

from contextlib import ExitStack

from django.db import connections

from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.runtime.governor.enforcement import Enforcement
from mcp_django.runtime.governor.postgresql import PostgreSQL
from mcp_django.runtime.governor.spending import Spending
from mcp_django.runtime.governor.sqlite import SQLite
from mcp_django.runtime.governor.watch import Watch
from mcp_django.runtime.transactions import hold_back, let_go

# MySQL and Oracle can be read-only only from the start of a transaction, which nobody can tell
# apart from the middle of one there; they are counted.
ENFORCED: dict[str, type[Enforcement]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


class GovernedCall:
    """Watches the connections of the thread that starts it; the same thread has to end it."""

    def __init__(self, component: Component) -> None:
        self.spending = Spending(component, get_settings().limits)
        self._watches: list[Watch] = []

    def start(self) -> None:
        """Watch every database. None is opened: the first statement is what a watch waits for."""
        for alias in connections:
            connection = connections[alias]
            kind = ENFORCED.get(connection.vendor, Enforcement)
            self._watches.append(Watch(kind(connection, self.spending.limits), self.spending))
        for watch in self._watches:
            watch.enforcement.connection.execute_wrappers.append(watch)
        hold_back()

    def end(self, *, succeeded: bool) -> None:
        """Leave every connection as it was found, in a transaction that it was in or in none."""
        for watch in self._watches:
            wrappers = watch.enforcement.connection.execute_wrappers
            if watch in wrappers:
                wrappers.remove(watch)
        with ExitStack() as stack:
            # Called last, also after a failure.
            stack.callback(let_go, succeeded=succeeded)
            for watch in self._watches:
                stack.callback(watch.end, succeeded=succeeded)
