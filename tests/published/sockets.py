"""Validate the messages that httpx receives from servers in other processes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from tests.published.listening import Exchange

# The official client library has a copy of httpx under another name.
LIBRARIES = ("httpx", "httpx2")


class Heard:
    """The body of an answer, sync and async; each part is validated as it arrives."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            self._exchange.hear(part)
            yield part
        self._exchange.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._exchange.hear(part)
            yield part
        self._exchange.end()

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


def heard(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that sends a request in a thread, so that the answer is validated."""

    def hear(transport: Any, request: Any) -> Any:
        exchange = _exchange(request, request.read())
        return _listening(handle(transport, request), exchange, "SyncByteStream")

    return hear


def heard_async(handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a function that sends a request on an event loop, so that the answer is validated."""

    async def hear(transport: Any, request: Any) -> Any:
        exchange = _exchange(request, await request.aread())
        return _listening(await handle(transport, request), exchange, "AsyncByteStream")

    return hear


def _exchange(request: Any, body: bytes) -> Exchange:
    exchange = Exchange(request.url.raw_path.decode("ascii"), dict(request.headers))
    exchange.ask(body)
    return exchange


def _listening(response: Any, exchange: Exchange, kind: str) -> Any:
    exchange.start(response.status_code, dict(response.headers))
    # The library requires an instance of its own class.
    base = getattr(sys.modules[type(response).__module__.partition(".")[0]], kind)
    response.stream = type("Heard", (Heard, base), {})(response.stream, exchange)
    return response
