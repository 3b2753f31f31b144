"""The call log: one record for every use of a component.

The record of a call that may write is written before the call runs and updated at its end; any
other record is written at the end only. ``log_call`` is for a thread, ``alog_call`` for the event
loop; ``storage.call_rows`` writes the rows.

``execution.pipeline`` opens the ``CallRecord`` of a request, its handler notes the component that
it found, and ``execution.invoke`` begins and ends it. This applies to every transport. A request
that is rejected earlier is recorded by ``log_rejected``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
from mcp_django.execution.call_record import COMPONENT_METHODS, CallOutcome, CallRecord, columns
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


def log_call(call: Call, work: Callable[[], Result]) -> Result:
    """Log the call and return the result of the work.

    The record is written when this function returns, or soon after.

    Raises:
        LogUnavailable: the call may write, and its record could not be written first; nothing has
            run.
    """
    call_record = call.record
    if not call_record.pending:
        if call_record.is_written and call_record.writes:
            raise LogUnavailable  # it timed out before its thread began
        return work()
    try:
        _begin_record(call_record)
        result = work()
    except BaseException as exc:
        _end_record(call_record, _outcome_of_exception(call, exc))
        raise
    meaning = _outcome_of_return(call, result)
    if meaning is not None:
        _end_record(call_record, meaning)
    return result


async def alog_call(
    call: Call,
    work: Callable[[], Awaitable[Result]],
    *,
    runs_here: bool = True,
    own_thread: bool = True,
) -> Result:
    """``log_call`` for the event loop; without ``runs_here`` a thread calls ``log_call``."""
    record = call.record
    if not record.pending:
        return await work()
    if runs_here:
        is_wanted = record.writes or (
            call_started.receivers and call_started.has_listeners(tables.Call)
        )
        if is_wanted and not call_log.is_disabled:
            await _abegin_record(record, own_thread=own_thread)
        elif record.was_asked:
            record.resume()
    try:
        result = await work()
    except asyncio.CancelledError as exc:
        # A thread that runs the work logs its outcome. A cancelled task must not wait here.
        if runs_here:
            _end_record(record, _outcome_of_exception(call, exc), is_queued=True)
        raise
    except BaseException as exc:
        await _aend_record(record, _outcome_of_exception(call, exc), own_thread=own_thread)
        raise
    # A thread that ran the work may have ended the record already.
    meaning = _outcome_of_return(call, result) if runs_here or record.pending else None
    if meaning is not None:
        await _aend_record(record, meaning, own_thread=own_thread)
    return result


def end_rejected(entry: CallRecord, exc: BaseException) -> None:
    """Log a request that was rejected before a function could run."""
    if not entry.pending:
        return
    meaning, mark = call_record.outcome_before_run(exc), entry.preset_outcome
    # An authorization error is logged as such, even if the component does not exist.
    if mark is not None and (mark.outcome != "unknown" or isinstance(exc, NOT_FOUND_ERRORS)):
        meaning = mark._replace(code=meaning.code)
    _end_record(entry, meaning)


def end_answered(call: Call, result: Result) -> None:
    """Log a request that was answered without running a function."""
    record = call.record
    meaning = _outcome_of_return(call, result) if record.pending else None
    if meaning is not None:
        _end_record(record, meaning)


def log_abandoned(call_record: CallRecord) -> None:
    """Log a call that was abandoned: it did not finish, or the client sent no answer."""
    reason = "the client did not answer" if call_record.was_asked else "the call did not finish"
    _end_record(
        call_record,
        CallOutcome("asked" if call_record.was_asked else "cancelled", None, reason),
        is_queued=True,
    )


CallRecord.log_abandoned = log_abandoned


# The outcome of a call ----------------------------------------------------------------------------


def _outcome_of_exception(call: Call, exc: BaseException) -> CallOutcome:
    entry = call.record
    if entry.preset_outcome is not None:
        return entry.preset_outcome._replace(code=getattr(exc, "code", None))
    return _with_cancellation_note(call_record.outcome_after_run(exc, entry.error_outcome), call)


OK = CallOutcome("ok")
ASKED = CallOutcome("asked")
NOT_ENCODED = CallOutcome("failed", None, "the result cannot be encoded as JSON")
TOO_LARGE = CallOutcome("failed", None, "the result is larger than MAX_EVENT_BYTES")


def _outcome_of_return(call: Call, result: Result) -> CallOutcome | None:
    """Return the outcome of a result, whose size is noted.

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


def _with_cancellation_note(meaning: CallOutcome, call: Call) -> CallOutcome:
    """Add a note to the outcome of a call that finished although its client cancelled it."""
    if (
        meaning.reason
        or meaning.outcome == "cancelled"
        or not call.cancellation.requested_by_client
    ):
        return meaning
    return meaning._replace(reason="the client cancelled the call")


# In a thread --------------------------------------------------------------------------------------


