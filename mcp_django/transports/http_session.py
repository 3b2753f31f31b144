"""Streamable HTTP of the handshake revisions: sessions, batches, POST, GET and DELETE.

The header ``Mcp-Session-Id`` names the session, and the session determines the revision of its
messages. Every request is authenticated separately, and a session can only be used by the
principal that opened it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial

from django.db import IntegrityError, OperationalError
from django.utils import timezone

from mcp_django.auth.limits import anonymous_network
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    Busy,
    InvalidParams,
    InvalidRequest,
    MCPError,
    RequestCancelled,
    TooManyRequests,
)
from mcp_django.execution import invoke, telemetry
from mcp_django.execution.call import (
    Call,
    Channel,
    ResponseStream,
    Result,
    TaskWait,
)
from mcp_django.execution.handlers.session import (
    initialize_response,
    negotiate,
)
from mcp_django.execution.pipeline import Opened, admit, opened_by
from mcp_django.execution.quotas import UsageBatch, consume_session
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import call_on_loop, get_pool
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import check_version
from mcp_django.protocol.headers import EVENT_STREAM, LAST_EVENT_ID, SESSION_ID
from mcp_django.protocol.jsonrpc import (
    Batch,
    DecodingFailure,
    Notification,
    Request,
    RequestId,
    Response,
    request_id_of,
)
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, Revision
from mcp_django.storage import sessions, streams
from mcp_django.storage.cache import seconds_until_forgotten
from mcp_django.storage.inbox import ensure_heartbeat
from mcp_django.storage.sessions import (
    SessionKey,
    SessionRecord,
    StoredSession,
    session_key,
)
from mcp_django.transports import (
    answer,
    cancellation,
    client_requests,
    durable_streams,
    request_checks,
    stream_access,
)
from mcp_django.transports.batches import BatchAdmission
from mcp_django.transports.cancellation import cancellation_poller
from mcp_django.transports.durable_streams import MAX_WAITING
from mcp_django.transports.exchange import (
    Exchange,
    Message,
    accepted,
    error_reply,
    internal_error_reply,
    json_reply,
    jsonrpc_error_reply,
)
from mcp_django.transports.get_stream import get_stream_events
from mcp_django.transports.outcome import (
    BASE_HEADERS,
    SSE_HEADERS,
    Outcome,
    Pending,
    Reply,
    RequestRefused,
    Stream,
)
from mcp_django.transports.outgoing import Messages, Outgoing, failure
from mcp_django.transports.stream_slots import StreamSlot, acquire_stream_slot

logger = logging.getLogger("mcp_django")

Member = Request | Notification | Response | DecodingFailure


def named_session(server: Server, exchange: Exchange, principal: Principal) -> SessionKey | None:
    """Return the key of the session that a request names; ``None`` if it does not name one."""
    session_ids = exchange.headers.getlist(SESSION_ID)
    if len(session_ids) != 1:
        return None
    return session_key(session_ids[0], server=server.name, principal=principal.key)


class SessionRequest:
    """One HTTP request of a handshake revision and its caller.

    ``new_call`` builds its calls (``IncomingRequest.call``), and ``fetch`` returns the session of a
    key.
    """

    def __init__(
        self,
        server: Server,
        exchange: Exchange,
        principal: Principal,
        new_call: Callable[..., Call],
        fetch: Callable[[SessionKey], SessionRecord | None],
    ) -> None:
        self.server = server
        self.exchange = exchange
        self.principal = principal
        self._new_call = new_call
        self._fetch = fetch
        self.streams_to = exchange.can_stream and request_checks.accepts(
            exchange.headers, EVENT_STREAM
        )

    def revision(self) -> Revision | None:
        """Return the revision for the error reply to a request without an envelope, or ``None``.

        A request that names a session uses a handshake revision, even if the session has ended.
        """
        headers = self.exchange.headers
        if SESSION_ID not in headers or not request_checks.has_sessions(
            headers, self.server.protocol_versions
        ):
            return None
        try:
            return self.session(None).revision
        except RequestRefused:
            return LATEST_HANDSHAKE

    def open(self, message: Message) -> Call | Outcome:
        """Return the call of a posted request, or the outcome of another message."""
        if isinstance(message, Request):
            if message.method == "initialize":
                return self._initialize(message)
            session = self.session(message.id)
            try:
                return self.call_for(session, message)
            except MCPError as exc:
                return error_reply(exc, message.id, session.revision)
        session = self.session(request_id_of(message))
        if isinstance(message, Batch):
            return _answer_batch(self, session, message)
        return self.process_message(session, message)

    def _initialize(self, request: Request) -> Reply | Pending:
        if SESSION_ID in self.exchange.headers:
            with suppress(RequestRefused):
                self.session(None)
                exc = InvalidRequest(
                    "This session is already initialized; send initialize without Mcp-Session-Id."
                )
                return error_reply(exc, request.id)
        operation = telemetry.start_handshake(request, transport="http")
        try:
            with operation.activate() if operation is not None else nullcontext():
                return self._agree(request, operation)
        except Exception as exc:
            if operation is not None:
                operation.end_raised(exc)
            if isinstance(exc, InvalidParams):
                return replace(error_reply(exc, request.id), status=200)
            if isinstance(exc, MCPError):
                return error_reply(exc, request.id)
            raise

    def _agree(self, request: Request, operation: telemetry.Operation | None) -> Pending:
        agreement = negotiate(self.server, request)
        caller = self.principal
        network = anonymous_network(caller, self.exchange.request)
        consume_session(network)
        session, plaintext = sessions.new_session(
            self.server.name,
            caller.key,
            user_pk=caller.user_pk,
            protocol_version=agreement.revision.version,
            client_info=agreement.client_info,
            capabilities=agreement.capabilities,
            network=network,
        )
        if operation is not None:
            operation.note_session(agreement.revision.version, session.digest)
        body = initialize_response(
            self.server, request, agreement, can_stream=self.exchange.can_stream
        )
        return Pending(
            kind=sessions.NEW_SESSIONS,
            row=session,
            reply=json_reply(200, body, (("Mcp-Session-Id", plaintext),)),
            fail=partial(_failed, "session", request.id, operation),
            succeed=None if operation is None else partial(operation.end_returned, {}),
        )

    def session(self, request_id: RequestId | None) -> StoredSession:
        """Return the session that the request names.

        Raises:
            RequestRefused: it names none, or one that does not exist or is another caller's.
        """
        key = named_session(self.server, self.exchange, self.principal)
        if key is None and SESSION_ID not in self.exchange.headers:
            exc = InvalidRequest(
                "Send initialize first, then the Mcp-Session-Id of its reply with each message."
            )
            raise RequestRefused(replace(error_reply(exc, request_id), status=400))
        record = None if key is None else self._fetch(key)
        if record is None:
            raise RequestRefused(unknown_session(request_id))
        return StoredSession(record)

    def call_for(self, session: StoredSession, request: Request) -> Call:
        """Return the call of a request in the session.

        Raises:
            InvalidParams: the progress token is invalid.
        """
        envelope = session.envelope_of(request)
        return self._new_call(
            self.exchange,
            request,
            envelope,
            self.principal,
            session=session,
            can_ask=self.streams_to,
        )

    def open_member(
        self, session: StoredSession, request: Request, usage_batch: UsageBatch | None
    ) -> Opened:
        """Admit a request of a batch, and return its response or the call to run.

        Raises:
            MCPError: the request is rejected.
        """
        call = self.call_for(session, request)
        call.usage_batch = usage_batch
        admit(call)
        return opened_by(call)

    def process_message(self, session: StoredSession, message: Member) -> Reply | Pending:
        """Process a notification or a response, and return the empty reply."""
        if isinstance(message, Response) and message.id is not None:
            number = client_requests.stream_of_request_id(message.id)
            if number is not None:
                client_answer = client_requests.decode_answer(message)
                client_requests.deliver_answer(
                    session.record.pk, number, str(message.id), client_answer
                )
        elif isinstance(message, Notification):
            version, digest = session.record.protocol_version, session.record.digest
            with telemetry.trace_notification(
                message, version=version, transport="http", session=digest
            ):
                if message.method == "notifications/cancelled":
                    cancellation.cancel_request(session.record.pk, message)
                is_initialized = session.record.is_initialized
                if message.method == "notifications/initialized" and not is_initialized:
                    return Pending(
                        kind=sessions.INITIALIZED_SESSIONS,
                        row=session.record.pk,
                        reply=accepted(),
                        fail=partial(_failed, "session", None, None),
                    )
        return accepted()

    def get(self) -> Outcome:
        """Return the GET stream of a session, or the rest of an interrupted stream.

        Raises:
            UnsupportedProtocolVersion: the version header names an unsupported revision.
            TooManyStreams: the caller has reached the limit of open streams.
        """
        check_version(self.exchange.headers, enabled=self.server.protocol_versions)
        if not request_checks.accepts(self.exchange.headers, EVENT_STREAM):
            return jsonrpc_error_reply(
                406, f"GET answers with {EVENT_STREAM}; add it to the Accept header."
            )
        if SESSION_ID not in self.exchange.headers:
            # Clients try GET before they initialize, and read 405 as "no stream offered".
            return jsonrpc_error_reply(
                405,
                "A GET stream needs a session; send initialize first.",
                headers=(("Allow", "POST, OPTIONS"),),
            )
        session = self.session(None)
        ensure_heartbeat()
        slot = acquire_stream_slot(self.principal, self.exchange.request)
        last = self.exchange.headers.get(LAST_EVENT_ID)
        get_stream = partial(
            get_stream_events,
            session,
            slot,
            server=self.server,
            principal=self.principal,
            # Not the exchange: the stream needs nothing else of its request.
            channel=Channel(transport="http", find_source=self.exchange.find_source),
        )
        if not last:
            return _streaming(get_stream)
        event_id = durable_streams.decode_event_id(last)
        kind = streams.find_stream_kind(session.record.pk, event_id.stream) if event_id else None
        if event_id is None or kind != ("get" if event_id.is_of_get_stream else "post"):
            return jsonrpc_error_reply(
                400, "Last-Event-ID is not an event of this session, or the event has expired."
            )
        if event_id.is_of_get_stream:
            return _streaming(partial(get_stream, resumed=event_id))
        watched = partial(stream_access.watch_access, self.server, self.principal)
        rest = partial(
            durable_streams.resume_stream,
            session.record.pk,
            event_id.stream,
            after_seq=event_id.position,
            watched=watched,
        )
        return _streaming(partial(_with_stream_slot, slot, rest))

    def delete(self) -> Reply:
        """End a session; the reply is held back until no process uses the session any longer.

        Raises:
            UnsupportedProtocolVersion: the version header names an unsupported revision.
        """
        check_version(self.exchange.headers, enabled=self.server.protocol_versions)
        session = self.session(None)
        sessions.end_sessions([session.record.pk])
        lasted = (timezone.now() - session.record.created_at).total_seconds()
        version = session.record.protocol_version
        telemetry.record_session_end(lasted, version=version, transport="http")
        return Reply(status=204, hold=seconds_until_forgotten())


def answer_in_session(call: Call) -> Outcome:
    """Return the answer to an admitted call of a session, or the outcome that produces it."""
    session = call.session
    assert isinstance(session, StoredSession)
    if isinstance(call.result, dict):
        reply = json_reply(200, encode_response(call, call.result))
        reply.hold = _hold(call.request)
        return reply
    cancellation.running_calls.add(session.record.pk, call)
    if isinstance(call.result, TaskWait):
        # The task's client requests are sent on the stream too.
        return _begin(session, call, partial(client_requests.task_result_messages, call))
    if call.can_ask and call.wants_stream:
        return _stream(session, call)
    ask = partial(_stream, session, call) if call.can_ask else None
    return answer.Work(call=call, headers=BASE_HEADERS, ask=ask)


def _stream(session: StoredSession, call: Call, first: Result | None = None) -> Pending:
    """Return a stream that runs the call; its row is stored before the first event is sent.

    ``first`` is the result of a call that already ran and returned its first client requests.
    """
    return _begin(session, call, partial(answer.messages, call, first=first))


def _begin(session: StoredSession, call: Call, messages: Callable[..., Messages]) -> Pending:
    """Return a stream of these messages; it receives the answers to the call's client requests."""
    call.stream = ResponseStream()

    def run(answers: client_requests.StoredAnswers) -> Messages:
        return messages(answers=answers)

    return _pending_stream(session, call, run, answered=call.request.id)


