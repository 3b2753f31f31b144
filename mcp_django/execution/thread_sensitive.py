"""Runs the thread-sensitive work of async functions, which ``sync_to_async`` hands over.

On the event loop of the server, a call leases a tool thread for this work (``LeasedThread``). In a
thread without a loop, that thread runs the function and this work in turn (``run_in_this_thread``).

This module alone uses internals of asgiref, read against 3.13: the executor of a
``ThreadSensitiveContext``, and its ``__aenter__``; ``SyncToAsync.thread_sensitive_context``;
``SyncToAsync.threadlocal`` with ``main_event_loop``, ``main_event_loop_pid`` and ``task_context``;
``AsyncToSync.executors.current`` and ``AsyncToSync.loop_thread_executors``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import queue
import selectors
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, async_to_sync

from mcp_django.auth.limits import ShareKey
from mcp_django.execution.threads import (
    TransactionLeftOpen,
    call_on_loop,
    get_pool,
    roll_back_left_open,
)
from mcp_django.process import at_fork, before_fork

logger = logging.getLogger("mcp_django")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class LeasedThread(Executor):
    """An executor with one tool thread for one async call, taken when first needed.

    An async function that does not use the ORM takes no thread. ``around`` returns the context
    manager in which the thread does all its work for the call; ``key`` identifies the caller.

    The call owns it: ``enter`` is called in the context of the call before its first step, and
    ``release`` at its end.
    """

    around: Callable[[], AbstractContextManager[None]] = nullcontext
    key: Callable[[], ShareKey] = lambda: None
    is_over: bool = False
    """Whether the call is over, so that nothing more may be submitted."""
    is_taken: bool = False
    """Whether a thread was taken, which has to be released."""
    _calls: LeasedCalls | None = None
    _thread: Future[None] | None = None

    def enter(self) -> None:
        """Let ``sync_to_async`` use this thread in the current context, which is the call's own."""
        _lease.set(self)
        SyncToAsync.thread_sensitive_context.set(_shared_context())
        if getattr(AsyncToSync.executors, "current", None) is not None:
            # A sync caller further up is waiting, and would otherwise run the work in its thread.
            AsyncToSync.executors.current = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue one function for the leased thread.

        Raises:
            Busy: the tool threads' pool or the caller's share of it is full.
            RuntimeError: the call is over; a task that it began has outlived it.
        """
        if self.is_over:
            raise RuntimeError("The call that began this task is over; await tasks before it ends.")
        future: Future[T] = Future()
        if self._calls is None or self._thread is None:
            self._calls = queue.SimpleQueue()
            work = partial(self._run_surrounded, self._calls)
            self._thread = get_pool("tool").submit(work, key=self.key())
            self.is_taken = True
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def release(self) -> None:
        """End the work of the thread."""
        if self._calls is not None and self._thread is not None and not self._thread.cancel():
            self._calls.put(None)

    def _run_surrounded(self, calls: LeasedCalls) -> None:
        try:
            with self.around(), roll_back_left_open():
                while (call := calls.get()) is not None:
                    future, function = call
                    if not future.set_running_or_notify_cancel():
                        continue
                    try:
                        future.set_result(function())
                    except BaseException as exc:  # noqa: BLE001 - delivered to the caller
                        future.set_exception(exc)
        except TransactionLeftOpen:
            # The call has been answered already.
            logger.exception("A transaction that an async call left open was rolled back.")


LeasedCalls: TypeAlias = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
_lease: ContextVar[LeasedThread] = ContextVar("mcp_django_lease")


class _LeasedThreads(Executor):
    """Passes each function to the leased thread of the call that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue one function."""
        return _lease.get().submit(fn, *args, **kwargs)


@cache
def _shared_context() -> ThreadSensitiveContext:
    """Return the context that all async calls share; entering one for each costs as much as a call.

    It belongs to the process and is never left. It holds no thread, so a forked child keeps it.
    """
    shared = ThreadSensitiveContext(executor=_LeasedThreads())
    # In a context of its own, since it also sets variables.
    with suppress(StopIteration):
        Context().run(shared.__aenter__().send, None)  # type: ignore[no-untyped-call]
    return shared


# In a thread without a loop -----------------------------------------------------------------------

# ``async_to_sync`` creates a thread and an event loop for each call, which costs more than most
# functions. It also runs the body of an async function in another thread than its database calls,
# so a ``threading.local()`` that middleware has set is empty there: a manager or a router that
# reads it would choose the rows of no tenant, or of all. Here one thread does both in turn, on a
# loop that is reused. A database call delays only what the same function awaits at that time.

MAX_IDLE_LOOPS = 32
"""The number of event loops that are kept for the next call; each has three open files."""

MAX_LEFT_OUT = 16
"""How many times in a row a loop does not poll for the signals and threads that wake it."""

if sys.platform == "win32":
    _BaseLoop = asyncio.ProactorEventLoop
else:
    _BaseLoop = asyncio.SelectorEventLoop


def run_coroutine(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine from this thread, which has no running loop: ``async_to_sync``, but faster.

    If an event loop waits for this thread, as Django's ASGI handler does for a view, the coroutine
    runs on that loop. Its changes to context variables do not reach this thread.

    Raises:
        RuntimeError: this thread has a running event loop.
        BaseException: what the coroutine raises.
    """
    above = vars(SyncToAsync.threadlocal)
    loop = above.get("main_event_loop")
    # asgiref leaves a closed loop there, and a fork copies one that never ends.
    if loop and loop.is_running() and above.get("main_event_loop_pid") == os.getpid():
        return async_to_sync(function)()
    context = contextvars.copy_context()
    return run_in_this_thread(function, context=context, ends_with_request=False)