def _begin_record(entry: CallRecord) -> None:
    """Send ``call_started``; write the row of a call that may write, and wait for it.

    Raises:
        LogUnavailable: the row could not be written.
    """
    row = _first_row(entry)
    if row is None:
        return
    try:
        call_log.insert(row)
    except Exception as exc:  # noqa: BLE001 - decided there
        _check_first_row(entry, exc)
    else:
        _check_first_row(entry, None)


def _first_row(entry: CallRecord) -> CallRow | None:
    """Send ``call_started``, and return the row to write before the call, if there is one."""
    entry.resume()
    if entry.token or entry.was_asked or call_log.is_disabled:
        return None
    has_receivers, writes = call_started.has_listeners(tables.Call), entry.writes
    if not (has_receivers or writes):
        return None
    token = call_log.new_token()
    fields = {**columns(entry), "token": token}
    if has_receivers:
        call_started.send_robust(sender=tables.Call, call=tables.Call(**fields))
    if not writes:
        return None
    entry.token, entry.is_uncertain = token, True
    return CallRow(fields)


def _check_first_row(entry: CallRecord, exc: Exception | None) -> None:
    """Decide whether the call runs after its row was written, or failed to be written."""
    entry.is_uncertain = exc is not None
    if isinstance(exc, Busy):
        raise LogUnavailable from exc
    if exc is not None:
        if _is_blocked_by_test_runner(exc):
            return
        if not isinstance(exc, Error):
            raise exc
        logger.error("A call could not be logged before it ran.", exc_info=exc)
    if (exc is not None and get_settings().audit_strict) or not entry.pending:
        # If nothing is pending, it timed out before it began, and the timeout is logged already.
        raise LogUnavailable from exc


def _end_record(record: CallRecord, meaning: CallOutcome, *, is_queued: bool = False) -> None:
    """Write the record: now where that is possible and necessary, otherwise soon.

    With ``is_queued`` it is written soon in any case.
    """
    row = _last_row(record, meaning)
    if row is None:
        return
    is_heard = call_finished.receivers and call_finished.has_listeners(tables.Call)
    is_queued = is_queued or is_on_loop()
    if is_queued and is_heard:
        # The background thread sends the signal.
        call_log.add(row, _send_later)
        return
    if is_heard:
        _send_call_finished(row.fields)
    # A call that did not run does not wait for its row.
    if not is_queued and ((row.is_end and not row.is_uncertain) or call_log.is_immediate()):
        _write(row)
    else:
        call_log.add(row)


def _last_row(record: CallRecord, meaning: CallOutcome) -> CallRow | None:
    """End the record, and return the row to write, ``None`` if it has ended already."""
    try:
        # Another thread may end the record at the same time; one of them pops this.
        record.pending.pop()
    except IndexError:
        return None
    if call_log.is_disabled:
        return None
    fields = columns(record, meaning)
    if _call_logger.isEnabledFor(logging.INFO):
        _log_columns(fields)
    fields["token"] = record.token or call_log.new_token()
    return CallRow(fields, is_end=bool(record.token), is_uncertain=record.is_uncertain)


def _write(row: CallRow) -> None:
    try:
        call_log.insert(row)
    except Exception as exc:  # noqa: BLE001 - queued, or raised again
        _add_after_failure(row, exc)


def _add_after_failure(row: CallRow, exc: Exception) -> None:
    """Queue a row that could not be written: the function has run, so the call must not fail."""
    if isinstance(exc, Error):
        logger.error("A call could not be logged; it is tried again.", exc_info=exc)
    elif _is_blocked_by_test_runner(exc):
        return
    elif not isinstance(exc, Busy):
        raise exc
    call_log.add(row._replace(is_uncertain=True))


def _log_columns(fields: Fields) -> None:
    # ``mcp_call`` can be encoded as JSON.
    shown = {**fields, "at": fields["at"].isoformat()}
    parts = (fields["kind"], fields["component"], fields["outcome"])
    _call_logger.info("%s %s: %s", *parts, extra={"mcp_call": shown})


# On the loop --------------------------------------------------------------------------------------


async def _abegin_record(entry: CallRecord, *, own_thread: bool) -> None:
    try:
        if _needs_thread(call_started, own_thread=own_thread):
            await _in_thread(partial(_begin_record, entry), own_thread=own_thread)
        elif (row := _first_row(entry)) is not None:
            failure = None
            try:
                await call_log.ainsert(row)
            except Exception as exc:  # noqa: BLE001 - decided below
                failure = exc
            _check_first_row(entry, failure)
    except asyncio.CancelledError:
        # The row may be stored already, or be stored before the end that is queued here.
        log_abandoned(entry)
        raise
    except BaseException as exc:
        _end_record(entry, call_record.outcome_before_run(exc), is_queued=True)
        raise


