"""The official Python client as it was before 2026-07-28 (mcp 1.x)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from journey import Host, main
from mcp import ClientSession, McpError, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


class Traveler:
    """A session of this client; its tokens of progress are the ids of its requests."""

    def __init__(self, streams: Any, host: Host) -> None:
        self._host = host
        self._tokens: asyncio.Queue[Any] = asyncio.Queue()
        self.session = ClientSession(
            *streams,
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
        root = types.Root(uri=AnyUrl("file:///home/ada"))
        return types.ListRootsResult(roots=[root])

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._host.logged.append([params.level, params.data])

    async def _hear(self, message: Any) -> None:
        match getattr(message, "root", None):
            case types.ResourceUpdatedNotification(params=params):
                self._host.updated.put_nowait(str(params.uri))
            case types.ToolListChangedNotification():
                self._host.rearranged.set()
            case types.ProgressNotification(params=params):
                self._tokens.put_nowait(params.progressToken)

    async def introduce(self) -> dict[str, Any]:
        agreed = self.agreed
        return {
            "version": agreed.protocolVersion,
            "name": agreed.serverInfo.name,
            "capabilities": sorted(agreed.capabilities.model_dump(exclude_none=True)),
        }

    async def tools(self) -> list[str]:
        return sorted(tool.name for tool in (await self.session.list_tools()).tools)

    async def call(self, name: str, arguments: Any, progress: list[float] | None = None) -> Any:
        async def note(done: float, total: float | None, message: str | None) -> None:
            assert progress is not None
            progress.append(done)

        callback = None if progress is None else note
        try:
            result = await self.session.call_tool(name, arguments, progress_callback=callback)
        except McpError as exc:
            return {"code": exc.error.code}
        (block,) = result.content
        structured = result.structuredContent
        return {"text": block.text, "structured": structured, "failed": result.isError}

    async def call_and_cancel(self, name: str, arguments: Any) -> None:
        while not self._tokens.empty():
            self._tokens.get_nowait()
        call = asyncio.create_task(self.call(name, arguments, []))
        params = types.CancelledNotificationParams(requestId=await self._tokens.get())
        cancelled = types.CancelledNotification(params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    async def read(self, uri: str) -> str:
        (contents,) = (await self.session.read_resource(AnyUrl(uri))).contents
        return str(contents.text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        (message,) = (await self.session.get_prompt(name, arguments)).messages
        return str(message.content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        argument_value = {"name": argument, "value": value}
        return list((await self.session.complete(reference, argument_value)).completion.values)

    async def set_level(self, level: Any) -> None:
        await self.session.set_logging_level(level)

    async def subscribe(self, uri: str) -> None:
        await self.session.subscribe_resource(AnyUrl(uri))

    async def unsubscribe(self, uri: str) -> None:
        await self.session.unsubscribe_resource(AnyUrl(uri))

    async def ping(self) -> None:
        await self.session.send_ping()


@asynccontextmanager
async def connect(target: dict[str, Any], host: Host) -> AsyncIterator[Traveler]:
    transport = sse_client if target["is_legacy"] else streamable_http_client
    async with transport(target["url"]) as (read, write, *_):
        traveler = Traveler((read, write), host)
        async with traveler.session:
            traveler.agreed = await traveler.session.initialize()
            yield traveler


main(connect)
