"""Runs the component's function, sync or async.

``run`` is for a thread, ``arun`` for the event loop; both end in ``to_result`` or ``to_error``.
Every exception of the function is caught here, so that it ends its own call and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from contextvars import Context, copy_context
from functools import cache, partial
from time import monotonic
from types import CoroutineType
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from mcp_django.auth.limits import ShareKey
from mcp_django.auth.permissions import needs_only_account, parse_permissions
from mcp_django.components.context import Cancellation, ClientPort
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    AuthenticationUnavailable,
    Busy,
    CallTimedOut,
    Forbidden,
    InputRequired,
    InternalError,
    InvalidRequest,
    MCPError,
    TooManyTasks,
    Unauthorized,
)
from mcp_django.execution import threads
from mcp_django.execution.audit import (
    AuditFailed,
    audit_context,
    has_audit_packages,
    keep_revision,
)
from mcp_django.execution.call import Call, ClientDialogue, RequiredApproval
from mcp_django.execution.call_log import (
    alog_call,
    alog_call_of_thread,
    end_rejected_with_span,
    log_call,
)
from mcp_django.execution.policy import admit_caller, authorize
from mcp_django.execution.query_limits import limit_queries as limited, limit_shared_thread
from mcp_django.execution.results import failure_from, wrap_abort
from mcp_django.execution.thread_sensitive import (
    LeasedThread,
    run_coroutine,
    run_in_this_thread,
)
from mcp_django.execution.threads import get_pool
from mcp_django.process import on_settings_change
from mcp_django.tenants import thread_context

logger = logging.getLogger("mcp_django")

T = TypeVar("T")
P = ParamSpec("P")


def run(call: Call, port: ClientPort | None = None) -> dict[str, Any]:
    """Run the function in this thread; an async one gets an event loop here.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    _begin(call)
    return log_call(call, partial(_run, call, port))


def _run(
    call: Call, port: ClientPort | None = None, *, stop: Cancellation | None = None
) -> dict[str, Any]:
    try:
        return run_unlogged(call, port, stop=stop)
    except InputRequired:
        return _input_required_result(call)


def run_until_cancelled(
    call: Call, port: ClientPort | None = None, *, stop: Cancellation | None = None
) -> dict[str, Any]:
    """Do the same as ``run``, and interrupt an async function that is cancelled.

    The cancellation of ``stop`` interrupts the function; the default is that of the call, by its
    client.

    Raises:
        CancelledError: the function was interrupted.
    """
    _begin(call)
    return log_call(call, partial(_run, call, port, stop=stop or call.cancellation))


def run_unlogged(
    call: Call, port: ClientPort | None = None, *, stop: Cancellation | None = None
) -> dict[str, Any]:
    """Run the function without a call record, and let ``InputRequired`` propagate.

    If a component calls another one, the client requests of the inner one are sent as those of the
    outer one.

    Raises:
        InputRequired: the function asks something that has no answer yet.
    """
    approval_guard = call.approval_guard
    if approval_guard is None:
        return _perform(call, port, stop)
    try:
        approval_guard.require(call, run_unlogged)
    except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
        return _error_result(call, exc)
    try:
        return _perform(call, port, stop)
    except InputRequired:
        if not _starts_task(call):
            approval_guard.release()
        raise


def _perform(call: Call, port: ClientPort | None, stop: Cancellation | None) -> dict[str, Any]:
    if not call.component.function.is_async:
        return _call_function(call, port)
    acall = partial(_acall_in_thread, call, port, stop)
    try:
        with (
            _audited(call),
            limited(call.component, call.record),
            threads.roll_back_left_open(),
        ):
            if not needs_thread():
                return run_coroutine(acall)
            context = copy_context()
            try:
                # A client that leaves cancels its call, but not in a session.
                is_stateless = call.revision.stateless
                return run_in_this_thread(acall, context=context, ends_with_request=is_stateless)
            finally:
                keep_revision(context)
    except (AuditFailed, threads.TransactionLeftOpen) as exc:
        return _error_result(call, exc)


def _audited(call: Call) -> AbstractContextManager[None]:
    return audit_context(call) if has_audit_packages() else nullcontext()


def _call_function(call: Call, port: ClientPort | None) -> dict[str, Any]:
    """Return the result of a sync function, or what its exception is converted to."""
    component, record = call.component, call.record
    try:
        with _audited(call), limited(component, record), threads.component_transactions(component):
            value = _bind(call, port)()
            if call.interaction is not None:
                _reraise_input_required(call, call.interaction)
            # Inside the transaction, so that a lazy value reads what the function wrote.
            return call.to_result(value)
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _error_result(call, exc)
    except (asyncio.CancelledError, SystemExit, BaseExceptionGroup) as exc:
        return _error_result(call, failure_from(exc))


