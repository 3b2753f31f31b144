"""A call in a session that takes too long is answered, by a document or on a stream."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.kit.drivers import Answer, send

VERSION = "2025-11-25"
PATIENCE = 5

server = MCPServer("late", permission=AllowAny)


@server.tool(timeout=0.05)
def late(ctx: Context) -> str:
    """Take longer than allowed."""
    never = threading.Event()
    while not ctx.cancelled:
        never.wait(0.005)
    return "too late"


@server.tool(timeout=0.05)
async def late_later(ctx: Context) -> str:
    """Take longer than allowed, on the event loop."""
    await asyncio.sleep(PATIENCE)
    return "too late"


async def post(method: str, params: dict[str, Any], **headers: str) -> Answer:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    changes: dict[str, str | None] = {
        "mcp_protocol_version": None,
        "mcp_method": None,
        "mcp_name": None,
        **headers,
    }
    return await send(server.asgi, "/mcp", body, **changes)


async def open_session() -> str:
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
    return (await post("initialize", params)).headers["mcp-session-id"]


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["document", "stream"])
@pytest.mark.parametrize("tool", ["late", "late_later"])
async def test_a_call_that_takes_too_long_is_answered(tool, meta, transactional_db):
    session = await open_session()
    params = {"name": tool, "arguments": {}, "_meta": meta}
    headers = {"mcp_session_id": session, "mcp_protocol_version": VERSION}
    answer = await post("tools/call", params, **headers)
    assert answer.status == 200
    assert answer.is_stream is bool(meta)
    assert answer.response()["result"]["isError"] is True
