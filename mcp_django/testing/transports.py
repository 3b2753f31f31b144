"""In-process transports of the test client: Streamable HTTP, HTTP+SSE and stdio."""

from __future__ import annotations

import asyncio
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    MutableMapping,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urljoin
from weakref import WeakValueDictionary

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import (
    AuthenticationRequired,
    AuthenticationUnavailable,
    ConnectionRefused,
    InsufficientScope,
    TooManyAttempts,
)
from mcp_django.execution.call import Channel
from mcp_django.overrides.state import override_version
from mcp_django.protocol import envelope, headers as names, jsonrpc, sse
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED
from mcp_django.protocol.headers import ACCEPT, EVENT_STREAM, JSON
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import V2024_11_05
from mcp_django.server import MCPServer
from mcp_django.storage.databases import tables
from mcp_django.testing.answers import ErrorResponse
from mcp_django.transports.asgi_handler import RawASGIMount
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.outcome import Send
from mcp_django.transports.request_checks import Receive, Scope

Message: TypeAlias = dict[str, Any]


class ClientChannel(Protocol):
    """A connection to the server over one transport, used on the connection's event loop."""

    def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; yield its messages, the response last."""

    async def send(self, message: Message) -> None:
        """Send a notification, or the response to a client request."""

    async def cancel(self, message: Message) -> None:
        """Cancel a request."""

    async def close(self) -> None:
        """Close the connection."""


def _cancellation(message: Message) -> Message:
    """Return the notification that cancels a request."""
    params = {"requestId": message["id"]}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


PATH = "/mcp"


class HTTPChannel:
    """Streamable HTTP; requests of a handshake revision are sent in a session."""

    def __init__(self, entrance: AuthenticatedTestServer) -> None:
        self._entrance = entrance
        self._app = RawASGIMount(entrance)
        self._headers = {**entrance.headers, "accept": ACCEPT}

    async def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; yield its messages, the response last."""
        decoder = sse.EventDecoder()
        sending = self._post(message)
        while sending is not None:
            async with sending as response:
                if not response.is_stream:
                    answer = check_status(response, await response.body())
                    if answer is not None:
                        if names.SESSION_ID in response.headers:
                            self._headers[names.SESSION_ID] = response.headers[names.SESSION_ID]
                            version = answer["result"]["protocolVersion"]
                            self._headers[names.MCP_PROTOCOL_VERSION] = version
                        yield answer
                    return
                async for incoming in _events(response, decoder):
                    yield incoming
                    if "method" not in incoming:
                        return
            sending = await self._resume(decoder)

    async def send(self, message: Message) -> None:
        """Send a notification, or the response to a client request."""
        async with self._post(message) as response:
            check_status(response, await response.body())

    async def cancel(self, message: Message) -> None:
        """Cancel a request; without a session, closing the connection does that."""
        if names.SESSION_ID in self._headers:
            await self.send(_cancellation(message))

    async def close(self) -> None:
        """End the session."""
        if names.SESSION_ID in self._headers:
            async with send_asgi_request(self._app, "DELETE", PATH, self._headers) as response:
                check_status(response, await response.body())
            del self._headers[names.SESSION_ID]

    async def _resume(self, decoder: sse.EventDecoder) -> Any:
        """Return a request that resumes the stream, or ``None`` if none of its events had an id."""
        if decoder.last_event_id is None:
            return None
        await asyncio.sleep((decoder.retry or 0) / 1000)
        resumed = {"accept": EVENT_STREAM, names.LAST_EVENT_ID: decoder.last_event_id}
        return send_asgi_request(self._app, "GET", PATH, {**self._headers, **resumed})

    def _post(self, message: Message) -> Any:
        headers = {**self._headers, "content-type": JSON}
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(envelope.PROTOCOL_VERSION)
        if version is not None:
            # Headers repeat parts of a message of 2026-07-28.
            headers[names.MCP_PROTOCOL_VERSION] = version
            headers[names.MCP_METHOD] = message["method"]
            method = REQUESTS.get(message["method"])
            if method is not None and method.name_member and method.name_member in params:
                headers[names.MCP_NAME] = names.encode_value(str(params[method.name_member]))
            if message["method"] == "tools/call":
                headers |= self._mirrored(params)
        return send_asgi_request(self._app, "POST", PATH, headers, jsonrpc.encode(message))

    def _mirrored(self, params: Message) -> dict[str, str]:
        tool = self._entrance.catalog.find_tool(params.get("name"))
        headers = {}
        for parameter in tool.header_parameters if tool is not None else ():
            value = params.get("arguments")
            for name in parameter.path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                header = f"{names.MCP_PARAM_PREFIX}{parameter.header}"
                headers[header.lower()] = names.encode_value(text)
        return headers


