"""Thread pools of a process, and the transactions around a component's function.

The pool "tool" (tool threads) runs the site's functions, "task" runs tasks, and "short" (short-task
threads) runs short database work, so a list or a sign-in never waits behind a slow tool. The pool
"stream" (stream threads) checks with the functions of templates which rows subscribers may read: a
change of one row may have many subscribers, for whom no call should have to wait. A full pool
queues a bounded number of calls for a bounded time and then rejects them as busy. One caller gets
at most half of the tool threads and half of the queue, and waiting callers take turns. All
anonymous callers together count as one caller, in which addresses are members: one address gets at
most half of what they have together, and waiting addresses take turns among themselves.

A process creates a pool when it first needs it; a forked process begins with none. The threads
start on demand and end with the process, which waits at most ``DRAIN_SECONDS`` for running work.
Under WSGI servers, which have threads of their own, the pools are used little. A test that changes
the sizes in ``MCP_DJANGO`` gets new pools.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished, request_started
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, transaction

from mcp_django.auth.limits import Member, ShareKey
from mcp_django.components.component import Component
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.process import at_fork, on_settings_change
from mcp_django.storage.databases import (
    CHECK_SECONDS,
    IDLE_SECONDS,
    check_kept_connections,
    close_kept_connections,
    has_kept_connections,
    keep_connections,
)
from mcp_django.storage.writer import LoopResults, RowKind, row_writer
from mcp_django.tenants import run_as_tenant

logger = logging.getLogger("mcp_django")

P = ParamSpec("P")
T = TypeVar("T")

# Transports with one client per process, which may use all threads.
SINGLE_CLIENT_TRANSPORTS = frozenset({"stdio", "memory"})
SHORT_TASK_THREADS = 2
# After a restart many clients reconnect together, with short requests first.
SHORT_TASK_QUEUE = 1024
# One caller uses at most two of them, one anonymous address at most one.
STREAM_THREADS = 4
STREAM_QUEUE = 1024
# Each queued task has a row and a lease.
TASK_QUEUE = 1000


class BoundedPool:
    """A thread pool with a bounded queue and limits per caller.

    A function runs in the tenant of its caller and between Django's request signals, so that stale
    connections are closed and the logged queries of one function do not remain for the next.

    ``share`` is how many threads one caller may use simultaneously, by default half of all, and
    ``queue_share`` is how many calls of one caller may wait. ``key`` identifies the caller. Work
    without a key is the process's own, and no caller's limits apply to it.

    If several callers count as one, the key of each is a ``Member``: the members of its group
    together are limited like a single caller, and the group has one turn among the callers.
    ``member_share`` and ``member_queue_share`` are the limits of one member, by default half of the
    group's. Members take turns within the turns of their group. The name of the group alone is the
    key of a member without limits of its own.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        queue: int,
        queue_seconds: float,
        share: int | None = None,
    ) -> None:
        self.name = name
        self.sizes = {"threads": threads, "queue": queue, "queue_seconds": queue_seconds}
        if share is not None:
            self.sizes["share"] = share
        self.queue_seconds = queue_seconds
        self.share = _half(threads) if share is None else share
        self.member_share = _half(self.share) if share is None else share
        self.queue_share = _half(queue)
        self.member_queue_share = _half(self.queue_share)
        self._threads = threads
        self._queue = queue
        # Protects all of the following. A thread is idle only if no waiting job may begin.
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        # The waiting jobs: by caller or group, and within a group by key, both in order of turns.
        self._waiting: OrderedDict[str | None, dict[ShareKey, deque[_Job]]] = OrderedDict()
        self._waiting_count = 0
        # The number of running and waiting jobs by key; for a group, the sum of its members.
        self._running: dict[ShareKey, int] = {}
        self._queued: dict[ShareKey, int] = {}
        # The thread that became idle last is the first to work again, so that few stay busy.
        self._idle: list[_Worker] = []
        self._thread_count = 0
        self._is_closed = False

    async def run(self, function: Callable[[], T], *, key: ShareKey = None) -> T:
        """Run a function in a thread, with the current context variables, and return its result.

        Raises:
            Busy: the pool or the caller's share of it is full, or no thread became free within
                ``queue_seconds``; the function has not run.
        """
        job = self.begin(function, key=key)
        try:
            return await job.waiter
        finally:
            job.end()

    def begin(
        self, function: Callable[[], T], *, key: ShareKey = None, sends_signals: bool = False
    ) -> LoopJob[T]:
        """Begin the same job as ``run`` and return it: await its ``waiter``, then call ``end``.

        A function that ``sends_signals`` sends Django's request signals itself.

        Raises:
            Busy: the pool or the caller's share of it is full.
        """
        work = function if sends_signals else partial(_run_with_signals, function)
        job = LoopJob(self, key, work)
        self._enqueue(job)
        if job.is_waiting:
            job.limit_wait()
        return job

    def submit(self, function: Callable[[], T], *, key: ShareKey = None) -> Future[T]:
        """Queue a function and return its future; if cancelled before it begins, it never runs.

        Raises:
            Busy: the pool or the caller's share of it is full.
        """
        job = _FutureJob(self, key, partial(_run_with_signals, function))
        self._enqueue(job)
        job.future.add_done_callback(lambda done: self._withdraw(job) if done.cancelled() else None)
        return job.future

    def run_from_thread(self, function: Callable[[], T], *, key: ShareKey = None) -> T:
        """Do the same as ``run`` from a thread, without its context variables.

        Raises:
            Busy: see ``run``.
        """
        future = self.submit(function, key=key)
        wait([future], timeout=self.queue_seconds)
        # A function that has begun cannot be cancelled.
        if not future.done() and future.cancel():
            raise self.busy_error()
        return future.result()

    def share_of(self, key: ShareKey) -> int:
        """Return how many threads the caller may use simultaneously."""
        if key is None:
            return self._threads
        return self.member_share if isinstance(key, Member) else self.share

    def close(self, *, seconds: float | None = None) -> bool:
        """Accept no more work and wait for the threads to end; return whether they have."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._idle.pop().wake.release()
            return self._ended.wait_for(lambda: not self._thread_count, timeout=seconds)

    @property
    def is_crowded(self) -> bool:
        """Whether jobs wait for a thread."""
        return bool(self._waiting)

    def _enqueue(self, job: _Job) -> None:
        with self._lock:
            if self._is_closed:
                raise self.busy_error()
            key = job.key
            worker = self._free_worker() if self._may_begin(key) else None
            if worker is not None:
                self._hand_over(job, worker)
                return
            if not self._may_wait(key):
                raise self.busy_error()
            group = key.group if isinstance(key, Member) else key
            queues = self._waiting.get(group)
            if queues is None:
                self._waiting[group] = {key: deque((job,))}
            elif (queue := queues.get(key)) is None:
                queues[key] = deque((job,))
            else:
                queue.append(job)
            self._waiting_count += 1
            _count(self._queued, key)
            job.is_waiting = job.has_waited = True

    def _may_begin(self, key: ShareKey) -> bool:
        if isinstance(key, Member):
            running = self._running.get
            return running(key, 0) < self.member_share and running(key.group, 0) < self.share
        return key is None or self._running.get(key, 0) < self.share

    def _may_wait(self, key: ShareKey) -> bool:
        if self._waiting_count >= self._queue:
            return False
        if isinstance(key, Member):
            queued = self._queued.get
            is_full = queued(key, 0) >= self.member_queue_share
            return not is_full and queued(key.group, 0) < self.queue_share
        return key is None or self._queued.get(key, 0) < self.queue_share

    def _note_left(self, job: _Job) -> None:
        self._waiting_count -= 1
        _uncount(self._queued, job.key)
        job.is_waiting = False

    def _free_worker(self) -> _Worker | None:
        if self._idle:
            return self._idle.pop()
        if self._thread_count >= self._threads:
            return None
        worker, name = _Worker(), f"mcp-{self.name}_{self._thread_count}"
        # Daemon threads, so that a blocked function does not keep the process alive.
        threading.Thread(target=self._run_jobs, args=(worker,), name=name, daemon=True).start()
        self._thread_count += 1
        return worker

    def _hand_over(self, job: _Job, worker: _Worker) -> None:
        _count(self._running, job.key)
        worker.job = job
        worker.wake.release()

    def _next_in_turn(self) -> tuple[str | None, ShareKey] | None:
        """Return the caller and the key whose turn it is; ``None`` if no waiting job may begin."""
        running, share, member_share = self._running.get, self.share, self.member_share
        for group, queues in self._waiting.items():
            if group is None or running(group, 0) < share:
                for key in queues:
                    if not isinstance(key, Member) or running(key, 0) < member_share:
                        return group, key
        return None

    def _begin_next(self, turn: tuple[str | None, ShareKey], worker: _Worker) -> None:
        """Begin the first job of a key; its next turn, and its group's, comes after all others."""
        group, key = turn
        queues = self._waiting[group]
        queue = queues[key]
        job = queue.popleft()
        self._note_left(job)
        self._hand_over(job, worker)
        if len(queues) > 1:
            del queues[key]
            if queue:
                queues[key] = queue
        elif not queue:
            del self._waiting[group]
            return
        self._waiting.move_to_end(group)

    def _withdraw(self, job: _Job) -> bool:
        """Remove a job from the queue; return ``False`` if a thread has taken it already."""
        with self._lock:
            if not job.is_waiting:
                return False
            key = job.key
            group = key.group if isinstance(key, Member) else key
            queues = self._waiting[group]
            queues[key].remove(job)
            if not queues[key]:
                del queues[key]
            if not queues:
                del self._waiting[group]
            self._note_left(job)
            return True

    def busy_error(self) -> Busy:
        """Return the error of a job that gets no thread."""
        return Busy(
            "All workers are busy; try again in a moment.",
            data={"retryAfter": int(self.queue_seconds) or 1},
        )

    def _run_jobs(self, worker: _Worker) -> None:
        keep_connections()
        while (job := worker.wait_for_job()) is not None:
            _current.job = job
            requeued_for = result = failure = None
            try:
                result = job.function()
            except _Requeue as exc:
                requeued_for = exc.key
            except BaseException as exc:  # noqa: BLE001 - delivered to the caller
                failure = exc
            _current.job = None
            # Before the result is delivered: the caller may send its next job immediately.
            self._end_job(job, worker, requeued_for)
            if requeued_for is None:
                try:
                    job.deliver(result, failure)
                except BaseException:
                    logger.exception("The result of a job could not be delivered to its caller.")
            del job, result, failure
        close_kept_connections()
        with self._lock:
            self._thread_count -= 1
            self._ended.notify_all()

    def _end_job(self, job: _Job, worker: _Worker, requeued_for: ShareKey) -> None:
        """Give the thread its next job, or let it wait; if the pool is closed, the thread ends."""
        if requeued_for is not None:
            with self._lock:
                _uncount(self._running, job.key)
            try:
                if job.is_abandoned:
                    raise self.busy_error()
                job.key = requeued_for
                self._enqueue(job)
                job.wait_again()
            except Busy as exc:
                job.deliver(None, exc)
        with self._lock:
            if requeued_for is None:
                _uncount(self._running, job.key)
            if (turn := self._next_in_turn()) is not None:
                self._begin_next(turn, worker)
            elif self._is_closed:
                worker.wake.release()
            else:
                self._idle.append(worker)

    def _reassign(self, job: _Job, key: ShareKey) -> None:
        with self._lock:
            if key == job.key:
                return
            # First, since both keys may be members of one group.
            _uncount(self._running, job.key)
            if not self._may_begin(key):
                _count(self._running, job.key)
                raise _Requeue(key)
            _count(self._running, key)
            job.key = key
            # A job with the previous key may have waited for the share that is free now.
            turn = self._next_in_turn()
            if turn is not None and (worker := self._free_worker()) is not None:
                self._begin_next(turn, worker)