def _reraise_input_required(call: Call, interaction: ClientDialogue) -> None:
    """Raise ``InputRequired`` again if the function swallowed it."""
    if call.must_become_task:
        # The function runs again as a task; what it did here is rolled back.
        interaction.start_task()
    if interaction.must_stop:
        raise InputRequired


def _starts_task(call: Call) -> bool:
    return call.interaction is not None and call.interaction.starts_task


def _input_required_result(call: Call) -> dict[str, Any]:
    assert call.interaction is not None
    if call.task_factory is not None and call.interaction.starts_task:
        try:
            return call.task_factory(call, call.interaction.state())
        except TooManyTasks:
            # No task was created, so the approval remains usable.
            if call.approval_guard is not None:
                call.approval_guard.release()
            raise
    return call.interaction.result()


async def arun(call: Call, port: ClientPort | None = None) -> dict[str, Any]:
    """Run an async function on this event loop, within its time limit.

    Its ORM calls run in one pooled thread, taken at the first call and released at the end.

    Raises:
        MCPError: the call ends with a JSON-RPC error, or cannot be logged and so does not run.
    """
    # The same as ``_begin``, on the event loop.
    if _asks_again(call) and not _is_unchanged(call):
        try:
            await _run_in_thread(call, partial(_check_again, call), key=call.thread_key)
        except MCPError as exc:
            end_rejected_with_span(call.record, exc)
            raise
    call.has_begun = True
    return await alog_call(call, partial(_arun, call, port))


async def _arun(call: Call, port: ClientPort | None) -> dict[str, Any]:
    approval_guard = call.approval_guard
    if approval_guard is not None:
        try:
            if not await _run_in_thread(call, partial(_has_approval, approval_guard, call)):
                return _input_required_result(call)
        except Exception as exc:  # noqa: BLE001 - a dry run of the site's own function
            return _error_result(call, exc)
    context = copy_context()
    try:
        if call.channel.shares_thread:
            async with limit_shared_thread(call.component, call.record):
                return await _acall(call, port, context)
        thread = LeasedThread(
            partial(limited, call.component, call.record),
            lambda: call.thread_key,
        )
        context.run(thread.enter)
        try:
            return await _acall(call, port, context)
        finally:
            thread.is_over = True
            if thread.is_taken:
                thread.release()
    except InputRequired:
        if _starts_task(call):
            return await _run_in_thread(call, partial(_input_required_result, call))
        if approval_guard is not None:
            await _run_in_thread(call, approval_guard.release)
        return _input_required_result(call)


def _has_approval(approval_guard: RequiredApproval, call: Call) -> bool:
    """Return whether the call is approved; if not, the caller must be sent to a page first."""
    try:
        approval_guard.require(call, run_unlogged)
    except InputRequired:
        return False
    return True


async def _run_in_thread(call: Call, work: Callable[[], T], *, key: ShareKey = None) -> T:
    """Run short work of a call that may use the database."""
    if call.channel.shares_thread:
        return await sync_to_async(work)()
    return await get_pool("short").run(work, key=key)


async def _acall_in_thread(
    call: Call, port: ClientPort | None, stop: Cancellation | None
) -> dict[str, Any]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        # If the call is already over, its loop does not run.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)

    if stop is not None:
        stop.add_callback(interrupt)
    context = copy_context()
    try:
        return await _acall(call, port, context)
    finally:
        keep_revision(context)


async def _acall(call: Call, port: ClientPort | None, context: Context) -> dict[str, Any]:
    """Run the function in a context of its own, so that a later request does not see its values."""
    timers: list[asyncio.Timeout] = []

    def limit_wait() -> asyncio.Timeout:
        timers.append(asyncio.timeout(time_limit(call)))
        return timers[0]

    try:
        return await run_stepped(_acall_function(call, port), limit_wait, context=context)
    except TimeoutError as exc:
        is_late = bool(timers) and timers[0].expired()
        call.cancellation.expire()
        return _error_result(call, CallTimedOut(time_limit(call)) if is_late else exc)


async def _acall_function(call: Call, port: ClientPort | None) -> dict[str, Any]:
    function = call.component.function
    try:
        if function.takes_arguments and not call.start_as_task:
            value = function.function(**call.arguments)
        else:
            value = _bind(call, port)()
        if inspect.isasyncgen(value):
            value = [part async for part in value]
        else:
            value = await value
        if call.interaction is not None:
            _reraise_input_required(call, call.interaction)
        return call.to_result(value)
    except TimeoutError:
        raise
    except asyncio.CancelledError as exc:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        # Something that the function awaited was cancelled, not this call.
        return _error_result(call, wrap_abort(exc))
    except Exception as exc:  # noqa: BLE001 - the site's own function
        return _error_result(call, exc)
    except (SystemExit, BaseExceptionGroup) as exc:
        return _error_result(call, failure_from(exc))


