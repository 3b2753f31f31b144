"""Reading an ASGI request and noticing that its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

from mcp_django.conf import get_settings
from mcp_django.context import Cancellation
from mcp_django.transports import drain

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

# What runs at its deadline still gets to send its last word.
GRACE_SECONDS = 1


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


async def read_body(receive: Receive) -> bytes:
    """The body, up to the first part that is over the limit (the core then refuses it).

    Raises:
        ClientGone: the client closed before the end.
    """
    limit = get_settings().max_body_bytes
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limit or not message.get("more_body", False):
            return bytes(body)


async def first_of(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first of the tasks.

    daphne cancels every request when it is told to stop. What is draining ends by itself and
    soon, so the first cancellation is put off for as long as that may take.
    """
    drain.chain()
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        if not drain.is_draining():
            raise
        patience = get_settings().drain_seconds + GRACE_SECONDS
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)


async def until_gone(receive: Receive, work: Awaitable[T], cancellation: Cancellation) -> T:
    """The result of the work, which is cancelled when the client goes away first (HTTP-26).

    Raises:
        ClientGone: the client went away.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await first_of(working, watching)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, watching):
            if not task.done():
                cancellation.cancel() if task is working else None
                task.cancel()
        await first_of(asyncio.gather(working, watching, return_exceptions=True))


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
