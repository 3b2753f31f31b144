"""The data path of one ``tools/call``, split into stages that can be repeated separately.

Call ``django.setup()`` before importing this module. ARCHITECTURE.md describes the data path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from benchmarks import load
from benchmarks.site.mcp import server
from benchmarks.stages import Stage
from mcp_django.asgi import find_endpoint
from mcp_django.auth.authentication import authenticate
from mcp_django.auth.credentials import Credentials
from mcp_django.components.context import Cancellation
from mcp_django.conf import SERVED_VERSIONS
from mcp_django.execution import invoke
from mcp_django.execution.pipeline import admit
from mcp_django.execution.policy import authorize_connection
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import get_pool
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import classify
from mcp_django.protocol.jsonrpc import Request
from mcp_django.transports import asgi_handler, http, request_checks
from mcp_django.transports.answer import InFlight, Work
from mcp_django.transports.asgi_handler import FastASGIHandler
from mcp_django.transports.exchange import json_reply
from mcp_django.transports.outcome import Send
from mcp_django.transports.request_checks import Receive, run_until_disconnect

Scope = dict[str, Any]


def build_scope(request: bytes) -> tuple[Scope, bytes]:
    """Return the ASGI scope of a request as a server builds it, and the request's body."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, target, _ = first.split(b" ")
    path, _, query = target.partition(b"?")
    pairs = (line.split(b": ", 1) for line in lines)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method.decode(),
        "scheme": "http",
        "path": path.decode(),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in pairs],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    return scope, body


def fake_connection(body: bytes) -> tuple[Receive, Send]:
    """Return ``receive`` and ``send`` of a client that stays until it has the response."""
    answered = asyncio.Event()
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        if part is None:
            await answered.wait()
        return part or {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()

    return receive, send


class TimedCall:
    """One ``tools/call`` of the raw mount, with the values between its stages."""

    def __init__(self, tool: str) -> None:
        self.scope, self.body = build_scope(load.call("/raw", tool, a=2, b=3))
        self.exchange = asgi_handler.exchange_of(self.scope)
        self.exchange.body = self.body
        message = http.parse_request(server, self.exchange)
        assert isinstance(message, Request), message
        self.request = message
        work = http.IncomingHTTPRequest(server, self.exchange, message).serve()
        assert isinstance(work, Work), work
        self.work = work
        self.call = work.call
        self.tool = server.tools[tool]
        self.result = work.call.to_result("5")
        self.reply = json_reply(200, encode_response(self.call, self.result))

    def authenticate(self) -> None:
        """Authenticate the caller and authorize the connection."""
        exchange = self.exchange
        credentials = Credentials(
            headers=exchange.headers, query=exchange.query, request=exchange.request
        )
        authorize_connection(server, authenticate(server.auth, credentials))

    async def read(self) -> None:
        """Read the request from the server."""
        exchange = asgi_handler.exchange_of(self.scope)
        receive, _ = fake_connection(self.body)
        await http.BodyReader(server, self.scope, exchange, receive).read()

    async def send(self) -> None:
        """Send the response to the server."""
        await self.reply.send(fake_connection(self.body)[1])

    async def through(self, application: Any) -> None:
        """Send the whole request through an ASGI application."""
        receive, send = fake_connection(self.body)
        await application(self.scope, receive, send)


async def respond_with_disconnect_watch() -> None:
    """Send an immediate response while watching for a disconnect of the client."""
    receive, send = fake_connection(b"")
    await receive()

    async def answer() -> None:
        await send({"type": "http.response.body", "body": b""})

    await run_until_disconnect(receive, answer(), Cancellation())


def stages() -> Sequence[Stage]:
    """Return the stages of the raw mount with an async tool, then those of threads and Django."""
    return (*_path(TimedCall("add")), *_threads(TimedCall("add_sync")))


def _path(timed: TimedCall) -> Sequence[Stage]:
    headers, versions = timed.exchange.headers, server.protocol_versions
    arguments = b'{"a": 2, "b": 3}'
    return (
        Stage(name="read", astep=timed.read),
        Stage(
            name="check the head",
            step=partial(http.check_request_head, server, timed.exchange),
            part=True,
        ),
        Stage(name="watch for a disconnect", astep=respond_with_disconnect_watch),
        Stage(name="receive", step=partial(http.parse_request, server, timed.exchange)),
        Stage(
            name="request checks",
            step=partial(request_checks.check_head, timed.exchange, SERVED_VERSIONS),
            part=True,
        ),
        Stage(name="decode", step=partial(jsonrpc.decode, timed.body), part=True),
        Stage(
            name="authorize and admit",
            step=lambda: http.IncomingOnLoop(server, timed.exchange, timed.request).serve(),
        ),
        Stage(
            name="classify",
            step=partial(classify, timed.request, headers, enabled=versions),
            part=True,
        ),
        Stage(name="admit", step=partial(admit, timed.call), part=True),
        Stage(name="arguments", step=partial(timed.tool.arguments.parse, arguments), part=True),
        Stage(name="call", astep=partial(invoke.run_from_event_loop, timed.work.call)),
        # A copy, since a result is encoded only once.
        Stage(name="respond", step=lambda: encode_response(timed.call, {**timed.result})),
        Stage(name="identity", step=server.identity, part=True),
        Stage(name="encode", step=partial(jsonrpc.encode, timed.result), part=True),
        Stage(name="send", astep=timed.send),
        Stage(
            name="the raw mount, async tool, in total", astep=partial(timed.through, server.asgi)
        ),
    )


def _threads(timed: TimedCall) -> Sequence[Stage]:
    handler = FastASGIHandler()
    scope = {**timed.scope, "path": "/mcp", "raw_path": b"/mcp"}
    request: Any = ASGIRequest(scope, BytesIO(timed.body))
    request.mcp_in_flight = InFlight()

    async def hop() -> None:
        await get_pool("tool").run(str)

    return (
        Stage(name="authenticate, in a thread", step=timed.authenticate),
        Stage(name="switch to a pooled thread and back, with Django's signals", astep=hop),
        Stage(name="call, in the thread", step=partial(invoke.run, timed.work.call)),
        Stage(name="the raw mount, sync tool, in total", astep=partial(timed.through, server.asgi)),
        Stage(
            name="the fast handler's work in its thread",
            step=lambda: handler._respond(scope, timed.body, InFlight()),
        ),
        Stage(name="the view", step=partial(server.view, request), part=True),
        Stage(
            name="the fast handler, sync tool, in total",
            astep=lambda: handler(scope, *fake_connection(timed.body), find_endpoint("/mcp")),
        ),
    )
