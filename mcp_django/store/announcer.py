"""What changed: counted in the database, so that nobody misses it, and then rung for.

A thread announces by itself. What an event loop announces is handed to the store's own thread, one
queue for the process, and is written even if the loop ends meanwhile. A forked child has a queue of
its own; a process that ends writes what waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import cache, partial

from django.db import Error

from mcp_django.store import clerk, topics
from mcp_django.store.databases import insist, is_in_transaction
from mcp_django.store.hub import ring
from mcp_django.store.topics import Topic

logger = logging.getLogger("mcp_django")


class Announcer:
    """Announcements of event loops, which cannot wait for the database.

    What changes while an earlier announcement is being written goes out together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Topic, None] = {}

    def add(self, changed: tuple[Topic, ...]) -> None:
        """Announce changes soon; for any thread."""
        with self._lock:
            is_first = not self._pending
            self._pending.update(dict.fromkeys(changed))
        if is_first and changed:
            clerk.submit(self._announce)

    def _announce(self) -> None:
        with self._lock:
            changed, self._pending = tuple(self._pending), {}
        try:
            _announce(*changed)
        except Exception:
            logger.exception("A change could not be announced.")


@cache
def _announcer(pid: int) -> Announcer:
    return Announcer()


def announce(*changed: Topic) -> None:
    """Count a change of each topic and ring; in a thread at once, on a loop soon.

    To be called once the change is committed. Within a transaction (of another change) numbers are
    given by the store's own thread: the clock must not wait for a commit.
    """
    if _is_on_loop() or (any(one.is_numbered for one in changed) and is_in_transaction()):
        _announcer(os.getpid()).add(changed)
    else:
        _announce(*changed)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _announce(*changed: Topic) -> None:
    numbered = [topic for topic in changed if topic.is_numbered]
    others = [topic for topic in changed if not topic.is_numbered]
    if others:
        _counted(partial(topics.touch, others))
    for first in range(0, len(numbered), topics.MAX_NUMBERED):
        _counted(partial(topics.number, numbered[first : first + topics.MAX_NUMBERED]))
    ring(*changed)


def _counted(count: Callable[[], None]) -> None:
    try:
        insist(count)
    except Error as exc:
        # Whoever changed something is not to fail because nobody can be told of it.
        logger.warning("A change could not be counted (%s). Is the site migrated?", exc)