def _half(number: int) -> int:
    """Return half of a number, at least 1."""
    return max(1, number // 2)


def _count(counts: dict[ShareKey, int], key: ShareKey) -> None:
    """Count a job for a key, and for its group."""
    counts[key] = counts.get(key, 0) + 1
    if isinstance(key, Member):
        counts[key.group] = counts.get(key.group, 0) + 1


def _uncount(counts: dict[ShareKey, int], key: ShareKey) -> None:
    """Undo ``_count``; a key without jobs is forgotten."""
    remaining = counts[key] - 1
    if remaining:
        counts[key] = remaining
    else:
        del counts[key]
    if isinstance(key, Member):
        _uncount(counts, key.group)


class _Worker:
    """A thread of a pool: its next job, and the lock that wakes the thread for it."""

    __slots__ = ("job", "wake")

    def __init__(self) -> None:
        self.job: _Job | None = None
        self.wake = threading.Lock()
        self.wake.acquire()

    def wait_for_job(self) -> _Job | None:
        """Wait in this thread for a job and return it; ``None`` if there will be no more."""
        if not has_kept_connections():
            self.wake.acquire()
        elif not self.wake.acquire(timeout=CHECK_SECONDS):
            if self.wake.acquire(timeout=IDLE_SECONDS - CHECK_SECONDS):
                check_kept_connections()
            else:
                close_kept_connections()
                self.wake.acquire()
        job, self.job = self.job, None
        return job


class _Job(ABC):
    """One function that waits for a thread or runs in one.

    ``is_waiting`` is set under the lock of the pool while the job is in the queue, and
    ``has_waited`` from then on. ``is_abandoned`` is set when the caller no longer waits.
    """

    __slots__ = ("function", "has_waited", "is_abandoned", "is_waiting", "key", "pool")

    def __init__(self, pool: BoundedPool, key: ShareKey, function: Callable[[], Any]) -> None:
        self.pool = pool
        self.key = key
        self.function = function
        self.is_waiting = self.has_waited = self.is_abandoned = False

    @abstractmethod
    def deliver(self, result: Any, exc: BaseException | None) -> None:
        """Give the caller the result or the exception; called in a thread."""

    @abstractmethod
    def wait_again(self) -> None:
        """Note that the job has to wait in the queue once more; called in a thread."""


class LoopJob(_Job, Generic[T]):
    """A job for an event loop: await ``waiter``, and call ``end`` in any case."""

    __slots__ = ("_loop", "_timer", "_until", "waiter")

    def __init__(self, pool: BoundedPool, key: ShareKey, function: Callable[[], T]) -> None:
        super().__init__(pool, key, partial(contextvars.copy_context().run, function))
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + pool.queue_seconds
        self._timer: asyncio.TimerHandle | None = None
        self.waiter: asyncio.Future[T] = self._loop.create_future()

    def end(self) -> None:
        """End the wait; a job that has not begun will never run."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_abandoned = True
        if self.is_waiting:
            self.pool._withdraw(self)

    def deliver(self, result: Any, exc: BaseException | None) -> None:
        """Queue the result or exception for the loop, and wake it."""
        LoopResults.of(self._loop).post(self.waiter, result, exc)

    def wait_again(self) -> None:
        """Limit the second wait in the queue to what is left of ``queue_seconds``."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.limit_wait)

    def limit_wait(self) -> None:
        """Limit the wait in the queue to ``queue_seconds``; called on the loop."""
        if self._timer is None and not self.waiter.done():
            self._timer = self._loop.call_at(self._until, self._time_out)

    def _time_out(self) -> None:
        self.is_abandoned = True
        if self.pool._withdraw(self) and not self.waiter.done():
            self.waiter.set_exception(self.pool.busy_error())


class _FutureJob(_Job, Generic[T]):
    """A job for a thread, which waits for its ``future``."""

    __slots__ = ("future",)

    def __init__(self, pool: BoundedPool, key: ShareKey, function: Callable[[], T]) -> None:
        future: Future[T] = Future()

        def run_if_wanted() -> T | None:
            # The future is running already if the job was put back into the queue.
            is_wanted = future.running() or future.set_running_or_notify_cancel()
            return function() if is_wanted else None

        super().__init__(pool, key, run_if_wanted)
        self.future = future

    def wait_again(self) -> None:
        """Do nothing, since the caller limits its wait by itself."""

    def deliver(self, result: Any, exc: BaseException | None) -> None:
        """Set the result or exception of the future."""
        if self.future.cancelled():
            return
        if exc is not None:
            self.future.set_exception(exc)
        else:
            self.future.set_result(result)


class _Requeue(BaseException):
    """Raised to put the job of this thread back into the queue, to begin again for its caller.

    A ``BaseException``, so that the site's code does not catch it.
    """

    def __init__(self, key: ShareKey) -> None:
        self.key = key


class _CurrentJob(threading.local):
    job: _Job | None = None


_current = _CurrentJob()


def count_job_for(key: str | Member) -> None:
    """Count the current job of this thread for this caller, instead of for its previous key.

    The caller is often known only after a query in a thread. If the caller's share of threads is
    used up, this does not return: the job is queued again and later begins anew, so it must not
    have changed anything before this call. Outside of a pool this does nothing.
    """
    job = _current.job
    if job is not None and job.key is not None:
        job.pool._reassign(job, key)


def has_waited() -> bool:
    """Return whether the current job of this thread waited in a queue before it began."""
    job = _current.job
    return job is not None and job.has_waited


def get_pool(name: Literal["tool", "short", "stream", "task"]) -> BoundedPool:
    """Return a pool of this process, which is created at first use."""
    pool = _pools.get(name)
    if pool is not None:
        return pool
    # Locked, since a second pool of the same name would double the number of threads.
    with _creation_lock:
        return _pools.get(name) or _pools.setdefault(name, _create_pool(name))


_pools: dict[str, BoundedPool] = {}
_creation_lock = threading.Lock()


def _create_pool(name: str) -> BoundedPool:
    return BoundedPool(name, **_pool_sizes(name))


def _pool_sizes(name: str) -> dict[str, Any]:
    settings = get_settings()
    sizes: dict[str, dict[str, Any]] = {
        "tool": {"threads": settings.threads, "queue": settings.queue},
        # Short work delays other callers little, so one caller may use all of these threads.
        "short": {
            "threads": SHORT_TASK_THREADS,
            "queue": SHORT_TASK_QUEUE,
            "share": SHORT_TASK_THREADS,
        },
        "stream": {"threads": STREAM_THREADS, "queue": STREAM_QUEUE},
        "task": {"threads": settings.task_threads, "queue": TASK_QUEUE},
    }
    return {**sizes[name], "queue_seconds": settings.queue_seconds}


@on_settings_change("MCP_DJANGO")
def _discard_changed_pools() -> None:
    """Discard pools whose sizes a test has changed or restored in the settings."""
    for name, pool in list(_pools.items()):
        # Invalid settings have no sizes.
        with suppress(ImproperlyConfigured):
            if pool.sizes != _pool_sizes(name):
                _pools.pop(name).close(seconds=0)


@at_fork
def _reset_after_fork() -> None:
    """Reset the pools after a fork: threads are not copied, and a copied lock may be locked."""
    global _creation_lock  # noqa: PLW0603
    _pools.clear()
    _creation_lock = threading.Lock()


@atexit.register
def _drain_at_exit() -> None:
    """Wait at most ``DRAIN_SECONDS`` for the calls in each pool; tasks are not waited for."""
    for name, pool in list(_pools.items()):
        if name != "task":
            pool.close(seconds=get_settings().drain_seconds)


def _run_with_signals(function: Callable[[], T]) -> T:
    request_started.send(sender=BoundedPool)
    try:
        return run_as_tenant(function)
    finally:
        request_finished.send(sender=BoundedPool)


# Transactions around a component ------------------------------------------------------------------

# Transactions are opened here and not by the mount, so that they enclose only the component's
# function: a ``ToolError`` rolls back, and the rows of this package are written outside.


class TransactionLeftOpen(Exception):
    """The component's function entered a transaction and did not leave it, which is a bug."""


class RuntimeTransaction(transaction.Atomic):
    """A transaction that this package opens around those of the component's function."""

    is_surrounding = True

    def __init__(self, using: str) -> None:
        super().__init__(using, savepoint=True, durable=False)
        # Otherwise Django would not let the function enter a durable block inside.
        self._from_testcase = True


@contextmanager
def component_transactions(component: Component) -> Iterator[None]:
    """Open the transactions that the component needs; nested ones are savepoints."""
    with ExitStack() as stack:
        for alias in transaction_aliases(component):
            stack.enter_context(transaction.atomic(using=alias))
        with roll_back_left_open():
            yield


@contextmanager
def roll_back_left_open() -> Iterator[None]:
    """Roll back every transaction that is entered in the block and not left.

    Django keeps a connection that is in a transaction, so the next call in this thread would
    write into that transaction, and nothing would ever be committed.

    Raises:
        TransactionLeftOpen: a transaction was rolled back, and the block did not raise another
        exception.
    """
    before = {
        connection.alias: len(connection.atomic_blocks)
        for connection in connections.all(initialized_only=True)
    }
    failure = TransactionLeftOpen("left a transaction open, which was rolled back")
    was_left_open = False
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            while len(connection.atomic_blocks) > before.get(connection.alias, 0):
                if isinstance(connection.atomic_blocks[-1], RuntimeTransaction):
                    # Not the function's: this package leaves it later.
                    break
                was_left_open = True
                connection.atomic_blocks[-1].__exit__(TransactionLeftOpen, failure, None)
    if was_left_open:
        raise failure


def transaction_aliases(component: Component) -> list[str]:
    """Return the databases to open a transaction on; none for an async function.

    A function that asks the client gets one on the default database, since it runs again after the
    answer: what it wrote before its question must not be written twice.
    """
    if component.function.is_async or component.atomic is False:
        return []
    aliases = [
        alias for alias in connections if connections[alias].settings_dict["ATOMIC_REQUESTS"]
    ]
    # After ``ctx.task.begin()`` the function also runs again, and its writes must be rolled back.
    runs_again = (
        component.function.sends_client_requests or getattr(component, "ask", "") == "before"
    )
    is_atomic = runs_again if component.atomic is None else component.atomic
    if is_atomic and DEFAULT_DB_ALIAS not in aliases:
        engine = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
        # Without a default database, only ``atomic=True`` requires one.
        if component.atomic or engine != "django.db.backends.dummy":
            aliases.append(DEFAULT_DB_ALIAS)
    return aliases


def run_after_commit(function: Callable[[], Any], *, using: str | None = None) -> None:
    """Run a function after the current transaction commits, or immediately outside of one.

    ``transaction.on_commit`` alone would open a connection to check for a transaction, which is
    not allowed on an event loop.
    """

    # Not a ``partial``: Django logs the name of a failed function, and a ``partial`` has none.
    def work() -> None:
        if _deferred.waiting is None:
            function()
        else:
            _deferred.waiting.append((function, using))

    connection = connections[using or DEFAULT_DB_ALIAS]
    if connection.in_atomic_block:
        transaction.on_commit(work, using=using, robust=True)
    else:
        work()


class _Deferred(threading.local):
    """Functions that wait until this thread may write again; ``None`` if it may write now."""

    waiting: list[tuple[Callable[[], Any], str | None]] | None = None


_deferred = _Deferred()


def defer_after_commit() -> None:
    """Defer ``run_after_commit`` functions during a read-only call, since they may write rows."""
    _deferred.waiting = []


def end_deferral(*, succeeded: bool) -> None:
    """Run the deferred functions if the call succeeded, or else discard them."""
    waiting, _deferred.waiting = _deferred.waiting, None
    for function, using in waiting or () if succeeded else ():
        run_after_commit(function, using=using)


# Short database work from the event loop ----------------------------------------------------------

# The pause before another attempt, if all threads are busy or the database is unavailable.
RETRY_SECONDS = 0.5


async def run_in_short_thread(work: Callable[[], T]) -> T:
    """Run short database work in a short-task thread; retry while all of them are busy."""
    return await retry_while_busy(lambda: get_pool("short").run(work))


async def retry_while_busy(ask: Callable[[], Awaitable[T]]) -> T:
    """Await a function that needs a thread, and retry while it raises ``Busy``."""
    while True:
        try:
            return await ask()
        except Busy:
            await asyncio.sleep(RETRY_SECONDS)


async def run_with_retry(work: Callable[[], T]) -> T:
    """Run work in a short-task thread; retry while the database is unavailable.

    The work may have been done although it failed, so it must be idempotent.
    """
    while True:
        try:
            return await run_in_short_thread(work)
        except (OperationalError, InterfaceError) as exc:
            logger.warning("The database could not be written to (%s); trying again.", exc)
            await asyncio.sleep(RETRY_SECONDS)


async def write_row(kind: RowKind, row: Any) -> Any:
    """Write a row in one transaction with other rows; return its outcome after the commit.

    Retry while the database is unavailable. The row may have been written although an attempt
    failed, so writing it twice must be harmless.
    """
    seconds = get_settings().queue_seconds
    while True:
        try:
            if row_writer.is_inline():
                work = partial(row_writer.write, kind, row, seconds=seconds)
                return await run_in_short_thread(work)
            return await row_writer.awrite(kind, row, seconds=seconds)
        except (OperationalError, InterfaceError, Busy) as exc:
            logger.warning("The database could not be written to (%s); trying again.", exc)
            await asyncio.sleep(RETRY_SECONDS)


def call_on_loop(function: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls this function on the running event loop, from any thread."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function)

    return call
