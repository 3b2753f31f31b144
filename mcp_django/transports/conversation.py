"""Serve the concurrent requests of one client on one shared channel, such as stdio.

Stateless requests share no state: each names its revision in its own envelope, and the caller is
authenticated again for each. Only the channel is shared, so an open request is identified by its
id, is cancelled by that id, and messages are written one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.auth.limits import ShareKey, share_of
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    Busy,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MCPError,
    ParseError,
    TooManyRequests,
)
from mcp_django.execution import call_log
from mcp_django.execution.call import Call, Channel, TaskWait
from mcp_django.execution.pipeline import WORK_METHODS, Opened
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.quotas import UsageBatch
from mcp_django.execution.results import largest_message
from mcp_django.execution.threads import BoundedPool, count_job_for, get_pool
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import error_revision_of
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED
from mcp_django.protocol.jsonrpc import (
    Batch,
    Decoded,
    DecodingFailure,
    Notification,
    Request,
    RequestId,
)
from mcp_django.protocol.revisions import error_object
from mcp_django.protocol.text import clip
from mcp_django.transports import answer, client_requests, subscriptions
from mcp_django.transports.batches import BatchAdmission
from mcp_django.transports.cancellation import CancelledParams
from mcp_django.transports.client_requests import decode_answer
from mcp_django.transports.local_session import IncomingOnConnection, LocalSession, SessionTasks
from mcp_django.transports.outgoing import Messages

logger = logging.getLogger("mcp_django")

# One client's open requests, including subscriptions; more are rejected as busy.
MAX_OPEN = 256
CANCELLED = "notifications/cancelled"


class Conversation:
    """One client's open requests; ``send`` writes lines and returns once they are written.

    ``authorized`` is the caller that the server authorized when the channel was opened, or ``None``
    if it was rejected. ``end`` is called when the client of a session does not answer pings or
    may not stay. Without ``is_stateless_spoken``, requests with an envelope are rejected.
    ``share_key`` names the caller whose share of the threads requests use until their own caller is
    looked up.
    ``hold`` counts the subscriptions of the session.
    """

    def __init__(
        self,
        server: Server,
        caller: PrincipalSource,
        *,
        send: Callable[[bytes], Awaitable[None]],
        authorized: Principal | None = None,
        end: Callable[[], object] = lambda: None,
        hold: Callable[[Collection[str]], object] = lambda uris: None,
        is_stateless_spoken: bool = True,
        channel: Channel,
        share_key: ShareKey = None,
    ) -> None:
        self._server = server
        self._transport = channel.transport
        self._write = send
        self._end = end
        self._turn = asyncio.Lock()
        self._open: dict[RequestId | float, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], Request] = {}
        self._local = LocalSession(
            server,
            is_stateless_spoken=is_stateless_spoken,
            channel=channel,
            reports_changes=True,
            hold=hold,
        )
        self._opening = _RequestOpener(
            self._local, caller, authorized=authorized, share_key=share_key
        )
        self._session_tasks: SessionTasks | None = None
        self._batches: set[asyncio.Task[Any]] = set()

    @property
    def open_size(self) -> int:
        """The bytes of the parameters of all open requests; thread-safe."""
        return sum(len(request.params) for request in [*self._tasks.values()])

    async def process_line(self, line: Line) -> None:
        """Process one line; return when the next one may be read.

        An error response is written first, so no more is read from a client that does not read
        what the server writes.
        """
        if line is TOO_LONG:
            await self._send_error(ParseError("The message is too long"))
        else:
            await self.process_message(jsonrpc.decode(line))

    async def process_message(self, message: Decoded) -> None:
        """Process one message."""
        if isinstance(message, Request):
            await self._begin(message)
        elif isinstance(message, Notification):
            # Unknown ones are ignored, and none is answered.
            with self._local.trace_notification(message):
                if message.method == CANCELLED:
                    self._cancel(message)
            if (
                message.method == "notifications/initialized"
                and self._local.agreed is not None
                and self._session_tasks is None
            ):
                # The client is notified of changes and pinged, but not before it is initialized.
                self._session_tasks = SessionTasks(
                    *(self._server, self._local, self._opening.authorize),
                    write=self._send,
                    end=self._end,
                )
        elif isinstance(message, DecodingFailure):
            if not message.silent:
                await self._send_error(message.error, message.id)
        elif isinstance(message, Batch):
            await self._take_batch(message)
        elif message.id is not None:
            self._local.answers.deliver(message.id, decode_answer(message))

    async def _take_batch(self, batch: Batch) -> None:
        """Serve the members of a batch, if the session's revision has batches."""
        try:
            self._local.check_batch(batch)
        except InvalidRequest as exc:
            await self._send_error(exc)
            return
        entries = _BatchAnswer(largest_message() if self._transport == "sse" else math.inf)
        admission: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        begun: dict[int, tuple[Request, asyncio.Task[None]]] = {}
        for index, member in enumerate(batch.members):
            if isinstance(member, DecodingFailure):
                await entries.add(self._encode_error(member.error, member.id))
            elif not isinstance(member, Request):
                await self.process_message(member)
            elif (refusal := self._refusal(member)) is not None:
                await entries.add(self._encode_error(refusal, member.id))
            else:
                task = self._start(member, partial(_outcome_of, admission, index), entries.add)
                begun[index] = member, task
                entries.wait_for(task)
        # Without the requests that a later member of the batch has cancelled.
        requests = {
            index: request for index, (request, task) in begun.items() if not task.cancelling()
        }
        admitting = asyncio.create_task(self._admit(requests, admission))
        self._batches.add(admitting)
        admitting.add_done_callback(self._batches.discard)
        sending = asyncio.create_task(entries.send(self._send))
        self._batches.add(sending)
        sending.add_done_callback(self._batches.discard)
        if not entries.is_awaited:
            await asyncio.wait([sending])

    async def _begin(self, request: Request) -> None:
        """Start a task that serves a request, or write the error response that rejects it."""
        refusal = self._refusal(request)
        if refusal is not None:
            await self._send_error(refusal, request.id)
            return
        respond = partial(self._send, closes=request.id)
        task = self._start(request, partial(self._opening.open, request), respond)
        if self._local.opens_session(request):
            # Messages right after initialize already belong to the session that it opens.
            await asyncio.wait([task])

    def _refusal(self, request: Request) -> MCPError | None:
        """Return why a request is rejected before it is opened."""
        if request.id in self._open:
            return InvalidRequest(f"A request with the id {clip(request.id)} is already open")
        if len(self._tasks) >= MAX_OPEN:
            return Busy(
                f"{MAX_OPEN} requests are already open; wait for one to finish.",
                data={"retryAfter": 1},
            )
        return None

    def _start(
        self, request: Request, opening: Callable[[], Awaitable[Opened]], respond: Respond
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._serve(request, opening, respond))
        self._tasks[task] = request
        self._open[request.id] = task

        def forget(ended: asyncio.Task[None]) -> None:
            del self._tasks[ended]
            if self._open.get(request.id) is ended:
                del self._open[request.id]

        task.add_done_callback(forget)
        return task

    async def _admit(
        self, requests: Mapping[int, Request], admission: asyncio.Future[Outcomes]
    ) -> None:
        """Admit the requests of a batch, and give the outcomes to the tasks that serve them."""
        try:
            admission.set_result(await self._opening.open_batch(requests))
        except Exception as exc:  # noqa: BLE001 - each of these tasks reports it
            admission.set_exception(exc)
            # Marks the exception as retrieved: all of these tasks may have been cancelled.
            admission.exception()

    def _cancel(self, notification: Notification) -> None:
        """Cancel a request; none of its messages is written from now on."""
        try:
            params = jsonrpc.read_params(notification.params, CancelledParams)
        except InvalidParams:
            return
        task = self._open.pop(params.request_id, None)
        if task is not None:
            logger.debug("%s was cancelled: %s", self._tasks[task].method, clip(params.reason))
            task.cancel()

    async def _send_error(self, exc: MCPError, request_id: RequestId | None = None) -> None:
        await self._send(self._encode_error(exc, request_id))

    def _encode_error(self, exc: MCPError, request_id: RequestId | None) -> bytes:
        return jsonrpc.encode_failure(request_id, exc, self._local.revision)

    async def _serve(
        self, request: Request, opening: Callable[[], Awaitable[Opened]], respond: Respond
    ) -> None:
        """Answer a request with its result or an error."""
        try:
            await self._answer(await opening(), respond)
        except Exception as exc:  # noqa: BLE001 - e.g. from the site's own permission or backend
            if isinstance(exc, AccessRefused):
                # A channel has neither HTTP statuses nor challenges: the message says what to do.
                error = _access_error(exc, HINTS.get(self._transport, HINT))
            else:
                shown = exc if isinstance(exc, MCPError) else _internal_error(request, exc)
                error = error_object(shown, error_revision_of(request, self._local.revision))
            await respond(jsonrpc.encode(jsonrpc.build_error(request.id, error)))

    async def _answer(self, opened: Opened, respond: Respond) -> None:
        if isinstance(opened, bytes):
            await respond(opened)
        elif opened.result is None:
            answers = self._local.answers if opened.session is not None else None
            await self._send_all(respond, answer.messages(opened, answers=answers))
        elif isinstance(opened.result, TaskWait):
            answers = self._local.answers
            await self._send_all(
                respond, client_requests.task_result_messages(opened, answers=answers)
            )
        else:
            slot = subscriptions.acquire_listen_slot(opened)
            farewell = b"\n" + subscriptions.cancellation_message(opened)
            await self._send_all(
                respond, subscriptions.subscription_messages(opened, slot), farewell=farewell
            )

    async def _send_all(
        self, respond: Respond, messages: Messages, *, farewell: bytes = b""
    ) -> None:
        """Write messages as they are produced; ``farewell`` is written with the response."""
        async with aclosing(messages):
            async for message in messages:
                if message.is_response:
                    await respond(message.body + farewell)
                elif message.body:
                    await self._send(message.body)

    async def _send(self, body: bytes, *, closes: RequestId | None = None) -> None:
        async with self._turn:
            # The client may reuse the id as soon as it has read the response.
            if closes is not None:
                self._open.pop(closes, None)
            await self._write(body + b"\n")

    def end_subscriptions(self) -> None:
        """Cancel the subscriptions; the client has disconnected."""
        for task, request in tuple(self._tasks.items()):
            if request.method == "subscriptions/listen":
                task.cancel()
        if self._session_tasks is not None:
            self._session_tasks.end()

    async def finish(self, *, seconds: float) -> None:
        """Wait at most ``seconds`` for the open requests."""
        if going := (*self._tasks, *self._batches):
            await asyncio.wait(going, timeout=seconds)

    def cancel_all(self) -> None:
        """Cancel all open requests and end the session."""
        self._local.end()
        for task in (*self._tasks, *self._batches):
            task.cancel()
        if self._session_tasks is not None:
            self._session_tasks.end()


