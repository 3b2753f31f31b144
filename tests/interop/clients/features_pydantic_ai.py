"""The features of Pydantic AI."""

from __future__ import annotations

import warnings
from typing import Any

import features
from fastmcp.client.elicitation import ElicitResult
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel

# It warns that callbacks will never be called, and calls them in rounds nevertheless.
warnings.filterwarnings("ignore", message=".*will never be called")


async def elicit(message: str, kind: Any, params: Any, context: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content=kind(value=features.NAME))


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    toolset = MCPToolset[None](
        url,
        headers=headers,
        init_timeout=features.SECONDS,
        elicitation_handler=elicit,
        sampling_model=TestModel(custom_output_text=features.SUMMARY),
    )
    # The model calls the tool, and answers with its result.
    agent = Agent(TestModel(call_tools=["declared"]), toolsets=[toolset])
    async with toolset:
        (letter,) = (await toolset.get_prompt("letter", features.TOPIC)).messages
        return {
            "agent": (await agent.run("What can you do?")).output,
            "declared": await toolset.direct_call_tool("declared", {}),
            "resources": await toolset.read_resource(features.NEWS),
            "prompts": letter.content.content,
            "elicitation": await toolset.direct_call_tool("greet", {}),
            "sampling": await toolset.direct_call_tool("summarize", features.TEXT),
        }


features.run(use)
