"""The features of mcp-use."""

from __future__ import annotations

import asyncio
from typing import Any

import features
from mcp.types import CreateMessageResult, ElicitResult, TextContent, ToolListChangedNotification
from mcp_use import MCPClient


async def elicit(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": features.NAME})


async def sample(context: Any, params: Any) -> CreateMessageResult:
    content = TextContent(type="text", text=features.SUMMARY)
    return CreateMessageResult(role="assistant", content=content, model="small")


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    changed = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(getattr(message, "root", None), ToolListChangedNotification):
            changed.set()

    shop = {"url": url, "headers": headers, "auth": None, "timeout": features.SECONDS}
    client = MCPClient(
        {"mcpServers": {"shop": shop}},
        elicitation_callback=elicit,
        sampling_callback=sample,
        message_handler=hear,
    )
    session = await client.create_session("shop")

    async def call(name: str, arguments: dict[str, str]) -> Any:
        (block,) = (await session.call_tool(name, arguments)).content
        return block.text

    (news,) = (await session.read_resource(features.NEWS)).contents
    (letter,) = (await session.get_prompt("letter", features.TOPIC)).messages
    seen = {
        "declared": (await session.call_tool("declared", {})).structuredContent,
        "resources": news.text,
        "prompts": letter.content.text,
        "elicitation": await call("greet", {}),
        "sampling": await call("summarize", features.TEXT),
    }
    await call("rearrange", {})
    await changed.wait()
    await client.close_all_sessions()
    return {**seen, "list changes": "changed"}


features.run(use)
