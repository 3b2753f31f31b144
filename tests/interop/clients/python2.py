"""The official Python client (mcp 2.x), which uses the handshake where a server needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as types
from journey import Host, main
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client


class Traveler:
    """A session of this client."""

    def __init__(self, target: dict[str, Any], host: Host) -> None:
        self._host = host
        transport = sse_client if target["is_legacy"] else streamable_http_client
        self.client = Client(
            transport(target["url"]),
            mode=target["mode"],
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            list_roots_callback=self._list_roots,
            logging_callback=self._log,
            message_handler=self._hear,
        )

    async def _elicit(self, context: Any, params: Any) -> types.ElicitResult:
        content = self._host.answer(params.message)
        if content is None:
            return types.ElicitResult(action="decline")
        if params.mode == "url":
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content=content)

    async def _sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self._host.questions.append(params.messages[0].content.text)
        content = types.TextContent(type="text", text="Short.")
        return types.CreateMessageResult(role="assistant", content=content, model="small")

    async def _list_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._host.logged.append([params.level, params.data])

    async def _hear(self, message: Any) -> None:
        match message:
            case types.ResourceUpdatedNotification(params=params):
                self._host.updated.put_nowait(str(params.uri))
            case types.ToolListChangedNotification():
                self._host.rearranged.set()

    async def introduce(self) -> dict[str, Any]:
        capabilities = self.client.server_capabilities.model_dump(exclude_none=True)
        return {
            "version": self.client.protocol_version,
            "name": self.client.server_info.name,
            "capabilities": sorted(capabilities),
        }

    async def tools(self) -> list[str]:
        return sorted(tool.name for tool in (await self.client.list_tools()).tools)

    async def call(self, name: str, arguments: Any, progress: list[float] | None = None) -> Any:
        async def note(done: float, total: float | None, message: str | None) -> None:
            assert progress is not None
            progress.append(done)

        callback = None if progress is None else note
        try:
            result = await self.client.call_tool(name, arguments, progress_callback=callback)
        except MCPError as exc:
            return {"code": exc.error.code}
        (block,) = result.content
        structured = result.structured_content
        return {"text": block.text, "structured": structured, "failed": result.is_error}

    async def call_and_cancel(self, name: str, arguments: Any) -> None:
        begun = asyncio.Event()

        async def note(*progress: Any) -> None:
            begun.set()

        call = asyncio.create_task(self.client.call_tool(name, arguments, progress_callback=note))
        await begun.wait()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def read(self, uri: str) -> str:
        (contents,) = (await self.client.read_resource(uri)).contents
        return str(contents.text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        (message,) = (await self.client.get_prompt(name, arguments)).messages
        return str(message.content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        argument_value = {"name": argument, "value": value}
        return list((await self.client.complete(reference, argument_value)).completion.values)

    async def set_level(self, level: Any) -> None:
        await self.client.set_logging_level(level)

    async def subscribe(self, uri: str) -> None:
        await self.client.subscribe_resource(uri)

    async def unsubscribe(self, uri: str) -> None:
        await self.client.unsubscribe_resource(uri)

    async def ping(self) -> None:
        await self.client.send_ping()


@asynccontextmanager
async def connect(target: dict[str, Any], host: Host) -> AsyncIterator[Traveler]:
    traveler = Traveler(target, host)
    async with traveler.client:
        yield traveler


main(connect)
