"""Runs the component's function, sync or async.

``run`` is for a thread, ``arun`` for the event loop; both end in ``conclude`` or ``excuse``.
Every exception of the function is caught here, so that it ends its own call and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from mcp_django.conf import get_settings
from mcp_django.core.context import ClientPort
from mcp_django.exceptions import InputRequired, TooManyTasks
from mcp_django.execution import threads
from mcp_django.execution.call import Invocation
from mcp_django.execution.call_log import aobserved, observed
from mcp_django.execution.query_limits import around as limited, shared_thread
from mcp_django.execution.results import CallTimedOut, aborted, failure_in
from mcp_django.execution.threads import LOCAL, LeasedThread, pool, with_request_signals

if TYPE_CHECKING:
    from mcp_django.execution.approval_guard import Gate

T = TypeVar("T")


def run(invocation: Invocation, port: ClientPort | None = None) -> dict[str, Any]:
    """Run the function in this thread; an async one gets its own event loop.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    return observed(invocation, partial(_run, invocation, port))


def _run(
    invocation: Invocation, port: ClientPort | None = None, *, is_interrupted: bool = False
) -> dict[str, Any]:
    try:
        return perform(invocation, port, is_interrupted=is_interrupted)
    except InputRequired:
        return _questions(invocation)


def run_until_cancelled(invocation: Invocation, port: ClientPort | None = None) -> dict[str, Any]:
    """Do the same as ``run``, and interrupt an async function if the client cancels the call.

    Raises:
        CancelledError: the function was interrupted.
    """
    return observed(invocation, partial(_run, invocation, port, is_interrupted=True))


def perform(
    invocation: Invocation, port: ClientPort | None = None, *, is_interrupted: bool = False
) -> dict[str, Any]:
    """Run the function without a call record, and let ``InputRequired`` propagate.

    A component that calls another one so asks the client what the other one asks.

    Raises:
        InputRequired: the function asks something that has no answer yet.
    """
    gate = invocation.gate
    if gate is None:
        return _perform(invocation, port, is_interrupted=is_interrupted)
    try:
        gate.enter(invocation)
    except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
        return _excused(invocation, exc)
    try:
        return _perform(invocation, port, is_interrupted=is_interrupted)
    except InputRequired:
        if not _begins(invocation):
            gate.give_back()
        raise


def _perform(
    invocation: Invocation, port: ClientPort | None, *, is_interrupted: bool
) -> dict[str, Any]:
    if not invocation.component.function.is_async:
        return _settle(invocation, partial(_call, invocation, port))
    call = _acall_until_cancelled if is_interrupted else _acall
    try:
        with limited(invocation.component, invocation.entry), threads.all_left():
            result: dict[str, Any] = async_to_sync(call)(invocation, port)
    except threads.LeftOpen as exc:
        return _excused(invocation, exc)
    return result


def _call(invocation: Invocation, port: ClientPort | None) -> dict[str, Any]:
    component, entry = invocation.component, invocation.entry
    with limited(component, entry), threads.around(component):
        value = _bind(invocation, port)()
        _insist(invocation)
        # Inside the transaction, so that a lazy value reads what the function wrote.
        return invocation.conclude(value)


def _insist(invocation: Invocation) -> None:
    """Raise ``InputRequired`` again if the function swallowed it."""
    if invocation.at_last and invocation.interaction is not None:
        # The function runs again as a task; what it did here is rolled back.
        invocation.interaction.begin()
    if invocation.interaction is not None and invocation.interaction.is_asking:
        raise InputRequired


def _begins(invocation: Invocation) -> bool:
    return invocation.interaction is not None and invocation.interaction.begins


def _questions(invocation: Invocation) -> dict[str, Any]:
    assert invocation.interaction is not None
    if invocation.become is not None and invocation.interaction.begins:
        try:
            return invocation.become(invocation.interaction.state())
        except TooManyTasks:
            # No task was created, so the approval remains usable.
            if invocation.gate is not None:
                invocation.gate.give_back()
            raise
    return invocation.interaction.result()


