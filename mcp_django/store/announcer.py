"""What changed: counted in the database, so that nobody misses it, and then rung for."""

from __future__ import annotations

import asyncio
import logging
import weakref

from django.db import DatabaseError

from mcp_django.store import topics
from mcp_django.store.clerk import in_thread
from mcp_django.store.hub import ring
from mcp_django.store.topics import Topic

logger = logging.getLogger("mcp_django")


class Announcer:
    """Counts changes and rings, for a loop that cannot wait for the database.

    What changes while an earlier announcement is being written goes out together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: dict[Topic, None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, topic: Topic) -> None:
        """Announce a change soon."""
        self._pending[topic] = None
        if self._task is None:
            self._task = self._loop.create_task(self._announce())

    async def _announce(self) -> None:
        try:
            while self._pending:
                changed, self._pending = tuple(self._pending), {}
                await in_thread(_announce, *changed)
        except Exception:
            logger.exception("A change could not be announced.")
        finally:
            self._task = None


_announcers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Announcer] = (
    weakref.WeakKeyDictionary()
)


def announce(*changed: Topic) -> None:
    """Count a change of each topic and ring; in a thread at once, on a loop soon."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _announce(*changed)
        return
    announcer = _announcers.get(loop)
    if announcer is None:
        announcer = _announcers[loop] = Announcer(loop)
    for topic in changed:
        announcer.add(topic)


def _announce(*changed: Topic) -> None:
    try:
        topics.touch(changed)
    except DatabaseError as exc:
        # Whoever changed something is not to fail because nobody can be told of it.
        logger.warning("A change could not be counted (%s). Is the site migrated?", exc)
    ring(*changed)
