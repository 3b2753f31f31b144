"""Cancellation of calls in sessions, in this process or another one (CAN-1…CAN-8)."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
from django.db import DatabaseError, connections

from mcp_django.core.context import Cancellation
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.call import Awaiting, Invocation
from mcp_django.protocol.jsonrpc import Notification, read_params
from mcp_django.storage import inbox, sessions, streams
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.pubsub import ring
from mcp_django.storage.sessions import StoredSession
from mcp_django.storage.versions import Topic

logger = logging.getLogger("mcp_django")

C = TypeVar("C", Invocation, Awaiting)

# What is put down for calls that nobody is known to run, of one session: the newest count.
MAX_WAITING: Final = 64
# A cancellation may have overtaken its request by so much. An older one meant an earlier request
# that had the same id, which no client should use again.
OVERTAKING_SECONDS: Final = 10


class CancelledParams(msgspec.Struct, rename="camel"):
    """Parameters of a cancellation; ``1.0`` is the integer 1 here as in an id."""

    request_id: str | int | float
    reason: Any = None


def tracked(session_pk: int, call: C) -> C:
    """The call, known by its id for as long as it runs."""
    _running.add(session_pk, json.dumps(call.incoming.request.id), call.cancellation)
    return call


def cancel(session_pk: int, message: Notification) -> None:
    """Cancel what a notification names, in whatever process it runs; for a thread.

    What is unknown, over or malformed is ignored (CAN-2).
    """
    try:
        named = read_params(message.params, CancelledParams).request_id
    except InvalidParams:
        return
    if isinstance(named, float):
        if not named.is_integer():
            return
        named = int(named)
    request_id = json.dumps(named)
    if _running.cancel(session_pk, request_id):
        return
    owner = streams.owner_of_request(session_pk, named)
    if owner is None:
        # Perhaps another process answers it with one document, which is stored nowhere.
        inbox.put_newest(session_pk, "cancel", _ref(request_id), keep=MAX_WAITING)
    elif owner != worker_id():
        inbox.put_newest(session_pk, "cancel", _ref(request_id), keep=MAX_WAITING)
        ring(Topic("", "session", str(session_pk)))


def collect(session_pk: int) -> None:
    """Cancel what other processes were told to cancel of the calls that run here; for a thread."""
    ages = {
        _ref(request_id): (request_id, age) for request_id, age in _running.of(session_pk).items()
    }
    for ref in inbox.refs(session_pk, ages):
        request_id, age = ages[ref]
        since = age + OVERTAKING_SECONDS
        if inbox.refs(session_pk, [ref], since=since):
            # A function that is at work in a transaction need not wait until the letter is taken.
            _running.cancel(session_pk, request_id)
            inbox.take(session_pk, [ref])


def _collect_all(session_pks: Iterable[int]) -> None:
    """``collect`` for several sessions, of which those that are over need no calls any more."""
    wanted = set(session_pks)
    for session_pk in wanted - sessions.living(wanted):
        for request_id in _running.of(session_pk):
            _running.cancel(session_pk, request_id)
    for session_pk in inbox.waiting(wanted):
        collect(session_pk)


def _ref(request_id: str) -> str:
    """Where a cancellation of this request is put down; an id may be longer than a reference."""
    return f"cancel {hashlib.sha256(request_id.encode()).hexdigest()}"


class _Running:
    """Running calls by session and request id; forgotten when nobody holds them any more."""

    def __init__(self) -> None:
        self._flags: weakref.WeakValueDictionary[tuple[int, str], Cancellation] = (
            weakref.WeakValueDictionary()
        )
        self._begun: weakref.WeakKeyDictionary[Cancellation, float] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def add(self, session_pk: int, request_id: str, flag: Cancellation) -> None:
        with self._lock:
            self._flags[(session_pk, request_id)] = flag
            self._begun[flag] = time.monotonic()

    def cancel(self, session_pk: int, request_id: str) -> bool:
        with self._lock:
            flag = self._flags.get((session_pk, request_id))
        if flag is None:
            return False
        flag.cancel()
        return True

    def of(self, session_pk: int) -> dict[str, float]:
        """The requests of a session that run here, and for how many seconds."""
        now = time.monotonic()
        with self._lock:
            return {
                request_id: now - self._begun[flag]
                for (session, request_id), flag in self._flags.items()
                if session == session_pk
            }


_running = _Running()


# Cancellations from other processes ---------------------------------------------------------------

# How often is looked, and how long a call runs, at least, before anybody looks for it.
LOOK_SECONDS = 1


class _Lookout:
    """One thread of a process that finds out which of its calls another process has cancelled.

    It looks after calls that are answered with one document and so have no stream that another
    process could notify, once they have run for a while: most are over before they could be
    cancelled. The thread begins with such a call, and ends when there has been none for a moment.
    """

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


lookout = _Lookout(_collect_all)
