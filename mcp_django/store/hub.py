"""The doorbell: who waits for a change of what, in this process.

One hub per event loop. It carries topics, never payloads: whoever is rung looks for itself.
Ringing works from any thread and costs nothing where nobody listens.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

logger = logging.getLogger("mcp_django")

# Several changes of one thing within this time are one notice.
DEBOUNCE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Topic:
    """A list of one server (``tools``, ``resources``, ``prompts``) or one resource of it."""

    server: str
    kind: str
    uri: str = ""


Listener = Callable[[Topic], None]


class Hub:
    """The listeners of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[Topic, set[Listener]] = {}
        self._rung: set[Topic] = set()

    def subscribe(self, topics: Iterable[Topic], listener: Listener) -> Callable[[], None]:
        """Call ``listener`` on the loop when a topic is rung; returns how to stop that."""
        kept = tuple(topics)
        for topic in kept:
            self._listeners.setdefault(topic, set()).add(listener)

        def unsubscribe() -> None:
            for topic in kept:
                listeners = self._listeners.get(topic, set())
                listeners.discard(listener)
                if not listeners:
                    self._listeners.pop(topic, None)

        return unsubscribe

    def ring(self, topic: Topic) -> None:
        """Tell the listeners of a topic soon; for any thread."""
        try:
            self._loop.call_soon_threadsafe(self._note, topic)
        except RuntimeError:
            # The loop closed between the look and the call; nobody listens on it any more.
            logger.debug("A hub's loop is closed.")

    def _note(self, topic: Topic) -> None:
        if topic not in self._listeners:
            return
        if not self._rung:
            self._loop.call_later(DEBOUNCE_SECONDS, self._deliver)
        self._rung.add(topic)

    def _deliver(self) -> None:
        rung, self._rung = self._rung, set()
        for topic in rung:
            for listener in tuple(self._listeners.get(topic, ())):
                try:
                    listener(topic)
                except Exception:
                    logger.exception("A listener of %s failed.", topic)


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def hub() -> Hub:
    """The hub of the running event loop."""
    loop = asyncio.get_running_loop()
    with _lock:
        found = _hubs.get(loop)
        if found is None:
            found = _hubs[loop] = Hub(loop)
        return found


def ring(topic: Topic) -> None:
    """Wake whoever listens to a topic in this process; for any thread."""
    with _lock:
        hubs = [found for loop, found in _hubs.items() if not loop.is_closed()]
    for found in hubs:
        found.ring(topic)