def run_in_this_thread(
    function: Callable[[], Coroutine[Any, Any, T]],
    *,
    context: contextvars.Context,
    ends_with_request: bool,
) -> T:
    """Run a coroutine and its thread-sensitive work in this thread, which has no running loop.

    The coroutine runs in ``context``, which keeps its changes. With ``ends_with_request`` it is
    cancelled when Django's own ASGI handler cancels the request that this thread serves, because
    its client has left.

    Raises:
        RuntimeError: this thread has a running event loop.
        BaseException: what the coroutine raises.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("This thread has a running event loop: await the function there.")
    # The attributes in which asgiref stores which loop waits for this thread.
    outer = vars(SyncToAsync.threadlocal)
    before = dict(outer)
    waiting = before.get("main_event_loop") if ends_with_request else None
    # asgiref cancels the first member, which it expects to be the task of a coroutine.
    tasks: list[Any] = before.get("task_context", [])
    ended = waiting.create_future() if waiting is not None and not waiting.is_closed() else None
    if ended is not None:
        tasks.append(ended)
    try:
        # A loop keeps the context in which it was created.
        loop = _take_idle_loop() or Context().run(ThreadLoop)
        try:
            task = loop.create_task(_run(function, ended), context=context)
            return loop.run_until_complete(task)
        finally:
            # Keep the loop for the next call if this one leaves nothing on it.
            has_room = len(_idle_loops) < MAX_IDLE_LOOPS
            if has_room and _is_as_new(loop) and not asyncio.all_tasks(loop):
                _idle_loops.append(loop)
            else:
                _end(loop)
    finally:
        if ended is not None:
            tasks.remove(ended)
        outer.clear()
        outer.update(before)


def _take_idle_loop() -> ThreadLoop | None:
    while True:
        try:
            loop = _idle_loops.pop()
        except IndexError:
            return None
        # Code that has a reference to the loop may have used it in the meantime, for example to
        # create a task, which would wait on it for its first step.
        if _is_as_new(loop):
            return loop
        _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel unfinished tasks, end the threads, and close the loop, as ``asyncio.run`` does."""
    threads = None
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        # Not on the loop: gevent has replaced the threads of the process, and waiting for them lets
        # other greenlets run.
        threads = vars(loop).get("_default_executor")
        loop._default_executor = None  # type: ignore[attr-defined]
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.get_loop()
    finally:
        if threads is not None:
            threads.shutdown(wait=True)


def _is_as_new(loop: ThreadLoop) -> bool:
    """Return whether a call has left nothing on a loop, except tasks that wait for something."""
    if loop.is_known_elsewhere or not isinstance(loop, asyncio.SelectorEventLoop):
        # The event loop of Windows cannot be inspected.
        return False
    internals = vars(loop)
    try:
        return (
            not any(internals[name] for name in _EMPTY)
            and all(timer.cancelled() for timer in internals["_scheduled"])
            and not internals.get("_signal_handlers")
            # Only the loop's own pipe, which wakes it.
            and len(internals["_selector"].get_map()) == 1
        )
    except (AttributeError, KeyError):
        # A version of Python that is not known here.
        return False


