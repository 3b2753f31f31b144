"""The features of Semantic Kernel."""

from __future__ import annotations

import json
from typing import Any

import features
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.mcp import MCPStreamableHttpPlugin
from semantic_kernel.contents import ChatMessageContent


class Model(ChatCompletionClientBase):
    """A model that always says the same."""

    async def _inner_get_chat_message_contents(
        self, chat_history: Any, settings: Any
    ) -> list[ChatMessageContent]:
        return [ChatMessageContent(role="assistant", content=features.SUMMARY)]


async def consent(plugin: str, params: Any) -> bool:
    return True


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    kernel = Kernel(services=Model(service_id="default", ai_model_id="small"))
    async with MCPStreamableHttpPlugin(
        "shop",
        url,
        headers=headers,
        kernel=kernel,
        sampling_consent_callback=consent,
    ) as plugin:
        functions = kernel.add_plugin(plugin).functions
        (letter,) = (await kernel.invoke(functions["letter"], **features.TOPIC)).value
        return {
            "declared": json.loads(str(await kernel.invoke(functions["declared"]))),
            "prompts": letter.content,
            "sampling": str(await kernel.invoke(functions["summarize"], **features.TEXT)),
        }


features.run(use)
