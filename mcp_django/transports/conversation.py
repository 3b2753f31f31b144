"""The requests that one client has open on a channel that they all share.

Nothing is kept from one request to the next: each says its revision in its own envelope, and the
caller is looked up anew for each (IO-8). What is shared is the channel, so a request is known by
its id while it is open, is canceled by naming it, and its messages wait their turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import (
    Busy,
    InvalidParams,
    InvalidRequest,
    MCPError,
    ParseError,
)
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import clip, error_object
from mcp_django.protocol.jsonrpc import (
    Batch,
    Decoded,
    Failure,
    Notification,
    Request,
    RequestId,
)
from mcp_django.runtime.incoming import Awaiting, Invocation, Listening
from mcp_django.transports import call_stream, listen, task_result
from mcp_django.transports.cancellations import CancelledParams
from mcp_django.transports.client_answers import read_answer
from mcp_django.transports.lines import TOO_LONG, Line
from mcp_django.transports.local_batches import BatchAnswer, Muster, Respond
from mcp_django.transports.local_changes import Standing
from mcp_django.transports.local_errors import error_of
from mcp_django.transports.local_session import LocalSession
from mcp_django.transports.opening import Caller, Opening
from mcp_django.transports.outgoing import Messages

logger = logging.getLogger("mcp_django")

# One client's open requests, subscriptions included; beyond, it is told to wait.
MAX_OPEN = 256
CANCELLED = "notifications/cancelled"


class Conversation:
    """What one client has open; ``send`` writes a line or several, and waits until they are taken.

    ``admitted`` is the caller as the server let it in at the beginning, ``None`` if it did not.
    ``end`` is called when the client of a session is not there any more. Without
    ``is_stateless_spoken`` requests with an envelope are refused. The call log has ``transport``.
    """

    def __init__(
        self,
        server: Server,
        caller: Caller,
        *,
        send: Callable[[bytes], Awaitable[None]],
        admitted: Principal | None = None,
        end: Callable[[], object] = lambda: None,
        is_stateless_spoken: bool = True,
        transport: str = "stdio",
    ) -> None:
        self._server = server
        self._transport = transport
        self._write = send
        self._end = end
        self._turn = asyncio.Lock()
        self._open: dict[RequestId | float, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], Request] = {}
        self._local = LocalSession(
            server, is_stateless_spoken=is_stateless_spoken, transport=transport
        )
        self._opening = Opening(server, caller, self._local, admitted=admitted, transport=transport)
        self._standing: Standing | None = None
        self._batches: set[asyncio.Task[None]] = set()

    # What comes in ----------------------------------------------------------------------------

    async def receive(self, line: Line) -> None:
        """Take one line, and return as soon as the next one may come.

        A refusal is written before that, so whoever does not read what is written is not read
        from any further.
        """
        if line is TOO_LONG:
            await self._refuse(ParseError("The message is too long"))
        else:
            await self.take(jsonrpc.decode(line))

    async def take(self, message: Decoded) -> None:
        """Take one message."""
        if isinstance(message, Request):
            begun = await self._begin(message, partial(self._send, closes=message.id))
            if isinstance(begun, bytes):
                await self._send(begun)
        elif isinstance(message, Notification):
            self._hear(message)
        elif isinstance(message, Failure):
            if not message.silent:
                await self._refuse(message.error, message.id)
        elif isinstance(message, Batch):
            await self._take_batch(message)
        elif message.id is not None:
            self._local.answers.give(message.id, read_answer(message))

    def _hear(self, message: Notification) -> None:
        """Do what a notification says; others mean nothing and are never answered (RPC-8)."""
        with self._local.notified(message):
            if message.method == CANCELLED:
                self._cancel(message)
        if message.method == "notifications/initialized":
            self._stand()

    def _stand(self) -> None:
        """Tell the client of changes, and see that it is there, from now on (VER-16)."""
        if self._local.agreed is None or self._standing is not None:
            return
        self._standing = Standing(
            self._server, self._local, self._opening.caller, write=self._send, end=self._end
        )

    async def _take_batch(self, batch: Batch) -> None:
        """Serve the members of a batch, if the session has batches (BAT-1, BAT-5)."""
        try:
            self._local.check_batch(batch)
        except InvalidRequest as exc:
            await self._refuse(exc)
            return
        answer = BatchAnswer()
        muster = Muster(one for one in batch.members if isinstance(one, Request))
        for member in batch.members:
            if isinstance(member, Failure):
                await answer.add(self._refusal(member.error, member.id))
            elif not isinstance(member, Request):
                await self.take(member)
            elif self._local.is_initialize(member):
                alone = InvalidRequest("initialize stands alone.")
                muster.here(member)
                await answer.add(self._refusal(alone, member.id))
            else:
                begun = await self._begin(member, answer.add, muster)
                if isinstance(begun, bytes):
                    await answer.add(begun)
                else:
                    answer.wait_for(begun)
        sending = asyncio.create_task(answer.send(self._send))
        self._batches.add(sending)
        sending.add_done_callback(self._batches.discard)
        if not answer.is_awaited:
            await asyncio.wait([sending])

    async def _begin(
        self, request: Request, respond: Respond, muster: Muster | None = None
    ) -> asyncio.Task[None] | bytes:
        """Begin to serve a request, or refuse it."""
        if request.id in self._open:
            refusal: MCPError = InvalidRequest(f"A request with the id {clip(request.id)} is open")
        elif len(self._tasks) >= MAX_OPEN:
            refusal = Busy(f"{MAX_OPEN} requests are open.", data={"retryAfter": 1})
        else:
            task = asyncio.create_task(self._serve(request, respond, muster))
            if muster is not None:
                task.add_done_callback(lambda _: muster.here(request))
            self._tasks[task] = request
            self._open[request.id] = task
            task.add_done_callback(self._forget)
            if self._local.opens_session(request):
                # What was written right behind it belongs to the session that it opens.
                await asyncio.wait([task])
            return task
        if muster is not None:
            muster.here(request)
        return self._refusal(refusal, request.id)

    def _forget(self, task: asyncio.Task[None]) -> None:
        request = self._tasks.pop(task)
        if self._open.get(request.id) is task:
            del self._open[request.id]

    def _cancel(self, notification: Notification) -> None:
        """Stop a request; nothing that belongs to it is written from now on (IO-5)."""
        try:
            params = jsonrpc.read_params(notification.params, CancelledParams)
        except InvalidParams:
            return
        task = self._open.pop(params.request_id, None)
        if task is not None:
            logger.debug("%s was canceled: %s", self._tasks[task].method, clip(params.reason))
            task.cancel()

    async def _refuse(self, exc: MCPError, request_id: RequestId | None = None) -> None:
        await self._send(self._refusal(exc, request_id))

    def _refusal(self, exc: MCPError, request_id: RequestId | None) -> bytes:
        error = error_object(exc, self._local.revision)
        return jsonrpc.encode(jsonrpc.error_message(request_id, error))

    # What goes out ----------------------------------------------------------------------------

    async def _serve(self, request: Request, respond: Respond, muster: Muster | None) -> None:
        """Answer a request, with an error if need be."""
        try:
            await self._answer(request, respond, muster)
        except Exception as exc:  # noqa: BLE001 - a permission or backend of the site's own, too
            agreed = self._local.revision
            error = error_of(request, exc, session=agreed, transport=self._transport)
            await respond(jsonrpc.encode(jsonrpc.error_message(request.id, error)))

    async def _answer(self, request: Request, respond: Respond, muster: Muster | None) -> None:
        opened = await self._opening.open(request, muster)
        if isinstance(opened, Invocation):
            answers = self._local.answers if opened.incoming.session is not None else None
            await self._send_all(respond, call_stream.messages(opened, answers=answers))
        elif isinstance(opened, Awaiting):
            answers = self._local.answers
            await self._send_all(respond, task_result.messages(opened, answers=answers))
        elif isinstance(opened, Listening):
            incoming = opened.incoming
            place = listen.take_place(incoming.principal, incoming.http_request)
            farewell = b"\n" + listen.cancellation(opened)
            await self._send_all(respond, listen.messages(opened, place), farewell=farewell)
        else:
            await respond(opened)

    async def _send_all(
        self, respond: Respond, messages: Messages, *, farewell: bytes = b""
    ) -> None:
        """Write messages as they come; ``farewell`` goes with the response, in one piece."""
        async with aclosing(messages):
            async for message in messages:
                if message.is_response:
                    await respond(message.body + farewell)
                elif message.body:
                    await self._send(message.body)

    async def _send(self, body: bytes, *, closes: RequestId | None = None) -> None:
        async with self._turn:
            # Whoever reads the response may use the id again before we hear of it.
            if closes is not None:
                self._open.pop(closes, None)
            await self._write(body + b"\n")

    # The end ----------------------------------------------------------------------------------

    def end_subscriptions(self) -> None:
        """Drop the subscriptions, whose client is not there to hear of anything."""
        for task, request in tuple(self._tasks.items()):
            if request.method == "subscriptions/listen":
                task.cancel()
        if self._standing is not None:
            self._standing.end()

    async def finish(self, *, seconds: float) -> None:
        """Wait for what is open, at most so long."""
        if going := (*self._tasks, *self._batches):
            await asyncio.wait(going, timeout=seconds)

    def cancel_all(self) -> None:
        """Stop whatever is still open, and with it the session."""
        self._local.end()
        for task in (*self._tasks, *self._batches):
            task.cancel()
        if self._standing is not None:
            self._standing.end()