async def _aend_record(record: CallRecord, meaning: CallOutcome, *, own_thread: bool) -> None:
    if _needs_thread(call_finished, own_thread=own_thread):
        try:
            await _in_thread(partial(_end_record, record, meaning), own_thread=own_thread)
        except Busy:
            _end_record(record, meaning, is_queued=True)
    elif not record.token or record.is_uncertain:
        _end_record(record, meaning, is_queued=True)
    elif (row := _last_row(record, meaning)) is not None:
        try:
            await call_log.ainsert(row)
        except asyncio.CancelledError:
            call_log.add(row)
            raise
        except Exception as exc:  # noqa: BLE001 - queued, or raised again
            _add_after_failure(row, exc)


def _needs_thread(signal: Signal, *, own_thread: bool) -> bool:
    """Return whether a record has to be written in a thread, or a receiver runs there."""
    return (
        not own_thread
        or call_log.is_stopping
        or call_log.is_under_test()
        or bool(signal.receivers and signal.has_listeners(tables.Call))
    )


async def _in_thread(work: Callable[[], None], *, own_thread: bool) -> None:
    if own_thread:
        await get_pool("short").run(work)
    else:
        await sync_to_async(work)()


def _is_blocked_by_test_runner(exc: Exception) -> bool:
    """Return whether a test runner blocked the database.

    The mail outbox alone does not prove it: a site may use the test mail backend.
    """
    return call_log.is_under_test() and isinstance(exc, (AssertionError, RuntimeError))


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
    """Return the result of the work, run in a thread; log the request if the pool is full.

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
        if caller.is_authenticated or anonymous_limiter.allows():
            revision = error_revision_of(member, session_revision) or LATEST
            rejected = _RejectedRequest(
                request=member,
                server=server or _UnknownServer(),
                principal=caller,
                envelope=Envelope(revision=revision, client_capabilities={}),
                channel=Channel(transport=transport),
            )
            _log_rejected_request(rejected, exc)


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


def _log_rejected_request(rejected: _RejectedRequest, exc: Exception) -> None:
    record = CallRecord()
    record.begin(rejected)
    server, request = rejected.server, rejected.request
    name = _requested_name(request)
    component = None
    if not isinstance(server, _UnknownServer) and request.method == "resources/read":
        component = _find_template(server, name)
    record.note_component(name, component)
    end_rejected(record, exc)


def _find_template(server: Server, uri: str) -> ReadableComponent | None:
    """Return the template to record instead of a URI that contains the values of its variables."""
    with suppress(ValueError):
        check_uri(uri)
        if (found := server.catalog.find_resource(uri)) is not None:
            return found[0]
    return None


def _requested_name(request: Request) -> str:
    try:
        named = msgspec.json.decode(request.params or b"{}", type=_NameParams)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    found = named.uri if request.method == "resources/read" else named.name
    return found if isinstance(found, str) else ""


# Signals and the logger ``mcp_django.calls`` ------------------------------------------------------

_call_logger = logging.getLogger("mcp_django.calls")


def _send_call_finished(fields: Fields) -> None:
    if call_finished.has_listeners(tables.Call):
        call_finished.send_robust(sender=tables.Call, call=tables.Call(**fields))


def _send_later(fields: Fields) -> None:
    """Send the signal from the thread that writes, which works for the tenant meanwhile."""
    with as_tenant(fields["tenant"]):
        run_as_tenant(partial(_send_call_finished, fields))


# Call log and span together -----------------------------------------------------------------------


def traced(call: Call, work: Callable[[], Result]) -> Result:
    """``log_call`` within the tracing span of the request, if it has one.

    Raises:
        MCPError: the work raised it, or the call cannot be logged and so does not run.
    """
    operation = call.record.operation
    if operation is None:
        return log_call(call, work)
    with operation.activate():
        try:
            result = log_call(call, work)
        except BaseException as exc:
            operation.end_raised(exc)
            raise
    operation.end_returned(result, is_stateless=call.revision.stateless)
    return result


async def atraced(
    call: Call,
    work: Callable[[], Awaitable[Result]],
    *,
    runs_here: bool = True,
    own_thread: bool = True,
) -> Result:
    """``alog_call`` in the span; without ``runs_here`` the work calls ``traced`` in a thread."""
    operation = call.record.operation
    if operation is None:
        return await alog_call(call, work, runs_here=runs_here, own_thread=own_thread)
    with operation.activate():
        try:
            result = await alog_call(call, work, runs_here=runs_here, own_thread=own_thread)
        except asyncio.CancelledError as exc:
            # A thread that runs the work ends the span itself.
            if runs_here:
                operation.end_raised(exc)
            raise
        except BaseException as exc:
            operation.end_raised(exc)
            raise
    operation.end_returned(result, is_stateless=call.revision.stateless)
    return result


def end_rejected_with_span(call_record: CallRecord, exc: Exception) -> None:
    """Log an authorized call that does not run because another call of its batch was rejected."""
    if call_record.operation is not None:
        call_record.operation.end_raised(exc)
    end_rejected(call_record, exc)
