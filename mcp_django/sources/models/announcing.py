"""What changed in a transaction, told in one go once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.execution.threads import after_commit
from mcp_django.storage.databases import is_of_test
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import Topic

# A database takes only so many values in one statement.
CHUNK = 500

FindTopics: TypeAlias = Callable[[list[Any]], Iterable[Topic]]
"""Gives the topics of the objects with these values, with the statements that this takes."""


class Announcement:
    """Topics to announce, and values of objects whose topics are looked up then."""

    def __init__(self) -> None:
        self.topics: dict[Topic, None] = {}
        self.wanted: dict[FindTopics, dict[Any, None]] = {}
        self.is_made = False

    def __call__(self) -> None:
        """Tell whoever listens."""
        self.is_made = True
        topics, wanted = self.topics, self.wanted
        # It is remembered until the next one on its connection, what it was about is not.
        self.topics, self.wanted = {}, {}
        for find, values in wanted.items():
            for chunk in _chunks(list(values)):
                topics.update(dict.fromkeys(find(chunk)))
        for some in _chunks(list(topics)):
            announce(*some)


def tell(
    using: str,
    topics: Iterable[Topic] = (),
    *,
    find: FindTopics | None = None,
    values: Iterable[Any] = (),
) -> None:
    """Announce topics, and those that ``find`` gives for the values, after the commit.

    What is told one after the other in the same transaction is one announcement: saving a thousand
    objects in a loop takes a few statements more and not a thousand.
    """
    topics, values = list(topics), list(values)
    if not topics and not values:
        return
    announcement = _pending(using)
    is_new = announcement is None
    announcement = announcement or Announcement()
    announcement.topics.update(dict.fromkeys(topics))
    if find is not None:
        announcement.wanted.setdefault(find, {}).update(dict.fromkeys(values))
    if is_new:
        after_commit(announcement, using=using)
        _remember(announcement, using)


# The last announcement on each connection, with the entry of Django's that makes it.
_last: WeakKeyDictionary[BaseDatabaseWrapper, tuple[Any, Announcement]] = WeakKeyDictionary()


def _remember(announcement: Announcement, using: str) -> None:
    connection = connections[using]
    if connection.in_atomic_block and connection.run_on_commit:
        _last[connection] = connection.run_on_commit[-1], announcement


def _pending(using: str) -> Announcement | None:
    """The announcement that was last put behind this very savepoint, and is still to be made."""
    connection = connections[using]
    entry, announcement = _last.get(connection, (None, None))
    if not connection.in_atomic_block or not connection.run_on_commit or announcement is None:
        return None
    if connection.run_on_commit[-1] is not entry or announcement.is_made:
        return None
    # One of a savepoint that is rolled back goes with it, and must not take this along; callbacks
    # that a test captures begin in the midst of its block.
    is_same = entry[0] == set(connection.savepoint_ids)
    return announcement if is_same and not is_of_test(connection.atomic_blocks[-1]) else None


def _chunks(values: list[Any]) -> Iterable[list[Any]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