def _error_result(call: Call, exc: Exception) -> dict[str, Any]:
    call.record.note_exception(exc)
    return call.to_error(exc)


def time_limit(call: Call) -> float:
    """Return the time limit of the call in seconds."""
    component = call.component
    return call.timeout_seconds or component.timeout or get_settings().call_timeout


async def run_from_event_loop(call: Call, port: ClientPort | None = None) -> dict[str, Any]:
    """Run the function from the event loop: as a coroutine here, or else in a tool thread.

    A thread cannot be interrupted. After the time limit the caller gets an error, the flag
    ``ctx.cancelled`` is set, and what the thread returns later is dropped.

    Raises:
        Busy: no thread became free in time.
        MCPError: the call ends with a JSON-RPC error.
    """
    if runs_as_coroutine(call):
        return await arun(call, port)
    return await alog_call_of_thread(call, partial(_in_tool_thread, call, port))


async def _in_tool_thread(call: Call, port: ClientPort | None) -> dict[str, Any]:
    stop = Cancellation()
    work = partial(run_after_wait, call, partial(run_until_cancelled, call, port, stop=stop))
    running = get_pool("tool").run(work, key=call.thread_key)
    try:
        return await asyncio.wait_for(running, time_limit(call))
    except TimeoutError:
        return _timeout_result(call)
    except asyncio.CancelledError:
        # An async function in the thread can be interrupted.
        stop.cancel()
        raise


def runs_as_coroutine(call: Call) -> bool:
    """Return whether the function runs on the event loop, and not in a thread."""
    return call.component.function.is_async and not needs_thread()


@cache
def needs_thread() -> bool:
    """Return whether async functions run in a thread too, on an event loop of their own there.

    Their database calls run in that thread, where middleware and other packages of the site have
    set whose rows they may see.
    """
    return thread_context() is not None or has_audit_packages()


@on_settings_change()
def _clear_needs_thread() -> None:
    needs_thread.cache_clear()


async def timeout_result(call: Call) -> dict[str, Any]:
    """Return the result of a call whose thread did not finish in time.

    Raises:
        MCPError: the call ends with a JSON-RPC error.
    """
    if thread_context() is not None:
        # The thread logs the call when it ends: receivers of its signals need the tenant too.
        return _timeout_result(call)

    async def end_call() -> dict[str, Any]:
        return _timeout_result(call)

    return await alog_call_of_thread(call, end_call)


def _timeout_result(call: Call) -> dict[str, Any]:
    failure = CallTimedOut(time_limit(call))
    # Before the flag is set: the thread that sees it may record another outcome.
    call.record.preset("timeout", str(failure))
    call.cancellation.expire()
    return _error_result(call, failure)


def _bind(call: Call, port: ClientPort | None) -> Callable[[], Any]:
    function = call.component.function
    context = call.context(port) if function.context_parameter is not None else None
    if call.start_as_task and call.interaction is not None:
        # Not earlier: by now the call is logged and approved.
        call.interaction.start_task()
    return function.bind(dict(call.arguments), context)


# Calls that begin late ----------------------------------------------------------------------------

# The decisions of the admission may be out of date when the call begins: a member of a batch waits
# for the others, a call that is answered by a stream waits for the stream's row and for a thread, a
# question for its answer. Such a call is authorized again, like a new request: with what is cached
# about its caller.

# A call that begins later than this after its admission is authorized again in any case.
LATE_SECONDS = 1.0


def run_after_wait(call: Call, work: Callable[[], T]) -> T:
    """Run the work of a call in the thread of a pool, for which the call may have waited."""
    call.asks_again = call.asks_again or threads.has_waited()
    return work()


def _asks_again(call: Call) -> bool:
    return call.asks_again or call.has_begun or monotonic() - call.created_at > LATE_SECONDS


def _begin(call: Call) -> None:
    """Begin the call in this thread, if it is still authorized.

    Raises:
        MCPError: the call may no longer begin, and its record is ended.
    """
    if _asks_again(call):
        try:
            _check_again(call)
        except MCPError as exc:
            end_rejected_with_span(call.record, exc)
            raise
    call.has_begun = True


def _is_overdue(call: Call) -> bool:
    """Return whether the call has waited for its turn as long as a call may run."""
    return not call.has_begun and monotonic() - call.created_at > get_settings().call_timeout


