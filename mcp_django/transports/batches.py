"""JSON-RPC batches of 2025-03-26: several messages in one POST (BAT)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mcp_django.conf import get_settings
from mcp_django.core.context import Cancellation
from mcp_django.exceptions import (
    AccessRefused,
    InsufficientScope,
    InvalidRequest,
    MCPError,
    RequestCancelled,
    TooManyRequests,
)
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import error_object
from mcp_django.protocol.jsonrpc import Batch, Failure, Request, RequestId
from mcp_django.runtime import calls, throttling
from mcp_django.runtime.dispatch import WORK_METHODS, respond
from mcp_django.runtime.handlers.session import admit_subscribing
from mcp_django.runtime.incoming import Awaiting, Invocation
from mcp_django.runtime.pools import pool
from mcp_django.runtime.telemetry import around
from mcp_django.runtime.throttling import Tally
from mcp_django.store import streams
from mcp_django.store.sessions import StoredSession
from mcp_django.transports import call_stream, cancellations, client_answers, durable
from mcp_django.transports.desk import on_loop
from mcp_django.transports.exchange import Outcome, Stream
from mcp_django.transports.lookout import lookout
from mcp_django.transports.outgoing import Messages, Outgoing, failure
from mcp_django.transports.owned import MAX_WAITING
from mcp_django.transports.replies import SSE_HEADERS, accepted, error_reply, json_reply

if TYPE_CHECKING:
    from mcp_django.transports.handshake import Call


def answer(call: Call, session: StoredSession, batch: Batch) -> Outcome:
    """Answer every request of a batch; what needs no answer is just taken."""
    if not session.revision.batches:
        exc = InvalidRequest("Send one message at a time; this session's revision has no batches.")
        return replace(error_reply(exc, None), status=400)
    tally = Tally()
    admitted = _admit_all(call, session, batch, tally)
    try:
        tally.take()
    except TooManyRequests as exc:
        _note_refusal(admitted.values(), exc)
        return _too_many(call, session, batch, exc)
    finished: list[bytes] = []
    running: list[Invocation] = []
    for index, member in enumerate(batch.members):
        if isinstance(member, Request):
            opened = admitted[index] if index in admitted else _open(call, session, member)
            if isinstance(opened, Invocation):
                opened = cancellations.tracked(session.row.pk, opened)
            (running if isinstance(opened, Invocation) else finished).append(opened)  # type: ignore[arg-type]
        elif isinstance(member, Failure):
            finished.append(_error(session, member.error, member.id))
        else:
            call.take(session, member)
    if not finished and not running:
        return accepted()
    if running and call.streams_to:
        return _stream(session, running, finished)
    finished += map(_run, running)
    return json_reply(200, b"[" + b",".join(finished) + b"]")


def _admit_all(
    call: Call, session: StoredSession, batch: Batch, tally: Tally
) -> dict[int, bytes | Invocation]:
    """What the members that a caller could be refused come to, by their places.

    Before anything of the batch is done: a refusal is the answer to all of it, so it has to name
    the scopes of every member (AUT-6).

    Raises:
        AccessRefused: the caller may not use what one member or more need.
    """
    admitted: dict[int, bytes | Invocation] = {}
    refusals: list[AccessRefused] = []
    for index, member in enumerate(batch.members):
        if not isinstance(member, Request):
            continue
        try:
            if member.method in WORK_METHODS:
                admitted[index] = _open(call, session, member, tally)
            elif member.method == "resources/subscribe":
                # Done in its turn, when nothing of the batch is refused.
                with suppress(MCPError):
                    admit_subscribing(call.incoming(session, member))
        except AccessRefused as exc:
            refusals.append(exc)
    if refusals:
        _note_refusal(admitted.values(), refusals[0])
        raise _together(refusals)
    return admitted


def _note_refusal(admitted: Iterable[bytes | Invocation], exc: Exception) -> None:
    """What was admitted does not run, because of others."""
    for one in admitted:
        if isinstance(one, Invocation):
            around.refused(one.entry, exc)


def _together(refusals: list[AccessRefused]) -> AccessRefused:
    """One refusal for several; whoever is not known yet has to become known first."""
    first = next((one for one in refusals if not isinstance(one, InsufficientScope)), refusals[0])
    scopes = dict.fromkeys(scope for one in refusals for scope in one.scopes)
    first.scopes = tuple(scopes)
    return first


def _too_many(call: Call, session: StoredSession, batch: Batch, exc: TooManyRequests) -> Outcome:
    """The answer to a batch that is over a limit: nothing of it was done."""
    entries: list[bytes] = []
    for member in batch.members:
        if isinstance(member, Request):
            told = throttling.in_band(member, exc)
            entries.append(
                _error(session, exc, member.id)
                if told is None
                else respond(call.incoming(session, member), told)
            )
        elif isinstance(member, Failure):
            entries.append(_error(session, member.error, member.id))
    refusal = error_reply(exc, None, session.revision)
    # A model reads what came with 200; its client would keep anything else to itself.
    status = 200 if get_settings().throttle_as == "result" else refusal.status
    return replace(refusal, status=status, body=b"[" + b",".join(entries) + b"]")


def _open(
    call: Call, session: StoredSession, request: Request, tally: Tally | None = None
) -> bytes | Invocation:
    try:
        opened = call.open(session, request, tally)
    except MCPError as exc:
        return _error(session, exc, request.id)
    # No revision has both batches and tasks.
    assert not isinstance(opened, Awaiting)
    return opened


def _run(call: Invocation) -> bytes:
    """The response of a call that may send nothing before it, in this thread.

    One that is cancelled, whether it has begun or not, has its entry like any other (CAN-8).
    """
    found = b""
    try:
        if not _is_cancelled(call):
            with lookout.over(call):
                found = respond(call.incoming, calls.run_until_cancelled(call))
    except MCPError as exc:
        found = failure(call.incoming, exc)
    except asyncio.CancelledError:
        if not _is_cancelled(call):
            raise
    return failure(call.incoming, RequestCancelled()) if _is_cancelled(call) else found


def _is_cancelled(call: Invocation) -> bool:
    return call.cancellation.is_wish


def _stream(session: StoredSession, running: list[Invocation], finished: list[bytes]) -> Stream:
    """One stream for all: each response is an event, and after the last one it ends."""
    ids = [call.incoming.request.id for call in running]
    number = streams.open_stream(session.row.pk, request_id=json.dumps(ids))
    answers = client_answers.StoredAnswers(session.row.pk, number)
    work = partial(_all, running, finished, answers)
    # A client cancels one member or the other, never the stream of all.
    stands_for_all = replace(running[0], cancellation=Cancellation())
    return Stream(
        headers=SSE_HEADERS,
        open=lambda: durable.begin(session.row.pk, number, stands_for_all, work()),
    )


async def _all(
    running: list[Invocation], finished: list[bytes], answers: client_answers.Answers
) -> Messages:
    """What all calls say, as it comes; the last response of all is the last message."""
    for body in finished:
        yield Outgoing(body)
    said: asyncio.Queue[Outgoing] = asyncio.Queue(MAX_WAITING)
    # More threads than these no caller has; what came together need not crowd itself out.
    threads = asyncio.Semaphore(pool("work").share)
    async with asyncio.TaskGroup() as group:
        tasks = set()
        for call in running:
            needs = nullcontext() if call.component.function.is_async else threads
            task = group.create_task(_speak(call, answers, said, needs))
            # A member that is cancelled gets no entry (CAN-1).
            call.cancellation.then(on_loop(task.cancel))
            tasks.add(task)
        left = len(running)
        try:
            async for message in _said(said, tasks):
                left -= message.is_response
                yield replace(message, is_response=message.is_response and not left)
        finally:
            for task in tasks:
                task.cancel()


async def _said(
    said: asyncio.Queue[Outgoing], tasks: set[asyncio.Task[None]]
) -> AsyncGenerator[Outgoing, None]:
    """What is said until nobody is left who could say anything."""
    while True:
        while not said.empty():
            yield said.get_nowait()
        going = {task for task in tasks if not task.done()}
        if not going:
            return
        waiting = asyncio.ensure_future(said.get())
        try:
            await asyncio.wait({waiting, *going}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield waiting.result()
        finally:
            waiting.cancel()


async def _speak(
    call: Invocation,
    answers: client_answers.Answers,
    said: asyncio.Queue[Outgoing],
    needs: AbstractAsyncContextManager[None],
) -> None:
    try:
        async with needs, aclosing(call_stream.messages(call, answers=answers)) as messages:
            async for message in messages:
                # Its function may see that it was cancelled before this task is.
                if message.body and not (message.is_response and _is_cancelled(call)):
                    await said.put(message)
    except MCPError as exc:
        if not _is_cancelled(call):
            await said.put(Outgoing(failure(call.incoming, exc), is_response=True))


def _error(session: StoredSession, exc: MCPError, request_id: RequestId | None) -> bytes:
    error = error_object(exc, session.revision)
    return jsonrpc.encode(jsonrpc.error_message(request_id, error))
