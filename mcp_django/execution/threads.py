"""The threads of a process: pool *work* runs the site's functions, *task* tasks, *desk* short work.

So a list or a sign-in never waits behind a slow tool. A full work pool queues a bounded number of
calls for a bounded time and then refuses them as busy. One caller has at most half of its threads
and half of its queue, all anonymous callers together count as one, and waiting callers take
turns.

A process makes its pools when it first needs them; a process that was forked begins with none.
The threads start as they are needed and end with the process, which waits at most
``DRAIN_SECONDS`` for running work. WSGI servers, which have threads of their own, use the pools
for little. A test that changes the sizes in ``MCP_DJANGO`` gets new pools.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import queue
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, ParamSpec, Self, TypeVar
from weakref import WeakKeyDictionary

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished, request_started, setting_changed
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, transaction

from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.exceptions import Busy

logger = logging.getLogger("mcp_django")

P = ParamSpec("P")
T = TypeVar("T")

# Transports whose process has one client, which has all threads.
LOCAL = frozenset({"stdio", "memory"})
DESK_THREADS = 2
# Many clients come back at once after a restart; what they ask for first is short.
DESK_QUEUE = 1024
# Each holds its row and a lease.
TASK_QUEUE = 1000


class BoundedPool:
    """A pool of threads with a bounded queue before it.

    ``share`` is how many threads one caller may have at once, half of all unless it is said, and
    ``queue_share`` how many of his calls may wait. A caller is a ``key``; what has none is the
    process's own and counts as nobody's.
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
        self.share = max(1, threads // 2) if share is None else share
        self.queue_share = max(1, queue // 2)
        self._threads = threads
        self._room = threads + queue
        # By caller, whoever is next at the front.
        self._waiting: OrderedDict[str | None, deque[_Job]] = OrderedDict()
        self._running: Counter[str | None] = Counter()
        self._queued = self._taken = self._idle = self._started = 0
        self._is_closed = False
        # Over the lock of the queue: threads wait for what they may begin.
        self._ready = threading.Condition(threading.Lock())

    # What callers do --------------------------------------------------------------------------

    async def run(self, function: Callable[[], T], *, key: str | None = None) -> T:
        """Run a function in a thread with the context variables of whoever asks.

        Raises:
            Busy: the caller's share or the whole is taken, or stayed so for too long; nothing has
                run.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        answer = partial(_Arrivals.of(loop).post, waiter)
        job = self._put(_Job(self, key, partial(context.run, function), answer))
        timer = loop.call_later(self.queue_seconds, self._give_up, job, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            job.is_given_up = True
            if not job.is_taken:
                # What has not begun need not.
                self._withdraw(job)

    def submit(self, function: Callable[[], T], *, key: str | None = None) -> Future[T]:
        """Queue a function without waiting; a future that is cancelled in time never begins.

        Raises:
            Busy: the caller's share of the queue, or the whole, is full.
        """
        future: Future[T] = Future()
        job = _Job(self, key, partial(_begin, future, function), partial(_settle, future))
        self._put(job)
        future.add_done_callback(lambda done: self._withdraw(job) if done.cancelled() else None)
        return future

    def close(self, *, seconds: float | None = None) -> bool:
        """Take nothing more and let the threads end, which is waited for; whether they have."""
        with self._ready:
            self._is_closed = True
            self._ready.notify_all()
            return self._ready.wait_for(lambda: not self._started, timeout=seconds)

    # The queue --------------------------------------------------------------------------------

    def _put(self, job: _Job) -> _Job:
        with self._ready:
            mine = self._waiting.get(job.key)
            waiting = len(mine) if mine is not None else 0
            room = self._threads + self.queue_share
            is_full = self._taken >= self._room
            if job.key is not None:
                room = self.share + self.queue_share
                is_full = is_full or self._running[job.key] + waiting >= room
            if is_full or self._is_closed:
                raise self._busy()
            if mine is None:
                mine = self._waiting[job.key] = deque()
            mine.append(job)
            self._queued += 1
            self._taken += 1
            if self._queued > self._idle and self._started < self._threads:
                self._start()
            self._ready.notify()
        return job

    def _start(self) -> None:
        # Daemons: what they wait for keeps no process alive.
        name = f"mcp-{self.name}_{self._started}"
        self._started += 1
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _next(self) -> _Job | None:
        """The next job that may begin: the first of the first caller with a thread to spare."""
        for key, mine in self._waiting.items():
            if key is None or self._running[key] < self.share:
                job = mine.popleft()
                if mine:
                    self._waiting.move_to_end(key)
                else:
                    del self._waiting[key]
                self._queued -= 1
                self._running[key] += 1
                job.is_taken = True
                return job
        return None

    def _leave(self, key: str | None) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]

    def _withdraw(self, job: _Job) -> bool:
        """Take a job out of the queue; ``False`` where a thread has it already."""
        with self._ready:
            mine = self._waiting.get(job.key)
            if job.is_taken or mine is None:
                return False
            job.is_taken = True
            mine.remove(job)
            if not mine:
                del self._waiting[job.key]
            self._queued -= 1
            self._taken -= 1
            return True

    def _give_up(self, job: _Job, waiter: asyncio.Future[Any]) -> None:
        job.is_given_up = True
        if self._withdraw(job) and not waiter.done():
            waiter.set_exception(self._busy())

    def _busy(self) -> Busy:
        return Busy(
            "All workers are busy; try again in a moment.",
            data={"retryAfter": int(self.queue_seconds) or 1},
        )

    # The threads ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (job := self._wait()) is not None:
            _here.job = job
            caller = None
            try:
                job.run()
            except _WaitsAs as exc:
                caller = exc.key
            except BaseException:
                logger.exception("What came of the work of a thread could not be told.")
            finally:
                _here.job = None
                with self._ready:
                    self._leave(job.key)
                    self._taken -= 1
                if caller is not None:
                    self._put_back(job, caller)
                del job

    def _put_back(self, job: _Job, key: str) -> None:
        try:
            if job.is_given_up:
                raise self._busy()
            job.key, job.is_taken = key, False
            self._put(job)
        except Busy as exc:
            job.is_taken = True
            job.answer(None, exc)

    def _wait(self) -> _Job | None:
        with self._ready:
            while (job := self._next()) is None:
                if self._is_closed:
                    self._started -= 1
                    self._ready.notify_all()
                    return None
                self._idle += 1
                try:
                    self._ready.wait()
                finally:
                    self._idle -= 1
            return job

    def _hand_over(self, job: _Job, key: str) -> None:
        with self._ready:
            if key == job.key:
                return
            if self._running[key] >= self.share:
                raise _WaitsAs(key)
            self._leave(job.key)
            self._running[key] += 1
            job.key = key
            # One of those whom it was counted with may have waited for that.
            if self._queued:
                self._ready.notify()


class _Job:
    """One function that waits for a thread or has one.

    ``is_taken`` is set once, under the lock of the pool: by the thread that takes it, or by whoever
    withdraws it. ``is_given_up`` once nobody waits for it any more.
    """

    __slots__ = ("answer", "function", "is_given_up", "is_taken", "key", "pool")

    def __init__(
        self,
        pool: BoundedPool,
        key: str | None,
        function: Callable[[], Any],
        answer: Callable[[Any, BaseException | None], None],
    ) -> None:
        self.pool = pool
        self.key = key
        self.function = function
        self.answer = answer
        self.is_taken = self.is_given_up = False

    def run(self) -> None:
        """Run it, and tell whoever waits what came of it."""
        try:
            result = self.function()
        except _WaitsAs:
            raise
        except BaseException as exc:  # noqa: BLE001 - handed to whoever waits for it
            self.answer(None, exc)
        else:
            self.answer(result, None)


class _WaitsAs(BaseException):
    """What a thread is at has to wait with the others of its caller, and to begin once more.

    No exception for the site's code to catch.
    """

    def __init__(self, key: str) -> None:
        self.key = key


class _Here(threading.local):
    job: _Job | None = None


_here = _Here()


def count_for(key: str) -> None:
    """Count what this thread is at for this caller, whoever it was begun for.

    Who calls is often known only after a thread has looked. Where the caller has as many threads as
    one may, this does not return: the work waits for one of them and begins anew, so whoever calls
    this has changed nothing yet. Nothing outside of a pool.
    """
    job = _here.job
    if job is not None and job.key is not None:
        job.pool._hand_over(job, key)


def _begin(future: Future[Any], function: Callable[[], Any]) -> Any:
    # It runs already where it was put back.
    return function() if future.running() or future.set_running_or_notify_cancel() else None


def _settle(future: Future[Any], result: Any, exc: BaseException | None) -> None:
    if future.cancelled():
        return
    if exc is not None:
        future.set_exception(exc)
    else:
        future.set_result(result)


class _Arrivals:
    """What threads have done for one loop, which is woken once for all of it."""

    _every: WeakKeyDictionary[asyncio.AbstractEventLoop, _Arrivals] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake: Callable[[], object] = partial(_wake, loop, self._deliver)
        self._done: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Arrivals:
        """Those of a loop; to be asked on it."""
        found = cls._every.get(loop)
        if found is None:
            found = cls._every[loop] = cls(loop)
        return found

    def post(self, waiter: asyncio.Future[Any], result: Any, exc: BaseException | None) -> None:
        """Hand over what came of a job, from its thread."""
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
                # No future holds one.
                waiter.set_exception(RuntimeError(f"The function raised {exc!r}."))
            elif exc is not None:
                waiter.set_exception(exc)
            else:
                waiter.set_result(result)


def _wake(loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(deliver)
    except RuntimeError:
        # The loop is closed, and with it went whoever waited.
        logger.debug("What a thread has done came too late for its loop.")


def pool(name: Literal["work", "desk", "task"]) -> BoundedPool:
    """One of the pools of this process, made at first use."""
    found = _pools.get(name)
    if found is not None:
        return found
    # Two pools of one name would be twice as many threads as there may be.
    with _making:
        return _pools.get(name) or _pools.setdefault(name, _make(name))


_pools: dict[str, BoundedPool] = {}
_making = threading.Lock()


def _make(name: str) -> BoundedPool:
    return BoundedPool(name, **_sizes(name))


def _sizes(name: str) -> dict[str, Any]:
    settings = get_settings()
    sizes: dict[str, dict[str, Any]] = {
        "work": {"threads": settings.threads, "queue": settings.queue},
        # What is short holds nobody up: turns are taken, and nobody is kept to one thread.
        "desk": {"threads": DESK_THREADS, "queue": DESK_QUEUE, "share": DESK_THREADS},
        "task": {"threads": settings.task_threads, "queue": TASK_QUEUE},
    }
    return {**sizes[name], "queue_seconds": settings.queue_seconds}


def _forget(*, setting: str, **kwargs: Any) -> None:
    """A test that changes the sizes gets pools of these, and so does the next without them."""
    for name, one in list(_pools.items()) if setting == "MCP_DJANGO" else ():
        # Settings that mean nothing say no sizes.
        with suppress(ImproperlyConfigured):
            if one.sizes != _sizes(name):
                _pools.pop(name).close(seconds=0)


setting_changed.connect(_forget, dispatch_uid="mcp_django.pools")


def _begin_anew() -> None:
    """In a process that was forked: the threads stayed behind, and a lock may be held for ever."""
    global _making  # noqa: PLW0603
    _pools.clear()
    _making = threading.Lock()
    _Arrivals._every = WeakKeyDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@atexit.register
def _finish() -> None:
    """Let calls come to their end, for a while; no process waits for a task."""
    for name, one in list(_pools.items()):
        if name != "task":
            one.close(seconds=get_settings().drain_seconds)


def with_request_signals(function: Callable[[], T], **details: Any) -> T:
    """Run a function between the signals by which Django tends a thread's connections."""
    request_started.send(sender=BoundedPool, **details)
    try:
        return function()
    finally:
        request_finished.send(sender=BoundedPool)


class LeasedThread(Executor):
    """One thread of the work pool for one async call, taken when first needed.

    An async function that never touches the ORM pays nothing. ``around`` makes what surrounds all
    that the thread does for the call, in the thread itself; ``key`` is whose call it is.
    """

    def __init__(
        self,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        key: str | None = None,
    ) -> None:
        self._around = around
        self._key = key
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: Future[None] | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue one call for the leased thread.

        Raises:
            Busy: the work pool is full, or the caller's share of it.
        """
        future: Future[T] = Future()
        if self._thread is None:
            work = partial(with_request_signals, self._serve_all)
            self._thread = pool("work").submit(work, key=self._key)
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def _serve_all(self) -> None:
        try:
            with self._around(), all_left():
                self._serve()
        except LeftOpen:
            # The call that did it has its answer already.
            logger.exception("The thread of an async call was tidied up.")

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as exc:  # noqa: BLE001 - handed to whoever waits for it
                future.set_exception(exc)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._thread is not None and not self._thread.cancel():
            self._calls.put(None)


# Transactions around a component ------------------------------------------------------------------

# The runtime opens them, not the mount: they enclose the developer's function alone, so a
# ``ToolError`` rolls back and rows of this package are written outside.


class LeftOpen(Exception):
    """The site's function entered a transaction and did not leave it: a bug like any other."""


class Surrounding(transaction.Atomic):
    """A transaction that the runtime opens below whatever the site's function enters later."""

    is_surrounding = True

    def __init__(self, using: str) -> None:
        super().__init__(using, savepoint=True, durable=False)
        # The function may enter a durable block, as it may without us.
        self._from_testcase = True


@contextmanager
def around(component: Component) -> Iterator[None]:
    """Open what the component declares; inside a transaction it is a savepoint."""
    with ExitStack() as stack:
        for alias in _aliases(component):
            stack.enter_context(transaction.atomic(using=alias))
        with all_left():
            yield


@contextmanager
def all_left() -> Iterator[None]:
    """Roll back what is entered inside and never left.

    Django keeps a connection that is in a transaction, so the next call in this thread would
    write into it, and nothing would be committed any more.

    Raises:
        LeftOpen: there was something to roll back, and nothing else had failed.
    """
    before = {one.alias: len(one.atomic_blocks) for one in connections.all(initialized_only=True)}
    failure = LeftOpen("left a transaction open, which was rolled back")
    found = False
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            while len(connection.atomic_blocks) > before.get(connection.alias, 0):
                if isinstance(connection.atomic_blocks[-1], Surrounding):
                    # Not the function's: whoever entered it leaves it, later.
                    break
                found = True
                connection.atomic_blocks[-1].__exit__(LeftOpen, failure, None)
    if found:
        raise failure


def _aliases(component: Component) -> list[str]:
    """The databases to open a transaction on; an async function gets none automatically.

    A function that asks gets one, since it runs again: what it wrote before its question must not
    be written twice.
    """
    if component.function.is_async or component.atomic is False:
        return []
    found = [alias for alias in connections if connections[alias].settings_dict["ATOMIC_REQUESTS"]]
    # ``ctx.task.begin()`` is left like a question, and what was written before it is not to stay.
    runs_again = component.function.asks or getattr(component, "ask", "") == "before"
    wanted = runs_again if component.atomic is None else component.atomic
    if wanted and DEFAULT_DB_ALIAS not in found and _has_database(component):
        found.append(DEFAULT_DB_ALIAS)
    return found


def _has_database(component: Component) -> bool:
    """Whether there is a database to open the transaction on that nobody has asked for by name."""
    engine = connections[DEFAULT_DB_ALIAS].settings_dict["ENGINE"]
    return bool(component.atomic) or engine != "django.db.backends.dummy"


def after_commit(function: Callable[[], Any], *, using: str | None = None) -> None:
    """Run a function once the current transaction is committed, at once outside of one.

    ``transaction.on_commit`` alone would open a connection to find out, which an event loop may
    not do.
    """

    # Not a partial object: Django logs the name of what failed, and that has none.
    def work() -> None:
        if _held_back.waiting is None:
            function()
        else:
            _held_back.waiting.append((function, using))

    connection = connections[using or DEFAULT_DB_ALIAS]
    if connection.in_atomic_block:
        transaction.on_commit(work, using=using, robust=True)
    else:
        work()


class _HeldBack(threading.local):
    """What waits until this thread may write again; ``None``: it may."""

    waiting: list[tuple[Callable[[], Any], str | None]] | None = None


_held_back = _HeldBack()


def hold_back() -> None:
    """Let what is to happen after a commit wait, since it may write rows of ours."""
    _held_back.waiting = []


def let_go(*, succeeded: bool) -> None:
    """Do what was held back, or forget it."""
    waiting, _held_back.waiting = _held_back.waiting, None
    for function, using in waiting or () if succeeded else ():
        after_commit(function, using=using)


# Short database work from the event loop ----------------------------------------------------------

# How long a desk that is busy is left alone.
PATIENCE_SECONDS = 0.5


async def at_desk(work: Callable[[], T]) -> T:
    """Run a short piece of database work in a thread; a busy desk is asked again."""
    return await asked_until_free(lambda: pool("desk").run(partial(with_request_signals, work)))


async def asked_until_free(ask: Callable[[], Awaitable[T]]) -> T:
    """What a function says that needs a thread, as soon as there is a free one."""
    while True:
        try:
            return await ask()
        except Busy:
            await asyncio.sleep(PATIENCE_SECONDS)


async def insist_at_desk(work: Callable[[], T]) -> T:
    """``at_desk`` for what has to be stored: as long as the database is away, it is tried again.

    The work may have been done although it failed, so it has to bear repetition.
    """
    while True:
        try:
            return await at_desk(work)
        except (OperationalError, InterfaceError) as exc:
            logger.warning("The database could not be written to (%s); it is tried again.", exc)
            await asyncio.sleep(PATIENCE_SECONDS)


def on_loop(function: Callable[[], object]) -> Callable[[], None]:
    """The function, for any thread, called on the loop that runs now."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function)

    return call
