"""The call log: one record for every use of a component.

The record of a call that may write is written before the call runs and updated at its end; any
other record is written at the end only. ``log_call`` is for a thread, ``alog_call`` for the event
loop; both run the call in its span, if it has one. ``storage.call_rows`` writes the rows.

``execution.pipeline`` opens the ``CallRecord`` of a request, its handler notes the component that
it found, and ``execution.invoke`` begins and ends it. This applies to every transport. A request
that is rejected earlier is recorded by ``log_rejected``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from asgiref.sync import sync_to_async
from django.db import Error
from django.dispatch import Signal

from mcp_django.auth.limits import PerMinute, ShareKey
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.components.catalog import Server
from mcp_django.components.resource import ReadableComponent
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy, InvalidParams, MethodNotFound
from mcp_django.execution import call_record
from mcp_django.execution.call import Call, Channel, Result
from mcp_django.execution.call_record import (
    COMPONENT_METHODS,
    CallOutcome,
    CallRecord,
    LoggedCall,
    TracedRequest,
    columns,
)
from mcp_django.execution.results import encode_result, is_too_large
from mcp_django.execution.threads import BoundedPool, get_pool
from mcp_django.protocol.envelope import Envelope, error_revision_of
from mcp_django.protocol.jsonrpc import Batch, Request
from mcp_django.protocol.revisions import LATEST, Revision
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.signals import call_finished, call_started
from mcp_django.storage.call_rows import CallRow, Fields, call_log
from mcp_django.storage.databases import is_on_loop, tables
from mcp_django.storage.sessions import ClientSession
from mcp_django.tenants import as_tenant, run_as_tenant

logger = logging.getLogger("mcp_django")

RETRY_SECONDS = 5
NOT_FOUND_ERRORS = (InvalidParams, MethodNotFound)


class LogUnavailable(Busy):
    """The call log cannot be written, so a call that may write does not run."""

    def __init__(self) -> None:
        super().__init__(
            "The call log cannot be written, so calls that may change data do not run; try again "
            "in a moment.",
            data={"retryAfter": RETRY_SECONDS},
        )


def begin(call: LoggedCall, record: CallRecord) -> None:
    """Begin the record of a request, if it is for a component and calls are logged."""
    record.begin(call, _log_abandoned)


def log_call(call: Call, work: Callable[[], Result]) -> Result:
    """Run the work in this thread, log the call, and return the result of the work.

    The record is written when this function returns, or soon after.

    Raises:
        LogUnavailable: the call may write, and its record could not be written first; nothing has
            run.
    """
    record = call.record
    if record.operation is not None:
        with _span(record.operation, call) as results:
            results.append(_log_call(call, work))
        return results[0]
    return _log_call(call, work)


def _log_call(call: Call, work: Callable[[], Result]) -> Result:
    record = call.record
    if not record.is_open:
        if record.state == "closed" and record.writes:
            raise LogUnavailable  # it timed out before its thread began
        return work()
    try:
        _begin_run(record)
        result = work()
    except BaseException as exc:
        _end(record, _outcome_of_exception(call, exc))
        raise
    end_answered(call, result)
    return result


async def alog_call(call: Call, work: Callable[[], Awaitable[Result]]) -> Result:
    """Do the same as ``log_call``, for work of the event loop."""
    record = call.record
    if record.operation is not None:
        with _span(record.operation, call) as results:
            results.append(await _alog_call(call, work))
        return results[0]
    return await _alog_call(call, work)


async def _alog_call(call: Call, work: Callable[[], Awaitable[Result]]) -> Result:
    record = call.record
    if not record.is_open:
        return await work()
    await _abegin_run(call)
    try:
        result = await work()
    except asyncio.CancelledError as exc:
        # A cancelled task must not wait here.
        _end(record, _outcome_of_exception(call, exc))
        raise
    except BaseException as exc:
        await _aend(call, _outcome_of_exception(call, exc))
        raise
    if (outcome := _outcome_of_return(call, result)) is not None:
        await _aend(call, outcome)
    return result


async def alog_call_of_thread(call: Call, work: Callable[[], Awaitable[Result]]) -> Result:
    """Await a call that a thread runs and logs (``log_call``); log it here if the thread does not.

    The thread may not begin the call, or not end it in time. If this coroutine is cancelled, the
    thread continues.
    """
    operation = call.record.operation
    if operation is not None:
        with _span(operation, call, is_of_thread=True) as results:
            results.append(await _alog_call_of_thread(call, work))
        return results[0]
    return await _alog_call_of_thread(call, work)


async def _alog_call_of_thread(call: Call, work: Callable[[], Awaitable[Result]]) -> Result:
    try:
        result = await work()
    except asyncio.CancelledError:
        raise
    except BaseException as exc:
        if call.record.is_open:
            await _aend(call, _outcome_of_exception(call, exc))
        raise
    outcome = _outcome_of_return(call, result) if call.record.is_open else None
    if outcome is not None:
        await _aend(call, outcome)
    return result


def end_rejected(record: CallRecord, exc: BaseException) -> None:
    """Log a request that was rejected before a function could run."""
    if not record.is_open:
        return
    outcome, preset = call_record.outcome_before_run(exc), record.preset_outcome
    # An authorization error is logged as such, even if the component does not exist.
    if preset is not None and (preset.outcome != "unknown" or isinstance(exc, NOT_FOUND_ERRORS)):
        outcome = preset._replace(code=outcome.code)
    _end(record, outcome)


def end_rejected_with_span(record: CallRecord, exc: Exception) -> None:
    """Log an authorized call that does not run because another call of its batch was rejected."""
    if record.operation is not None:
        record.operation.end_raised(exc)
    end_rejected(record, exc)


def end_answered(call: Call, result: Result) -> None:
    """Log the result of a call, also of one that was answered without running a function."""
    outcome = _outcome_of_return(call, result) if call.record.is_open else None
    if outcome is not None:
        _end(call.record, outcome)


def _log_abandoned(record: CallRecord) -> None:
    """Log a call that was abandoned: it did not finish, or the client sent no answer."""
    reason = "the client did not answer" if record.was_asked else "the call did not finish"
    row = _last_row(record, CallOutcome("asked" if record.was_asked else "cancelled", None, reason))
    if row is not None:
        # Not written in this thread, since ``__del__`` may run in any.
        _queue(row)


@contextmanager
def _span(
    operation: TracedRequest, call: Call, *, is_of_thread: bool = False
) -> Iterator[list[Result]]:
    """Run the block in the span of the request; end the span with the result that the block adds.

    If the call ``is_of_thread``, its thread ends the span when the block is cancelled.
    """
    results: list[Result] = []
    with operation.activate():
        try:
            yield results
        except BaseException as exc:
            if not (is_of_thread and isinstance(exc, asyncio.CancelledError)):
                operation.end_raised(exc)
            raise
    operation.end_returned(results[0], is_stateless=call.revision.stateless)


def _outcome_of_exception(call: Call, exc: BaseException) -> CallOutcome:
    record = call.record
    if record.preset_outcome is not None:
        return record.preset_outcome._replace(code=getattr(exc, "code", None))
    return _with_cancellation_note(call_record.outcome_after_run(exc, record.error_outcome), call)


OK = CallOutcome("ok")
ASKED = CallOutcome("asked")
NOT_ENCODED = CallOutcome("failed", None, "the result cannot be encoded as JSON")
TOO_LARGE = CallOutcome("failed", None, "the result is larger than MAX_EVENT_BYTES")


def _outcome_of_return(call: Call, result: Result) -> CallOutcome | None:
    """Return the outcome of a result, and note its size.

    ``None`` for questions after which the call continues.
    """
    record = call.record
    outcome = record.preset_outcome
    is_asking = outcome is None and result.get("resultType") == "input_required"
    if is_asking and not call.revision.stateless:
        record.pause()
        return None
    is_encoded, is_large = True, False
    try:
        record.size = len(encode_result(call, result))
        is_large = is_too_large(call, record.size)
    except (TypeError, ValueError):
        is_encoded = False
    if outcome is not None or is_asking:
        return outcome or ASKED
    if not is_encoded:
        outcome = NOT_ENCODED
    elif is_large:
        outcome = TOO_LARGE
    elif result.get("isError"):
        outcome = record.error_outcome or CallOutcome("error")
    else:
        outcome = OK
    is_late = call.cancellation.requested_by_client
    return _with_cancellation_note(outcome, call) if is_late else outcome


def _with_cancellation_note(outcome: CallOutcome, call: Call) -> CallOutcome:
    """Add a note to the outcome of a call that finished although its client cancelled it."""
    is_noted = outcome.reason or outcome.outcome == "cancelled"
    if is_noted or not call.cancellation.requested_by_client:
        return outcome
    return outcome._replace(reason="the client cancelled the call")


# Before and after the run -------------------------------------------------------------------------


def _begin_run(record: CallRecord) -> None:
    """Send ``call_started``; write the row of a call that may write, and wait for it.

    Raises:
        LogUnavailable: the row could not be written.
    """
    row = _first_row(record)
    if row is not None:
        with _storing(record):
            call_log.insert(row)


async def _abegin_run(call: Call) -> None:
    """Do the same as ``_begin_run`` on an event loop; end the record if that fails."""
    record = call.record
    if not (record.writes or call_started.receivers) or call_log.is_disabled:
        record.resume()
        return
    try:
        if _needs_thread(call, call_started):
            await _in_thread(call, partial(_begin_run, record))
        elif (row := _first_row(record)) is not None:
            with _storing(record):
                await call_log.ainsert(row)
    except asyncio.CancelledError:
        # The row may be stored already, or be stored before the end that is queued here.
        _log_abandoned(record)
        raise
    except BaseException as exc:
        _end(record, call_record.outcome_before_run(exc))
        raise


def _first_row(record: CallRecord) -> CallRow | None:
    """Send ``call_started``, and return the row to write before the call, if there is one."""
    record.resume()
    if record.token or record.was_asked or call_log.is_disabled:
        return None
    has_receivers = call_started.receivers and call_started.has_listeners(tables.Call)
    if not (has_receivers or record.writes):
        return None
    token = call_log.new_token()
    fields = {**columns(record), "token": token}
    if has_receivers:
        call_started.send_robust(sender=tables.Call, call=tables.Call(**fields))
    if not record.writes:
        return None
    if not record.store(token):
        raise LogUnavailable
    return CallRow(fields)


@contextmanager
def _storing(record: CallRecord) -> Iterator[None]:
    """Run the block that writes the row; decide then whether the call may run.

    Raises:
        LogUnavailable: the call must not run.
    """
    failure: Exception | None = None
    try:
        yield
    except Busy as exc:
        raise LogUnavailable from exc
    except Error as exc:
        logger.exception("A call could not be logged before it ran.")
        if get_settings().audit_strict:
            raise LogUnavailable from exc
        failure = exc
    except (AssertionError, RuntimeError) as exc:
        if not _is_blocked_by_test_runner(exc):
            raise
        failure = exc
    if not record.mark_stored(is_certain=failure is None):
        # The call timed out before it began, and the timeout is logged already.
        raise LogUnavailable from failure


def _end(record: CallRecord, outcome: CallOutcome) -> None:
    """Write the end of the record: now if that is possible and necessary, otherwise soon."""
    # A call that did not run does not wait for its row.
    waits = record.state == "stored"
    row = _last_row(record, outcome)
    if row is None:
        return
    if is_on_loop():
        _queue(row)
        return
    if call_finished.receivers:
        _send_call_finished(row.fields)
    if waits or call_log.is_immediate():
        try:
            call_log.insert(row)
        except Exception as exc:  # noqa: BLE001 - queued, or raised again
            _queue_after_failure(row, exc)
    else:
        call_log.add(row)


async def _aend(call: Call, outcome: CallOutcome) -> None:
    """Do the same as ``_end`` on an event loop."""
    record = call.record
    if _needs_thread(call, call_finished):
        try:
            await _in_thread(call, partial(_end, record, outcome))
        except Busy:
            _end(record, outcome)
    elif record.state != "stored":
        _end(record, outcome)
    elif (row := _last_row(record, outcome)) is not None:
        try:
            await call_log.ainsert(row)
        except asyncio.CancelledError:
            call_log.add(row)
            raise
        except Exception as exc:  # noqa: BLE001 - queued, or raised again
            _queue_after_failure(row, exc)


def _last_row(record: CallRecord, outcome: CallOutcome) -> CallRow | None:
    """Close the record, and return its row; ``None`` if it is closed already."""
    is_uncertain = record.state == "storing"
    if not record.close() or call_log.is_disabled:
        return None
    fields = columns(record, outcome)
    if _call_logger.isEnabledFor(logging.INFO):
        # ``mcp_call`` can be encoded as JSON.
        json_fields = {**fields, "at": fields["at"].isoformat()}
        parts = (fields["kind"], fields["component"], fields["outcome"])
        _call_logger.info("%s %s: %s", *parts, extra={"mcp_call": json_fields})
    fields["token"] = record.token or call_log.new_token()
    return CallRow(fields, is_end=bool(record.token), is_uncertain=is_uncertain)


def _queue(row: CallRow) -> None:
    """Queue the row to be written soon; the thread that writes it sends the signal first."""
    is_heard = call_finished.receivers and call_finished.has_listeners(tables.Call)
    call_log.add(row, _send_later if is_heard else None)


def _queue_after_failure(row: CallRow, exc: Exception) -> None:
    """Queue a row that could not be written: the function has run, so the call must not fail."""
    if isinstance(exc, Error):
        logger.error("A call could not be logged; it is tried again.", exc_info=exc)
    elif _is_blocked_by_test_runner(exc):
        return
    elif not isinstance(exc, Busy):
        raise exc
    call_log.add(row._replace(is_uncertain=True))


def _is_blocked_by_test_runner(exc: Exception) -> bool:
    """Return whether Django's test case or pytest-django has blocked the use of the database."""
    return type(exc).__name__ == "DatabaseOperationForbidden" or (
        type(exc) is RuntimeError and str(exc).startswith("Database access not allowed")
    )