async def _events(
    response: ASGIResponse, decoder: sse.EventDecoder
) -> AsyncGenerator[Message, None]:
    async for part in response.parts():
        for event in decoder.feed(part):
            # The first event of a 2025-11-25 stream has an id but no message.
            if event.data:
                yield msgspec.json.decode(event.data)


class _SharedChannel(ABC):
    """A channel that assigns incoming messages to the requests that they belong to."""

    def __init__(self) -> None:
        self._open: dict[Any, asyncio.Queue[Message | None]] = {}
        self._pongs: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _write(self, message: Message) -> None:
        """Send a message."""

    async def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; yield its messages, the response last."""
        coming: asyncio.Queue[Message | None] = asyncio.Queue()
        self._open[message["id"]] = coming
        try:
            await self._write(message)
            while (incoming := await coming.get()) is not None:
                yield incoming
                if "method" not in incoming:
                    return
        finally:
            del self._open[message["id"]]

    async def send(self, message: Message) -> None:
        """Send a notification, or the response to a client request."""
        await self._write(message)

    async def cancel(self, message: Message) -> None:
        """Cancel a request."""
        await self._write(_cancellation(message))

    def _assign_message(self, message: Message) -> None:
        if message.get("method") == "ping":
            pong = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            # In another task, since the reading task must not block on writing.
            sending = asyncio.create_task(self._write(pong))
            self._pongs.add(sending)
            sending.add_done_callback(self._pongs.discard)
            return
        # The id of the request that the message belongs to, if it names one.
        owner = message.get("id")
        if "method" in message:
            about: Mapping[str, Any] = message.get("params") or {}
            owner = (about.get("_meta") or {}).get(envelope.SUBSCRIPTION_ID)
        coming = self._open.get(owner)
        if coming is None and "method" in message and self._open:
            # The message does not name its call; a test has only one call at a time.
            coming = list(self._open.values())[-1]
        if coming is not None:
            coming.put_nowait(message)

    def _end(self) -> None:
        for coming in self._open.values():
            coming.put_nowait(None)


class LineChannel(_SharedChannel):
    """stdio: one message per line, passed to the ``Conversation`` of the stdio transport."""

    def __init__(self, entrance: AuthenticatedTestServer) -> None:
        super().__init__()
        self._entrance = entrance
        self._conversation: Conversation | None = None

    def principal(self) -> Principal:
        """Return the principal of the test's user."""
        return self._entrance.principal

    async def _write(self, message: Message) -> None:
        if self._conversation is None:
            self._conversation = Conversation(
                *(self._entrance, self),
                channel=Channel(transport="stdio"),
                send=self._read,
                end=self._end,
            )
        await self._conversation.process_line(jsonrpc.encode(message) + b"\n")

    async def _read(self, piece: bytes) -> None:
        for line in piece.splitlines():
            self._assign_message(msgspec.json.decode(line))

    async def close(self) -> None:
        """Close the connection and cancel all open requests."""
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.end_subscriptions()
            conversation.cancel_all()
            await conversation.finish(seconds=1)