def _hold(request: Request) -> float:
    """Return how long the reply to a request that changes its session is held back.

    After that, no process uses the session as it was before.
    """
    return seconds_until_forgotten() if request.method == "logging/setLevel" else 0


def _failed(
    what: str,
    request_id: RequestId | None,
    operation: telemetry.Operation | None,
    exc: Exception,
) -> Reply:
    """Return the reply to a request whose session or stream was not stored."""
    if isinstance(exc, OperationalError):
        # Another transaction has locked the row of the user, or the database is unavailable.
        logger.warning("A %s could not be stored (%s).", what, exc)
        exc = Busy(f"The {what} could not be stored; try again in a moment.")
    if operation is not None:
        operation.end_raised(exc)
    if isinstance(exc, MCPError):
        return error_reply(exc, request_id)
    logger.error("A %s could not be stored.", what, exc_info=exc)
    return internal_error_reply(request_id)


def _pending_stream(
    session: StoredSession,
    call: Call,
    run: Callable[[client_requests.StoredAnswers], Messages],
    *,
    answered: RequestId | list[RequestId],
) -> Pending:
    """Return a stream of messages that answers these requests, with its row."""
    row = streams.new_stream(session.record.pk, request_id=json.dumps(answered))
    request_id = None if isinstance(answered, list) else answered

    def fail(exc: Exception) -> Reply:
        if isinstance(exc, IntegrityError):
            # The row of the session was deleted meanwhile.
            return unknown_session(request_id)
        return _failed("stream", request_id, None, exc)

    answers = client_requests.StoredAnswers(session.record.pk, row.pk)
    return Pending(
        kind=streams.NEW_STREAMS,
        row=row,
        reply=_streaming(
            lambda: durable_streams.run_stream(session.record.pk, row.pk, call, run(answers))
        ),
        fail=fail,
    )


