"""The connection of an ASGI request: the end of its client, and no delay."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

from mcp_django.conf import get_settings
from mcp_django.core.context import Cancellation
from mcp_django.transports import drain

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

# What runs at its deadline still gets to send its last word.
GRACE_SECONDS = 1
# To decode more than this takes longer than the loop has time for.
MAX_INLINE_BYTES = 64 * 1024


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


def send_at_once(send: Send) -> None:
    """Let the connection of an answer send it at once, where the server has left that out.

    uvicorn with several workers has: asyncio sets TCP_NODELAY for sockets alone that say they are
    of TCP, and there they do not (https://github.com/Kludex/uvicorn/issues/3149). The second piece
    of an answer would wait 40 ms for a client to acknowledge the first. A server that shows no
    socket is left alone.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if not isinstance(transport, asyncio.BaseTransport):
        return
    found = transport.get_extra_info("socket")
    if found is None or found.proto or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def first_of(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first of the tasks.

    daphne cancels every request when it is told to stop. What is draining ends by itself and
    soon, so the first cancellation is put off for as long as that may take.
    """
    drain.chain()
    try:
        await first_done(*tasks)
    except asyncio.CancelledError:
        if not drain.is_draining():
            raise
        await first_done(*tasks, timeout=get_settings().drain_seconds + GRACE_SECONDS)


async def first_done(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of the futures is done or so many seconds have passed; none is cancelled.

    ``asyncio.wait`` would do, at several times the cost, and this is paid on every request.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if timeout is None else loop.call_later(timeout, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()


async def until_gone(receive: Receive, work: Awaitable[T], cancellation: Cancellation) -> T:
    """The result of the work, which is cancelled when the client goes away first (HTTP-26).

    Raises:
        ClientGone: the client went away.
    """
    working = asyncio.ensure_future(work)
    try:
        # An answer that waits for nothing is there after one turn of the loop, which is sooner
        # than another task could look after the client.
        await asyncio.sleep(0)
        if not working.done():
            await _done_or_gone(working, receive)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        if not working.done():
            cancellation.cancel()
            working.cancel()
            await first_of(asyncio.gather(working, return_exceptions=True))


async def _done_or_gone(working: asyncio.Future[Any], receive: Receive) -> None:
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await first_of(working, watching)
    finally:
        watching.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
