"""Runs the component's function, sync or async.

``run`` is for a thread, ``arun`` for the event loop; both end in ``to_result`` or ``excuse``.
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
from mcp_django.execution.call import PreparedCall
from mcp_django.execution.call_log import atraced, traced
from mcp_django.execution.query_limits import limit_queries as limited, limit_shared_thread
from mcp_django.execution.results import CallTimedOut, failure_from, wrap_abort
from mcp_django.execution.threads import (
    SINGLE_CLIENT_TRANSPORTS,
    LeasedThread,
    get_pool,
    run_with_request_signals,
)

if TYPE_CHECKING:
    from mcp_django.execution.approval_guard import ApprovalGuard

T = TypeVar("T")


def run(invocation: PreparedCall, port: ClientPort | None = None) -> dict[str, Any]:
    """Run the function in this thread; an async one gets its own event loop.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    return traced(invocation, partial(_run, invocation, port))


def _run(
    invocation: PreparedCall, port: ClientPort | None = None, *, is_interrupted: bool = False
) -> dict[str, Any]:
    try:
        return run_unlogged(invocation, port, is_interrupted=is_interrupted)
    except InputRequired:
        return _input_required_result(invocation)


def run_until_cancelled(invocation: PreparedCall, port: ClientPort | None = None) -> dict[str, Any]:
    """Do the same as ``run``, and interrupt an async function if the client cancels the call.

    Raises:
        CancelledError: the function was interrupted.
    """
    return traced(invocation, partial(_run, invocation, port, is_interrupted=True))


def run_unlogged(
    invocation: PreparedCall, port: ClientPort | None = None, *, is_interrupted: bool = False
) -> dict[str, Any]:
    """Run the function without a call record, and let ``InputRequired`` propagate.

    A component that calls another one so asks the client what the other one asks.

    Raises:
        InputRequired: the function asks something that has no answer yet.
    """
    gate = invocation.approval_guard
    if gate is None:
        return _perform(invocation, port, is_interrupted=is_interrupted)
    try:
        gate.require(invocation)
    except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
        return _error_result(invocation, exc)
    try:
        return _perform(invocation, port, is_interrupted=is_interrupted)
    except InputRequired:
        if not _starts_task(invocation):
            gate.release()
        raise


def _perform(
    invocation: PreparedCall, port: ClientPort | None, *, is_interrupted: bool
) -> dict[str, Any]:
    if not invocation.component.function.is_async:
        return _to_result(invocation, partial(_call, invocation, port))
    call = _acall_until_cancelled if is_interrupted else _acall
    try:
        with limited(invocation.component, invocation.call_record), threads.roll_back_left_open():
            result: dict[str, Any] = async_to_sync(call)(invocation, port)
    except threads.TransactionLeftOpen as exc:
        return _error_result(invocation, exc)
    return result


def _call(invocation: PreparedCall, port: ClientPort | None) -> dict[str, Any]:
    component, entry = invocation.component, invocation.call_record
    with limited(component, entry), threads.component_transactions(component):
        value = _bind(invocation, port)()
        _reraise_input_required(invocation)
        # Inside the transaction, so that a lazy value reads what the function wrote.
        return invocation.to_result(value)


def _reraise_input_required(invocation: PreparedCall) -> None:
    """Raise ``InputRequired`` again if the function swallowed it."""
    if invocation.must_become_task and invocation.interaction is not None:
        # The function runs again as a task; what it did here is rolled back.
        invocation.interaction.start_task()
    if invocation.interaction is not None and invocation.interaction.must_stop:
        raise InputRequired


def _starts_task(invocation: PreparedCall) -> bool:
    return invocation.interaction is not None and invocation.interaction.starts_task


def _input_required_result(invocation: PreparedCall) -> dict[str, Any]:
    assert invocation.interaction is not None
    if invocation.task_factory is not None and invocation.interaction.starts_task:
        try:
            return invocation.task_factory(invocation.interaction.state())
        except TooManyTasks:
            # No task was created, so the approval remains usable.
            if invocation.approval_guard is not None:
                invocation.approval_guard.release()
            raise
    return invocation.interaction.result()


