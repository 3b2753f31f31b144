"""Channels that all requests of one client share: HTTP+SSE, and the lines of stdio."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urljoin

import msgspec

from mcp_django.auth.principal import Principal
from mcp_django.protocol import envelope, jsonrpc, sse
from mcp_django.test import asgi
from mcp_django.test.entrance import Entrance
from mcp_django.test.messages import Message, cancellation
from mcp_django.test.refusals import check_status
from mcp_django.transports.asgi_handler import RawMount
from mcp_django.transports.conversation import Conversation


class SharedChannel(ABC):
    """Sorts what comes by the request that it belongs to."""

    def __init__(self) -> None:
        self._open: dict[Any, asyncio.Queue[Message | None]] = {}
        self._pongs: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _write(self, message: Message) -> None:
        """Send a message."""

    async def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; what belongs to it, its response last."""
        coming: asyncio.Queue[Message | None] = asyncio.Queue()
        self._open[message["id"]] = coming
        try:
            await self._write(message)
            while (said := await coming.get()) is not None:
                yield said
                if "method" not in said:
                    return
        finally:
            del self._open[message["id"]]

    async def send(self, message: Message) -> None:
        """Send a notification, or the answer to a question."""
        await self._write(message)

    async def cancel(self, message: Message) -> None:
        """Say that nobody waits for a request any more."""
        await self._write(cancellation(message))

    def _take(self, message: Message) -> None:
        if message.get("method") == "ping":
            pong = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            # Beside what reads, which must not wait for what it has to read first.
            sending = asyncio.create_task(self._write(pong))
            self._pongs.add(sending)
            sending.add_done_callback(self._pongs.discard)
            return
        coming = self._open.get(_owner(message))
        if coming is None and "method" in message and self._open:
            # Which call it belongs to is not said; a test has one at a time.
            coming = list(self._open.values())[-1]
        if coming is not None:
            coming.put_nowait(message)

    def _end(self) -> None:
        for coming in self._open.values():
            coming.put_nowait(None)


def _owner(message: Message) -> Any:
    """The request that a message names, if it names one."""
    if "method" not in message:
        return message.get("id")
    about: Mapping[str, Any] = message.get("params") or {}
    return (about.get("_meta") or {}).get(envelope.SUBSCRIPTION_ID)


class LineChannel(SharedChannel):
    """One message per line, to the conversation that stdio has."""

    def __init__(self, entrance: Entrance) -> None:
        super().__init__()
        self._entrance = entrance
        self._conversation: Conversation | None = None

    def principal(self) -> Principal:
        """The user of the test."""
        return self._entrance.principal

    async def _write(self, message: Message) -> None:
        if self._conversation is None:
            self._conversation = Conversation(
                self._entrance,
                self,
                send=self._read,
                end=self._end,
            )
        await self._conversation.receive(jsonrpc.encode(message) + b"\n")

    async def _read(self, piece: bytes) -> None:
        for line in piece.splitlines():
            self._take(msgspec.json.decode(line))

    async def close(self) -> None:
        """Leave, and see that nothing stays open."""
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.end_subscriptions()
            conversation.cancel_all()
            await conversation.finish(seconds=1)


class EventChannel(SharedChannel):
    """HTTP+SSE of 2024-11-05: one stream for all that comes, POSTs for all that goes."""

    PATH = "/mcp/sse"

    def __init__(self, entrance: Entrance) -> None:
        super().__init__()
        self._app = RawMount(entrance)
        self._headers = {"host": "testserver"}
        if entrance.bearer:
            self._headers["authorization"] = f"Bearer {entrance.bearer}"
        self._endpoint: asyncio.Future[str] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def _write(self, message: Message) -> None:
        if self._endpoint is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._reading = asyncio.create_task(self._read(self._endpoint))
        target = urljoin(self.PATH, await asyncio.shield(self._endpoint))
        headers = {**self._headers, "content-type": "application/json"}
        body = jsonrpc.encode(message)
        async with asgi.request(self._app, "POST", target, headers, body) as response:
            check_status(response, await response.body())

    async def _read(self, endpoint: asyncio.Future[str]) -> None:
        headers = {**self._headers, "accept": "text/event-stream"}
        try:
            async with asgi.request(self._app, "GET", self.PATH, headers) as response:
                if response.status != 200:
                    check_status(response, await response.body())
                decoder = sse.Decoder()
                async for part in response.parts():
                    for event in decoder.feed(part):
                        if event.event == "endpoint":
                            endpoint.set_result(event.data)
                        else:
                            self._take(msgspec.json.decode(event.data))
        except Exception as exc:
            if endpoint.done():
                raise
            endpoint.set_exception(exc)
        finally:
            self._end()

    async def close(self) -> None:
        """Close the stream, which ends the session."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = self._endpoint = None
