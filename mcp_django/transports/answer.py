"""Run an authorized call, in a thread or on the event loop, and build its reply or its stream.

A call that sends messages before its response is answered with a stream, any other with one
reply. A thread cannot be stopped: a call that is not finished by its deadline is answered with a
timeout error, and its own result is discarded.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    AccessRefused,
    Busy,
    Forbidden,
    InternalError,
    InvalidRequest,
    MCPError,
    RequestCancelled,
    Unauthorized,
)
from mcp_django.execution import invoke
from mcp_django.execution.call import Call, Result
from mcp_django.execution.call_log import end_rejected_with_span
from mcp_django.execution.invoke import needs_thread, run_after_wait, time_limit
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import (
    LoopJob,
    call_on_loop,
    get_pool,
)
from mcp_django.tenants import as_tenant
from mcp_django.transports import drain, stream_access
from mcp_django.transports.cancellation import cancellation_poller
from mcp_django.transports.client_requests import ClientAnswers, ask_client
from mcp_django.transports.exchange import (
    Message,
    access_reply,
    error_reply,
)
from mcp_django.transports.outcome import (
    BASE_HEADERS,
    SSE_HEADERS,
    Answer,
    CallTimer,
    HeaderList,
    Outcome,
    OutcomeResponse,
    Pending,
    Reply,
    Stream,
    missing_headers,
)
from mcp_django.transports.outgoing import (
    KEEPALIVE,
    CloseStream,
    Mailbox,
    Messages,
    Outgoing,
    StreamPort,
    encode_events,
    encode_message,
)

T = TypeVar("T")

# Tasks of calls in sessions; nothing else references them after their clients disconnect.
_detached: set[asyncio.Task[Answer]] = set()


@dataclass(slots=True, kw_only=True, eq=False)
class Work(Outcome):
    """An authorized call that is answered with one JSON document."""

    call: Call
    headers: HeaderList
    ask: Callable[[Result], Pending] | None = None
    """Continues a call that returned client requests, on a stream, if the client accepts one."""

    @property
    def is_async(self) -> bool:
        """Whether the component's function runs on the event loop."""
        return self.call.component.function.is_async and not needs_thread()

    def finish(self, *, survives: bool = False) -> Answer:
        """Run the call in this thread; in a session it goes on when its client disconnects."""
        call = self.call
        if not survives or call.revision.stateless or not self.is_async:
            return _run(self).finish()
        # Not on the event loop of this thread, which may cancel the task of an async function.
        run = partial(run_after_wait, call, partial(_run, self))
        try:
            return get_pool("tool").run_from_thread(run, key=call.thread_key).finish()
        except Busy as exc:
            end_rejected_with_span(call.record, exc)
            return error_reply(exc, call.request.id, call.revision)

    async def afinish(self) -> Answer:
        """Run the call from the event loop."""
        call = self.call
        if call.envelope.revision.stateless:
            try:
                result = await (invoke.arun if self.is_async else invoke.run_from_event_loop)(call)
                return Reply(status=200, headers=self.headers, body=encode_response(call, result))
            except MCPError as exc:
                return _failed(self, exc)
        # A client that disconnects does not cancel its call in a session.
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            # Most calls end at their first step.
            task = asyncio.Task(_run_polled(self), loop=loop, eager_start=True)
        else:
            task = loop.create_task(_run_polled(self))
        if not task.done():
            _detached.add(task)
            task.add_done_callback(_detached.discard)
            call.cancellation.add_callback(call_on_loop(task.cancel))
            await asyncio.wait([task])
        return _cancelled(self) if task.cancelled() else task.result()

    def finish_in_thread(self, timer: CallTimer) -> Outcome:
        """Run a synchronous function."""
        if self.is_async:
            return self
        timer.start(self)
        return _run(self).finish_in_thread(timer)

    def with_headers(self, headers: HeaderList) -> Work:
        """Return the outcome with the headers added, except those that its answer already has."""
        added, ask = missing_headers(headers, self.headers), self.ask
        if ask is None:
            return replace(self, headers=(*self.headers, *added))
        return replace(
            self,
            headers=(*self.headers, *added),
            ask=lambda result: ask(result).with_headers(headers),
        )

    def to_response(self, request: HttpRequest) -> HttpResponseBase:
        """Return a Django response, which the event loop completes."""
        return OutcomeResponse(request, self)


def _run(work: Work) -> Reply | Pending:
    """Run a call in this thread and return its reply, or the stream on which it continues."""
    call = work.call
    try:
        with nullcontext() if call.revision.stateless else cancellation_poller.poll_during(call):
            result = invoke.run_until_cancelled(call)
        return _answered(work, result)
    except MCPError as exc:
        return _failed(work, exc)
    except asyncio.CancelledError:
        if not call.cancellation.requested_by_client:
            raise
        return _cancelled(work)


