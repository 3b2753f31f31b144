"""Streamable HTTP, to the raw ASGI mount of a server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from mcp_django.protocol import envelope, jsonrpc, sse
from mcp_django.protocol import headers as names
from mcp_django.protocol.methods import REQUESTS
from mcp_django.test import asgi
from mcp_django.test.entrance import Entrance
from mcp_django.test.messages import Message, cancellation
from mcp_django.test.refusals import check_status
from mcp_django.transports.asgi_handler import RawMount

PATH = "/mcp"


class HTTPChannel:
    """Requests over HTTP; of a handshake revision, in a session."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._app = RawMount(entrance)
        self._headers = {"host": "testserver", "accept": "application/json, text/event-stream"}
        if entrance.bearer:
            self._headers["authorization"] = f"Bearer {entrance.bearer}"

    async def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; what belongs to it, its response last."""
        decoder = sse.Decoder()
        async with self._post(message) as response:
            if not response.is_stream:
                answer = check_status(response, await response.body())
                self._note_session(response, answer)
                if answer is not None:
                    yield answer
                return
            async for said in _events(response, decoder):
                yield said
                if "method" not in said:
                    return
        while decoder.last_event_id is not None:
            # The server has hung up on purpose, and says when to come back.
            await asyncio.sleep((decoder.retry or 0) / 1000)
            headers = {
                **self._headers,
                "accept": "text/event-stream",
                names.LAST_EVENT_ID: decoder.last_event_id,
            }
            async with asgi.request(self._app, "GET", PATH, headers) as response:
                if response.status != 200:
                    check_status(response, await response.body())
                    return
                async for said in _events(response, decoder):
                    yield said
                    if "method" not in said:
                        return

    async def send(self, message: Message) -> None:
        """Send a notification, or the answer to a question."""
        async with self._post(message) as response:
            check_status(response, await response.body())

    async def cancel(self, message: Message) -> None:
        """Say that nobody waits for a request any more; without a session, leaving says it."""
        if names.SESSION_ID in self._headers:
            await self.send(cancellation(message))

    async def close(self) -> None:
        """End the session."""
        if names.SESSION_ID in self._headers:
            async with asgi.request(self._app, "DELETE", PATH, self._headers) as response:
                check_status(response, await response.body())
            del self._headers[names.SESSION_ID]

    def _post(self, message: Message) -> Any:
        headers = {**self._headers, "content-type": "application/json", **self._routing(message)}
        return asgi.request(self._app, "POST", PATH, headers, jsonrpc.encode(message))

    def _note_session(self, response: asgi.Response, answer: Message | None) -> None:
        if answer is not None and names.SESSION_ID in response.headers:
            self._headers[names.SESSION_ID] = response.headers[names.SESSION_ID]
            version = answer["result"]["protocolVersion"]
            self._headers[names.MCP_PROTOCOL_VERSION] = version

    def _routing(self, message: Message) -> dict[str, str]:
        """The headers that repeat parts of a message of 2026-07-28."""
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(envelope.PROTOCOL_VERSION)
        if version is None:
            return {}
        found = {names.MCP_PROTOCOL_VERSION: version, names.MCP_METHOD: message["method"]}
        known = REQUESTS.get(message["method"])
        if known is not None and known.name_member and known.name_member in params:
            found[names.MCP_NAME] = names.encode_value(str(params[known.name_member]))
        if message["method"] == "tools/call":
            found.update(self._mirrored(params))
        return found

    def _mirrored(self, params: Message) -> dict[str, str]:
        tool = self._entrance.offered.find_tool(params.get("name"))
        found = {}
        for parameter in tool.mirrored if tool is not None else ():
            value = params.get("arguments")
            for name in parameter.path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                header = f"{names.MCP_PARAM_PREFIX}{parameter.header}"
                found[header.lower()] = names.encode_value(text)
        return found


async def _events(response: asgi.Response, decoder: sse.Decoder) -> AsyncGenerator[Message, None]:
    async for part in response.parts():
        for event in decoder.feed(part):
            # The event that opens a stream of 2025-11-25 has an id and no message.
            if event.data:
                yield msgspec.json.decode(event.data)