Outcomes: TypeAlias = Mapping[int, Opened | Exception]
T = TypeVar("T")


class PrincipalSource(Protocol):
    """Provides the principal; ``mcp_django.auth.authentication.LocalCaller`` implements it."""

    def principal(self) -> Principal:
        """Return the current principal; may query the database."""


class _RequestOpener:
    """Authorizes the caller of one channel, again for each request, and admits the request.

    ``authorized`` is the caller that the server authorized when the channel was opened, or ``None``
    if it was rejected.
    """

    def __init__(
        self,
        session: LocalSession,
        caller: PrincipalSource,
        *,
        authorized: Principal | None,
        share_key: ShareKey,
    ) -> None:
        self._session = session
        self._caller = caller
        self._authorized = authorized
        self._share_key = share_key

    def authorize(self) -> Principal:
        """Authorize the caller again and return the principal; may query the database.

        Raises:
            AccessRefused: the caller may not, or no longer, use the server.
        """
        return admit_caller(self._session.server, self._counted_principal)

    def _counted_principal(self) -> Principal:
        principal = self._caller.principal()
        count_job_for(share_of(principal, self._session.channel.find_source))
        return principal

    async def open(self, request: Request) -> Opened:
        """Return the response, or the call, subscription or task that remains to be run for it.

        Raises:
            MCPError: the request is rejected.
            AccessRefused: the caller is not authorized.
        """
        if request.method == "server/discover" and self._authorized is not None:
            # A probing client is answered immediately, without the database, unless the server's
            # description itself needs a query.
            with suppress(SynchronousOnlyOperation):
                return self._incoming(request, authorized=self._authorized).serve()
        where = get_pool("tool" if request.method in WORK_METHODS else "short")
        return await self._run(where, self._incoming(request).serve, request)

    async def open_batch(self, requests: Mapping[int, Request]) -> Outcomes:
        """Admit the requests of a batch, and return the outcome of each, by its position.

        Raises:
            Busy: no thread is free.
        """
        if not requests:
            return {}

        def admit() -> Outcomes:
            admission = BatchAdmission(requests, self._open_member, self._call_for)
            with suppress(TooManyRequests):
                # The outcomes then have the error.
                admission.admit()
            return admission.outcomes

        return await self._run(get_pool("tool"), admit, Batch(tuple(requests.values())))

    def _open_member(self, request: Request, usage_batch: UsageBatch | None) -> Opened:
        try:
            return self._incoming(request, usage_batch=usage_batch).serve()
        except (AccessRefused, MCPError):
            raise
        except Exception as exc:
            # For example from a validator of the site; the other members are still served.
            raise _internal_error(request, exc) from exc

    def _call_for(self, request: Request) -> Call:
        opened = self._incoming(request).open(self.authorize())
        assert isinstance(opened, Call)
        return opened

    def _incoming(
        self,
        request: Request,
        *,
        authorized: Principal | None = None,
        usage_batch: UsageBatch | None = None,
    ) -> IncomingOnConnection:
        return IncomingOnConnection(
            *(self._session, request, self._counted_principal),
            authorized=authorized,
            usage_batch=usage_batch,
        )

    async def _run(self, where: BoundedPool, work: Callable[[], T], message: object) -> T:
        return await call_log.run_or_log_busy(
            *(where, work, self._session.server, message),
            transport=self._session.channel.transport,
            key=self._share_key,
            session_revision=self._session.revision,
        )