async def _run_polled(work: Work) -> Answer:
    with cancellation_poller.poll_during(work.call):
        try:
            result = await invoke.run_from_event_loop(work.call)
            if result.get("resultType") != "input_required":
                return _reply(work, result)
            # The question needs a stream, whose row has to be stored, and whose owner needs a
            # heartbeat.

            def store() -> Answer:
                return _answered(work, result).finish()

            return await get_pool("short").run(store)
        except MCPError as exc:
            return _failed(work, exc)


def _answered(work: Work, result: Result) -> Reply | Pending:
    if work.ask is None or result.get("resultType") != "input_required" or _is_cancelled(work):
        return _reply(work, result)
    return work.ask(result)


def _reply(work: Work, result: Result) -> Reply:
    if _is_cancelled(work):
        return _cancelled(work)
    body = encode_response(work.call, result)
    return Reply(status=200, headers=work.headers, body=body)


def _failed(work: Work, exc: MCPError) -> Reply:
    call = work.call
    if _is_cancelled(work):
        exc = RequestCancelled()
    if isinstance(exc, (Unauthorized, Forbidden)) and isinstance(exc.__cause__, AccessRefused):
        # As if the request had arrived now: clients get a new token after a 401 with a challenge.
        reply = access_reply(exc.__cause__)
    else:
        reply = error_reply(exc, call.request.id, call.revision)
    extra = tuple(pair for pair in work.headers if pair not in reply.headers)
    return replace(reply, headers=(*reply.headers, *extra))


def _is_cancelled(work: Work) -> bool:
    """Return whether the client of a session cancelled the call; its result is then discarded."""
    call = work.call
    return call.cancellation.requested_by_client and not call.revision.stateless


def _cancelled(work: Work) -> Reply:
    """Return the error reply to a cancelled call; over HTTP, every request needs a reply."""
    return _failed(work, RequestCancelled())


# Calls answered with a stream ---------------------------------------------------------------------

# How long a client waits for the first byte of a call that sends no messages yet.
START_SECONDS = 5


def stream(call: Call) -> AsyncGenerator[bytes, None]:
    """Return a call's messages as server-sent events: its notifications, then its response."""
    return encode_events(call, messages(call))


async def stream_or_reply(call: Call, headers: HeaderList) -> Answer:
    """Run a call; return its reply if it ends in time and sends no message before, else its stream.

    A document may have any size, but the size of an event is limited. ``headers`` are those of the
    stream.
    """
    # The headers that are not about events are for the reply, too.
    others = missing_headers(headers, SSE_HEADERS)
    message_stream = messages(
        call, start_seconds=min(START_SECONDS, get_settings().keepalive_seconds)
    )
    try:
        first = await anext(message_stream)
    except MCPError as exc:
        return _failed(Work(call=call, headers=BASE_HEADERS), exc).with_headers(others)
    if first.is_response:
        await message_stream.aclose()
        return Reply(status=200, headers=BASE_HEADERS, body=first.body).with_headers(others)

    async def begun() -> Messages:
        async with aclosing(message_stream):
            yield KEEPALIVE
            yield first
            async for message in message_stream:
                yield message

    return Stream(headers=headers, open=lambda: encode_events(call, begun()))


async def messages(
    call: Call,
    *,
    answers: ClientAnswers | None = None,
    first: Result | None = None,
    start_seconds: float = 0,
) -> Messages:
    """Run a call and yield its messages as they are sent.

    ``answers`` receives the responses of a client of a handshake revision to the call's client
    requests (elicitation, sampling, roots). ``first`` is the result of a call that already ran
    and returned its first client requests. The stream begins immediately; with ``start_seconds``,
    it begins with the first message, or after this time.

    Closing the generator cancels the call, as a client does by closing the response stream: an
    async function is cancelled; for a synchronous one ``ctx.cancelled`` is set and its result is
    discarded.

    Raises:
        MCPError: the call results in a JSON-RPC error, or was cancelled because the process stops.
    """
    mailbox = Mailbox()
    revoked = asyncio.Event()
    if not start_seconds:
        _note_begun(call)
        # Proxies and hosts time out on a stream whose first byte is late.
        yield KEEPALIVE
    running = asyncio.ensure_future(_run_to_result(call, mailbox, answers, first))
    running.add_done_callback(lambda _: mailbox.wake())

    def end() -> None:
        revoked.set()
        running.cancel()

    try:
        with (
            drain.cancel_at_drain_deadline(running),
            # The credential may expire while the call runs.
            stream_access.watch_access(
                call.server,
                call.principal,
                end,
                after=stream_access.SHORT_SECONDS,
                ends_at_expiry=False,
            ),
        ):
            patience = start_seconds or get_settings().keepalive_seconds
            while not running.done():
                if not await mailbox.wait(patience):
                    _note_begun(call)
                    yield KEEPALIVE
                patience = get_settings().keepalive_seconds
                for message in mailbox.take():
                    yield _outgoing(call, message)
        for message in mailbox.take():
            yield _outgoing(call, message)
        if running.cancelled() and revoked.is_set():
            raise InvalidRequest("Your access was revoked; the call was cancelled.")
        if running.cancelled():
            raise InternalError("The server is shutting down; send the request again.")
        yield Outgoing(encode_response(call, running.result()), is_response=True)
    finally:
        call.cancellation.expire()
        running.cancel()


