"""The tasks of the previous version of the official Python client."""

from __future__ import annotations

import warnings
from typing import Any

import features
import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

warnings.filterwarnings("ignore", message="The experimental tasks API is deprecated")


async def use(url: str, headers: dict[str, str]) -> dict[str, Any]:
    async with (
        httpx.AsyncClient(headers=headers, timeout=features.SECONDS) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        created = await session.experimental.call_tool_as_task("report", {})
        task_id = created.task.taskId
        async for _ in session.experimental.poll_task(task_id):
            pass
        result = await session.experimental.get_task_result(task_id, CallToolResult)
        return {"tasks": result.content[0].text}


features.run(use)