Respond = Callable[[bytes], Awaitable[None]]
"""Takes the response to one request."""


class _BatchAnswer:
    """The answer to a batch: several messages in one line or one event (2025-03-26).

    It is one array with an entry for each request, or several messages if the array would have
    more than ``limit`` bytes. The requests are served concurrently.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._entries: list[bytes] = []
        self._running: list[asyncio.Task[None]] = []

    async def add(self, response: bytes) -> None:
        """Add an entry."""
        self._entries.append(response)

    def wait_for(self, task: asyncio.Task[None]) -> None:
        """Wait for a task that adds an entry; a cancelled one adds none."""
        self._running.append(task)

    @property
    def is_awaited(self) -> bool:
        """Whether entries are still being produced."""
        return bool(self._running)

    async def send(self, write: Respond) -> None:
        """Write the array when all entries are complete; write nothing if there are none."""
        if self._running:
            await asyncio.wait(self._running)
        if sum(len(response) + 1 for response in self._entries) > self._limit:
            for response in self._entries:
                await write(response)
        elif self._entries:
            await write(b"[" + b",".join(self._entries) + b"]")


async def _outcome_of(admission: asyncio.Future[Outcomes], index: int) -> Opened:
    # Shielded: if one member is cancelled, the others still need their outcomes.
    outcome = (await asyncio.shield(admission))[index]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


HINT = (
    "This needs credentials: start the server with --user USERNAME, or with MCP_DJANGO_USER or "
    "MCP_DJANGO_TOKEN in its environment."
)
# Every request is served for the caller who opened the stream.
HINTS = {
    "sse": "This needs credentials: open the stream with the header 'Authorization: Bearer TOKEN'."
}


def _internal_error(request: Request, exc: Exception) -> InternalError:
    """Log an unexpected exception, and return an error without its details."""
    logger.error("Answering %s failed.", request.method, exc_info=exc)
    return InternalError("The request failed because of a server error.")


def _access_error(exc: AccessRefused, hint: str) -> dict[str, Any]:
    """Return the error object that replaces HTTP's 401 or 403 and its challenge."""
    is_unknown = isinstance(exc, AuthenticationRequired)
    error: dict[str, Any] = {"code": UNAUTHORIZED if is_unknown else FORBIDDEN}
    # Without `exc.error` the caller presented no credentials.
    error["message"] = hint if is_unknown and not exc.error else exc.message
    if exc.scopes:
        error["data"] = {"scopes": list(exc.scopes)}
    return error