async def arun(
    invocation: PreparedCall, port: ClientPort | None = None, *, own_thread: bool = True
) -> dict[str, Any]:
    """Run an async function on this event loop, within its time limit.

    Its ORM calls run in one pooled thread, taken at the first of them and released at the end.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    work = partial(_arun, invocation, port, own_thread=own_thread)
    return await atraced(invocation, work, own_thread=own_thread)


async def _arun(
    invocation: PreparedCall, port: ClientPort | None, *, own_thread: bool
) -> dict[str, Any]:
    component, entry, gate = invocation.component, invocation.call_record, invocation.approval_guard
    if gate is not None:
        try:
            if not await _run_guard_work(
                partial(_has_approval, gate, invocation), own_thread=own_thread
            ):
                return _input_required_result(invocation)
        except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
            return _error_result(invocation, exc)
    try:
        if not own_thread:
            async with limit_shared_thread(component, entry):
                return await _acall(invocation, port)
        leased = LeasedThread(partial(limited, component, entry), key=_thread_share_key(invocation))
        async with leased as executor, ThreadSensitiveContext(executor=executor):
            return await _acall(invocation, port)
    except InputRequired:
        if _starts_task(invocation):
            return await _run_guard_work(
                partial(_input_required_result, invocation), own_thread=own_thread
            )
        if gate is not None:
            await _run_guard_work(gate.release, own_thread=own_thread)
        return _input_required_result(invocation)


def _has_approval(approval_guard: ApprovalGuard, invocation: PreparedCall) -> bool:
    """Return whether the call is approved; if not, the caller must be sent to a page first."""
    try:
        approval_guard.require(invocation)
    except InputRequired:
        return False
    return True


async def _run_guard_work(work: Callable[[], T], *, own_thread: bool) -> T:
    if not own_thread:
        return await sync_to_async(work)()
    return await get_pool("desk").run(partial(run_with_request_signals, work))


async def _acall_until_cancelled(
    invocation: PreparedCall, port: ClientPort | None
) -> dict[str, Any]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        # If the call is already over, its loop is closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)

    invocation.cancellation.add_callback(interrupt)
    return await _acall(invocation, port)


async def _acall(invocation: PreparedCall, port: ClientPort | None) -> dict[str, Any]:
    limit = time_limit(invocation)
    timer = asyncio.timeout(limit)
    try:
        async with timer:
            value = _bind(invocation, port)()
            if inspect.isasyncgen(value):
                value = [item async for item in value]
            else:
                value = await value
        _reraise_input_required(invocation)
    except TimeoutError as exc:
        failure: Exception = CallTimedOut(limit) if timer.expired() else exc
        invocation.cancellation.expire()
        return _error_result(invocation, failure)
    except asyncio.CancelledError as exc:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        # Something that the function awaited was cancelled, not this call.
        return _error_result(invocation, wrap_abort(exc))
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _error_result(invocation, exc)
    except (SystemExit, BaseExceptionGroup) as exc:
        return _error_result(invocation, failure_from(exc))
    return _to_result(invocation, partial(invocation.to_result, value))


def _to_result(invocation: PreparedCall, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of the work, or what its exception is converted to."""
    try:
        return work()
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _error_result(invocation, exc)
    except (asyncio.CancelledError, SystemExit, BaseExceptionGroup) as exc:
        return _error_result(invocation, failure_from(exc))


def _error_result(invocation: PreparedCall, exc: Exception) -> dict[str, Any]:
    invocation.call_record.note_exception(exc)
    return invocation.to_error(exc)


def time_limit(invocation: PreparedCall) -> float:
    """Return the time limit of the call in seconds."""
    component = invocation.component
    return invocation.timeout_seconds or component.timeout or get_settings().call_timeout


async def run_from_event_loop(
    invocation: PreparedCall, port: ClientPort | None = None
) -> dict[str, Any]:
    """Run the function from the event loop: an async one here, a sync one in a tool thread.

    A thread cannot be interrupted. After the time limit the caller gets an error, the flag
    ``ctx.cancelled`` is set, and what the thread returns later is dropped.

    Raises:
        Busy: no thread became free in time.
        MCPError: the call ends with a JSON-RPC error.
    """
    if invocation.component.function.is_async:
        return await arun(invocation, port)
    return await atraced(invocation, partial(_in_work_thread, invocation, port), runs_here=False)


async def _in_work_thread(invocation: PreparedCall, port: ClientPort | None) -> dict[str, Any]:
    work = partial(run_with_request_signals, partial(run, invocation, port))
    running = get_pool("work").run(work, key=_thread_share_key(invocation))
    try:
        return await asyncio.wait_for(running, time_limit(invocation))
    except TimeoutError:
        return _timeout_result(invocation)


def _thread_share_key(invocation: PreparedCall) -> str | None:
    """Return whose share of the threads a call uses; ``None`` for a process's only client."""
    request_context = invocation.request_context
    return (
        None
        if request_context.transport in SINGLE_CLIENT_TRANSPORTS
        else request_context.principal.user_key
    )


async def timeout_result(invocation: PreparedCall) -> dict[str, Any]:
    """Return the result of a call whose thread did not finish in time.

    Raises:
        MCPError: the call ends with a JSON-RPC error.
    """

    async def end_call() -> dict[str, Any]:
        return _timeout_result(invocation)

    return await atraced(invocation, end_call, runs_here=False)


def _timeout_result(invocation: PreparedCall) -> dict[str, Any]:
    failure = CallTimedOut(time_limit(invocation))
    # Before the flag is set: the thread that sees it may record another outcome.
    invocation.call_record.preset("timeout", str(failure))
    invocation.cancellation.expire()
    return _error_result(invocation, failure)


def _bind(invocation: PreparedCall, port: ClientPort | None) -> Callable[[], Any]:
    context = invocation.context(port)
    if invocation.start_as_task and invocation.interaction is not None:
        # Not earlier: by now the call is logged and approved.
        invocation.interaction.start_task()
    return invocation.component.function.bind(dict(invocation.arguments), context)
