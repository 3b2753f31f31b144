"""From an authorized call to its reply or its stream: run in a thread or on the loop, in time.

A call that reports something before its answer is a stream of messages; any other is one reply. A
thread cannot be stopped: a call that is not finished by its deadline is answered as timed out,
and its own answer is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from mcp_django.conf import get_settings
from mcp_django.core.context import Cancellation
from mcp_django.exceptions import InternalError, InvalidRequest, MCPError, RequestCancelled
from mcp_django.execution import invoke
from mcp_django.execution.call import Invocation, Result
from mcp_django.execution.invoke import time_limit
from mcp_django.execution.pipeline import respond
from mcp_django.execution.threads import on_loop, pool, with_request_signals
from mcp_django.protocol import jsonrpc
from mcp_django.transports import drain, listen
from mcp_django.transports.cancellation import lookout
from mcp_django.transports.client_requests import Answers, ask_client
from mcp_django.transports.exchange import Message, Reply, Stream, Work, error_reply
from mcp_django.transports.outgoing import (
    SILENCE,
    HangUp,
    Mailbox,
    Messages,
    Outgoing,
    StreamPort,
    as_events,
)
from mcp_django.transports.request_checks import first_done

# The calls of sessions, which nothing else holds once their clients have gone.
_detached: set[asyncio.Task[Reply | Stream]] = set()


def finish(work: Work) -> Reply | Stream:
    """Run a call in this thread and answer it."""
    invocation = work.invocation
    try:
        if invocation.incoming.revision.stateless:
            return _answered(work, invoke.run(invocation))
        with lookout.over(invocation):
            result = invoke.run_until_cancelled(invocation)
        return _answered(work, result)
    except MCPError as exc:
        return _failed(work, exc)
    except asyncio.CancelledError:
        if not invocation.cancellation.is_wish:
            raise
        return _cancelled(work)


async def afinish(work: Work) -> Reply | Stream:
    """Run a call from the event loop and answer it."""
    if work.invocation.incoming.revision.stateless:
        return await _afinish(work)
    # A client that went away has cancelled nothing (HTTP-16).
    task = asyncio.get_running_loop().create_task(_watched(work))
    _detached.add(task)
    task.add_done_callback(_detached.discard)
    work.invocation.cancellation.then(on_loop(task.cancel))
    await asyncio.wait([task])
    return _cancelled(work) if task.cancelled() else task.result()


async def _watched(work: Work) -> Reply | Stream:
    with lookout.over(work.invocation):
        return await _afinish(work)


async def _afinish(work: Work) -> Reply | Stream:
    try:
        result = await invoke.execute(work.invocation)
        if work.ask is None or result.get("resultType") != "input_required":
            return _answered(work, result)
        # Opening the stream writes its row.
        ask = partial(with_request_signals, partial(work.ask, result))
        return await pool("desk").run(ask)
    except MCPError as exc:
        return _failed(work, exc)


def _answered(work: Work, result: Result) -> Reply | Stream:
    if _is_cancelled(work):
        return _cancelled(work)
    if work.ask is not None and result.get("resultType") == "input_required":
        return work.ask(result)
    body = respond(work.invocation.incoming, result)
    return Reply(status=200, headers=work.headers, body=body)


def _failed(work: Work, exc: MCPError) -> Reply:
    incoming = work.invocation.incoming
    if _is_cancelled(work):
        exc = RequestCancelled()
    reply = error_reply(exc, incoming.request.id, incoming.revision)
    extra = tuple(pair for pair in work.headers if pair not in reply.headers)
    return replace(reply, headers=(*reply.headers, *extra))


def _is_cancelled(work: Work) -> bool:
    """Whether the client of a session has cancelled the call; what it comes to is discarded."""
    call = work.invocation
    return call.cancellation.is_wish and not call.incoming.revision.stateless


def _cancelled(work: Work) -> Reply:
    """The answer to a call that its client has cancelled, which needs one over HTTP (CAN-8)."""
    return _failed(work, RequestCancelled())


# Calls answered with a stream ---------------------------------------------------------------------


def stream(invocation: Invocation) -> AsyncGenerator[bytes, None]:
    """The messages of a call as events: what was reported, then the response, then the end."""
    return as_events(invocation.incoming, messages(invocation))


async def messages(
    invocation: Invocation, *, answers: Answers | None = None, first: Result | None = None
) -> Messages:
    """The messages of a call, as they come.

    ``answers`` is where a client of a handshake revision answers questions, ``first`` the result
    of a call that has asked its first ones already.

    Closing the generator is how the client cancels (HTTP-26): an async function is cancelled, a
    synchronous one finds ``ctx.cancelled`` raised and its answer is dropped.

    Raises:
        MCPError: the call means a JSON-RPC error, or the end of the process cut it off.
    """
    mailbox = Mailbox()
    sent_away = asyncio.Event()
    # Proxies and hosts give up on a stream whose first byte is late.
    yield SILENCE
    running = asyncio.ensure_future(_response(invocation, mailbox, answers, first))
    running.add_done_callback(lambda _: mailbox.wake())
    try:
        with drain.in_flight(running), _ended_with_caller(invocation, sent_away, running):
            while not running.done():
                if not await mailbox.wait(get_settings().keepalive_seconds):
                    yield SILENCE
                for message in mailbox.take():
                    yield _outgoing(message)
        for message in mailbox.take():
            yield _outgoing(message)
        if running.cancelled() and sent_away.is_set():
            raise InvalidRequest("Your access was taken away; the call was stopped.")
        if running.cancelled():
            raise InternalError("The server is stopping; call again.")
        yield Outgoing(running.result(), is_response=True)
    finally:
        invocation.cancellation.expire()
        running.cancel()


@contextmanager
def _ended_with_caller(
    invocation: Invocation, sent_away: asyncio.Event, running: asyncio.Future[bytes]
) -> Iterator[None]:
    """Stop a call whose caller is sent away; it may outlast its credential's own time."""

    def end() -> None:
        sent_away.set()
        running.cancel()

    incoming = invocation.incoming
    with listen.watching(
        incoming.server,
        incoming.principal,
        end,
        after=listen.SHORT_SECONDS,
        ends_at_expiry=False,
    ):
        yield


