"""The features of langchain-mcp-adapters."""

from __future__ import annotations

import json
from typing import Any

import features
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import ElicitResult


async def elicit(mcp_context: Any, params: Any, context: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": features.NAME})


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    client = MultiServerMCPClient(
        {"shop": {"transport": "http", "url": url, "headers": headers}},
        callbacks=Callbacks(on_elicitation=elicit),
    )
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name: str) -> str:
        (block,) = await tools[name].ainvoke({})
        return str(block["text"])

    (news,) = await client.get_resources("shop", uris=[features.NEWS])
    (letter,) = await client.get_prompt("shop", "letter", arguments=features.TOPIC)
    return {
        "declared": json.loads(await call("declared")),
        "resources": news.as_string(),
        "prompts": letter.content,
        "elicitation": await call("greet"),
    }


features.run(use)
