"""Cancel calls in sessions with ``notifications/cancelled``, in this process or another one."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from django.db import DatabaseError, connections

from mcp_django.components.context import Cancellation
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.call import Call
from mcp_django.protocol.jsonrpc import Notification, read_params
from mcp_django.storage import inbox, sessions, streams
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.pubsub import notify
from mcp_django.storage.sessions import StoredSession
from mcp_django.storage.versions import TopicKey

logger = logging.getLogger("mcp_django")

# How many cancellations one session may have stored for other processes; the newest are kept.
MAX_WAITING: Final = 64
# A cancellation may arrive this many seconds before its request. An older one was meant for an
# earlier request with the same id, which clients should not reuse.
OVERTAKING_SECONDS: Final = 10


class CancelledParams(msgspec.Struct, rename="camel"):
    """Parameters of a cancellation; ``1.0`` equals the integer 1, as in a request id."""

    request_id: str | int | float
    reason: Any = None


def cancel_request(session_pk: int, message: Notification) -> None:
    """Cancel the request that a notification names, in the process that runs it; blocking.

    Unknown or finished requests and malformed notifications are ignored.
    """
    try:
        raw_id = read_params(message.params, CancelledParams).request_id
    except InvalidParams:
        return
    if isinstance(raw_id, float):
        if not raw_id.is_integer():
            return
        raw_id = int(raw_id)
    request_id = json.dumps(raw_id)
    if running_calls.cancel(session_pk, request_id):
        return
    owner = streams.find_request_owner(session_pk, raw_id)
    if owner is None:
        # Another process may be answering it with one JSON document, which has no stored owner.
        inbox.put_bounded(session_pk, "cancel", _ref(request_id), keep=MAX_WAITING)
    elif owner != worker_id():
        inbox.put_bounded(session_pk, "cancel", _ref(request_id), keep=MAX_WAITING)
        notify(TopicKey("", "session", str(session_pk)))


def apply_stored_cancellations(session_pk: int) -> None:
    """Cancel calls of this process for which another process stored a cancellation; blocking."""
    ages = {
        _ref(request_id): (request_id, age)
        for request_id, age in running_calls.of(session_pk).items()
    }
    for ref in inbox.refs_with_messages(session_pk, ages):
        request_id, age = ages[ref]
        since = age + OVERTAKING_SECONDS
        if inbox.refs_with_messages(session_pk, [ref], since=since):
            # Cancel first: a function in a transaction need not wait for the message's deletion.
            running_calls.cancel(session_pk, request_id)
            inbox.take_messages(session_pk, [ref])


def _ref(request_id: str) -> str:
    """Return the inbox reference of a request's cancellation; a hash, since ids may be too long."""
    return f"cancel {hashlib.sha256(request_id.encode()).hexdigest()}"


class _RunningCalls:
    """Running calls by session and request id, as weak references to their cancellation flags."""

    def __init__(self) -> None:
        self._flags: weakref.WeakValueDictionary[tuple[int, str], Cancellation] = (
            weakref.WeakValueDictionary()
        )
        self._begun: weakref.WeakKeyDictionary[Cancellation, float] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def add(self, session_pk: int, call: Call) -> None:
        """Add a call, so it can be cancelled by its request id while it runs."""
        flag = call.cancellation
        with self._lock:
            self._flags[(session_pk, json.dumps(call.request.id))] = flag
            self._begun[flag] = time.monotonic()

    def cancel(self, session_pk: int, request_id: str) -> bool:
        """Cancel a call; return whether it runs here."""
        with self._lock:
            flag = self._flags.get((session_pk, request_id))
        if flag is None:
            return False
        flag.cancel()
        return True

    def of(self, session_pk: int) -> dict[str, float]:
        """Return the session's requests that run in this process, and for how many seconds."""
        now = time.monotonic()
        with self._lock:
            return {
                request_id: now - self._begun[flag]
                for (session, request_id), flag in self._flags.items()
                if session == session_pk
            }


running_calls = _RunningCalls()

# The polling interval, and the minimum time that a call runs before the first poll for it.
POLL_SECONDS = 1


class _CancellationPoller:
    """A polling thread that cancels calls for which another process stored a cancellation.

    It polls for calls that are answered with one JSON document, since these have no stream that
    another process could notify. It polls only for calls that have run for a while, because most
    finish before they could be cancelled. The thread starts with the first such call and ends
    when a poll finds none.
    """

    def __init__(self) -> None:
        self._sessions: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()

    @contextmanager
    def poll_during(self, call: Call) -> Iterator[None]:
        """Poll for cancellations of a call while it runs, if it belongs to a stored session."""
        session = call.session
        if not isinstance(session, StoredSession):
            yield
            return
        pk = session.record.pk
        with self._lock:
            self._sessions[pk] += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._keep, name="mcp-cancellation", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._sessions[pk] -= 1
                if not self._sessions[pk]:
                    del self._sessions[pk]

    def _keep(self) -> None:
        before: set[int] = set()
        while True:
            self._pause.wait(POLL_SECONDS)
            with self._lock:
                now = set(self._sessions)
                if not now:
                    self._thread = None
                    return
            # Sessions that also had calls at the last poll.
            if lasting := now & before:
                self.poll_now(lasting)
            before = now

    def poll_now(self, pks: set[int]) -> None:
        """Apply stored cancellations now, in this thread; cancel all calls of ended sessions."""
        try:
            for session_pk in pks - sessions.live_sessions(pks):
                for request_id in running_calls.of(session_pk):
                    running_calls.cancel(session_pk, request_id)
            for session_pk in inbox.sessions_with_messages(pks):
                apply_stored_cancellations(session_pk)
        except DatabaseError as exc:
            logger.debug("Could not check for cancellations (%s); retrying.", exc)
        except Exception:
            logger.exception("Could not check for cancellations; retrying.")
        finally:
            connections.close_all()


cancellation_poller = _CancellationPoller()
