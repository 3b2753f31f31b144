"""Clients of the other transports: in memory, stdio in this process, and HTTP+SSE."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from mcp_django.auth.authentication import LocalCaller
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import authorize_connection
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import MCPClient
from mcp_django.transports.stdio import StdioChannel
from tests.kit.drivers import PATIENCE
from tests.matrix.callers import Caller
from tests.matrix.cases import Case, build_message, capabilities_of, initialization, with_first
from tests.matrix.links import INITIALIZED, Answer, HttpLink, accept, is_question, params_of
from tests.matrix.site import MOUNTS, SERVERS
from tests.transports.http_session import legacy
from tests.transports.mounts import in_thread

SENTINEL = "sentinel"


def _key(case: Case) -> str:
    """Return a key that is equal for cases that can share a connection."""
    return json.dumps([case.server, capabilities_of(case)])


class MemoryLink:
    """The test client of the package; only its result or its error is recorded."""

    def __init__(self, version: str, caller: Caller) -> None:
        self._version = version
        self._caller = caller
        self._clients: dict[str, MCPClient] = {}

    async def prepare(self, case: Case) -> bool:
        """Create the missing clients and their sessions, and return whether there were any."""
        needed = {_key(step): step for step in with_first(case) if _key(step) not in self._clients}
        for key, step in needed.items():
            self._clients[key] = await in_thread(self._make, step)
        return bool(needed)

    async def ask(self, case: Case, before: Answer | None = None) -> Answer:
        """Send the request of a case."""
        return await in_thread(self._ask, self._clients[_key(case)], case, before)

    async def close(self) -> None:
        """Do nothing: a client in memory has no connection."""

    def _make(self, case: Case) -> MCPClient:
        client = MCPClient(
            server=SERVERS[case.server or self._caller.server],
            user=self._caller.user,
            scopes=None if self._caller.scopes is None else sorted(self._caller.scopes),
            capabilities=capabilities_of(case),
            protocol_version=self._version,
            raise_exceptions=False,
        )
        if not REVISIONS[self._version].stateless:
            _answered(client, "ping", {}, ())
        return client

    def _ask(self, client: MCPClient, case: Case, before: Answer | None) -> Answer:
        id = 1 if before is None else 2
        message = build_message(case, REVISIONS[self._version], params_of(case, before), id=id)
        params = dict(message.get("params", {}))
        # The client adds its own envelope and tokens.
        params.pop("_meta", None)
        response = {"jsonrpc": "2.0", "id": message["id"]}
        response |= _answered(client, case.method, params, case.answers)
        return Answer(body=json.dumps(response, separators=(",", ":"), ensure_ascii=False))


def _answered(
    client: MCPClient, method: str, params: Mapping[str, Any], answers: tuple[Any, ...]
) -> dict[str, Any]:
    try:
        return {"result": client.answer(method, params, answers)}
    except AccessRefused as exc:
        return {"refused": type(exc).__name__, "message": exc.message}
    except MCPError as exc:
        data = {} if exc.data is None else {"data": exc.data}
        return {"error": {"code": exc.code, "message": exc.message, **data}}
    except AssertionError as exc:
        # Answers that were not asked for.
        return {"assertion": str(exc)}


class _LinesLink(ABC):
    """A client of a transport on which messages come in any order, sessions included."""

    def __init__(self, version: str, caller: Caller) -> None:
        self._revision = REVISIONS[version]
        self._caller = caller
        self._open: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    async def prepare(self, case: Case) -> bool:
        """Open the missing channels that a case needs, and return whether there were any."""
        needed = {_key(step): step for step in with_first(case) if _key(step) not in self._open}
        for key, step in needed.items():
            channel = self._open[key] = await self._connect(step)
            if channel is not None and not self._revision.stateless:
                await self._initialize(channel, step)
        return bool(needed)

    async def _initialize(self, channel: Any, case: Case) -> None:
        params = initialization(case, self._revision)
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        await self._write(channel, json.dumps(body).encode())
        await self._next_own(channel)
        await self._write(channel, json.dumps(INITIALIZED).encode())
        await self._until_sentinel(channel)

    async def ask(self, case: Case, before: Answer | None = None) -> Answer:
        """Send the request of a case and return the messages up to its response."""
        channel = self._open[_key(case)]
        if channel is None:
            return await self._refused(case)
        if case.raw is None:
            id = 1 if before is None else 2
            message = build_message(case, self._revision, params_of(case, before), id=id)
            body = json.dumps(message).encode()
        else:
            body = case.raw
        answer = await self._write(channel, body)
        if _is_answered(body) and answer.status in (None, 202):
            lines = await self._until_response(channel, case)
        else:
            lines = await self._until_sentinel(channel)
        answer.body = "\n".join([*filter(None, [answer.body]), *lines])
        return answer

    async def close(self) -> None:
        """Close the channels."""
        await self._stack.aclose()

    async def _next_own(self, channel: Any) -> str:
        """Return the next message that belongs to the request.

        The pub/sub of the process may notify this client of lists that another test changed.
        """
        while "/list_changed" in (line := await self._next(channel)):
            pass
        return line

    async def _until_response(self, channel: Any, case: Case) -> list[str]:
        lines, answers = [], list(case.answers)
        while True:
            lines.append(await self._next_own(channel))
            message = json.loads(lines[-1])
            if isinstance(message, list) or "method" not in message:
                return lines
            if is_question(message):
                await self._write(channel, json.dumps(accept(message, answers.pop(0))).encode())
            if case.leaves:
                return lines

    async def _until_sentinel(self, channel: Any) -> list[str]:
        """Return the messages before the response to the sentinel, which has no effect itself."""
        await self._write(channel, json.dumps(self._sentinel()).encode())
        lines: list[str] = []
        while SENTINEL not in (line := await self._next_own(channel)):
            lines.append(line)
        return lines

    @abstractmethod
    def _sentinel(self) -> dict[str, Any]:
        """Return a message whose response comes after all earlier messages."""

    @abstractmethod
    async def _connect(self, case: Case) -> Any:
        """Return a channel, `None` if it is refused."""

    async def _refused(self, case: Case) -> Answer:
        """Return the answer to a caller for whom no channel is opened."""
        raise AssertionError(f"a channel opens for every caller, and not for {case}")

    @abstractmethod
    async def _write(self, channel: Any, body: bytes) -> Answer:
        """Send a message."""

    @abstractmethod
    async def _next(self, channel: Any) -> str:
        """Return the next message."""


def _is_answered(body: bytes) -> bool:
    """Return whether a message, or one of several, is a request."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return any(
        isinstance(message, dict)
        and "method" in message
        and "id" in message
        and message.get("jsonrpc") == "2.0"
        for message in (document if isinstance(document, list) else [document])
    )