class EventChannel(_SharedChannel):
    """HTTP+SSE of 2024-11-05: one stream for incoming messages, POSTs for outgoing ones."""

    PATH = "/mcp/sse"

    def __init__(self, entrance: AuthenticatedTestServer) -> None:
        super().__init__()
        self._app = RawASGIMount(entrance)
        self._headers = entrance.headers
        self._endpoint: asyncio.Future[str] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def _write(self, message: Message) -> None:
        if self._endpoint is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._reading = asyncio.create_task(self._read(self._endpoint))
        target = urljoin(self.PATH, await asyncio.shield(self._endpoint))
        headers = {**self._headers, "content-type": JSON}
        body = jsonrpc.encode(message)
        async with send_asgi_request(self._app, "POST", target, headers, body) as response:
            check_status(response, await response.body())

    async def _read(self, endpoint: asyncio.Future[str]) -> None:
        headers = {**self._headers, "accept": EVENT_STREAM}
        try:
            async with send_asgi_request(self._app, "GET", self.PATH, headers) as response:
                if response.status != 200:
                    check_status(response, await response.body())
                decoder = sse.EventDecoder()
                async for part in response.parts():
                    for event in decoder.feed(part):
                        if event.event == "endpoint":
                            endpoint.set_result(event.data)
                        else:
                            self._assign_message(msgspec.json.decode(event.data))
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


CHANNELS: Final[Mapping[str, Callable[[AuthenticatedTestServer], ClientChannel]]] = {
    "http": HTTPChannel,
    "sse": EventChannel,
    "stdio": LineChannel,
}


def check_transport(name: str, version: str) -> None:
    """Check that a transport exists and supports the revision.

    Raises:
        ValueError: the transport is unknown, or does not support the revision.
    """
    if name != "memory" and name not in CHANNELS:
        transports = ", ".join(["memory", *CHANNELS])
        raise ValueError(
            f"{name!r} is not a transport of the test client; use one of {transports}."
        )
    if name == "sse" and version != V2024_11_05.version:
        raise ValueError(
            f"The transport 'sse' supports only {V2024_11_05.version}, not {version!r}; pass "
            f"protocol_version={V2024_11_05.version!r}, or transport='http'."
        )


# ASGI requests without a socket -------------------------------------------------------------------

_Part = MutableMapping[str, Any]


class _Application(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""


class ASGIResponse:
    """The response to an ASGI request: status, headers, and a body that is read in parts."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.coming: asyncio.Queue[_Part | None] = asyncio.Queue()

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.headers.get("content-type", "").startswith(EVENT_STREAM)

    async def start(self) -> None:
        """Wait for status and headers."""
        part = await self.coming.get()
        if part is not None:
            self.status = part["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in part["headers"]
            }

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body in parts."""
        while (part := await self.coming.get()) is not None:
            yield part.get("body", b"")
            if not part.get("more_body", False):
                return

    async def body(self) -> bytes:
        """Return the whole body."""
        return b"".join([part async for part in self.parts()])


@asynccontextmanager
async def send_asgi_request(
    app: _Application, verb: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> AsyncIterator[ASGIResponse]:
    """Send an ASGI request; on exit, close the connection and wait for the application."""
    path, _, query = target.partition("?")
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 5000),
        "server": ("testserver", 80),
    }
    gone = asyncio.Event()
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    response = ASGIResponse()

    async def receive() -> _Part:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    serving = asyncio.create_task(app(scope, receive, response.coming.put))
    serving.add_done_callback(lambda _: response.coming.put_nowait(None))
    try:
        await response.start()
        if not response.status:
            await serving
            raise EOFError(f"The application ended without a response to {verb} {target}.")
        yield response
    finally:
        gone.set()
        await serving


# Rejections as exceptions -------------------------------------------------------------------------

_WAITS: dict[int, type[TooManyAttempts | AuthenticationUnavailable]] = {
    TooManyAttempts.status: TooManyAttempts,
    AuthenticationUnavailable.status: AuthenticationUnavailable,
}
_SCOPE = re.compile(r'scope="([^"]*)"')