# Splitting bytes into lines -----------------------------------------------------------------------


class _Mark(Enum):
    TOO_LONG = auto()


TOO_LONG: Final = _Mark.TOO_LONG
"""Replaces a line over the size limit; its content is discarded."""

Line: TypeAlias = bytes | Literal[_Mark.TOO_LONG]


class LineSplitter:
    r"""Splits a stream of bytes into lines at ``\n`` and removes a ``\r`` before it.

    Chunks may end anywhere. Other characters that some readers treat as line ends, such as
    U+2028, are text.

    A line of more than ``limit`` bytes is yielded as ``TOO_LONG`` when it ends; its bytes are
    discarded as they arrive, so the buffer never exceeds the limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._is_dropping = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that the chunk completes, without blank ones."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield from self._finish()
        self._add(rest)

    def end(self) -> Iterator[Line]:
        """Yield what follows the last newline, at the end of the stream."""
        yield from self._finish()

    def _add(self, part: bytes) -> None:
        # One byte over the limit may be the carriage return, which is not part of the line.
        if self._is_dropping or len(self._begun) + len(part) > self._limit + 1:
            self._is_dropping = True
            self._begun.clear()
        else:
            self._begun += part

    def _finish(self) -> Iterator[Line]:
        line = bytes(self._begun).removesuffix(b"\r")
        is_too_long = self._is_dropping or len(line) > self._limit
        self._begun.clear()
        self._is_dropping = False
        if is_too_long:
            yield TOO_LONG
        elif line and not line.isspace():
            yield line
