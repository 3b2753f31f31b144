"""Write the rows of many callers in shared transactions.

A ``BatchWriter`` has one thread, which writes the queued rows in one transaction for each kind of
rows (``RowKind``). A caller that has to know that its row is stored waits for the commit, in a
thread (``write``) or on an event loop (``awrite``). A row without such a caller (``enqueue``) is
written within ``FLUSH_SECONDS``, or with ``FLUSH_ROWS`` others.

The process owns the writers. Their thread starts at the first row; a forked child begins with an
empty queue and no thread. In a transaction of the site, with ``BACKGROUND`` at ``"inline"`` and
in a process that stops, a thread that may use the database writes by itself, immediately
(``is_immediate``). At most ``MAX_WAITING`` rows wait in each queue. Beyond that, a caller that
would wait is refused, and of the rows without a caller the oldest are dropped and counted. While
the database is unavailable, rows without a caller are kept.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary, ref

from django.db import Error, connections, router, transaction
from django.db.models import Model
from django.db.models.functions import Now
from django.db.utils import DataError, IntegrityError
from django.utils import timezone

from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.process import at_fork
from mcp_django.storage.databases import (
    IDLE_SECONDS,
    close_kept_connections,
    is_inline,
    keep_connections,
    limit_lock_wait,
    run_with_fresh_connections,
    tables,
)
from mcp_django.tenants import is_tenant_app, thread_context

logger = logging.getLogger("mcp_django")

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 500
# The call records of a few minutes on a busy site: a few tens of megabytes.
MAX_WAITING = 10_000
MAX_BACKOFF_SECONDS = 30.0
# How long rows of sessions and streams wait for the locks of other transactions, such as one that
# has locked the row of the user.
LOCK_SECONDS = 1.0
# How long a process that ends waits for the last rows.
CLOSE_SECONDS = 5.0

_INVALID = (DataError, IntegrityError)
_Wake: TypeAlias = object
_URGENT, _ADDED, _HEARD = object(), object(), object()
_WakeQueue: TypeAlias = queue.SimpleQueue[_Wake]
"""Wakes the thread that writes; an event is set after the rows are written."""

Outcome: TypeAlias = Any
"""What ``RowKind.write`` returns for a row, or the exception."""


class RowKind(Protocol):
    """How rows of one kind are written."""

    @property
    def lock_seconds(self) -> float | None:
        """How long to wait for locks of other transactions, where the database has no limit.

        ``None`` for rows that no other transaction locks, each written by one statement.
        """

    def alias(self) -> str:
        """Return the alias of their database."""

    def write(self, rows: Sequence[Any], *, again: bool) -> Sequence[Outcome]:
        """Write rows in the current transaction, and return what each caller gets.

        An exception among the outcomes is raised to its caller; the other rows are stored.

        With ``again``, an attempt whose COMMIT was answered with an error may have stored the rows
        already; such a row must not be changed.

        Raises:
            Error: the database did not store them.
        """


class _QueuedRow:
    """A row on its way to the database."""

    __slots__ = ("again", "deliver", "is_abandoned", "kind", "notify", "row")

    def __init__(
        self,
        kind: RowKind,
        row: Any,
        deliver: Callable[[Any, BaseException | None], None] | None = None,
        notify: Callable[[], object] | None = None,
    ) -> None:
        self.kind = kind
        self.row = row
        self.deliver = deliver
        """Passes the outcome to the caller; ``None`` if no caller waits."""
        self.notify = notify
        """Called in the thread that writes, before the row is written."""
        self.again = False
        self.is_abandoned = False
        """Whether its caller no longer waits; a row that is not yet taken is left out."""


class BatchWriter:
    """Writes rows in one thread; thread-safe."""

    is_inline = staticmethod(is_inline)

    def __init__(self, name: str) -> None:
        self.is_stopping = False
        """The process stops: from now on rows are written immediately."""
        self.lost = 0
        """How many rows were dropped because the database did not store them in time."""
        self.refused = 0
        """How many rows were refused because too many waited."""
        self._name = name
        self._reset()
        at_fork(self._reset)
        atexit.register(self.close)

    def _reset(self) -> None:
        # Deques are reentrant, unlike a lock: finalizers add rows as well, at any moment.
        self._urgent: deque[_QueuedRow] = deque()
        self._added: deque[_QueuedRow] = deque()
        self._kept: deque[_QueuedRow] = deque()
        """Added rows that the thread has taken."""
        self._wake_queue: _WakeQueue = queue.SimpleQueue()
        self._is_woken = False
        """Whether the thread was woken for the added rows since it last took them."""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._flush_delay = FLUSH_SECONDS

    def is_immediate(self, kind: RowKind) -> bool:
        """Return whether a thread that may use the database has to write a row by itself.

        This is so in a transaction of the site, since other connections would not see the row; if
        no background thread may use the database (``BACKGROUND``); and if the process stops, since
        it cannot wait.
        """
        return self.is_stopping or self.is_inline() or _is_in_transaction(kind.alias())

    def write(self, kind: RowKind, row: Any, *, seconds: float) -> Any:
        """Write a row from a thread, and return its outcome after the commit.

        Raises:
            Error: the database did not store it.
            Busy: too many rows wait, or the row was not stored within ``seconds``.
        """
        if self.is_immediate(kind):
            with _transaction(kind, [row]):
                outcome = kind.write([row], again=False)[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        future: Future[Any] = Future()
        queued_row = _QueuedRow(kind, row, partial(set_outcome, future))
        self._put(queued_row)
        try:
            return future.result(seconds)
        except TimeoutError:
            raise busy_error() from None
        finally:
            queued_row.is_abandoned = True

    async def awrite(self, kind: RowKind, row: Any, *, seconds: float) -> Any:
        """Write a row from an event loop, and return its outcome after the commit.

        If the caller is cancelled, a row that is not being written yet is left out.

        Raises:
            Error: the database did not store it.
            Busy: too many rows wait, or the row was not stored within ``seconds``.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Any] = loop.create_future()
        queued_row = _QueuedRow(kind, row, partial(LoopResults.of(loop).post, waiter))
        self._put(queued_row)
        timer = loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            queued_row.is_abandoned = True

    def enqueue(
        self, kind: RowKind, row: Any, *, notify: Callable[[], object] | None = None
    ) -> None:
        """Queue a row to be written soon; never waits.

        Before it is written, ``notify`` is called in the thread that writes.
        """
        self._added.append(_QueuedRow(kind, row, notify=notify))
        if len(self._added) > MAX_WAITING:
            # The thread that writes may have taken the oldest meanwhile.
            with suppress(IndexError):
                self._added.popleft()
                self.lost += 1
        # Waking a thread costs more than the rest, so it is not done for each row.
        is_full = len(self._added) >= FLUSH_ROWS and self._wake_queue.empty()
        is_heard = notify is not None and self._wake_queue.qsize() < MAX_WAITING
        if is_heard or is_full or not self._is_woken:
            self._wake(_HEARD if is_heard else _ADDED)

    def store(self, kind: RowKind, row: Any, *, soon: bool = False) -> None:
        """Queue a row without a caller, or write it now if this thread has to write by itself.

        With ``soon``, the row does not wait for others, unless urgent rows are queued already.

        Raises:
            Error: this thread could not write it.
        """
        if self.is_immediate(kind):
            self.write(kind, row, seconds=get_settings().queue_seconds)
        elif soon and not self._urgent:
            self._put(_QueuedRow(kind, row))
        else:
            self.enqueue(kind, row)

    def _put(self, queued_row: _QueuedRow) -> None:
        if len(self._urgent) >= MAX_WAITING:
            self.refused += 1
            raise busy_error()
        self._urgent.append(queued_row)
        self._wake(_URGENT)

    def _wake(self, why: _Wake) -> None:
        if why is not _URGENT:
            # Urgent rows are written without taking the added ones, so they do not count.
            self._is_woken = True
        self._wake_queue.put(why)
        if not self._is_writer_alive:
            self._start()

    @property
    def _is_writer_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        # If the lock is taken, another caller is starting the thread; a finalizer must not wait.
        if self._starting.acquire(blocking=False):
            try:
                if not self._is_writer_alive:
                    thread = threading.Thread(
                        target=self._run, name=self._name, args=(self._wake_queue,), daemon=True
                    )
                    thread.start()
                    self._thread = thread
            finally:
                self._starting.release()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write the rows added so far; return whether the thread tried to within ``seconds``."""
        if not self._is_writer_alive:
            if not self._added:
                return True
            self._start()
        tried = threading.Event()
        self._wake_queue.put(tried)
        return tried.wait(seconds)

    def flush_and_stop(self, then: Callable[[], None]) -> None:
        """Write the queued rows, call ``then``, and queue nothing from now on: the process stops.

        May be called by a signal handler.
        """
        self.is_stopping = True
        if not self._is_writer_alive:
            then()
        else:
            self._wake_queue.put(_CallbackEvent(then))

    def close(self) -> None:
        """Write the queued rows at the end of the process."""
        self.is_stopping = True
        self.flush()

    def _run(self, wake_queue: _WakeQueue) -> None:
        keep_connections()
        while True:
            tried = self._wait(wake_queue)
            # Before the rows are taken: a row that is added afterwards wakes the thread again.
            self._is_woken = False
            self._write_urgent()
            self._collect()
            if self._write_kept():
                self._flush_delay = FLUSH_SECONDS
            else:
                self._flush_delay = min(MAX_BACKOFF_SECONDS, 2 * self._flush_delay)
            if self.is_stopping:
                close_kept_connections()
            if tried is not None:
                tried.set()

    def _wait(self, wake_queue: _WakeQueue) -> threading.Event | None:
        """Write urgent rows until the added rows are due; return the event to set afterwards."""
        failed = self._flush_delay > FLUSH_SECONDS
        until = time.monotonic() + self._flush_delay if self._kept else None
        while failed or len(self._kept) + len(self._added) < FLUSH_ROWS:
            timeout = IDLE_SECONDS if until is None else max(0.0, until - time.monotonic())
            try:
                woken = wake_queue.get(timeout=timeout)
            except queue.Empty:
                if until is not None:
                    break
                close_kept_connections()
                woken = wake_queue.get()
            self._write_urgent()
            if isinstance(woken, threading.Event):
                return woken
            if woken is _HEARD:
                self._collect()
            if woken is not _URGENT and until is None:
                until = time.monotonic() + (0 if self.is_stopping else self._flush_delay)
            # Urgent rows may arrive without a pause, so the time is checked here as well.
            if until is not None and time.monotonic() >= until:
                break
        return None

    def _write_urgent(self) -> None:
        """Write the rows whose callers wait, and give them the outcomes."""
        while self._urgent:
            taken: list[_QueuedRow] = []
            while self._urgent and len(taken) < FLUSH_ROWS:
                queued_row = self._urgent.popleft()
                if not queued_row.is_abandoned:
                    taken.append(queued_row)
            for kind, queued in _by_kind(taken).items():
                for queued_row, outcome in zip(queued, self._outcomes(kind, queued), strict=True):
                    is_error = isinstance(outcome, BaseException)
                    if queued_row.deliver is not None:
                        queued_row.deliver(*((None, outcome) if is_error else (outcome, None)))

    def _outcomes(self, kind: RowKind, queued: Sequence[_QueuedRow]) -> Sequence[Outcome]:
        try:
            return run_with_fresh_connections(partial(_write_each, kind, queued))
        except Exception as exc:
            # Any other error must not stop the thread.
            logger.exception("%d rows could not be written.", len(queued))
            return [exc] * len(queued)

    def _collect(self) -> None:
        """Take the added rows, and call ``notify`` of each."""
        kept_rows = self._kept
        while self._added:
            try:
                queued_row = self._added.popleft()
            except IndexError:
                # The oldest was dropped meanwhile.
                break
            kept_rows.append(queued_row)
            if queued_row.notify is not None:
                try:
                    queued_row.notify()
                except Exception:
                    logger.exception("A receiver of a call record failed.")
                queued_row.notify = None
            if len(kept_rows) > MAX_WAITING:
                kept_rows.popleft()
                self.lost += 1

    def _write_kept(self) -> bool:
        """Write the rows without a caller; return whether the database was available.

        If it was not, the rows stay in the queue.
        """
        kept_rows = self._kept
        if not kept_rows:
            return True
        try:
            run_with_fresh_connections(self._write_parts)
        except Error as exc:
            message = "%s rows could not be written (%s): %d rows wait, %d were lost."
            logger.warning(message, self._name, exc, len(kept_rows), self.lost)
            return False
        except Exception:
            logger.exception("%d rows were lost.", len(kept_rows))
            self.lost += len(kept_rows)
            kept_rows.clear()
        return True

    def _write_parts(self) -> None:
        """Write the rows without a caller, and remove them from the queue.

        Raises:
            Error: the database is unavailable; rows left in the queue may have been written.
        """
        kept_rows = self._kept
        while kept_rows:
            part = list(islice(kept_rows, FLUSH_ROWS))
            try:
                for kind, queued in _by_kind(part).items():
                    _write_or_log(kind, queued)
            except Error:
                for queued_row in part:
                    queued_row.again = True
                raise
            for _ in part:
                kept_rows.popleft()
            self._write_urgent()


def _write_or_log(kind: RowKind, queued: Sequence[_QueuedRow]) -> None:
    """Write rows without a caller; log a row that the database rejects as invalid.

    Raises:
        Error: the database is unavailable.
    """
    try:
        _write_together(kind, queued)
    except _INVALID:
        if len(queued) == 1:
            logger.exception("A row cannot be stored.")
            return
        # One of them is invalid; the others have to be stored nevertheless.
        for queued_row in queued:
            _write_or_log(kind, [queued_row])


def _write_each(kind: RowKind, queued: Sequence[_QueuedRow]) -> Sequence[Outcome]:
    """Write rows together, or else one by one, and return the outcome of each."""
    outcomes, is_lost = _attempt(kind, queued)
    failure = outcomes[0]
    if not isinstance(failure, Error) or (len(queued) == 1 and not is_lost):
        return outcomes
    row_outcomes: list[Outcome] = []
    is_unavailable = False
    for queued_row in queued:
        # The row may have been stored, if only the answer to the COMMIT was lost.
        queued_row.again = True
        if not is_unavailable and not queued_row.is_abandoned:
            [failure], is_unavailable = _attempt(kind, [queued_row])
        row_outcomes.append(failure)
    return row_outcomes


def _attempt(kind: RowKind, queued: Sequence[_QueuedRow]) -> tuple[Sequence[Outcome], bool]:
    """Write rows together; return the outcomes, and whether the connection was lost meanwhile."""
    database = connections[kind.alias()]
    before = None
    try:
        # Opens the connection by a method whose frame shows ``manage.py mcp`` which database it is.
        database.get_autocommit()
        before = database.connection
        return _write_together(kind, queued), False
    except Error as exc:
        # Django may have opened another connection already.
        is_lost = before is None or database.connection is not before or not database.is_usable()
        if is_lost:
            with suppress(Exception):
                database.close()
        return [exc] * len(queued), is_lost


def _write_together(kind: RowKind, queued: Sequence[_QueuedRow]) -> Sequence[Outcome]:
    again = any(queued_row.again for queued_row in queued)
    with _transaction(kind, queued):
        return kind.write([queued_row.row for queued_row in queued], again=again)


@contextmanager
def _transaction(kind: RowKind, rows: Sequence[object]) -> Iterator[None]:
    """Open a transaction for some rows, or a savepoint in a transaction of the site."""
    alias = kind.alias()
    is_inner = connections[alias].in_atomic_block
    if len(rows) == 1 and kind.lock_seconds is None and not is_inner:
        # One statement needs no transaction, which would cost two round trips more.
        yield
        return
    with transaction.atomic(using=alias):
        if kind.lock_seconds is not None and not is_inner:
            limit_lock_wait(alias, kind.lock_seconds)
        yield


def _by_kind(queued: Sequence[_QueuedRow]) -> dict[RowKind, list[_QueuedRow]]:
    rows_by_kind: dict[RowKind, list[_QueuedRow]] = {}
    for queued_row in queued:
        rows_by_kind.setdefault(queued_row.kind, []).append(queued_row)
    return rows_by_kind


def _is_in_transaction(alias: str) -> bool:
    """Return whether this thread is in a transaction of that database."""
    connection = connections[alias]
    is_open = connection.connection is not None
    return bool(connection.in_atomic_block or (is_open and not connection.autocommit))


def set_outcome(future: Future[Any], outcome: Any, exc: BaseException | None) -> None:
    """Give a caller that waits in a thread the outcome, or raise the exception there."""
    if exc is None:
        future.set_result(outcome)
    else:
        future.set_exception(exc)


def _give_up(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_exception(busy_error())


def busy_error() -> Busy:
    """Return the error of a caller for whom the database takes too long."""
    return Busy("The database is busy; try again in a moment.", data={"retryAfter": 1})


class _CallbackEvent(threading.Event):
    """An event that calls a function when it is set."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def set(self) -> None:
        super().set()
        self._then()