def check_status(response: ASGIResponse, body: bytes) -> dict[str, Any] | None:
    """Return the message in a response body, ``None`` for an empty one.

    Raises:
        AccessRefused: the caller has to authenticate or is not authorized.
        ErrorResponse: the HTTP request was rejected with an error that has no request id.
    """
    message: dict[str, Any] | None = msgspec.json.decode(body) if body else None
    if message is not None and "error_description" in message:
        refusal = _WAITS.get(response.status)
        if refusal is not None:
            # A status with Retry-After: the credential may be valid.
            seconds = int(response.headers.get("retry-after", "1"))
            raise refusal(message["error_description"], retry_after=seconds)
        scopes = _SCOPE.search(response.headers.get("www-authenticate", ""))
        _raise_refusal(
            message["error_description"],
            error=message["error"],
            is_unknown=message["error"] != "insufficient_scope" and response.status != 403,
            scopes=scopes[1].split() if scopes else (),
        )
    if message is not None and "error" in message and message.get("id") is None:
        raise ErrorResponse(message["error"])
    return message


def check_response(response: Mapping[str, Any]) -> None:
    """Check for an access error in the JSON-RPC error of a transport without HTTP statuses.

    Raises:
        AccessRefused: the caller has to authenticate or is not authorized.
    """
    error = response.get("error") or {}
    if error.get("code") in (UNAUTHORIZED, FORBIDDEN):
        _raise_refusal(
            error["message"],
            error="",
            is_unknown=error["code"] == UNAUTHORIZED,
            scopes=(error.get("data") or {}).get("scopes", ()),
        )


def _raise_refusal(message: str, *, error: str, is_unknown: bool, scopes: Iterable[str]) -> None:
    if is_unknown:
        error_code = "" if error == "unauthorized" else error
        raise AuthenticationRequired(message, error=error_code, scopes=scopes)
    if scopes:
        raise InsufficientScope(message, scopes=scopes)
    raise ConnectionRefused(message)


class ServerUnderTest:
    """A server that reloads its overrides for each request.

    An override made in the admin applies from the next request on, even if the test's transaction
    is never committed. The queries for it are not counted in the test. In a test that may not use
    the database, the server has no overrides. No override is left for the next test.
    """

    def __init__(self, server: MCPServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def refresh(self, *, is_list: bool = False) -> None:
        """Reload the overrides in ``catalog``; without database access, use none."""
        if override_version.is_pinned:
            self._server.refresh(is_list=is_list)
        elif _is_database_forbidden():
            self._server.overrides.reset()
        else:
            override_version.reset()
            # Exclude the queries from the test's query count.
            connection = connections[_alias()]
            logged, connection.force_debug_cursor = connection.force_debug_cursor, False
            try:
                self._server.refresh(is_list=is_list)
            finally:
                connection.force_debug_cursor = logged


def _alias() -> str:
    return router.db_for_write(tables.Component)


def _is_database_forbidden() -> bool:
    """Return whether the test may not use the database; opens a cursor but runs no query."""
    try:
        connections[_alias()].cursor().close()
    except (AssertionError, RuntimeError):
        # Django's own test cases raise the former, pytest-django the latter.
        return True
    except (DatabaseError, ImproperlyConfigured):
        # If the database is unavailable or not configured, the server reports that.
        return False
    return False


BACKEND = "mcp_django.testing.transports.EntranceBackend"


class AuthenticatedTestServer(ServerUnderTest):
    """A server that also accepts the bearer token of one test client.

    Over HTTP the test's user has a bearer token that is valid only in this process. The server's
    ``permission``, scopes and the permissions of components are checked as for all callers.
    """

    def __init__(self, server: MCPServer, principal: Principal) -> None:
        super().__init__(server)
        self.bearer = ""
        self.principal = principal
        if principal.is_authenticated:
            self.bearer = secrets.token_urlsafe(16)
            self.principal = replace(principal, backend=BACKEND)
            _test_servers[self.bearer] = self

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request of the test client."""
        bearer = {"authorization": f"Bearer {self.bearer}"} if self.bearer else {}
        return {"host": "testserver", **bearer}

    @property
    def auth(self) -> tuple[str, ...]:
        """The backend of the test client, then the server's own backends."""
        return (BACKEND, *self._server.auth)


class EntranceBackend(BaseBackend):
    """Authenticates the bearer tokens of test clients; used only for their servers."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the principal of the test client that the bearer token belongs to."""
        entrance = _test_servers.get(credentials.bearer or "")
        return entrance.principal if entrance is not None else None


_test_servers: WeakValueDictionary[str, AuthenticatedTestServer] = WeakValueDictionary()
