"""The call log: one record for every use of a component.

The record of a call that may write is written before the call runs and updated at its end; any
other record is written at the end only. ``kept`` is for a thread, ``akept`` for the event loop,
which must not wait for the database: there a short-task thread writes what must be written now.

``execution.pipeline`` opens the ``Entry`` of a request, its handler notes the component that it
found, and ``execution.invoke`` begins and ends it. This applies to every transport. A request
that is rejected earlier is recorded by ``turned_away``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from asgiref.sync import sync_to_async
from django.db import Error

from mcp_django.auth.principal import Principal, anonymous
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused, Busy, InvalidParams, MethodNotFound
from mcp_django.execution import call_record
from mcp_django.execution.call import Incoming, Invocation, Result
from mcp_django.execution.call_record import KINDS, Entry, Meaning
from mcp_django.execution.threads import BoundedPool, pool, with_request_signals
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Envelope, revision_of
from mcp_django.protocol.jsonrpc import Batch, Request
from mcp_django.protocol.revisions import LATEST, Revision
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.signals import call_finished, call_started
from mcp_django.storage.call_rows import Fields, Line, Tell, call_log
from mcp_django.storage.databases import is_on_loop, tables

logger = logging.getLogger("mcp_django")

RETRY_SECONDS = 5
ABSENCES = (InvalidParams, MethodNotFound)


class LogUnavailable(Busy):
    """The call log cannot be written, so a call that may write does not run."""

    def __init__(self) -> None:
        super().__init__(
            "The call log cannot be written, so calls that may change data do not run; try again "
            "in a moment.",
            data={"retryAfter": RETRY_SECONDS},
        )


def kept(invocation: Invocation, work: Callable[[], Result]) -> Result:
    """Log the call and return the result of the work.

    The record is written when this function returns, or soon after.

    Raises:
        LogUnavailable: the call may write, and its record could not be written first; nothing has
            run.
    """
    entry = invocation.entry
    if not entry.is_open:
        if entry.is_over and entry.writes:
            raise LogUnavailable  # it timed out before its thread began
        return work()
    try:
        _begin(entry)
        result = work()
    except BaseException as exc:
        _end(entry, _raised(entry, exc, invocation))
        raise
    meaning = _returned(entry, result, invocation)
    if meaning is not None:
        _end(entry, meaning)
    return result


async def akept(
    invocation: Invocation,
    work: Callable[[], Awaitable[Result]],
    *,
    runs_here: bool = True,
    own_thread: bool = True,
) -> Result:
    """``kept`` for the event loop; without ``runs_here`` the work calls ``kept`` in a thread."""
    entry = invocation.entry
    if not entry.is_open:
        return await work()
    if runs_here:
        await _abegin(entry, own_thread=own_thread)
    try:
        result = await work()
    except asyncio.CancelledError as exc:
        # A thread that runs the work logs its outcome. A cancelled task must not wait here.
        if runs_here:
            _end_later(entry, _raised(entry, exc, invocation))
        raise
    except BaseException as exc:
        await _aend(entry, _raised(entry, exc, invocation), own_thread=own_thread)
        raise
    # The thread that ran the work may have ended the record already.
    if entry.is_open:
        meaning = _returned(entry, result, invocation)
        if meaning is not None:
            await _aend(entry, meaning, own_thread=own_thread)
    return result


def refused(entry: Entry, exc: BaseException) -> None:
    """Log a request that was rejected before a function could run."""
    if not entry.is_open:
        return
    meaning, mark = call_record.before(exc), entry.mark
    # An authorization error is logged as such, even if the component does not exist.
    if mark is not None and (mark.outcome != "unknown" or isinstance(exc, ABSENCES)):
        meaning = mark._replace(code=meaning.code)
    _end(entry, meaning)


def answered(entry: Entry, result: Result) -> None:
    """Log a request that was answered without running a function."""
    if entry.is_open:
        entry.size = _size(result)
        _end(entry, entry.mark or _meaning(entry, result))


def given_up(entry: Entry) -> None:
    """Log a call that was abandoned: it did not finish, or the client sent no answer."""
    reason = "the client did not answer" if entry.was_asked else "the call did not finish"
    _end_later(entry, Meaning("asked" if entry.was_asked else "cancelled", None, reason))


# The outcome of a call ----------------------------------------------------------------------------


def _raised(entry: Entry, exc: BaseException, invocation: Invocation) -> Meaning:
    if entry.mark is not None:
        return entry.mark._replace(code=getattr(exc, "code", None))
    return _wished_away(call_record.after(exc, entry.cause), invocation)


def _returned(entry: Entry, result: Result, invocation: Invocation) -> Meaning | None:
    """Return the outcome of a result; ``None`` for questions after which the call continues."""
    if entry.mark is None and result.get("resultType") == "input_required":
        if not invocation.incoming.revision.stateless:
            entry.pause()
            return None
        entry.size = _size(result)
        return Meaning("asked")
    entry.size = _size(result)
    return entry.mark or _wished_away(_meaning(entry, result), invocation)


def _meaning(entry: Entry, result: Result) -> Meaning:
    if entry.size is None:
        return Meaning("failed", None, "the result cannot be encoded as JSON")
    if result.get("isError"):
        return entry.cause or Meaning("error")
    return Meaning("ok")


def _wished_away(meaning: Meaning, invocation: Invocation) -> Meaning:
    """Add a note to the outcome of a call that finished although its client cancelled it."""
    if meaning.reason or meaning.outcome == "cancelled" or not invocation.cancellation.is_wish:
        return meaning
    return meaning._replace(reason="the client cancelled the call")


def _size(result: Result) -> int | None:
    try:
        return len(jsonrpc.encode(result))
    except (TypeError, ValueError):
        return None


# In a thread --------------------------------------------------------------------------------------


def _begin(entry: Entry) -> None:
    entry.resume()
    if entry.pk is not None or entry.was_asked:
        return
    if not _has_to_begin(entry):
        return
    fields = call_record.begun(entry)
    _tell_of_beginning(fields)
    if not entry.writes:
        return
    try:
        pk = call_log.insert(fields)
    except Exception as exc:
        if _is_of_a_test(exc):
            return
        if not isinstance(exc, Error):
            raise
        logger.exception("A call could not be logged before it ran.")
        if get_settings().audit_strict:
            raise LogUnavailable from exc
        return
    entry.pk = pk
    if not entry.is_open:
        # It timed out before it began, and the timeout is logged already.
        call_log.remove(pk)
        raise LogUnavailable


def _has_to_begin(entry: Entry) -> bool:
    if call_log.is_muted:
        return False
    return entry.writes or _hears_of_beginnings()


def _end(entry: Entry, meaning: Meaning) -> None:
    """Write the record: now where that is possible and necessary, otherwise soon."""
    if not entry.take_end() or call_log.is_muted:
        return
    fields = _fields(entry, meaning)
    if is_on_loop():
        call_log.add(Line(fields, entry.pk, _receiver(entry.pk)))
        return
    _tell_of_end(fields, pk=entry.pk)
    if entry.pk is None and not call_log.is_immediate():
        call_log.add(Line(fields))
    else:
        _write(fields, entry.pk)


def _write(fields: Fields, pk: int | None) -> None:
    try:
        if pk is None:
            call_log.insert(fields)
        else:
            call_log.update(pk, fields)
    except Exception as exc:
        if _is_of_a_test(exc):
            return
        if not isinstance(exc, Error):
            raise
        # The function has run already, so the call must not fail.
        logger.exception("A call could not be logged; it is tried again.")
        call_log.add(Line(fields, pk))


def _end_later(entry: Entry, meaning: Meaning) -> None:
    if entry.take_end() and not call_log.is_muted:
        fields = _fields(entry, meaning)
        call_log.add(Line(fields, entry.pk, _receiver(entry.pk)))


def _fields(entry: Entry, meaning: Meaning) -> dict[str, Any]:
    # All columns, also those of the beginning: for signal receivers, and for a new row.
    fields = {**call_record.begun(entry), **call_record.ended(entry, meaning)}
    _log_record(fields)
    return fields


# On the loop --------------------------------------------------------------------------------------


async def _abegin(entry: Entry, *, own_thread: bool) -> None:
    if not _has_to_begin(entry):
        entry.resume()
        return
    try:
        await _in_thread(partial(_begin, entry), own_thread=own_thread)
    except asyncio.CancelledError:
        # The thread may still write. The entry logs itself when its last reference is gone.
        raise
    except BaseException as exc:
        _end_later(entry, call_record.before(exc))
        raise


async def _aend(entry: Entry, meaning: Meaning, *, own_thread: bool) -> None:
    hops = entry.pk is not None or call_log.is_hurrying or call_log.is_under_test()
    if not own_thread or hops or _hears_of_ends():
        try:
            await _in_thread(partial(_end, entry, meaning), own_thread=own_thread)
        except Busy:
            _end_later(entry, meaning)
    else:
        _end_later(entry, meaning)


async def _in_thread(work: Callable[[], None], *, own_thread: bool) -> None:
    if own_thread:
        await pool("desk").run(partial(with_request_signals, work))
    else:
        await sync_to_async(work)()


def _is_of_a_test(exc: Exception) -> bool:
    """Return whether a test runner blocked the database.

    The mail outbox alone does not prove it: a site may use the test mail backend.
    """
    return call_log.is_under_test() and isinstance(exc, (AssertionError, RuntimeError))


# Rejected requests --------------------------------------------------------------------------------

# Requests for a component that are rejected before the component is looked up. Anonymous requests
# could flood the log, so each process logs a limited number of them per minute.

T = TypeVar("T")

MINUTE_SECONDS = 60.0
NOBODY_A_MINUTE = 60


class _Named(msgspec.Struct):
    name: Any = None
    uri: Any = None


class _Patience:
    """A rate limiter per minute; not locked, since a few more records do no harm."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset the count."""
        self._ends, self._left = 0.0, 0

    def allows(self) -> bool:
        """Return whether one more record may be written."""
        now = time.monotonic()
        if now >= self._ends:
            self._ends, self._left = now + MINUTE_SECONDS, NOBODY_A_MINUTE
        self._left -= 1
        return self._left >= 0