row_writer = BatchWriter("mcp-rows")
"""Writes the rows of sessions and streams. The call log has a writer of its own, whose rows never
wait behind rows that other transactions may have locked."""


# When rows were last used -------------------------------------------------------------------------

# The time is stored for tokens, clients and sessions, at most once a minute, since otherwise each
# request would be a write; no request waits for it. A row that another transaction has locked is
# left out; the next request finds the old time and tries again.
RESOLUTION_SECONDS = 60


@dataclass(frozen=True, slots=True)
class _LastUses:
    """The ``RowKind`` of the times at which a model's rows were last used."""

    model: type[Model]
    column: str

    @property
    def lock_seconds(self) -> float:
        """How long to wait for locks; only a database that cannot skip locked rows waits."""
        return LOCK_SECONDS

    def alias(self) -> str:
        """Return the alias of the model's database."""
        return router.db_for_write(self.model)

    def write(self, pks: Sequence[Any], *, again: bool) -> Sequence[None]:
        """Set the times of rows to now."""
        alias = self.alias()
        all_rows = self.model._default_manager.using(alias)
        queryset = all_rows.filter(pk__in=set(pks))
        if connections[alias].features.has_select_for_update_skip_locked:
            unlocked = queryset.select_for_update(skip_locked=True).order_by()
            queryset = all_rows.filter(pk__in=list(unlocked.values_list("pk", flat=True)))
        # The times of sessions are those of the database's clock.
        now = Now() if self.model is tables.Session else timezone.now()
        queryset.update(**{self.column: now})
        return [None] * len(pks)


