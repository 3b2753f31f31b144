"""Streamable HTTP of the handshake revisions: sessions, POST, GET and DELETE.

Which revision a message is served in is the session's affair; which session, the header's. Every
request is authenticated on its own, and a session answers to its own principal alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from django.utils import timezone

from mcp_django.auth.credentials import SECRET_HEADERS, carrier
from mcp_django.auth.limits import network_of
from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import InvalidParams, InvalidRequest, MCPError
from mcp_django.protocol.envelope import check_version
from mcp_django.protocol.headers import LAST_EVENT_ID, SESSION_ID
from mcp_django.protocol.jsonrpc import (
    Batch,
    Failure,
    Notification,
    Request,
    RequestId,
    Response,
    request_id_of,
)
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, Revision
from mcp_django.runtime import handshake, telemetry
from mcp_django.runtime.dispatch import dispatch, respond
from mcp_django.runtime.incoming import Awaiting, Incoming, Invocation, Listening, Result
from mcp_django.runtime.throttling import Tally, spend_session
from mcp_django.store import sessions, streams
from mcp_django.store.sessions import StoredSession
from mcp_django.store.standing import look_again
from mcp_django.transports import (
    batches,
    call_stream,
    cancellations,
    client_answers,
    durable,
    event_ids,
    guards,
    listen,
    standing,
    task_result,
    watch,
)
from mcp_django.transports.exchange import (
    EVENT_STREAM,
    Exchange,
    Outcome,
    Reply,
    Stream,
    Work,
)
from mcp_django.transports.outgoing import Messages
from mcp_django.transports.replies import (
    BASE_HEADERS,
    SSE_HEADERS,
    accepted,
    error_reply,
    json_reply,
    refusal,
)

Member = Request | Notification | Response | Failure


class Call:
    """One HTTP request of a handshake revision and its caller."""

    def __init__(self, server: Server, exchange: Exchange, principal: Principal) -> None:
        self.server = server
        self.exchange = exchange
        self.principal = principal
        self.streams_to = exchange.can_stream and guards.accepts(exchange.headers, EVENT_STREAM)

    def revision(self) -> Revision | None:
        """The revision to refuse a request without an envelope in, ``None`` if it has no session.

        One that names a session is of a handshake revision, whatever has become of the session.
        """
        headers = self.exchange.headers
        if SESSION_ID not in headers or not guards.has_sessions(
            headers, self.server.protocol_versions
        ):
            return None
        session = self.session(None)
        return LATEST_HANDSHAKE if isinstance(session, Reply) else session.revision

    # POST -------------------------------------------------------------------------------------

    def post(self, message: Member | Batch) -> Outcome:
        """Answer a message, or several."""
        if isinstance(message, Request) and message.method == "initialize":
            return self._initialize(message)
        session = self.session(request_id_of(message))
        if isinstance(session, Reply):
            return session
        if isinstance(message, Batch):
            return batches.answer(self, session, message)
        if isinstance(message, Request):
            return self._request(session, message)
        self.take(session, message)
        return accepted()

    def _initialize(self, request: Request) -> Reply:
        if SESSION_ID in self.exchange.headers and not isinstance(self.session(None), Reply):
            exc = InvalidRequest("This session is initialized already; leave its header out.")
            return error_reply(exc, request.id)
        try:
            return telemetry.initialize(request, partial(self._agree, request), transport="http")
        except InvalidParams as exc:
            return replace(error_reply(exc, request.id), status=200)
        except MCPError as exc:
            return error_reply(exc, request.id)

    def _agree(self, request: Request, operation: telemetry.Operation | None) -> Reply:
        agreement = handshake.agree(self.server, request)
        caller = self.principal
        network = network_of(caller, self.exchange.request)
        spend_session(network)
        row, plaintext = sessions.begin(
            self.server.name,
            caller.key,
            user=caller.user if caller.is_authenticated else None,
            protocol_version=agreement.revision.version,
            client_info=agreement.client_info,
            capabilities=agreement.capabilities,
            network=network,
        )
        if operation is not None:
            operation.agreed(agreement.revision.version, row.digest)
        body = handshake.welcome(
            self.server, request, agreement, can_stream=self.exchange.can_stream
        )
        return json_reply(200, body, (("Mcp-Session-Id", plaintext),))

    def session(self, request_id: RequestId | None) -> StoredSession | Reply:
        """The session that the request names, or the refusal of one that names none of its own."""
        named = self.exchange.headers.getlist(SESSION_ID)
        if not named:
            exc = InvalidRequest("Send initialize first, then its Mcp-Session-Id with each message")
            return replace(error_reply(exc, request_id), status=400)
        row = None
        if len(named) == 1:
            key = self.principal.key
            row = sessions.find(named[0], server=self.server.name, principal=key)
        if row is None:
            return refusal(
                404, "There is no such session; initialize again.", request_id=request_id
            )
        return StoredSession(row)

    def incoming(
        self, session: StoredSession, request: Request, tally: Tally | None = None
    ) -> Incoming:
        """A request of the session, in the form that the runtime serves.

        Raises:
            InvalidParams: its progress token is none.
        """
        return Incoming(
            server=self.server,
            request=request,
            envelope=handshake.envelope_of(session, request),
            principal=self.principal,
            headers=self.exchange.headers.without(*SECRET_HEADERS),
            session=session,
            can_stream=self.exchange.can_stream,
            can_ask=self.streams_to,
            http_request=carrier(self.exchange.request, self.principal),
            tally=tally,
            transport="http",
        )

    def _request(self, session: StoredSession, request: Request) -> Outcome:
        try:
            opened = self.open(session, request)
        except MCPError as exc:
            return error_reply(exc, request.id, session.revision)
        if isinstance(opened, Awaiting):
            return self._await(session, opened)
        if isinstance(opened, bytes):
            return json_reply(200, opened)
        opened = cancellations.tracked(session.row.pk, opened)
        if self.streams_to and opened.wants_stream:
            return self.stream(session, opened)
        asked = partial(self._ask, session, opened) if self.streams_to else None
        return Work(invocation=opened, headers=BASE_HEADERS, ask=asked)

    def open(
        self, session: StoredSession, request: Request, tally: Tally | None = None
    ) -> bytes | Invocation | Awaiting:
        """The response to a request, or what is left to run or to wait for.

        With a ``tally`` it is counted there, and nothing is to run before that is taken.

        Raises:
            MCPError: the request is refused.
        """
        if request.method == "initialize":
            raise InvalidRequest("initialize stands alone, and begins a session of its own.")
        incoming = self.incoming(session, request, tally)
        outcome = dispatch(incoming)
        if isinstance(outcome, (Invocation, Awaiting)):
            return outcome
        assert not isinstance(outcome, Listening)
        return respond(incoming, outcome)

    def _ask(self, session: StoredSession, call: Invocation, first: Result) -> Stream:
        """A call that asked something before anything was sent: from now on a stream."""
        return self.stream(session, call, first=first)

    def stream(
        self, session: StoredSession, call: Invocation, *, first: Result | None = None
    ) -> Stream:
        """The call as a stream, whose row is there before its first event leaves."""
        return self._begin(session, call, partial(call_stream.messages, call, first=first))

    def _await(self, session: StoredSession, awaiting: Awaiting) -> Stream:
        """The outcome of a task as a stream, since what it asks travels there."""
        tracked = cancellations.tracked(session.row.pk, awaiting)
        return self._begin(session, tracked, partial(task_result.messages, tracked))

    def _begin(
        self,
        session: StoredSession,
        call: Invocation | Awaiting,
        messages: Callable[..., Messages],
    ) -> Stream:
        request_id = json.dumps(call.incoming.request.id)
        number = streams.open_stream(session.row.pk, request_id=request_id)
        answers = client_answers.StoredAnswers(session.row.pk, number)
        return Stream(
            headers=SSE_HEADERS,
            open=lambda: durable.begin(session.row.pk, number, call, messages(answers=answers)),
        )

    def take(self, session: StoredSession, message: Member) -> None:
        """Take a notification or an answer; neither is ever answered."""
        if isinstance(message, Response) and message.id is not None:
            number = client_answers.stream_of(message.id)
            if number is not None:
                answer = client_answers.read_answer(message)
                client_answers.deliver(session.row.pk, number, str(message.id), answer)
        elif isinstance(message, Notification):
            version, digest = session.row.protocol_version, session.row.digest
            with telemetry.notified(message, version=version, transport="http", session=digest):
                self._notified(session, message)

    def _notified(self, session: StoredSession, message: Notification) -> None:
        if message.method == "notifications/initialized":
            if not session.row.is_initialized:
                sessions.change(session.row, is_initialized=True)
                look_again([session.row.pk])
        elif message.method == "notifications/cancelled":
            cancellations.cancel(session.row.pk, message)

    # GET --------------------------------------------------------------------------------------

    def get(self) -> Outcome:
        """The standing stream of a session, or the rest of a stream that broke off.

        Raises:
            UnsupportedProtocolVersion: the version header names no revision of ours.
            TooManyStreams: the caller has as many open as one may.
        """
        check_version(self.exchange.headers, enabled=self.server.protocol_versions)
        if not guards.accepts(self.exchange.headers, EVENT_STREAM):
            return refusal(406, f"A GET is answered with {EVENT_STREAM}; accept it.")
        if SESSION_ID not in self.exchange.headers:
            # Clients ask before they initialize, and take this for "no stream here" (HTTP-12).
            return refusal(
                405,
                "There is no stream without a session; send initialize first.",
                headers=(("Allow", "POST, OPTIONS"),),
            )
        session = self.session(None)
        if isinstance(session, Reply):
            return session
        place = listen.take_place(self.principal, self.exchange.request)
        last = self.exchange.headers.get(LAST_EVENT_ID)
        if not last:
            return _streaming(partial(standing.events, self, session, place))
        found = event_ids.read(last)
        kind = streams.kind_of(session.row.pk, found.stream) if found else None
        if found is None or kind != ("get" if found.is_of_standing else "post"):
            return refusal(400, "Last-Event-ID is no event of this session, or not any more.")
        if found.is_of_standing:
            return _streaming(partial(standing.events, self, session, place, resumed=found))
        watched = partial(watch.watching, self.server, self.principal)
        rest = partial(
            durable.resume,
            session.row.pk,
            found.stream,
            after_seq=found.place,
            watched=watched,
        )
        return _streaming(partial(_in_place, place, rest))

    # DELETE -----------------------------------------------------------------------------------

    def delete(self) -> Reply:
        """End a session, in every process.

        Raises:
            UnsupportedProtocolVersion: the version header names no revision of ours.
        """
        check_version(self.exchange.headers, enabled=self.server.protocol_versions)
        session = self.session(None)
        if isinstance(session, Reply):
            return session
        sessions.end(session.row)
        lasted = (timezone.now() - session.row.created_at).total_seconds()
        version = session.row.protocol_version
        telemetry.session_ended(lasted, version=version, transport="http")
        return Reply(status=204)


async def _in_place(
    place: listen.Place, open_: Callable[[], AsyncGenerator[bytes, None]]
) -> AsyncGenerator[bytes, None]:
    """A stream that is one of its caller's until it ends."""
    try:
        async with aclosing(open_()) as events:
            async for event in events:
                yield event
    finally:
        place.give_back()


def _streaming(open_: Callable[[], object]) -> Stream:
    return Stream(headers=SSE_HEADERS, open=open_)  # type: ignore[arg-type]
