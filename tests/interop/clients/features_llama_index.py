"""The features of llama-index-tools-mcp."""

from __future__ import annotations

from typing import Any

import features
from llama_index.tools.mcp import BasicMCPClient
from mcp.types import CreateMessageResult, TextContent


async def sample(context: Any, params: Any) -> CreateMessageResult:
    content = TextContent(type="text", text=features.SUMMARY)
    return CreateMessageResult(role="assistant", content=content, model="small")


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    client = BasicMCPClient(url, headers=headers, sampling_callback=sample)
    (news,) = (await client.read_resource(features.NEWS)).contents
    (letter,) = await client.get_prompt("letter", features.TOPIC)
    summary = await client.call_tool("summarize", features.TEXT)
    return {
        "declared": (await client.call_tool("declared", {})).structured_content,
        "resources": news.text,
        "prompts": letter.content,
        "sampling": summary.content[0].text,
    }


features.run(use)