patience = _Patience()


@contextmanager
def watched(
    server: Server,
    message: object,
    *,
    transport: str,
    principal: Principal | None = None,
    session: Revision | None = None,
) -> Iterator[list[Principal]]:
    """Log a request if it is rejected before it is dispatched.

    Yields a list to which the principal may be appended as soon as it is known. ``session`` is the
    negotiated revision, where it is known.
    """
    known = [principal] if principal is not None else []
    try:
        yield known
    except (AccessRefused, Busy) as exc:
        caller = next(iter(known), None)
        turned_away(server, message, exc, transport=transport, principal=caller, session=session)
        raise


async def admitted(
    where: BoundedPool,
    work: Callable[[], T],
    server: Server,
    message: object,
    *,
    transport: str,
    key: str | None,
    session: Revision | None = None,
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
        return await where.run(partial(with_request_signals, begin), key=key)
    except Busy as exc:
        if not has_begun:
            turned_away(server, message, exc, transport=transport, session=session)
        raise


def turned_away(
    server: Server | None,
    message: object,
    exc: Exception,
    *,
    transport: str,
    principal: Principal | None = None,
    session: Revision | None = None,
) -> None:
    """Log the rejected requests of a message that are for a component."""
    members = message.members if isinstance(message, Batch) else (message,)
    for member in members:
        if not isinstance(member, Request) or member.method not in KINDS:
            continue
        caller = principal or anonymous()
        if caller.is_authenticated or patience.allows():
            revision = revision_of(member, session) or LATEST
            _keep(server, member, exc, transport, caller, revision)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A placeholder for a server that was not looked up."""

    name: str = ""


def _keep(
    server: Server | None,
    request: Request,
    exc: Exception,
    transport: str,
    principal: Principal,
    revision: Revision,
) -> None:
    incoming = Incoming(
        # Only the name of an unknown server is read.
        server=server or cast(Server, _Unknown()),
        request=request,
        envelope=Envelope(revision=revision, client_capabilities={}),
        principal=principal,
        transport=transport,
    )
    incoming.entry.open(incoming)
    name = _name(request)
    incoming.entry.wants(name)
    if server is not None and request.method == "resources/read":
        _look_up(server, name, incoming.entry)
    refused(incoming.entry, exc)


def _look_up(server: Server, uri: str, entry: Entry) -> None:
    """Record the template instead of a URI that contains the values of its variables."""
    try:
        check_uri(uri)
    except ValueError:
        return
    if (found := server.offered.find_resource(uri)) is not None:
        entry.found(found[0], uri=uri)


def _name(request: Request) -> str:
    try:
        named = msgspec.json.decode(request.params or b"{}", type=_Named)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    found = named.uri if request.method == "resources/read" else named.name
    return found if isinstance(found, str) else ""


# Signals and the logger ``mcp_django.calls`` ------------------------------------------------------

_call_logger = logging.getLogger("mcp_django.calls")


def _hears_of_beginnings() -> bool:
    """Return whether ``call_started`` has receivers."""
    return call_started.has_listeners(tables.Call)


def _hears_of_ends() -> bool:
    """Return whether ``call_finished`` has receivers."""
    return call_finished.has_listeners(tables.Call)


def _tell_of_beginning(fields: Fields) -> None:
    """Send ``call_started``."""
    if _hears_of_beginnings():
        call_started.send_robust(sender=tables.Call, call=tables.Call(**fields))


def _tell_of_end(fields: Fields, *, pk: int | None) -> None:
    """Send ``call_finished``."""
    if _hears_of_ends():
        call_finished.send_robust(sender=tables.Call, call=tables.Call(pk=pk, **fields))


def _receiver(pk: int | None) -> Tell | None:
    """Return what sends ``call_finished`` for a record that the background thread writes."""
    return partial(_tell_of_end, pk=pk) if _hears_of_ends() else None


def _log_record(fields: Fields) -> None:
    """Log one record, whose ``mcp_call`` can be encoded as JSON."""
    if _call_logger.isEnabledFor(logging.INFO):
        said = (fields["kind"], fields["component"], fields["outcome"])
        whole = {**fields, "at": fields["at"].isoformat()}
        _call_logger.info("%s %s: %s", *said, extra={"mcp_call": whole})


# Call log and span together -----------------------------------------------------------------------


def observed(invocation: Invocation, work: Callable[[], Result]) -> Result:
    """``kept`` within the tracing span of the request, if it has one.

    Raises:
        MCPError: the work raised it, or the call cannot be logged and so does not run.
    """
    operation = invocation.entry.operation
    if operation is None:
        return kept(invocation, work)
    with operation.active():
        try:
            result = kept(invocation, work)
        except BaseException as exc:
            operation.raised(exc)
            raise
    operation.returned(result, is_stateless=invocation.incoming.revision.stateless)
    return result


async def aobserved(
    invocation: Invocation,
    work: Callable[[], Awaitable[Result]],
    *,
    runs_here: bool = True,
    own_thread: bool = True,
) -> Result:
    """``akept`` within the span; without ``runs_here`` the work calls ``observed`` in a thread."""
    operation = invocation.entry.operation
    if operation is None:
        return await akept(invocation, work, runs_here=runs_here, own_thread=own_thread)
    with operation.active():
        try:
            result = await akept(invocation, work, runs_here=runs_here, own_thread=own_thread)
        except asyncio.CancelledError as exc:
            # A thread that runs the work ends the span itself.
            if runs_here:
                operation.raised(exc)
            raise
        except BaseException as exc:
            operation.raised(exc)
            raise
    operation.returned(result, is_stateless=invocation.incoming.revision.stateless)
    return result


def refused_with_span(entry: Entry, exc: Exception) -> None:
    """Log an authorized call that does not run because another call of its batch was rejected."""
    if entry.operation is not None:
        entry.operation.raised(exc)
    refused(entry, exc)