def _needs_thread(call: Call, signal: Signal) -> bool:
    """Return whether a thread has to write the record, or run a receiver."""
    return (
        call.channel.shares_thread
        or call_log.is_stopping
        or call_log.is_inline()
        or bool(signal.receivers and signal.has_listeners(tables.Call))
    )


async def _in_thread(call: Call, work: Callable[[], None]) -> None:
    if call.channel.shares_thread:
        await sync_to_async(work)()
    else:
        await get_pool("short").run(work)


# Rejected requests --------------------------------------------------------------------------------

# Requests for a component that are rejected before the component is looked up. Anonymous requests
# could flood the log, so each process logs a limited number of them per minute.

T = TypeVar("T")

ANONYMOUS_PER_MINUTE = 60


class _NameParams(msgspec.Struct):
    name: Any = None
    uri: Any = None


anonymous_limiter = PerMinute(ANONYMOUS_PER_MINUTE)


async def run_or_log_busy(
    where: BoundedPool,
    work: Callable[[], T],
    server: Server,
    message: object,
    *,
    transport: str,
    key: ShareKey,
    session_revision: Revision | None = None,
) -> T:
    """Run the work in a thread and return its result; log the request if the pool is full.

    Raises:
        Busy: the pool is full.
    """
    has_begun = False

    def begin() -> T:
        nonlocal has_begun
        has_begun = True
        return work()

    try:
        return await where.run(begin, key=key)
    except Busy as exc:
        if not has_begun:
            log_rejected(
                server, message, exc, transport=transport, session_revision=session_revision
            )
        raise


