"""FastMCP's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from journey import Host, main
from mcp import MCPError


class Ears(MessageHandler):
    """Records notifications of changes."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def on_resource_updated(self, message: types.ResourceUpdatedNotification) -> None:
        self._host.updated.put_nowait(str(message.params.uri))

    async def on_tool_list_changed(self, message: types.ToolListChangedNotification) -> None:
        self._host.rearranged.set()


class Traveler:
    """A session of this client."""

    def __init__(self, target: dict[str, Any], host: Host) -> None:
        self._host = host
        transport = SSETransport if target["is_legacy"] else StreamableHttpTransport
        self.client = Client(
            transport(target["url"]),
            mode=target["mode"],
            elicitation_handler=self._elicit,
            sampling_handler=self._sample,
            roots=["file:///home/ada"],
            log_handler=self._log,
            message_handler=Ears(host),
        )

    async def _elicit(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        content = self._host.answer(message)
        if content is None:
            return ElicitResult(action="decline")
        # The client passes the form as a class that it made of the schema.
        return ElicitResult(action="accept", content=kind(**content) if kind else None)

    async def _sample(self, messages: Any, params: Any, context: Any) -> Any:
        self._host.questions.append(messages[0].content.text)
        content = types.TextContent(type="text", text="Short.")
        return types.CreateMessageResult(role="assistant", content=content, model="small")

    async def _log(self, message: types.LoggingMessageNotificationParams) -> None:
        self._host.logged.append([message.level, message.data])

    async def introduce(self) -> dict[str, Any]:
        capabilities = self.client.server_capabilities.model_dump(exclude_none=True)
        return {
            "version": self.client.protocol_version,
            "name": self.client.server_info.name,
            "capabilities": sorted(capabilities),
        }

    async def tools(self) -> list[str]:
        return sorted(tool.name for tool in await self.client.list_tools())

    async def call(self, name: str, arguments: Any, progress: list[float] | None = None) -> Any:
        async def note(done: float, total: float | None, message: str | None) -> None:
            assert progress is not None
            progress.append(done)

        callback = None if progress is None else note
        try:
            result = await self.client.call_tool_mcp(name, arguments, progress_handler=callback)
        except MCPError as exc:
            return {"code": exc.error.code}
        (block,) = result.content
        structured = result.structured_content
        return {"text": block.text, "structured": structured, "failed": result.is_error}

    async def call_and_cancel(self, name: str, arguments: Any) -> None:
        begun = asyncio.Event()

        async def note(*progress: Any) -> None:
            begun.set()

        call = asyncio.create_task(
            self.client.call_tool_mcp(name, arguments, progress_handler=note)
        )
        await begun.wait()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def read(self, uri: str) -> str:
        (contents,) = await self.client.read_resource(uri)
        return str(contents.text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        (message,) = (await self.client.get_prompt(name, arguments)).messages
        return str(message.content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        argument_value = {"name": argument, "value": value}
        return list((await self.client.complete(reference, argument_value)).values)

    async def set_level(self, level: Any) -> None:
        await self.client.set_logging_level(level)

    # This client leaves subscriptions to the session of the official client.
    async def subscribe(self, uri: str) -> None:
        await self.client.session.subscribe_resource(uri)

    async def unsubscribe(self, uri: str) -> None:
        await self.client.session.unsubscribe_resource(uri)

    async def ping(self) -> None:
        assert await self.client.ping()


@asynccontextmanager
async def connect(target: dict[str, Any], host: Host) -> AsyncIterator[Traveler]:
    traveler = Traveler(target, host)
    async with traveler.client:
        yield traveler


main(connect)