def _note_begun(call: Call) -> None:
    if call.stream is not None:
        call.stream.has_begun = True


async def _run_to_result(
    call: Call,
    mailbox: Mailbox,
    answers: ClientAnswers | None,
    first: Result | None,
) -> Result:
    port = StreamPort(call, mailbox)
    result = first or await invoke.run_from_event_loop(call, port)
    while answers is not None and result.get("resultType") == "input_required":
        interaction = call.interaction
        assert interaction is not None
        questions = result["inputRequests"]
        interaction.resume(await ask_client(call, questions, answers, mailbox.put))
        result = await invoke.run_from_event_loop(call, port)
    return result


def _outgoing(call: Call, message: Any) -> Outgoing:
    if isinstance(message, CloseStream):
        return Outgoing(b"", reconnect_seconds=message.seconds)
    return encode_message(call, message)


# Deadlines of work in threads ---------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class InFlight:
    """State of one request, shared between the event loop and the thread that serves it.

    The thread records the call that it starts and its deadline, so the event loop knows when to
    stop waiting for the thread.
    """

    cancellation: Cancellation = field(default_factory=Cancellation)
    tenant: str = ""
    """The tenant of the request, once the site's middleware has run."""
    work: Work | None = None
    deadline: float | None = None
    view: Any = None
    """The view for which ``FastASGIHandler`` has already checked the request's head."""
    refusal: Reply | None = None
    """The reply to a request that was rejected before its body was read completely."""
    body: bytes = b""
    message: Message | None = None
    """The decoded ``body``; valid only while middleware has not replaced the body."""
    usual_head: list[Any] | None = None
    """The headers of a request whose head ``has_usual_head``, so that its body needs no checks."""

    def start(self, work: Work) -> None:
        """Record that this call starts now and set its deadline; called in the thread."""
        self.deadline = time.monotonic() + time_limit(work.call)
        self.work = work


class _DeadlineMissed(Exception):
    """The thread of a call missed the deadline."""


# How long the event loop waits before it checks whether the thread of a call has set its deadline.
LOOK_SECONDS = 1.0


async def wait_until_deadline(in_flight: InFlight, job: LoopJob[T]) -> T | Reply:
    """Return the thread's result, or a timeout reply if it misses the call's deadline.

    A thread cannot be stopped, so it keeps running; its result is discarded.

    Raises:
        Busy: no thread became free in time.
    """
    deadline_watch = _DeadlineWatch(in_flight, job.waiter)
    try:
        return await job.waiter
    except _DeadlineMissed:
        assert in_flight.work is not None
        with as_tenant(in_flight.tenant):
            return await _timed_out(in_flight.work)
    finally:
        deadline_watch.end()
        job.end()


class _DeadlineWatch:
    """Ends the wait for a thread that misses the deadline of its call.

    It forms a reference cycle with its timer. ``end`` breaks the cycle, so that no request has to
    wait for the garbage collector.
    """

    def __init__(self, in_flight: InFlight, waiter: asyncio.Future[Any]) -> None:
        self._in_flight = in_flight
        self._waiter = waiter
        self._loop = asyncio.get_running_loop()
        seconds = _seconds_to_deadline(in_flight)
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        seconds = _seconds_to_deadline(self._in_flight)
        if seconds > 0:
            self._timer = self._loop.call_later(seconds, self._check)
        elif not self._waiter.done():
            self._waiter.set_exception(_DeadlineMissed)

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()


async def _timed_out(work: Work) -> Reply:
    """Return the reply to a call whose thread missed the deadline.

    In a function of its own: in the frame that caught the exception, the call would be part of a
    reference cycle.
    """
    try:
        result = await invoke.timeout_result(work.call)
        body = encode_response(work.call, result)
        return Reply(status=200, headers=work.headers, body=body)
    except MCPError as exc:
        return _failed(work, exc)


def _seconds_to_deadline(in_flight: InFlight) -> float:
    """Return the seconds to wait before the deadline is checked again."""
    if in_flight.deadline is None:
        return LOOK_SECONDS
    seconds = in_flight.deadline - time.monotonic()
    # The thread sets ``deadline`` before ``work``.
    return seconds if in_flight.work is not None else max(seconds, LOOK_SECONDS)