def log_rejected(
    server: Server | None,
    message: object,
    exc: Exception,
    *,
    transport: str,
    principal: Principal | None = None,
    session_revision: Revision | None = None,
) -> None:
    """Log the rejected requests of a message that are for a component."""
    members = message.members if isinstance(message, Batch) else (message,)
    for member in members:
        if not isinstance(member, Request) or member.method not in COMPONENT_METHODS:
            continue
        caller = principal or anonymous_principal()
        if not caller.is_authenticated and not anonymous_limiter.allows():
            continue
        revision = error_revision_of(member, session_revision) or LATEST
        rejected = _RejectedRequest(
            request=member,
            server=server or _UnknownServer(),
            principal=caller,
            envelope=Envelope(revision=revision, client_capabilities={}),
            channel=Channel(transport=transport),
        )
        record = CallRecord()
        begin(rejected, record)
        name = _requested_name(member)
        component: ReadableComponent | None = None
        if server and member.method == "resources/read":
            # The template is recorded instead of a URI that contains the values of its variables.
            with suppress(ValueError):
                check_uri(name)
                match = server.catalog.find_resource(name)
                component = match[0] if match is not None else None
        record.note_component(name, component)
        end_rejected(record, exc)


@dataclass(frozen=True, slots=True)
class _UnknownServer:
    """A placeholder for a server that was not looked up."""

    name: str = ""


@dataclass(slots=True, kw_only=True)
class _RejectedRequest:
    """What is logged of a request that was rejected before it became a call."""

    request: Request
    server: Server | _UnknownServer
    principal: Principal
    envelope: Envelope
    channel: Channel
    session: ClientSession | None = None


def _requested_name(request: Request) -> str:
    try:
        params = msgspec.json.decode(request.params or b"{}", type=_NameParams)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    name = params.uri if request.method == "resources/read" else params.name
    return name if isinstance(name, str) else ""


_call_logger = logging.getLogger("mcp_django.calls")


def _send_call_finished(fields: Fields) -> None:
    if call_finished.has_listeners(tables.Call):
        call_finished.send_robust(sender=tables.Call, call=tables.Call(**fields))


def _send_later(fields: Fields) -> None:
    """Send the signal in the thread that writes the row, within the tenant of the call."""
    with as_tenant(fields["tenant"]):
        run_as_tenant(partial(_send_call_finished, fields))