def _is_unchanged(call: Call) -> bool:
    """Return whether all that the admission depended on is unchanged; for an event loop."""
    plan, server, principal = call.plan, call.server, call.principal
    catalog = server.fresh_catalog()
    if plan is None or plan.where != "loop" or catalog is not call.catalog or _is_overdue(call):
        return False
    assert catalog is not None
    guards = (*parse_permissions(server.permission), *catalog.extra_permissions)
    if not all(map(needs_only_account, guards)):
        return False
    try:
        current = call.channel.confirm_caller(call.server, principal)
    except SynchronousOnlyOperation:
        return False
    return current is not None and (
        (current.account, current.scopes) == (principal.account, principal.scopes)
    )


def _check_again(call: Call) -> None:
    """Check that the call may still begin, and replace its caller with the current state.

    Raises:
        Busy: the call has waited too long, or the database or the issuer of its credential is
            unavailable.
        Unauthorized: the credential is no longer valid.
        Forbidden: the caller may no longer use the server or the component.
        MCPError: the component is no longer available.
    """
    if _is_overdue(call):
        seconds = get_settings().call_timeout
        raise Busy(
            f"The call waited for its turn longer than {seconds:g} seconds and did not run; "
            "send it again, with fewer others.",
            data={"retryAfter": 1},
        )
    try:
        _authorize_again(call)
    except MCPError:
        raise
    except AuthenticationUnavailable as exc:
        raise Busy(exc.message, data={"retryAfter": exc.retry_after}) from exc
    except AccessRefused as exc:
        is_unknown = isinstance(exc, AuthenticationRequired)
        data = {"scopes": list(exc.scopes)} if exc.scopes else None
        raise (Unauthorized if is_unknown else Forbidden)(exc.message, data=data) from exc
    except (InterfaceError, OperationalError) as exc:
        logger.warning("A call could not be authorized again (%s).", exc)
        raise Busy("The database is unavailable; try again in a moment.") from exc
    except Exception as exc:
        # For example from a permission of the site.
        logger.exception("Authorizing a call again failed.")
        raise InternalError("The request failed because of a server error.") from exc


def _authorize_again(call: Call) -> None:
    server, principal = call.server, call.principal
    expires = principal.expires_at
    # A call that has begun in time continues after the credential expires.
    if not call.has_begun or expires is None or expires > timezone.now():
        current = call.channel.confirm_caller(call.server, principal)
        if current is None:
            raise AuthenticationRequired(
                "The token is unknown, expired or revoked.", error="invalid_token"
            )
        principal = current
        call.confirm(current)
    admit_caller(server, lambda: principal)
    plan, catalog = call.plan, server.catalog
    if plan is None:
        # A task is prepared right before it begins.
        return
    component = plan.component
    if catalog is not call.catalog:
        component = plan.method.find(catalog, call.name)
    siblings = plan.method.siblings(catalog)
    is_authorized = authorize(principal, component, siblings=siblings, call_record=call.record)
    if component is None or not is_authorized:
        raise plan.method.unknown(call)
    approval = getattr(component, "approval", "")
    if approval and approval != getattr(call.component, "approval", ""):
        raise InvalidRequest(f"The {component} requires approval now; call it again.")


Guard = Callable[[], AbstractAsyncContextManager[Any]]


async def run_stepped(
    awaitable: Awaitable[T], guard: Guard, *, context: Context | None = None
) -> T:
    """Return the result of an awaitable; enter ``guard()`` before its first wait.

    Most async functions end without waiting. Their first step is their only one: it needs no task
    of its own, no timer and no watcher. If a coroutine waits, what guards the wait is entered then,
    and the rest runs in the same task, since asyncio and anyio keep cancel scopes by task.

    With ``context`` the coroutine runs in it, as a task of its own would. The coroutine is closed
    in every case.

    Raises:
        BaseException: what the awaitable or the guard raises.
    """
    if not isinstance(awaitable, CoroutineType):
        # Some servers implement their awaitables in another language.
        async with guard():
            return await awaitable
    try:
        try:
            waiting = awaitable.send(None) if context is None else context.run(awaitable.send, None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        rest: Awaitable[T] = _resume(awaitable, waiting, context)
        # The rest may last for hours, and the first wait may hold a body of megabytes.
        del waiting
        async with guard():
            return await rest
    finally:
        awaitable.close()


@types.coroutine
def _resume(
    coroutine: Coroutine[Any, Any, T], waiting: Any, context: Context | None
) -> Generator[Any, Any, T]:
    """Run the rest of a coroutine whose first step yielded ``waiting``."""
    while True:
        step: Callable[..., Any] = coroutine.send
        value: Any = None
        try:
            value = yield waiting
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as exc:  # noqa: BLE001 - thrown into the coroutine
            step, value = coroutine.throw, exc
        try:
            waiting = step(value) if context is None else context.run(step, value)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