class _Pipes:
    """The client's ends of the two pipes."""

    def __init__(self, sink: int, source: int) -> None:
        self.sink = sink
        self.lines = os.fdopen(source, "rb")


class StdioLink(_LinesLink):
    """The stdio transport with pipes for standard input and output."""

    def _sentinel(self) -> dict[str, Any]:
        # Not valid JSON-RPC, so that it is answered immediately and leaves no trace.
        return {"jsonrpc": "0", "id": SENTINEL, "method": "ping"}

    async def _connect(self, case: Case) -> Any:
        server = SERVERS[case.server or self._caller.server]
        caller = LocalCaller(
            username=self._caller.username,
            token="" if self._caller.username else self._caller.token,
            server=server.name,
        )
        authorized = await in_thread(_authorized, server, caller)
        source, sink = os.pipe()
        back, out = os.pipe()
        channel = StdioChannel(source, out, when_ending=lambda: None)
        serving = asyncio.create_task(channel.serve(server, caller, authorized=authorized))
        pipes = _Pipes(sink, back)

        async def close() -> None:
            os.close(sink)
            async with asyncio.timeout(PATIENCE):
                await serving
            for end in (source, out):
                os.close(end)
            pipes.lines.close()

        self._stack.push_async_callback(close)
        return pipes

    async def _write(self, channel: Any, body: bytes) -> Answer:
        os.write(channel.sink, body + b"\n")
        return Answer()

    async def _next(self, channel: Any) -> str:
        async with asyncio.timeout(PATIENCE):
            line = await asyncio.to_thread(channel.lines.readline)
        return str(line.decode().removesuffix("\n"))


def _authorized(server: Any, caller: LocalCaller) -> Principal | None:
    """Return the caller if the server authorizes it, as the management command does."""
    principal = caller.principal()
    try:
        authorize_connection(server, principal)
    except AccessRefused:
        return None
    return principal


class SseLink(_LinesLink):
    """HTTP+SSE of 2024-11-05 on the raw mount: one open stream, and posts."""

    def _sentinel(self) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": SENTINEL, "method": "ping"}

    def _path(self, case: Case) -> str:
        return f"/{case.server or self._caller.server}/mcp/sse"

    async def _connect(self, case: Case) -> Any:
        if (await self._refused(case)).status != 200:
            return None
        opening = legacy.opened(
            MOUNTS["raw"], self._path(case), authorization=self._caller.authorization
        )
        return await self._stack.enter_async_context(opening)

    async def _refused(self, case: Case) -> Answer:
        opening = Case(
            verb="GET", suffix="/sse", has_session=False, leaves=True, server=case.server
        )
        link = HttpLink("raw", self._revision.version, self._caller)
        return await link.ask(opening)

    async def _write(self, channel: Any, body: bytes) -> Answer:
        response = await channel.post(body)
        lines = sorted(response.headers.items())
        return Answer(response.status, lines, response.body.decode())

    async def _next(self, channel: Any) -> str:
        async with asyncio.timeout(PATIENCE):
            event = await channel.event()
        return str(event.data.decode()) if isinstance(event.data, bytes) else str(event.data)


Link = HttpLink | MemoryLink | StdioLink | SseLink


def make_link(mount: str, version: str, caller: Caller) -> Link:
    """Return a client at a mount."""
    if mount == "memory":
        return MemoryLink(version, caller)
    if mount == "stdio":
        return StdioLink(version, caller)
    if mount == "sse":
        return SseLink(version, caller)
    return HttpLink(mount, version, caller)
