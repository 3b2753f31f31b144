"""Outcomes of requests: a reply, a stream of events, or work that precedes one of them.

An outcome finishes itself, in a thread (``finish``) or on an event loop (``afinish``), and returns
an ``Answer``, which sends itself over ASGI. Each outcome can be converted to a Django response,
too. So no mount has to distinguish them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import sleep
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from django.db import connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from mcp_django.conf import get_settings
from mcp_django.protocol.headers import EVENT_STREAM, JSON
from mcp_django.storage.writer import RowKind, row_writer
from mcp_django.tenants import as_tenant, current_tenant

HeaderList = tuple[tuple[str, str], ...]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BASE_HEADERS: HeaderList = (
    ("Content-Type", JSON),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)

# A proxy that buffers, compresses or caches a stream delays its events.
SSE_HEADERS: HeaderList = (
    ("Content-Type", EVENT_STREAM),
    ("Cache-Control", "no-cache, no-transform"),
    ("X-Accel-Buffering", "no"),
    ("X-Content-Type-Options", "nosniff"),
)


class CallTimer(Protocol):
    """Notes when a call begins, so that an event loop knows how long to wait for its thread."""

    def start(self, work: Any) -> None:
        """Note that this call begins now."""


class Outcome(ABC):
    """What answers a request, perhaps after something is done."""

    __slots__ = ()

    headers: HeaderList
    hold: float = 0
    """For how many seconds the transport holds the answer back."""

    @abstractmethod
    def finish(self, *, survives: bool = False) -> Answer:
        """Do the remaining work in this thread, and return the answer.

        With ``survives`` the caller's task may be cancelled when its client disconnects, which must
        not cancel a call in a session.
        """

    @abstractmethod
    async def afinish(self) -> Answer:
        """Do the remaining work from an event loop, and return the answer."""

    @abstractmethod
    def finish_in_thread(self, timer: CallTimer) -> Outcome:
        """Do the work that does not belong on an event loop; return the outcome that remains."""

    @abstractmethod
    def with_headers(self, headers: HeaderList) -> Outcome:
        """Return the outcome with the headers added, except those that its answer already has."""

    @abstractmethod
    def to_response(self, request: HttpRequest) -> HttpResponseBase:
        """Return a Django response; middleware may add headers to it."""

    def as_middleware_left_it(self, headers: HeaderList) -> Outcome:
        """Return the outcome of ``to_response``, with the headers that the response has now."""
        # The response has the headers of the expected answer, too; an error has its own.
        return self.with_headers(missing_headers(headers, self.headers))


class Answer(Outcome):
    """A complete answer: a ``Reply`` or a ``Stream``."""

    __slots__ = ()

    def finish(self, *, survives: bool = False) -> Answer:
        """Return the answer itself."""
        return self

    async def afinish(self) -> Answer:
        """Return the answer itself."""
        return self

    def finish_in_thread(self, timer: CallTimer) -> Outcome:
        """Return the answer itself."""
        return self

    @abstractmethod
    def with_headers(self, headers: HeaderList) -> Answer:
        """Return the answer with the headers added, except those that it already has."""

    def set_head(self, response: HttpResponseBase) -> None:
        """Set the status and the headers of a Django response."""
        for name, value in self.headers:
            response[name] = value

    @abstractmethod
    async def send(self, send: Send) -> None:
        """Send the answer over ASGI."""


@dataclass(slots=True, kw_only=True)
class Reply(Answer):
    """A complete response."""

    status: int
    headers: HeaderList = ()
    body: bytes = b""
    hold: float = 0

    def with_headers(self, headers: HeaderList) -> Reply:
        """Return the reply with the headers added, except those that it already has."""
        return replace(self, headers=(*self.headers, *missing_headers(headers, self.headers)))

    def set_head(self, response: HttpResponseBase) -> None:
        """Set the status and the headers of a Django response."""
        response.status_code = self.status
        if not self.body:
            del response["Content-Type"]
        # Not `super()`: `dataclass` replaces the class by one with slots.
        Answer.set_head(self, response)

    def to_response(self, request: HttpRequest) -> HttpResponse:
        """Return a Django response."""
        response = HttpResponse(self.body)
        self.set_head(response)
        if hasattr(request, "mcp_in_flight"):
            # An event loop sends it, and waits before. Otherwise this thread has waited already.
            response.mcp_hold = self.hold  # type: ignore[attr-defined]
        return response

    async def send(self, send: Send) -> None:
        """Send the reply over ASGI."""
        if self.hold:
            await sleep(self.hold)
        headers = _ENCODED.get(self.headers) or _encoded(self.headers)
        length = (b"content-length", b"%d" % len(self.body))
        head = {
            "type": "http.response.start",
            "status": self.status,
            "headers": [*headers, length],
        }
        await send(head)
        await send({"type": "http.response.body", "body": self.body})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Answer):
    """A response of many events; ``open`` starts it on the running event loop."""

    headers: HeaderList
    open: Callable[[], AsyncGenerator[bytes, None]]
    begin: Callable[[HeaderList], Awaitable[Answer]] | None = None
    """Starts the call where the mount can delay the head, and returns its answer: a stream with
    these headers, or a reply."""

    def with_headers(self, headers: HeaderList) -> Stream:
        """Return the stream with the headers added, except those that it already has."""
        return replace(self, headers=(*self.headers, *missing_headers(headers, self.headers)))

    def to_response(self, request: HttpRequest) -> HttpResponseBase:
        """Return a Django response, which starts the stream on the loop that sends it."""
        # Close this thread's connections before the stream idles, except in a transaction.
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
        tenant, opened = current_tenant(), self.open()
        events = TenantEvents(tenant, opened) if tenant else opened
        return OutcomeResponse(request, self, events, head=self)

    def as_middleware_left_it(self, headers: HeaderList) -> Stream:
        """Return the stream with these headers; iterators that middleware added are not used."""
        return replace(self, headers=headers)

    async def send(self, send: Send) -> None:
        """Send the events over ASGI as they are produced."""
        if self.begin is not None:
            answer = await self.begin(self.headers)
            await answer.send(send)
            return
        headers = [*_encoded(self.headers)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self.open()) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(Outcome):
    """An answer that is sent after a row was stored."""

    kind: RowKind
    row: Any
    reply: Answer
    fail: Callable[[Exception], Reply]
    """Returns the reply if the row was not stored because of this exception."""
    succeed: Callable[[], object] | None = None
    """Called after the row was stored."""

    @property
    def headers(self) -> HeaderList:  # type: ignore[override]
        """The headers of the answer, if the row is stored."""
        return self.reply.headers

    def finish(self, *, survives: bool = False) -> Answer:
        """Store the row from a thread, and return the answer."""
        try:
            row_writer.write(self.kind, self.row, seconds=get_settings().queue_seconds)
        except Exception as exc:  # noqa: BLE001 - also from the database
            return self.fail(exc)
        return self._stored()

    async def afinish(self) -> Answer:
        """Store the row from an event loop, and return the answer."""
        try:
            await row_writer.awrite(self.kind, self.row, seconds=get_settings().queue_seconds)
        except Exception as exc:  # noqa: BLE001 - also from the database
            return self.fail(exc)
        return self._stored()

    def finish_in_thread(self, timer: CallTimer) -> Outcome:
        """Store the row if this thread has to do it by itself."""
        return self.finish() if row_writer.is_immediate(self.kind) else self

    def with_headers(self, headers: HeaderList) -> Pending:
        """Return the outcome with the headers added, except those that its answer already has."""
        fail = self.fail
        return replace(
            self,
            reply=self.reply.with_headers(headers),
            fail=lambda exc: fail(exc).with_headers(headers),
        )

    def to_response(self, request: HttpRequest) -> HttpResponseBase:
        """Return a Django response with the expected head."""
        return OutcomeResponse(request, self, head=self.reply)

    def _stored(self) -> Answer:
        if self.succeed is not None:
            self.succeed()
        return self.reply


class TenantEvents:
    """The events of a stream; the loop that sends them produces each one as a tenant."""

    def __init__(self, tenant: str, events: AsyncGenerator[bytes, None]) -> None:
        self._tenant = tenant
        self._events = events

    def __aiter__(self) -> TenantEvents:
        return self

    async def __anext__(self) -> bytes:
        with as_tenant(self._tenant):
            return await anext(self._events)

    async def aclose(self) -> None:
        """End the stream."""
        with as_tenant(self._tenant):
            await self._events.aclose()


class RequestRefused(Exception):
    """A request is answered with ``reply``, and nothing else is done for it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class OutcomeResponse(StreamingHttpResponse):
    """A response that an event loop completes after the middleware, or whose events it sends."""

    def __init__(
        self,
        request: HttpRequest,
        outcome: Outcome,
        events: AsyncGenerator[bytes, None] | TenantEvents | None = None,
        *,
        head: Answer | None = None,
    ) -> None:
        # Middleware would make each event a separate gzip member, and several clients read only
        # the first one.
        request.META["HTTP_ACCEPT_ENCODING"] = ""
        super().__init__(iter(()) if events is None else events, content_type=JSON)
        self.mcp_outcome = outcome
        if head is not None:
            head.set_head(self)