# Attributes that are empty in a new loop, in Python 3.11 to 3.14.
_EMPTY = ("_ready", "_asyncgens", "_default_executor", "_exception_handler", "_task_factory")
_idle_loops: list[ThreadLoop] = []
"""Loops that no call uses. The threads of the process share them."""
_loops_of_parent: list[ThreadLoop] = []


@atexit.register
@before_fork
def close_idle_loops() -> None:
    """Close the loops that no call uses."""
    while _idle_loops:
        _idle_loops.pop().close()


@at_fork
def _leave_loops_to_parent() -> None:
    """Keep the parent's loops: closing a copy would disable the wake-ups of the original."""
    # Another thread may have returned a loop right before the fork.
    _loops_of_parent.extend(_idle_loops)
    _idle_loops.clear()


async def _run(
    function: Callable[[], Coroutine[Any, Any, T]], ended: asyncio.Future[None] | None
) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    if ended is not None:
        cancel = call_on_loop(task.cancel)
        ended.add_done_callback(lambda _: cancel())
    # A sync caller further up, or Django's handler, would otherwise run the work in its thread.
    AsyncToSync.executors.current = None
    entered = SyncToAsync.thread_sensitive_context.set(None)  # type: ignore[arg-type]
    AsyncToSync.loop_thread_executors[loop] = loop  # type: ignore[assignment]
    try:
        return await function()
    finally:
        del AsyncToSync.loop_thread_executors[loop]
        SyncToAsync.thread_sensitive_context.reset(entered)


@contextmanager
def _outside_of_loop() -> Iterator[None]:
    """Run the block as in a thread without a running loop, where Django allows database calls.

    Other greenlets of gevent, which run in this thread meanwhile, may have loops of their own.
    """
    loop, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
    asyncio._set_running_loop(None)
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(*hooks)


class _PatientSelector(selectors.DefaultSelector):
    """A selector for functions that do not wait: it leaves out most polls that would not wait.

    A loop polls before each step. That releases the GIL, which the loop gets back late in a process
    with many busy threads. While only the loop's own pipe is registered, a poll can report only
    that there is another step.
    """

    _left_out = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the files that are ready."""
        if timeout == 0 and len(self.get_map()) == 1 and self._left_out < MAX_LEFT_OUT:
            self._left_out += 1
            return []
        self._left_out = 0
        with _outside_of_loop():
            return super().select(timeout)


class ThreadLoop(_BaseLoop):
    """An event loop that is its own executor for the thread-sensitive work of ``asgiref``.

    One call at a time uses it.
    """

    is_known_elsewhere = False
    """Whether ``asgiref`` passed the loop to another thread, which may use it after the call."""
    _works_in: int | None = None
    """The thread in which the loop runs such work at the moment."""

    if sys.platform != "win32":

        def __init__(self) -> None:
            super().__init__(_PatientSelector())

    def _work(
        self, future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled():
            return
        # Sync code may use the database, or a loop of its own, as in any thread.
        self._works_in = threading.get_ident()
        try:
            with _outside_of_loop():
                result = function(*args)
        except StopIteration as exc:
            # A future cannot hold this exception.
            future.set_exception(RuntimeError(f"The function raised {exc!r}."))
        except BaseException as exc:  # noqa: BLE001 - delivered to the coroutine
            future.set_exception(exc)
        else:
            future.set_result(result)
        finally:
            self._works_in = None

    if not TYPE_CHECKING:
        # The signatures of the base class differ between the versions of Python.

        def run_in_executor(self, executor, func, *args):
            """Run a function in the executor, or in the loop's thread if the loop is given."""
            if executor is not self:
                self.is_known_elsewhere = True
                # Starting a thread lets other greenlets run.
                with _outside_of_loop():
                    return super().run_in_executor(executor, func, *args)
            future = self.create_future()
            # Not immediately: cancellations and timeouts have to be noticed between two calls.
            self.call_soon(self._work, future, func, args)
            return future

        def call_soon_threadsafe(self, callback, *args, context=None):
            """Schedule a callback from any thread.

            Raises:
                RuntimeError: sync code that the loop runs now, or code that outlives the call,
                    would wait for the callback forever; ``async_to_sync`` then uses another loop.
            """
            if self._works_in == threading.get_ident():
                raise RuntimeError("The event loop waits for the function that uses it.")
            if not self.is_running():
                raise RuntimeError("The call is over for which the event loop ran.")
            return super().call_soon_threadsafe(callback, *args, context=context)