async def _response(
    invocation: Invocation, mailbox: Mailbox, answers: Answers | None, first: Result | None
) -> bytes:
    port = StreamPort(invocation.incoming, mailbox)
    result = first or await invoke.execute(invocation, port)
    while answers is not None and result.get("resultType") == "input_required":
        interaction = invocation.interaction
        assert interaction is not None
        asked = result["inputRequests"]
        interaction.resume(await ask_client(invocation, asked, answers, mailbox.put))
        result = await invoke.execute(invocation, port)
    return respond(invocation.incoming, result)


def _outgoing(message: Any) -> Outgoing:
    if isinstance(message, HangUp):
        return Outgoing(b"", hangs_up=message.seconds)
    return Outgoing(jsonrpc.encode(message))


# Deadlines of work in threads ---------------------------------------------------------------------

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Ticket:
    """Goes with a request into a thread, which notes on it what it begins to run.

    By that the event loop knows when to stop waiting for the thread.
    """

    cancellation: Cancellation = field(default_factory=Cancellation)
    work: Work | None = None
    deadline: float | None = None
    view: object = None
    """For which view ``LaneHandler`` had a look at the head."""
    refusal: Reply | None = None
    """What the request is answered whose body was not read to its end."""
    body: bytes = b""
    message: Message | None = None
    """What this body says; middleware may have put another in its place."""

    def start(self, work: Work) -> None:
        """Note that this call begins now; for the thread."""
        self.deadline = time.monotonic() + time_limit(work.invocation)
        self.work = work


async def in_time(ticket: Ticket, running: Awaitable[T]) -> T | Reply:
    """What the thread gives, or the answer to a call that it did not finish in time.

    The thread goes on, since nothing can stop it; its answer is dropped.
    """
    task = asyncio.ensure_future(running)
    try:
        while not task.done():
            await first_done(task, timeout=_patience(ticket))
            if task.done() or ticket.work is None or _patience(ticket) > 0:
                continue
            return await _timed_out(ticket.work)
        return task.result()
    finally:
        task.cancel()


async def _timed_out(work: Work) -> Reply:
    """The answer to a call whose thread did not come back in time."""
    try:
        result = await invoke.timed_out(work.invocation)
        body = respond(work.invocation.incoming, result)
        return Reply(status=200, headers=work.headers, body=body)
    except MCPError as exc:
        return _failed(work, exc)


def _patience(ticket: Ticket) -> float:
    """Seconds until it is worth looking again."""
    if ticket.deadline is None:
        return 1.0
    return max(0.0, ticket.deadline - time.monotonic())