def note_use(row: Model, column: str = "last_used_at") -> None:
    """Store soon that a token or client is used now, unless that was stored a moment ago."""
    noted = getattr(row, column)
    if noted is None or timezone.now() - noted >= timedelta(seconds=RESOLUTION_SECONDS):
        if thread_context() is not None and is_tenant_app(row._meta.app_config.name):
            # The thread of the writer has no tenant.
            type(row)._default_manager.filter(pk=row.pk).update(**{column: timezone.now()})
            return
        row_writer.store(_LastUses(type(row), column), row.pk)


def note_seen(session_pk: int) -> None:
    """Store soon that a session is seen now."""
    row_writer.store(_LastUses(tables.Session, "seen_at"), session_pk)


# Results from threads -----------------------------------------------------------------------------


class LoopResults:
    """Results from threads for one event loop, which is woken once for many of them."""

    _by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopResults] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A weak reference, since the loop is the key of this instance in ``_by_loop``.
        self._wake: Callable[[], object] = partial(_wake_loop, ref(loop), self._deliver)
        self._done: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopResults:
        """Return the instance of an event loop."""
        # ``setdefault``, since several threads may create the first instance.
        return cls._by_loop.get(loop) or cls._by_loop.setdefault(loop, cls(loop))

    def post(self, waiter: asyncio.Future[Any], result: Any, exc: BaseException | None) -> None:
        """Queue the result or exception for a future, from any thread, and wake the loop."""
        with self._lock:
            is_first = not self._done
            self._done.append((waiter, result, exc))
        if is_first:
            self._wake()

    def _deliver(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for waiter, result, exc in done:
            if waiter.done():
                continue
            if isinstance(exc, StopIteration):
                # A future cannot have a ``StopIteration`` as its exception.
                waiter.set_exception(RuntimeError(f"The function raised {exc!r}."))
            elif exc is not None:
                waiter.set_exception(exc)
            else:
                waiter.set_result(result)


def _wake_loop(loop_ref: ref[asyncio.AbstractEventLoop], deliver: Callable[[], None]) -> None:
    loop = loop_ref()
    try:
        if loop is not None:
            loop.call_soon_threadsafe(deliver)
    except RuntimeError:
        # The loop is closed, so no caller is waiting.
        logger.debug("The event loop was closed before the result of an item arrived.")


@at_fork
def _forget_loops() -> None:
    """Forget the loops of the parent after a fork."""
    LoopResults._by_loop = WeakKeyDictionary()
