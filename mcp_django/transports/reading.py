"""Reading a request over ASGI: what its head decides first, then the body, no further than needed.

A request that is refused by its head is answered with the body unread. More than 64 KiB are read
from callers who are let in, where the head says who they are. A body that does not come in time is
given up. daphne alone reads a body whole before it asks an application anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from mcp_django.auth.limits import presumed_caller
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import Busy
from mcp_django.runtime.pools import pool, with_request_signals
from mcp_django.transports import guards
from mcp_django.transports.body import ClientGone, Receive, Scope, Send
from mcp_django.transports.callers import MAX_UNPROVEN_BYTES
from mcp_django.transports.exchange import Exchange, Reply
from mcp_django.transports.http import has_to_be_let_in, look, readable, refuse, refuse_body
from mcp_django.transports.replies import error_reply, refusal


class Reading:
    """One request, whose ``head`` is the exchange without its body."""

    def __init__(self, server: Server, scope: Scope, head: Exchange, receive: Receive) -> None:
        self._server = server
        self._head = head
        self._receive = receive
        # Later versions of HTTP have no such header, and can end a stream alone.
        self._can_close = scope.get("http_version", "1.1").startswith("1")
        self._seconds = get_settings().body_seconds
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = self._is_let_in = self._is_late = False

    async def body(self) -> bytes | Reply:
        """The body of a POST, or the answer to a request that needs no more of it.

        Raises:
            ClientGone: the client closed before the end.
        """
        if self._head.verb != "POST":
            return b""
        refused = look(self._server, self._head)
        if refused is None and self._has_to_be_let_in(guards.length_of(self._head.headers)):
            refused = await self._ask()
        try:
            while refused is None and not self._is_whole:
                part = await self._part()
                self._parts.append(part)
                self._size += len(part)
                refused = await self._refused()
        except TimeoutError:
            self._is_late = True
            refused = self._late()
        parts, self._parts = self._parts, []
        return b"".join(parts) if refused is None else refused

    async def _part(self) -> bytes:
        async with asyncio.timeout_at(self._deadline):
            message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_whole = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def _refused(self) -> Reply | None:
        """The refusal that what has come is enough for."""
        is_large = self._size > MAX_UNPROVEN_BYTES
        is_form = is_large and guards.is_form(self._head.headers)
        if is_form or self._size > get_settings().max_body_bytes:
            refused = refuse_body(replace(self._head, body=b"".join(self._parts)))
            if refused is not None:
                return refused
        if is_large and not self._is_whole and self._has_to_be_let_in(self._size):
            return await self._ask()
        return None

    def _has_to_be_let_in(self, size: int) -> bool:
        return not self._is_let_in and has_to_be_let_in(self._server, self._head, size)

    async def _ask(self) -> Reply | None:
        work = partial(with_request_signals, partial(refuse, self._server, self._head))
        try:
            refused = await pool("desk").run(work, key=presumed_caller(self._head.headers))
        except Busy as exc:
            return error_reply(exc, None)
        self._is_let_in = refused is None
        return refused

    def _late(self) -> Reply:
        message = f"The body did not come within {self._seconds:g} seconds."
        return readable(self._head, refusal(408, message))

    def lingering(self, send: Send) -> Send:
        """Send an answer at once, and end it when the client has sent the rest, which is dropped.

        Servers close a connection whose body was not read, and a client that still sends may see a
        reset in place of the answer (RFC 9112, section 9.6). Who was late is not waited for, and
        the connection is closed (RFC 9110, section 15.5.9).
        """

        async def linger(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and self._is_late and self._can_close:
                close = (b"connection", b"close")
                message = {**message, "headers": [*message.get("headers", ()), close]}
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await self._drop_rest()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return linger

    async def _drop_rest(self) -> None:
        with suppress(ClientGone, TimeoutError):
            while not self._is_whole and not self._is_late:
                await self._part()
