"""``MCPClient``, which speaks 2026-07-28 to the runtime in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, cast

import msgspec
from asgiref.sync import sync_to_async

from mcp_django.auth.principal import Principal, anonymous, principal_for
from mcp_django.exceptions import MCPError
from mcp_django.protocol import meta, sse
from mcp_django.protocol.revisions import LATEST
from mcp_django.runtime.incoming import Incoming, Listening
from mcp_django.server import MCPServer, mcp
from mcp_django.signals import component_failed
from mcp_django.test.answers import CallResult, ErrorResponse, Recorder
from mcp_django.transports import listen as listen_stream
from mcp_django.transports.memory import MemoryConnection, Response
from mcp_django.transports.port import StreamPort


class MCPClient:
    """A client of one server, as one user.

    ``scopes`` are those of the credential (``None``: not scoped), ``capabilities`` what the
    client declares. A bug in a component is raised as it is, as Django's test client does; with
    ``raise_exceptions=False`` it becomes the neutral answer that a real client gets. What runs a
    function of the site has an ``a`` twin for asynchronous tests; the rest goes through
    ``arequest`` there.

    Raises:
        MCPError: the server answered with a JSON-RPC error (``.code``, ``.message``, ``.data``).
        AccessRefused: the caller may not enter, has to authenticate or lacks a scope.
    """

    def __init__(
        self,
        *,
        user: Any = None,
        server: MCPServer = mcp,
        scopes: Sequence[str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        protocol_version: str = LATEST.version,
        raise_exceptions: bool = True,
    ) -> None:
        self._raises = raise_exceptions
        self._recorder = Recorder()
        self._ids = count(1)
        self._capabilities = dict(capabilities or {})
        self._version = protocol_version
        self._connection = MemoryConnection(
            server, _principal(user, scopes), make_port=self._make_port
        )

    def _make_port(self, incoming: Incoming) -> StreamPort:
        self._recorder = Recorder()
        return StreamPort(incoming, self._recorder)

    # One request ------------------------------------------------------------------------------

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send any request and return its result."""
        with self._raising():
            return _result(self._connection.request(self._message(method, params)))

    async def arequest(
        self, method: str, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result."""
        with self._raising():
            return _result(await self._connection.arequest(self._message(method, params)))

    @contextmanager
    def _raising(self) -> Iterator[None]:
        """Raise what a component raised by mistake, instead of the neutral answer to it."""
        bugs: list[Exception] = []

        def keep(exception: Exception, **kwargs: Any) -> None:
            bugs.append(exception)

        component_failed.connect(keep)
        try:
            yield
        except MCPError:
            if not (self._raises and bugs):
                raise
        finally:
            component_failed.disconnect(keep)
        if self._raises and bugs:
            raise bugs[0]

    def _message(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        envelope = {
            meta.PROTOCOL_VERSION: self._version,
            meta.CLIENT_CAPABILITIES: self._capabilities,
            meta.CLIENT_INFO: {"name": "mcp_django.test", "version": "1"},
            meta.PROGRESS_TOKEN: "test",
            meta.LOG_LEVEL: "debug",
        }
        given = dict(params or {})
        given["_meta"] = {**envelope, **given.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": given}

    # The methods of the protocol --------------------------------------------------------------

    def discover(self) -> dict[str, Any]:
        """What the server says of itself."""
        return self.request("server/discover")

    def list_tools(self) -> list[dict[str, Any]]:
        """Every tool that the user may see, from all pages."""
        return self._all("tools/list", "tools")

    def list_resources(self) -> list[dict[str, Any]]:
        """Every fixed resource that the user may see, from all pages."""
        return self._all("resources/list", "resources")

    def list_resource_templates(self) -> list[dict[str, Any]]:
        """Every resource template that the user may see, from all pages."""
        return self._all("resources/templates/list", "resourceTemplates")

    def list_prompts(self) -> list[dict[str, Any]]:
        """Every prompt that the user may see, from all pages."""
        return self._all("prompts/list", "prompts")

    def _all(self, method: str, member: str) -> list[dict[str, Any]]:
        page = self.request(method)
        found = list(page[member])
        while "nextCursor" in page:
            page = self.request(method, {"cursor": page["nextCursor"]})
            found.extend(page[member])
        return found

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallResult:
        """Call a tool; a failure that it reports is a result with ``is_error``."""
        return self._call_result(self.request("tools/call", _named(name, arguments)))

    async def acall_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallResult:
        """Call a tool from an asynchronous test."""
        return self._call_result(await self.arequest("tools/call", _named(name, arguments)))

    def _call_result(self, raw: dict[str, Any]) -> CallResult:
        recorder, self._recorder = self._recorder, Recorder()
        return CallResult(
            raw=raw,
            progress=recorder.params("notifications/progress", "progress", "total", "message"),
            logs=recorder.params("notifications/message", "level", "data", "logger"),
        )

    def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource."""
        return list(self.request("resources/read", {"uri": uri})["contents"])

    async def aread_resource(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, from an asynchronous test."""
        return list((await self.arequest("resources/read", {"uri": uri}))["contents"])

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The messages of a prompt."""
        return list(self.request("prompts/get", _named(name, arguments))["messages"])

    async def aget_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The messages of a prompt, from an asynchronous test."""
        return list((await self.arequest("prompts/get", _named(name, arguments)))["messages"])

    def complete(
        self,
        ref: str,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Suggestions for an argument of a prompt (by name) or of a template (by URI)."""
        params = _completing(ref, argument, value, context)
        return list(self.request("completion/complete", params)["completion"]["values"])

    async def acomplete(
        self,
        ref: str,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Suggestions for an argument, from an asynchronous test."""
        params = _completing(ref, argument, value, context)
        result = await self.arequest("completion/complete", params)
        return list(result["completion"]["values"])

    @asynccontextmanager
    async def listen(
        self, *, uris: Sequence[str] = (), lists: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Notifications of changes, the acknowledgement first.

        ``lists`` names kinds: ``tools``, ``resources``, ``prompts``.
        """
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in lists}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        message = self._message("subscriptions/listen", {"notifications": wanted})
        opened = await sync_to_async(self._connection.open)(message)
        if not isinstance(opened, Listening):
            _result(cast(Response, opened))
            raise TypeError("subscriptions/listen answered without a stream")
        place = listen_stream.take_place(opened.incoming.principal)
        stream = listen_stream.stream(opened, place)
        try:
            yield _messages(stream)
        finally:
            await stream.aclose()


async def _messages(stream: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    decoder = sse.Decoder()
    async for part in stream:
        for event in decoder.feed(part):
            yield msgspec.json.decode(event.data)


def _named(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"name": name, "arguments": dict(arguments or {})}


def _completing(
    ref: str, argument: str, value: str, context: Mapping[str, str] | None
) -> dict[str, Any]:
    reference = (
        {"type": "ref/resource", "uri": ref}
        if "://" in ref
        else {"type": "ref/prompt", "name": ref}
    )
    chosen = {"context": {"arguments": dict(context)}} if context else {}
    return {"ref": reference, "argument": {"name": argument, "value": value}, **chosen}


def _result(response: Response) -> dict[str, Any]:
    if "error" in response:
        raise ErrorResponse(response["error"])
    result: dict[str, Any] = response["result"]
    return result


def _principal(user: Any, scopes: Sequence[str] | None) -> Principal:
    if user is None:
        return anonymous()
    return principal_for(user, scopes=None if scopes is None else frozenset(scopes))
