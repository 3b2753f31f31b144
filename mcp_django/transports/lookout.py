"""One thread of a process that finds out which of its calls were called off elsewhere.

A call that is answered with one document has no stream that another process could ring. It is
looked after here, once it has run for a while: most are over before anybody could cancel them. The
thread begins with such a call, and ends when there has been none for a moment.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connections

from mcp_django.runtime.incoming import Invocation
from mcp_django.store.sessions import StoredSession
from mcp_django.transports import cancellations

logger = logging.getLogger("mcp_django")

# How often is looked, and how long a call runs, at least, before anybody looks for it.
LOOK_SECONDS = 1


class Lookout:
    """The calls of one process that only this looks after, by their sessions."""

    def __init__(self, look: Callable[[set[int]], None]) -> None:
        self._look = look
        self._sessions: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()

    @contextmanager
    def over(self, call: Invocation) -> Iterator[None]:
        """Look after a call for as long as it runs, if it is one of a stored session."""
        session = call.incoming.session
        if not isinstance(session, StoredSession):
            yield
            return
        pk = session.row.pk
        self._hold(pk)
        try:
            yield
        finally:
            with self._lock:
                self._sessions[pk] -= 1
                if not self._sessions[pk]:
                    del self._sessions[pk]

    def _hold(self, pk: int) -> None:
        with self._lock:
            self._sessions[pk] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="mcp-lookout", daemon=True)
                self._thread.start()

    def _keep(self) -> None:
        before: set[int] = set()
        while True:
            self._pause.wait(LOOK_SECONDS)
            with self._lock:
                now = set(self._sessions)
                if not now:
                    self._thread = None
                    return
            # Those that were there at the last look have gone on for a while.
            if lasting := now & before:
                self.look(lasting)
            before = now

    def look(self, sessions: set[int]) -> None:
        """Look now, in this thread."""
        try:
            self._look(sessions)
        except DatabaseError as exc:
            logger.debug("Cancellations could not be looked for (%s); trying again.", exc)
        except Exception:
            logger.exception("Cancellations could not be looked for; trying again.")
        finally:
            connections.close_all()


lookout = Lookout(cancellations.collect_all)
