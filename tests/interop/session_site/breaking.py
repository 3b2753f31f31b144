"""A proxy that closes the connection of an answer in the middle of it."""

from __future__ import annotations

import asyncio
from typing import Any

# The connection of a stream is lost with this message, the first with an id.
LOST_AFTER = b'"notifications/progress"'


class Breaking:
    """Passes requests on to `/lane`; streams that answer a POST end early, those of a GET do not.

    The client sees the end of the answer, the application a client that has disconnected.
    """

    def __init__(self, lane: Any) -> None:
        self._lane = lane

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        inner = {**scope, "path": scope["path"].replace("/breaking/", "/lane/", 1)}
        if scope["method"] != "POST":
            await self._lane(inner, receive, send)
            return
        is_lost = asyncio.Event()
        body = asyncio.create_task(_body(receive))
        served = False

        async def hear() -> Any:
            nonlocal served
            if not served:
                served = True
                return {"type": "http.request", "body": await body, "more_body": False}
            await is_lost.wait()
            return {"type": "http.disconnect"}

        async def say(event: Any) -> None:
            if is_lost.is_set():
                return
            if LOST_AFTER in event.get("body", b""):
                is_lost.set()
                event = {**event, "more_body": False}
            await send(event)

        await self._lane(inner, hear, say)


async def _body(receive: Any) -> bytes:
    chunks = []
    while True:
        event = await receive()
        chunks.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(chunks)
