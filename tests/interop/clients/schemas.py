"""Whether a Python client accepts the list and the results of `tests.interop.schema_site`, and how.

It takes `{"client", "calls": {tool: arguments}, "targets": {key: {"url", "mode"}}}` as JSON on its
standard input, calls everything at each target, and prints what the client saw by key. For a value
that the client rejects, this is the `error`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

# Longer errors are cut, since validators show the whole schema.
MAX_ERROR = 600

# The revision, and functions that list the names of tools and return what a call has brought.
Session = tuple[
    str, Callable[[], Awaitable[list[str]]], Callable[[str, Any], Awaitable[dict[str, Any]]]
]


@asynccontextmanager
async def sdk1(url: str, mode: str) -> AsyncIterator[Session]:
    """Yield a session of the official client as it was before 2026-07-28."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        agreed = await session.initialize()

        async def names() -> list[str]:
            return [tool.name for tool in (await session.list_tools()).tools]

        async def call(name: str, arguments: Any) -> dict[str, Any]:
            result = await session.call_tool(name, arguments)
            return summary(result.content, result.structuredContent, result.isError)

        yield str(agreed.protocolVersion), names, call


@asynccontextmanager
async def sdk2(url: str, mode: str) -> AsyncIterator[Session]:
    """Yield a session of the official client."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with Client(streamable_http_client(url), mode=mode) as client:

        async def names() -> list[str]:
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(name: str, arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(name, arguments)
            return summary(result.content, result.structured_content, result.is_error)

        yield client.protocol_version, names, call


class Complaints(logging.Handler):
    """Records what FastMCP logs when it cannot build the types of a schema; it then goes on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@asynccontextmanager
async def fastmcp(url: str, mode: str) -> AsyncIterator[Session]:
    """Yield a session of FastMCP's client, which converts results to types that it builds."""
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    complaints = Complaints()
    logging.getLogger("fastmcp").addHandler(complaints)
    async with Client(StreamableHttpTransport(url), mode=mode) as client:

        async def names() -> list[str]:
            return [tool.name for tool in await client.list_tools()]

        async def call(name: str, arguments: Any) -> dict[str, Any]:
            complaints.heard.clear()
            result = await client.call_tool(name, arguments, raise_on_error=False)
            if complaints.heard:
                raise RuntimeError("; ".join(complaints.heard))
            return summary(result.content, result.structured_content, result.is_error)

        yield client.protocol_version, names, call


def summary(content: Any, structured: Any, failed: bool) -> dict[str, Any]:
    texts = [block.text for block in content]
    return {"structured": structured, "texts": texts, "failed": failed}


def reason(exc: BaseException) -> str:
    text = f"{type(exc).__name__}: {exc}"
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} …"


CLIENTS = {"sdk1": sdk1, "sdk2": sdk2, "fastmcp": fastmcp}


async def main() -> None:
    given = json.load(sys.stdin)

    async def visit(target: dict[str, str]) -> dict[str, Any]:
        async with CLIENTS[given["client"]](target["url"], target["mode"]) as session:
            revision, names, call = session
            seen: dict[str, Any] = {"revision": revision, "refused": None, "calls": {}}
            seen["list"] = await names()
            for name, arguments in given["calls"].items():
                try:
                    seen["calls"][name] = await call(name, arguments)
                # Every exception of a client is a result.
                except Exception as exc:  # noqa: BLE001
                    seen["calls"][name] = {"error": reason(exc)}
            return seen

    # One after the other, as the log messages do not name the client.
    seen = {key: await visit(target) for key, target in given["targets"].items()}
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
