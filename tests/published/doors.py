"""Patch the clients through which tests get messages of the server, so that they are validated.

Our own drivers validate messages themselves (`tests.kit.drivers`,
`tests.transports.stdio_process`). This module patches Django's test client, the test client of this
package with its transports, stdio in this process, and httpx, which connects to servers in other
processes.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from django.test import Client, RequestFactory

from mcp_django.execution.call import Channel
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import PROTOCOL_VERSION
from mcp_django.testing import client as client_module, transports as client_asgi
from mcp_django.transports.conversation import TOO_LONG, Conversation, Line
from mcp_django.transports.memory import LocalClient
from tests.published import sockets
from tests.published.definitions import LATEST
from tests.published.listening import LATEST_HANDSHAKE, Exchange, Lines, Peer, judge


def install() -> None:
    """Patch the clients, so that their messages are validated from now on."""
    _replace(RequestFactory, "generic", _heard_django)
    _replace(client_asgi, "send_asgi_request", _heard_asgi)
    _replace(client_module, "_messages", _heard_subscription)
    _replace(LocalClient, "send", _heard_memory)
    _replace(LocalClient, "asend", _heard_memory_async)
    _replace(Conversation, "__init__", _heard_conversation)
    _replace(Conversation, "process_line", _heard_line)
    for name in sockets.LIBRARIES:
        with suppress(ImportError):
            library = importlib.import_module(name)
            _replace(library.HTTPTransport, "handle_request", sockets.heard)
            _replace(library.AsyncHTTPTransport, "handle_async_request", sockets.heard_async)


def _replace(owner: Any, name: str, heard: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(heard(original)))


# Django's test client ---------------------------------------------------------------------------


def _heard_django(generic: Callable[..., Any]) -> Callable[..., Any]:
    def hear(
        self: Any,
        method: str,
        path: str,
        data: Any = "",
        *args: Any,
        headers: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> Any:
        # A request factory returns a request and no answer.
        if not isinstance(self, Client):
            return generic(self, method, path, data, *args, headers=headers, **extra)
        exchange = Exchange(str(path), _sent_headers({**self.defaults, **extra}, headers or {}))
        exchange.ask(data if isinstance(data, bytes) else str(data).encode())
        response = generic(self, method, path, data, *args, headers=headers, **extra)
        exchange.take_response(response)
        return response

    return hear


def _sent_headers(environ: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, str]:
    variables = {name: str(value) for name, value in environ.items() if name.startswith("HTTP_")}
    defaults = {name[5:].replace("_", "-").lower(): value for name, value in variables.items()}
    return {**defaults, **{name.lower(): str(value) for name, value in headers.items()}}


# The test client of this package ----------------------------------------------------------------


def _heard_asgi(
    request: Callable[..., AbstractAsyncContextManager[Any]],
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    def hear(
        app: Any, verb: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AbstractAsyncContextManager[Any]:
        exchange = Exchange(target, {name.lower(): value for name, value in headers.items()})
        exchange.ask(body)

        async def heard(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
            async def pass_on(part: Any) -> None:
                exchange.take(part)
                await send(part)

            await app(scope, receive, pass_on)

        return request(heard, verb, target, headers, body)

    return hear


_clients: WeakKeyDictionary[LocalClient, Peer] = WeakKeyDictionary()


def _heard_memory(send: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def hear(self: LocalClient, message: dict[str, Any]) -> dict[str, Any]:
        response = send(self, message)
        _judge_memory(self, message, response)
        return response

    return hear


def _heard_memory_async(
    asend: Callable[..., Awaitable[dict[str, Any]]],
) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def hear(self: LocalClient, message: dict[str, Any]) -> dict[str, Any]:
        response = await asend(self, message)
        _judge_memory(self, message, response)
        return response

    return hear


def _judge_memory(client: LocalClient, message: dict[str, Any], response: dict[str, Any]) -> None:
    peer = _clients.setdefault(client, Peer())
    peer.hear(jsonrpc.encode(message))
    if "id" not in message:
        return
    result = response.get("result", {})
    if peer.revision is not None and result.get("resultType") == "input_required":
        # A test that leaves a question open gets this; no transport sends it in a session.
        return
    judge(jsonrpc.encode(response), peer, default=LATEST_HANDSHAKE)


def _heard_subscription(
    messages: Callable[[AsyncIterator[bytes]], AsyncIterator[dict[str, Any]]],
) -> Callable[[AsyncIterator[bytes]], AsyncIterator[dict[str, Any]]]:
    async def hear(stream: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any], None]:
        envelope = {PROTOCOL_VERSION: LATEST}
        async for message in messages(stream):
            request = {"id": message.get("id"), "method": "subscriptions/listen"}
            peer = Peer()
            peer.hear(jsonrpc.encode({**request, "params": {"_meta": envelope}}))
            judge(jsonrpc.encode(message), peer, default=LATEST)
            yield message

    return hear


# stdio ------------------------------------------------------------------------------------------

_conversations: WeakKeyDictionary[Conversation, Lines] = WeakKeyDictionary()


def _heard_conversation(init: Callable[..., None]) -> Callable[..., None]:
    def hear(self: Conversation, *args: Any, channel: Channel, **options: Any) -> None:
        if channel.transport == "stdio":
            lines = _conversations[self] = Lines()
            send = options["send"]

            async def pass_on(piece: bytes) -> None:
                lines.hear(piece)
                await send(piece)

            options["send"] = pass_on
        init(self, *args, channel=channel, **options)

    return hear


def _heard_line(receive: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def hear(self: Conversation, line: Line) -> None:
        if self in _conversations and line is not TOO_LONG:
            _conversations[self].ask(line + b"\n")
        await receive(self, line)

    return hear
