"""The features of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

import features
from agents.mcp import MCPServerStreamableHttp


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    parameters = {"url": url, "headers": headers, "timeout": features.SECONDS}
    async with MCPServerStreamableHttp(
        parameters,
        client_session_timeout_seconds=features.SECONDS,
    ) as server:
        (news,) = (await server.read_resource(features.NEWS)).contents
        (letter,) = (await server.get_prompt("letter", features.TOPIC)).messages
        return {
            "declared": (await server.call_tool("declared", {})).structured_content,
            "resources": news.text,
            "prompts": letter.content.text,
        }


features.run(use)
