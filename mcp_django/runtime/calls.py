"""The call of the developer's function, in the color that it was written in.

``run`` is for a thread, ``arun`` for the event loop; both end in ``conclude`` or ``excuse``.
Whatever the function raises is caught here, so that it ends its own call and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync

from mcp_django.conf import get_settings
from mcp_django.context import ClientPort
from mcp_django.runtime import transactions
from mcp_django.runtime.failures import CallAborted, CallTimedOut
from mcp_django.runtime.incoming import Invocation
from mcp_django.runtime.pools import LeasedThread, pool, with_request_signals


def run(invocation: Invocation, port: ClientPort | None = None) -> dict[str, Any]:
    """Call the function in this thread; an async one gets a loop for as long as it runs."""
    if invocation.component.function.is_async:
        try:
            with transactions.all_left():
                result: dict[str, Any] = async_to_sync(arun)(invocation, port, own_thread=False)
        except transactions.LeftOpen as exc:
            return invocation.excuse(exc)
        return result
    return settle(invocation, partial(_call, invocation, port))


def _call(invocation: Invocation, port: ClientPort | None) -> dict[str, Any]:
    with transactions.around(invocation.component):
        value = _bind(invocation, port)()
        # Concluded inside the transaction: a lazy answer still reads what the function wrote.
        return invocation.conclude(value)


async def arun(
    invocation: Invocation, port: ClientPort | None = None, *, own_thread: bool = True
) -> dict[str, Any]:
    """Call an async function on this loop, at most as long as its time limit.

    Its ORM calls run in one pooled thread, taken at the first of them and given back at the end.
    """
    if own_thread:
        async with LeasedThread() as executor, ThreadSensitiveContext(executor=executor):
            return await _acall(invocation, port)
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
    except TimeoutError as exc:
        failure: Exception = CallTimedOut(limit) if timer.expired() else exc
        invocation.cancellation.cancel()
        return invocation.excuse(failure)
    except asyncio.CancelledError as exc:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        # Not this call was cancelled but something that its function waited for.
        return invocation.excuse(aborted(exc))
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return invocation.excuse(exc)
    except (SystemExit, BaseExceptionGroup) as exc:
        return invocation.excuse(aborted(exc))
    return settle(invocation, partial(invocation.conclude, value))


def settle(invocation: Invocation, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work gives, or what its failure means."""
    try:
        return work()
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return invocation.excuse(exc)
    except (asyncio.CancelledError, SystemExit, BaseExceptionGroup) as exc:
        return invocation.excuse(aborted(exc))


def aborted(exc: BaseException) -> CallAborted:
    """An end that would take more than the call with it, as a failure of the call alone."""
    failure = CallAborted(f"ended with {type(exc).__name__}")
    failure.__cause__ = exc
    return failure


def time_limit(invocation: Invocation) -> float:
    """The seconds that the call may take."""
    return invocation.component.timeout or get_settings().call_timeout


async def execute(invocation: Invocation, port: ClientPort | None = None) -> dict[str, Any]:
    """Call the function from the event loop: an async one here, another in a work thread.

    A thread cannot be interrupted: past the time limit the caller gets its answer, the flag
    ``ctx.cancelled`` is raised, and what the thread returns in the end is dropped.

    Raises:
        Busy: no thread became free in time.
        MCPError: the call means a JSON-RPC error.
    """
    if invocation.component.function.is_async:
        return await arun(invocation, port)
    work = partial(with_request_signals, partial(run, invocation, port))
    try:
        return await asyncio.wait_for(pool("work").run(work), time_limit(invocation))
    except TimeoutError:
        return timed_out(invocation)


def timed_out(invocation: Invocation) -> dict[str, Any]:
    """The result of a call whose thread did not come back in time."""
    invocation.cancellation.cancel()
    return invocation.excuse(CallTimedOut(time_limit(invocation)))


def _bind(invocation: Invocation, port: ClientPort | None) -> Callable[[], Any]:
    context = invocation.context(port)
    return invocation.component.function.bind(dict(invocation.arguments), context)
