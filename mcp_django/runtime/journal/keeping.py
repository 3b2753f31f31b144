"""Around a call: its line before it where it may write, and after it always.

``kept`` is for a thread, ``akept`` for the event loop, where nothing may wait for the database:
what has to be written there is written in a thread of the desk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import Error

from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy, InvalidParams, MethodNotFound
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.journal import lines, outcomes, telling
from mcp_django.runtime.journal.entry import Entry
from mcp_django.runtime.journal.outcomes import Meaning
from mcp_django.runtime.pools import pool, with_request_signals
from mcp_django.store.call_rows import Line
from mcp_django.store.calls import call_log

if TYPE_CHECKING:
    from mcp_django.runtime.incoming import Invocation

logger = logging.getLogger("mcp_django")

Result = dict[str, Any]
RETRY_SECONDS = 5
ABSENCES = (InvalidParams, MethodNotFound)


class LogUnavailable(Busy):
    """The call log cannot be written, and what may write does not run without."""

    def __init__(self) -> None:
        super().__init__(
            "The call log cannot be written, so nothing that may change something runs now; "
            "try again in a moment.",
            data={"retryAfter": RETRY_SECONDS},
        )


def kept(invocation: Invocation, work: Callable[[], Result]) -> Result:
    """What the work gives; its line is in the log when this is over, or will be soon.

    Raises:
        LogUnavailable: it may write, and its line could not be written before; nothing has run.
    """
    entry = invocation.entry
    if not entry.is_open:
        if entry.is_over and entry.writes:
            raise LogUnavailable  # its time was up before its thread began
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
    """``kept`` on the event loop; without ``runs_here`` the work itself is ``kept`` in a thread."""
    entry = invocation.entry
    if not entry.is_open:
        return await work()
    if runs_here:
        await _abegin(entry, own_thread=own_thread)
    try:
        result = await work()
    except asyncio.CancelledError as exc:
        # A thread that is at it will tell how it went. A task that is cancelled waits for nobody.
        if runs_here:
            _end_later(entry, _raised(entry, exc, invocation))
        raise
    except BaseException as exc:
        await _aend(entry, _raised(entry, exc, invocation), own_thread=own_thread)
        raise
    if _is_left(entry):
        meaning = _returned(entry, result, invocation)
        if meaning is not None:
            await _aend(entry, meaning, own_thread=own_thread)
    return result


def _is_left(entry: Entry) -> bool:
    """Whether the thread in which the work ran has not ended it already."""
    return entry.is_open


def refused(entry: Entry, exc: BaseException) -> None:
    """The request was refused before there was anything to run."""
    if not entry.is_open:
        return
    meaning, mark = outcomes.before(exc), entry.mark
    # What refuses a caller is said by its exception, also for what is not there.
    if mark is not None and (mark.outcome != "unknown" or isinstance(exc, ABSENCES)):
        meaning = mark._replace(code=meaning.code)
    _end(entry, meaning)


def answered(entry: Entry, result: Result) -> None:
    """The request was answered without running anything."""
    if entry.is_open:
        entry.size = _size(result)
        _end(entry, entry.mark or _meaning(entry, result))


def given_up(entry: Entry) -> None:
    """Nobody runs it any more, or waits for what it asked."""
    reason = "no answer came" if entry.was_asked else "it did not run to its end"
    _end_later(entry, Meaning("asked" if entry.was_asked else "cancelled", None, reason))


# What it comes to ---------------------------------------------------------------------------------


def _raised(entry: Entry, exc: BaseException, invocation: Invocation) -> Meaning:
    if entry.mark is not None:
        return entry.mark._replace(code=getattr(exc, "code", None))
    return _wished_away(outcomes.after(exc, entry.cause), invocation)


def _returned(entry: Entry, result: Result, invocation: Invocation) -> Meaning | None:
    """What a result means; ``None`` for questions that the same call goes on with."""
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
        return Meaning("failed", None, "the answer is no JSON")
    if result.get("isError"):
        return entry.cause or Meaning("error")
    return Meaning("ok")


def _wished_away(meaning: Meaning, invocation: Invocation) -> Meaning:
    """A call that its client cancelled and that went on all the same: what it did, it did."""
    if meaning.reason or meaning.outcome == "cancelled" or not invocation.cancellation.is_wish:
        return meaning
    return meaning._replace(reason="the client did not wait for it")


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
    fields = lines.begun(entry)
    telling.begun(fields)
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
        # The time was up before it began, which has a line already.
        call_log.remove(pk)
        raise LogUnavailable


def _has_to_begin(entry: Entry) -> bool:
    if call_log.is_muted:
        return False
    return entry.writes or telling.hears_of_beginnings()


def _end(entry: Entry, meaning: Meaning) -> None:
    """Write the line: now, where that may and has to be, and soon otherwise."""
    if not entry.take_end() or call_log.is_muted:
        return
    fields = _fields(entry, meaning)
    if _is_on_loop():
        call_log.add(Line(fields, entry.pk, telling.later(entry.pk)))
        return
    telling.ended(fields, pk=entry.pk)
    if entry.pk is None and not call_log.is_immediate():
        call_log.add(Line(fields))
    else:
        _write(fields, entry.pk)


def _write(fields: Mapping[str, Any], pk: int | None) -> None:
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
        # It has run, and what it did is done.
        logger.exception("A call could not be logged, which is tried again.")
        call_log.add(Line(fields, pk))


def _end_later(entry: Entry, meaning: Meaning) -> None:
    if entry.take_end() and not call_log.is_muted:
        fields = _fields(entry, meaning)
        call_log.add(Line(fields, entry.pk, telling.later(entry.pk)))


def _fields(entry: Entry, meaning: Meaning) -> dict[str, Any]:
    # The columns of the beginning too: for whoever is told, and if it has no row.
    fields = {**lines.begun(entry), **lines.ended(entry, meaning)}
    telling.log(fields)
    return fields


# On the loop --------------------------------------------------------------------------------------


async def _abegin(entry: Entry, *, own_thread: bool) -> None:
    if not _has_to_begin(entry):
        entry.resume()
        return
    try:
        await _in_thread(partial(_begin, entry), own_thread=own_thread)
    except asyncio.CancelledError:
        # The thread may be at it; the entry tells when both have let go of it.
        raise
    except BaseException as exc:
        _end_later(entry, outcomes.before(exc))
        raise


async def _aend(entry: Entry, meaning: Meaning, *, own_thread: bool) -> None:
    hops = entry.pk is not None or call_log.is_hurrying or call_log.is_under_test()
    if not own_thread or hops or telling.hears_of_ends():
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


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_of_a_test(exc: Exception) -> bool:
    """Whether a test runner keeps a test from the database; a site may have its mail backend."""
    return call_log.is_under_test() and isinstance(exc, (AssertionError, RuntimeError))