def is_unfinished(response: HttpResponseBase) -> bool:
    """Return whether an event loop has to finish a response, or to send its events."""
    return hasattr(response, "mcp_outcome")


def outcome_of(response: HttpResponseBase) -> Outcome:
    """Return the outcome of a response that middleware passed on, with the headers it has now."""
    outcome: Outcome | None = getattr(response, "mcp_outcome", None)
    # Without a length or an encoding that may not match the body.
    dropped = {"content-length"} | ({"content-encoding"} if response.streaming else set())
    headers: HeaderList = (
        *((name, value) for name, value in response.items() if name.lower() not in dropped),
        *(("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values()),
    )
    if outcome is not None:
        return outcome.as_middleware_left_it(headers)
    body = b"".join(response) if isinstance(response, Iterable) else b""
    hold = getattr(response, "mcp_hold", 0)
    return Reply(status=response.status_code, headers=headers, body=body, hold=hold)


def missing_headers(headers: HeaderList, present: HeaderList) -> HeaderList:
    """Return the headers whose names do not occur in ``present``."""
    names = {name.lower() for name, _ in present}
    return tuple(pair for pair in headers if pair[0].lower() not in names)


def _encoded(headers: HeaderList) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.lower().encode(), value.encode("latin-1")) for name, value in headers)


# Most replies have one of these lists.
_ENCODED = {headers: _encoded(headers) for headers in (BASE_HEADERS, SSE_HEADERS)}