def unknown_session(request_id: RequestId | None) -> Reply:
    """Return the reply to a request whose session does not exist, or is another caller's."""
    return jsonrpc_error_reply(
        404,
        "The session does not exist or has ended; send initialize again.",
        request_id=request_id,
    )


async def _with_stream_slot(
    slot: StreamSlot, open_: Callable[[], AsyncGenerator[bytes, None]]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream; release its slot in the caller's limit when it ends."""
    try:
        async with aclosing(open_()) as events:
            async for event in events:
                yield event
    finally:
        slot.release()


def _streaming(open_: Callable[[], AsyncGenerator[bytes, None]]) -> Stream:
    return Stream(headers=SSE_HEADERS, open=open_)


# JSON-RPC batches ---------------------------------------------------------------------------------


def _answer_batch(posted: SessionRequest, session: StoredSession, batch: Batch) -> Outcome:
    """Process a batch: several messages in one POST (2025-03-26).

    Every request is answered; notifications and responses are processed without an answer.
    """
    if not session.revision.batches:
        exc = InvalidRequest("Send one message at a time; this session's revision has no batches.")
        return replace(error_reply(exc, None), status=400)
    admission = BatchAdmission(
        {
            index: member
            for index, member in enumerate(batch.members)
            if isinstance(member, Request)
        },
        partial(posted.open_member, session),
        partial(posted.call_for, session),
    )
    try:
        admission.admit(is_whole=True)
    except TooManyRequests as exc:
        return _limited_reply(session, batch, admission, exc)
    running: list[Call] = []
    finished: list[bytes] = []
    for index, member in enumerate(batch.members):
        if isinstance(member, (Request, DecodingFailure)):
            call_or_response = _entry(session, member, admission.outcomes.get(index))
            if isinstance(call_or_response, Call):
                cancellation.running_calls.add(session.record.pk, call_or_response)
                running.append(call_or_response)
            else:
                finished.append(call_or_response)
        else:
            noted = posted.process_message(session, member).finish()
            if noted != accepted():
                return noted
    if not finished and not running:
        return accepted()
    if running and posted.streams_to:
        return _stream_all(session, running, finished)
    finished += map(_run, running)
    reply = json_reply(200, b"[" + b",".join(finished) + b"]")
    requests = (member for member in batch.members if isinstance(member, Request))
    reply.hold = max(map(_hold, requests), default=0)
    return reply


def _entry(
    session: StoredSession, member: Request | DecodingFailure, outcome: Opened | Exception | None
) -> Opened:
    """Return the entry of a member in the answer, or the call that remains to be run for it."""
    if isinstance(member, DecodingFailure):
        return jsonrpc.encode_failure(member.id, member.error, session.revision)
    if isinstance(outcome, MCPError):
        return jsonrpc.encode_failure(member.id, outcome, session.revision)
    assert isinstance(outcome, (bytes, Call))
    return outcome


def _limited_reply(
    session: StoredSession, batch: Batch, admission: BatchAdmission, exc: TooManyRequests
) -> Reply:
    """Return the reply to a batch that exceeds a rate; none of its members has run."""
    entries = [
        _entry(session, member, admission.outcomes.get(index))
        for index, member in enumerate(batch.members)
        if isinstance(member, (Request, DecodingFailure))
    ]
    reply = error_reply(exc, None, session.revision)
    # Clients pass only the body of a 200 to the model.
    status = 200 if get_settings().throttle_as == "result" else reply.status
    body = b"[" + b",".join(response for response in entries if isinstance(response, bytes)) + b"]"
    return replace(reply, status=status, body=body)


def _run(call: Call) -> bytes:
    """Run a call that may not send messages, in this thread, and return its response.

    A cancelled call has an error as its entry, whether it has started or not.
    """
    response = b""
    try:
        if not _is_cancelled(call):
            with cancellation_poller.poll_during(call):
                response = encode_response(call, invoke.run_until_cancelled(call))
    except MCPError as exc:
        response = failure(call, exc)
    except asyncio.CancelledError:
        if not _is_cancelled(call):
            raise
    return failure(call, RequestCancelled()) if _is_cancelled(call) else response


def _is_cancelled(call: Call) -> bool:
    return call.cancellation.requested_by_client


def _stream_all(session: StoredSession, running: list[Call], finished: list[bytes]) -> Pending:
    """Return one stream for all calls; each response is an event, and the last one ends it."""
    # A client cancels single members, never the stream of the whole batch.
    batch_call = replace(running[0], cancellation=Cancellation())
    for call in running:
        call.stream = ResponseStream()
    run = partial(_batch_messages, running, finished)
    return _pending_stream(session, batch_call, run, answered=[call.request.id for call in running])


async def _batch_messages(
    running: list[Call], finished: list[bytes], answers: client_requests.ClientAnswers
) -> Messages:
    """Yield the messages of all calls as they are produced; the last response comes last."""
    for body in finished:
        yield Outgoing(body)
    queue: asyncio.Queue[Outgoing] = asyncio.Queue(MAX_WAITING)
    # No more threads than the caller may use, so that a batch does not make itself `Busy`.
    threads = asyncio.Semaphore(get_pool("tool").share_of(running[0].thread_key))

    async def run(call: Call) -> None:
        needs = nullcontext() if invoke.runs_as_coroutine(call) else threads
        try:
            async with needs, aclosing(answer.messages(call, answers=answers)) as messages:
                async for message in messages:
                    # The function may notice the cancellation before this task is cancelled.
                    if message.body and not (message.is_response and _is_cancelled(call)):
                        await queue.put(message)
        except MCPError as exc:
            if not _is_cancelled(call):
                await queue.put(Outgoing(failure(call, exc), is_response=True))

    async with asyncio.TaskGroup() as group:
        tasks = set()
        for call in running:
            task = group.create_task(run(call))
            # A cancelled member gets no entry.
            call.cancellation.add_callback(call_on_loop(task.cancel))
            tasks.add(task)
        remaining = len(running)
        try:
            async for message in _queued_messages(queue, tasks):
                remaining -= message.is_response
                yield replace(message, is_response=message.is_response and not remaining)
        finally:
            for task in tasks:
                task.cancel()


async def _queued_messages(
    queue: asyncio.Queue[Outgoing], tasks: set[asyncio.Task[None]]
) -> AsyncGenerator[Outgoing, None]:
    """Yield queued messages until all tasks are done and the queue is empty."""
    while True:
        while not queue.empty():
            yield queue.get_nowait()
        going = {task for task in tasks if not task.done()}
        if not going:
            return
        waiting = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait({waiting, *going}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield waiting.result()
        finally:
            waiting.cancel()
