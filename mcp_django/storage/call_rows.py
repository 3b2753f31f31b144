"""The rows of the call log: how they are written, at once or by a background thread.

The log may have a database of its own. The record of a call that only reads is written after its
answer by a thread of this module, within a second or 500 rows. The record of a call that may
write is written by the call itself, before and after it (``execution.call_log``).

While the database is unavailable, rows wait up to a bound; then the oldest are dropped, and a
warning counts them. Inside a transaction of the site, in a test and in a process that stops, a
thread that may use the database writes at once. A forked child begins with an empty queue.
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
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.core import mail
from django.db import Error, close_old_connections, connections, router, transaction
from django.db.models import DateTimeField, JSONField
from django.db.utils import DataError, IntegrityError

from mcp_django.storage.databases import tables

logger = logging.getLogger("mcp_django")

Fields = Mapping[str, Any]
Tell = Callable[[Fields], None]
# What is not known before the end. The other columns stand, and most of the indexes are theirs.
_OF_END = frozenset({"outcome", "code", "reason", "ms", "rows", "bytes", "problems"})
# The columns whose values are not handed to the database as they are.
_PREPARED = (DateTimeField, JSONField)


@dataclass(frozen=True, slots=True)
class Line:
    """A row to write; with ``pk`` the end of one that is there. ``tell`` is called before."""

    fields: Fields
    pk: int | None = None
    tell: Tell | None = None


def write(lines: Sequence[Line]) -> None:
    """Write many of them. What the database takes by no means is logged and left out.

    Raises:
        Error: the database took none of the new ones, and can be asked again.
    """
    # First what bears repetition, should the rest fail.
    for line in lines:
        if line.pk is not None:
            _update(line.pk, line.fields)
    new = [line.fields for line in lines if line.pk is None]
    try:
        _insert_all(new)
    except (DataError, IntegrityError):
        # One of them cannot be kept at all; the others are not to suffer for it.
        for fields in new:
            _insert_one(fields)


def _insert(fields: Fields) -> int:
    """Write a row, and return its primary key.

    Raises:
        Error: the database did not take it.
    """
    row = tables.Call(**fields)
    with _alone():
        row.save(using=_alias(), force_insert=True)
    return int(row.pk)


def _update(pk: int, fields: Fields) -> None:
    """Write the end of a row.

    Raises:
        Error: the database did not take it.
    """
    known = {name: value for name, value in fields.items() if name in _OF_END}
    with _alone():
        _rows().filter(pk=pk).update(**known)


def _insert_all(every: Sequence[Fields]) -> None:
    """Write rows past the model, which would take more time than all the rest of a call."""
    if not every:
        return
    connection = connections[_alias()]
    model = tables.Call._meta
    fields = [field for field in model.concrete_fields if not field.primary_key]
    columns = [
        (
            field.attname,
            field.get_default(),
            field.get_db_prep_save if isinstance(field, _PREPARED) else None,
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
    # One statement for many rows: a driver lets other threads in with each, who are in no hurry.
    size = operations.bulk_batch_size(fields, rows)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            places = operations.bulk_insert_sql(fields, [["%s"] * len(fields)] * len(part))
            cursor.execute(f"{into} {places}", list(chain.from_iterable(part)))


def _insert_one(fields: Fields) -> None:
    try:
        _insert(fields)
    except (DataError, IntegrityError):
        logger.exception("A row of the call log cannot be kept.")


def _alias() -> str:
    return router.db_for_write(tables.Call)


def _rows() -> Any:
    return tables.Call._default_manager.using(_alias())


def _is_in_transaction() -> bool:
    """Whether this thread is in a transaction of that database."""
    return bool(connections[_alias()].in_atomic_block)


def _alone() -> Any:
    """A savepoint within a transaction of others, which what we do wrong must not spoil.

    Elsewhere one statement needs no transaction around it, which would be two round trips more.
    """
    return transaction.atomic(using=_alias()) if _is_in_transaction() else nullcontext()


# ``CallLog``: rows on their way to the database ---------------------------------------------------

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 500
# A few minutes of a busy site, and a few tens of megabytes.
MAX_WAITING = 10_000
MAX_BACKOFF_SECONDS = 30.0
# How long the end of a process waits for the last rows.
CLOSE_SECONDS = 5.0

Bell = queue.SimpleQueue[threading.Event | Tell | None]
"""Wakes the thread that writes: an event wants to be set afterwards, a receiver to be told."""


class CallLog:
    """The way of this process into the call log; for any thread."""

    def __init__(self) -> None:
        self.is_muted = False
        """For tests that are about something else."""
        self.is_hurrying = False
        """The process stops: from now on nothing is to wait."""
        self.lost = 0
        """How many rows the database did not take in time."""
        self._begin()
        os.register_at_fork(after_in_child=self._begin)
        atexit.register(self.close)

    def _begin(self) -> None:
        # Reentrant, unlike a lock: rows are added by finalizers as well, at any moment.
        self._lines: deque[Line] = deque()
        self._bell: Bell = queue.SimpleQueue()
        self._is_rung = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._patience = FLUSH_SECONDS

    # In the thread of a call --------------------------------------------------------------------

    def is_immediate(self) -> bool:
        """Whether a thread that may use the database is to write at once, whatever it is.

        In a transaction of others nobody else would see the row; in a test nothing of ours is to
        go on behind its back; and a process that stops has no later.
        """
        if self.is_hurrying or self.is_under_test():
            return True
        return _is_in_transaction()

    def is_under_test(self) -> bool:
        """Whether a test runner has prepared the process."""
        return hasattr(mail, "outbox")

    def insert(self, fields: Fields) -> int:
        """Write a row now, and return its primary key.

        Raises:
            Error: the database did not take it.
        """
        return _insert(fields)

    def update(self, pk: int, fields: Fields) -> None:
        """Write the end of a row now.

        Raises:
            Error: the database did not take it.
        """
        _update(pk, fields)

    def remove(self, pk: int) -> None:
        """Take back a row whose call has another one."""
        with _alone():
            _rows().filter(pk=pk).delete()

    def add(self, line: Line) -> None:
        """Have a row written soon; never waits."""
        self._lines.append(line)
        if len(self._lines) > MAX_WAITING:
            self._drop_oldest()
        # To wake a thread costs more than the rest, so it is not done for each row.
        is_full = len(self._lines) >= FLUSH_ROWS and self._bell.empty()
        is_heard = line.tell is not None and self._bell.qsize() < MAX_WAITING
        if is_heard or is_full or not self._is_rung:
            self._is_rung = True
            self._bell.put(line.tell)
        if not self._is_served:
            self._start()

    @property
    def _is_served(self) -> bool:
        """Whether there is a thread that writes."""
        return self._thread is not None and self._thread.is_alive()

    def _drop_oldest(self) -> None:
        # Its thread may have taken it meanwhile.
        with suppress(IndexError):
            self._lines.popleft()
            self.lost += 1

    def _start(self) -> None:
        # A finalizer that finds somebody starting it has nothing to do.
        if self._starting.acquire(blocking=False):
            try:
                if not self._is_served:
                    thread = threading.Thread(
                        target=self._serve,
                        name="mcp-calls",
                        args=(self._bell, self._lines),
                        daemon=True,
                    )
                    thread.start()
                    self._thread = thread
            finally:
                self._starting.release()

    # The end ------------------------------------------------------------------------------------

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """See that what was added before is written; whether the writer came to it in time."""
        if not self._is_served:
            if not self._lines:
                return True
            self._start()
        tried = threading.Event()
        self._bell.put(tried)
        return tried.wait(seconds)

    def hurry(self, then: Callable[[], None]) -> None:
        """The process stops: write what there is, call this, and let nothing wait from now on.

        May be called by the handler of a signal.
        """
        self.is_hurrying = True
        if not self._is_served:
            then()
        else:
            self._bell.put(_Then(then))

    def close(self) -> None:
        """Write what there is, at the end of the process."""
        self.is_hurrying = True
        self.flush()

    # In the thread of ours ----------------------------------------------------------------------

    def _serve(self, bell: Bell, lines: deque[Line]) -> None:
        waiting: deque[Line] = deque()
        while True:
            asked = self._wait(bell, lines, waiting)
            # Before the rows are taken: whoever adds one afterwards rings again.
            self._is_rung = False
            self._take(lines, waiting)
            if self._store(waiting):
                self._patience = FLUSH_SECONDS
            else:
                self._patience = min(MAX_BACKOFF_SECONDS, 2 * self._patience)
            if self.is_hurrying:
                # Also one that the site keeps open: nobody comes back for it.
                with suppress(Exception):
                    connections.close_all()
            if asked is not None:
                asked.set()

    def _wait(self, bell: Bell, lines: deque[Line], waiting: deque[Line]) -> threading.Event | None:
        """Wait until it is time to write; returns who else waits for that."""
        failed = self._patience > FLUSH_SECONDS
        until = time.monotonic() + self._patience if waiting else None
        while failed or len(waiting) + len(lines) < FLUSH_ROWS:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                asked = bell.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(asked, threading.Event):
                return asked
            if asked is not None:
                self._take(lines, waiting)
            if until is None:
                until = time.monotonic() + (0 if self.is_hurrying else self._patience)
        return None

    def _take(self, lines: deque[Line], waiting: deque[Line]) -> None:
        """Take what was added, and tell of it."""
        while lines:
            try:
                line = lines.popleft()
            except IndexError:
                # The oldest was dropped meanwhile.
                break
            # Told of once, however often the row has to be tried.
            waiting.append(Line(line.fields, line.pk))
            if line.tell is not None:
                try:
                    line.tell(line.fields)
                except Exception:
                    logger.exception("A call could not be told of.")
            if len(waiting) > MAX_WAITING:
                waiting.popleft()
                self.lost += 1

    def _store(self, waiting: deque[Line]) -> bool:
        """Write what waits; what cannot be written now stays there."""
        if not waiting:
            return True
        try:
            close_old_connections()
            while waiting:
                part = [waiting[n] for n in range(min(FLUSH_ROWS, len(waiting)))]
                write(part)
                for _ in part:
                    waiting.popleft()
        except Error as exc:
            logger.warning(
                "The call log could not be written (%s): %d rows wait, %d were lost.",
                exc,
                len(waiting),
                self.lost,
            )
            return False
        except Exception:
            # Whatever else it is, it is no reason to write nothing ever again.
            logger.exception("%d rows of the call log were lost.", len(waiting))
            self.lost += len(waiting)
            waiting.clear()
        finally:
            # What cannot be closed is closed by whoever finds it next.
            with suppress(Exception):
                close_old_connections()
        return True


class _Then(threading.Event):
    """Calls something when it is set."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def set(self) -> None:
        super().set()
        self._then()


call_log = CallLog()