async def arun(
    invocation: Invocation, port: ClientPort | None = None, *, own_thread: bool = True
) -> dict[str, Any]:
    """Run an async function on this event loop, within its time limit.

    Its ORM calls run in one pooled thread, taken at the first of them and released at the end.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    work = partial(_arun, invocation, port, own_thread=own_thread)
    return await aobserved(invocation, work, own_thread=own_thread)


async def _arun(
    invocation: Invocation, port: ClientPort | None, *, own_thread: bool
) -> dict[str, Any]:
    component, entry, gate = invocation.component, invocation.entry, invocation.gate
    if gate is not None:
        try:
            if not await _at_gate(partial(_passes, gate, invocation), own_thread=own_thread):
                return _questions(invocation)
        except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
            return _excused(invocation, exc)
    try:
        if not own_thread:
            async with shared_thread(component, entry):
                return await _acall(invocation, port)
        leased = LeasedThread(partial(limited, component, entry), key=_share_of(invocation))
        async with leased as executor, ThreadSensitiveContext(executor=executor):
            return await _acall(invocation, port)
    except InputRequired:
        if _begins(invocation):
            return await _at_gate(partial(_questions, invocation), own_thread=own_thread)
        if gate is not None:
            await _at_gate(gate.give_back, own_thread=own_thread)
        return _questions(invocation)


def _passes(gate: Gate, invocation: Invocation) -> bool:
    """Return whether the call is approved; if not, the caller must be sent to a page first."""
    try:
        gate.enter(invocation)
    except InputRequired:
        return False
    return True


async def _at_gate(work: Callable[[], T], *, own_thread: bool) -> T:
    if not own_thread:
        return await sync_to_async(work)()
    return await pool("desk").run(partial(with_request_signals, work))


async def _acall_until_cancelled(invocation: Invocation, port: ClientPort | None) -> dict[str, Any]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        # If the call is already over, its loop is closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)

    invocation.cancellation.then(interrupt)
    return await _acall(invocation, port)


async def _acall(invocation: Invocation, port: ClientPort | None) -> dict[str, Any]:
    limit = time_limit(invocation)
    timer = asyncio.timeout(limit)
    try:
        async with timer:
            value = _bind(invocation, port)()
            if inspect.isasyncgen(value):
                value = [item async for item in value]
            else:
                value = await value
        _insist(invocation)
    except TimeoutError as exc:
        failure: Exception = CallTimedOut(limit) if timer.expired() else exc
        invocation.cancellation.expire()
        return _excused(invocation, failure)
    except asyncio.CancelledError as exc:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        # Something that the function awaited was cancelled, not this call.
        return _excused(invocation, aborted(exc))
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _excused(invocation, exc)
    except (SystemExit, BaseExceptionGroup) as exc:
        return _excused(invocation, failure_in(exc))
    return _settle(invocation, partial(invocation.conclude, value))


def _settle(invocation: Invocation, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of the work, or what its exception is converted to."""
    try:
        return work()
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _excused(invocation, exc)
    except (asyncio.CancelledError, SystemExit, BaseExceptionGroup) as exc:
        return _excused(invocation, failure_in(exc))


def _excused(invocation: Invocation, exc: Exception) -> dict[str, Any]:
    invocation.entry.failed(exc)
    return invocation.excuse(exc)


def time_limit(invocation: Invocation) -> float:
    """Return the time limit of the call in seconds."""
    component = invocation.component
    return invocation.seconds or component.timeout or get_settings().call_timeout


async def execute(invocation: Invocation, port: ClientPort | None = None) -> dict[str, Any]:
    """Run the function from the event loop: an async one here, a sync one in a tool thread.

    A thread cannot be interrupted. After the time limit the caller gets an error, the flag
    ``ctx.cancelled`` is set, and what the thread returns later is dropped.

    Raises:
        Busy: no thread became free in time.
        MCPError: the call ends with a JSON-RPC error.
    """
    if invocation.component.function.is_async:
        return await arun(invocation, port)
    return await aobserved(invocation, partial(_in_work_thread, invocation, port), runs_here=False)


async def _in_work_thread(invocation: Invocation, port: ClientPort | None) -> dict[str, Any]:
    work = partial(with_request_signals, partial(run, invocation, port))
    running = pool("work").run(work, key=_share_of(invocation))
    try:
        return await asyncio.wait_for(running, time_limit(invocation))
    except TimeoutError:
        return _timed_out(invocation)


def _share_of(invocation: Invocation) -> str | None:
    """Return whose share of the threads a call uses; ``None`` for a process's only client."""
    incoming = invocation.incoming
    return None if incoming.transport in LOCAL else incoming.principal.user_key


async def timed_out(invocation: Invocation) -> dict[str, Any]:
    """Return the result of a call whose thread did not finish in time.

    Raises:
        MCPError: the call ends with a JSON-RPC error.
    """

    async def give_up() -> dict[str, Any]:
        return _timed_out(invocation)

    return await aobserved(invocation, give_up, runs_here=False)


def _timed_out(invocation: Invocation) -> dict[str, Any]:
    failure = CallTimedOut(time_limit(invocation))
    # Before the flag is set: the thread that sees it may record another outcome.
    invocation.entry.refuse("timeout", str(failure))
    invocation.cancellation.expire()
    return _excused(invocation, failure)


def _bind(invocation: Invocation, port: ClientPort | None) -> Callable[[], Any]:
    context = invocation.context(port)
    if invocation.at_once and invocation.interaction is not None:
        # Not earlier: by now the call is logged and approved.
        invocation.interaction.begin()
    return invocation.component.function.bind(dict(invocation.arguments), context)
