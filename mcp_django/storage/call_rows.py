"""Write the rows of the call log, immediately or in a background thread.

The log may have a database of its own. The record of a call that only reads is written after its
response by a thread of this module, within a second or 500 rows. The record of a call that may
write is written by the call itself, before and after it (``execution.call_log``).

While the database is unavailable, up to ``MAX_WAITING`` rows wait; then the oldest are dropped, and
a warning counts them. Inside a transaction of the site, in a test and in a process that stops, a
thread that may use the database writes immediately. A forked child begins with an empty queue.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from django.db import Error, connections, router, transaction
from django.db.models import DateTimeField, JSONField
from django.db.utils import DataError, IntegrityError

from mcp_django.storage.databases import (
    IDLE_SECONDS,
    close_kept_connections,
    in_batches,
    is_under_test,
    keep_connections,
    run_with_fresh_connections,
    tables,
)

logger = logging.getLogger("mcp_django")

Fields = Mapping[str, Any]
Receiver = Callable[[Fields], None]
# Columns that are known only at the end of a call. The update leaves the others, which have most of
# the indexes.
_END_COLUMNS = frozenset({"outcome", "code", "reason", "ms", "rows", "bytes", "problems"})
# The columns whose values need preparation for the database.
_PREPARED_FIELDS = (DateTimeField, JSONField)


class QueuedRow(NamedTuple):
    """A row to write, or with ``pk`` the end of an existing one; ``receiver`` is called before."""

    fields: Fields
    pk: int | None = None
    receiver: Receiver | None = None


def write_rows(lines: Sequence[QueuedRow]) -> None:
    """Write many rows. A row that the database rejects as invalid is logged and left out.

    Raises:
        Error: none of the new rows was written; the call can be repeated.
    """
    # Updates first, since they can be repeated if the inserts fail.
    for line in lines:
        if line.pk is not None:
            _update_row(line.pk, line.fields)
    new = [line.fields for line in lines if line.pk is None]
    try:
        _insert_rows(new)
    except (DataError, IntegrityError):
        # One of them is invalid; the others have to be stored nevertheless.
        for fields in new:
            _try_insert_row(fields)


def _insert_row(fields: Fields) -> int:
    """Write a row, and return its primary key.

    Raises:
        Error: the database did not store it.
    """
    row = tables.Call(**fields)
    with _savepoint():
        row.save(using=_alias(), force_insert=True)
    return int(row.pk)


def _update_row(pk: int, fields: Fields) -> None:
    """Write the end of a row.

    Raises:
        Error: the database did not store it.
    """
    known = {name: value for name, value in fields.items() if name in _END_COLUMNS}
    with _savepoint():
        _rows().filter(pk=pk).update(**known)


def _insert_rows(every: Sequence[Fields]) -> None:
    """Insert rows without model instances, which would take longer than the rest of a call."""
    if not every:
        return
    connection = connections[_alias()]
    model = tables.Call._meta
    fields = [field for field in model.concrete_fields if not field.primary_key]
    columns = [
        (
            field.attname,
            field.get_default(),
            field.get_db_prep_save if isinstance(field, _PREPARED_FIELDS) else None,
        )
        for field in fields
    ]
    rows = []
    for said in every:
        values = [(said.get(name, default), prepare) for name, default, prepare in columns]
        rows.append([v if prepare is None else prepare(v, connection) for v, prepare in values])
    operations: Any = connection.ops
    names = ", ".join(operations.quote_name(field.column) for field in fields)
    into = f"INSERT INTO {operations.quote_name(model.db_table)} ({names})"
    # One statement for many rows: a driver releases the GIL with each, and gets it back late.
    size = operations.bulk_batch_size(fields, rows)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for part in in_batches(rows, size):
            places = operations.bulk_insert_sql(fields, [["%s"] * len(fields)] * len(part))
            cursor.execute(f"{into} {places}", list(chain.from_iterable(part)))


def _try_insert_row(fields: Fields) -> None:
    try:
        _insert_row(fields)
    except (DataError, IntegrityError):
        logger.exception("A row of the call log cannot be stored.")


def _alias() -> str:
    return router.db_for_write(tables.Call)


def _rows() -> Any:
    return tables.Call._default_manager.using(_alias())


def _is_in_transaction() -> bool:
    """Return whether this thread is in a transaction of that database."""
    return bool(connections[_alias()].in_atomic_block)


def _savepoint() -> Any:
    """Return a savepoint if in a transaction, so that an error does not break that transaction.

    Outside of one, a single statement needs no transaction, which would cost two round trips more.
    """
    return transaction.atomic(using=_alias()) if _is_in_transaction() else nullcontext()


# ``CallLog``: the queue of rows to write ----------------------------------------------------------

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 500
# The rows of a few minutes on a busy site: a few tens of megabytes.
MAX_WAITING = 10_000
MAX_BACKOFF_SECONDS = 30.0
# How long a process that ends waits for the last rows.
CLOSE_SECONDS = 5.0

WakeQueue = queue.SimpleQueue[threading.Event | Receiver | None]
"""Wakes the thread that writes; an event is set after the rows are written."""


class CallLog:
    """Writes the call log of this process; thread-safe."""

    is_under_test = staticmethod(is_under_test)

    def __init__(self) -> None:
        self.is_disabled = False
        """Disables the call log, for tests of other things."""
        self.is_stopping = False
        """The process stops: from now on rows are written immediately."""
        self.lost = 0
        """How many rows were dropped because the database did not store them in time."""
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.close)

    def _reset(self) -> None:
        # Reentrant, unlike a lock: finalizers add rows as well, at any moment.
        self._queue: deque[QueuedRow] = deque()
        self._wake_queue: WakeQueue = queue.SimpleQueue()
        self._is_woken = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._flush_delay = FLUSH_SECONDS

    # In the thread of a call ----------------------------------------------------------------------

    def is_immediate(self) -> bool:
        """Return whether a thread that may use the database has to write any row immediately.

        In a transaction of the site, other connections would not see the row; in a test, no
        background thread may use the database; and a process that stops cannot wait.
        """
        if self.is_stopping or self.is_under_test():
            return True
        return _is_in_transaction()

    def insert(self, fields: Fields) -> int:
        """Write a row now, and return its primary key.

        Raises:
            Error: the database did not store it.
        """
        return _insert_row(fields)

    def update(self, pk: int, fields: Fields) -> None:
        """Write the end of a row now.

        Raises:
            Error: the database did not store it.
        """
        _update_row(pk, fields)

    def remove(self, pk: int) -> None:
        """Delete a row whose call has another one."""
        with _savepoint():
            _rows().filter(pk=pk).delete()

    def add(self, line: QueuedRow) -> None:
        """Queue a row to be written soon; never waits."""
        self._queue.append(line)
        if len(self._queue) > MAX_WAITING:
            self._drop_oldest()
        # Waking a thread costs more than the rest, so it is not done for each row.
        is_full = len(self._queue) >= FLUSH_ROWS and self._wake_queue.empty()
        is_heard = line.receiver is not None and self._wake_queue.qsize() < MAX_WAITING
        if is_heard or is_full or not self._is_woken:
            self._is_woken = True
            self._wake_queue.put(line.receiver)
            if not self._is_writer_alive:
                self._start()

    @property
    def _is_writer_alive(self) -> bool:
        """Return whether the thread that writes is alive."""
        return self._thread is not None and self._thread.is_alive()

    def _drop_oldest(self) -> None:
        # The thread that writes may have taken it meanwhile.
        with suppress(IndexError):
            self._queue.popleft()
            self.lost += 1

    def _start(self) -> None:
        # If the lock is taken, another caller is starting the thread; a finalizer must not wait.
        if self._starting.acquire(blocking=False):
            try:
                if not self._is_writer_alive:
                    thread = threading.Thread(
                        target=self._run_writer,
                        name="mcp-calls",
                        args=(self._wake_queue, self._queue),
                        daemon=True,
                    )
                    thread.start()
                    self._thread = thread
            finally:
                self._starting.release()

    # The end --------------------------------------------------------------------------------------

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write the rows that were added before; return whether the thread tried to in time."""
        if not self._is_writer_alive:
            if not self._queue:
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

    # In the thread that writes --------------------------------------------------------------------

    def _run_writer(self, wake_queue: WakeQueue, lines: deque[QueuedRow]) -> None:
        waiting: deque[QueuedRow] = deque()
        keep_connections()
        while True:
            asked = self._wait(wake_queue, lines, waiting)
            # Before the rows are taken: a row that is added afterwards wakes the thread again.
            self._is_woken = False
            self._collect(lines, waiting)
            if self._write_waiting(waiting):
                self._flush_delay = FLUSH_SECONDS
            else:
                self._flush_delay = min(MAX_BACKOFF_SECONDS, 2 * self._flush_delay)
            if self.is_stopping:
                # Persistent connections too: no later request of this thread closes them.
                with suppress(Exception):
                    connections.close_all()
            if asked is not None:
                asked.set()

    def _wait(
        self, wake_queue: WakeQueue, lines: deque[QueuedRow], waiting: deque[QueuedRow]
    ) -> threading.Event | None:
        """Wait until it is time to write; return the event to set afterwards, if there is one."""
        failed = self._flush_delay > FLUSH_SECONDS
        until = time.monotonic() + self._flush_delay if waiting else None
        while failed or len(waiting) + len(lines) < FLUSH_ROWS:
            left = IDLE_SECONDS if until is None else max(0.0, until - time.monotonic())
            try:
                asked = wake_queue.get(timeout=left)
            except queue.Empty:
                if until is not None:
                    break
                close_kept_connections()
                asked = wake_queue.get()
            if isinstance(asked, threading.Event):
                return asked
            if asked is not None:
                self._collect(lines, waiting)
            if until is None:
                until = time.monotonic() + (0 if self.is_stopping else self._flush_delay)
        return None

    def _collect(self, lines: deque[QueuedRow], waiting: deque[QueuedRow]) -> None:
        """Take the added rows, and call ``receiver`` of each."""
        while lines:
            try:
                line = lines.popleft()
            except IndexError:
                # The oldest was dropped meanwhile.
                break
            # Without ``receiver``, which is called once, however often the write is retried.
            waiting.append(QueuedRow(line.fields, line.pk))
            if line.receiver is not None:
                try:
                    line.receiver(line.fields)
                except Exception:
                    logger.exception("A receiver of a call record failed.")
            if len(waiting) > MAX_WAITING:
                waiting.popleft()
                self.lost += 1

    def _write_waiting(self, waiting: deque[QueuedRow]) -> bool:
        """Write the waiting rows; return whether that succeeded, otherwise they keep waiting."""
        if not waiting:
            return True
        try:
            run_with_fresh_connections(partial(self._write_batches, waiting))
        except Error as exc:
            logger.warning(
                "The call log could not be written (%s): %d rows wait, %d were lost.",
                exc,
                len(waiting),
                self.lost,
            )
            return False
        except Exception:
            # Any other error must not stop the thread.
            logger.exception("%d rows of the call log were lost.", len(waiting))
            self.lost += len(waiting)
            waiting.clear()
        return True

    def _write_batches(self, waiting: deque[QueuedRow]) -> None:
        while waiting:
            part = [waiting[n] for n in range(min(FLUSH_ROWS, len(waiting)))]
            write_rows(part)
            for _ in part:
                waiting.popleft()


class _CallbackEvent(threading.Event):
    """An event that calls a function when it is set."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def set(self) -> None:
        super().set()
        self._then()


call_log = CallLog()
