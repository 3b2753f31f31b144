"""The measured tools, on a server for anonymous callers and on one for each kind of bearer token.

``BENCH_TOOLS`` is the total number of tools of each server: always the five of ``TOOLS``, then
those of ``VARIANTS`` up to this number, and fillers for the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

from benchmarks.site.models import Row
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

TOUCHED = "bench://touched"
DEFAULT_TOOLS = 10
MAX_ROWS = 1000
MAX_KIB = 10_240
MAX_MILLISECONDS = 60_000

server = MCPServer("bench", permission=AllowAny)
members = MCPServer("members")
connected = MCPServer("connected", auth=["oauth"])
signed = MCPServer("signed", auth=["jwt"])
writing = MCPServer("writing", permission=AllowAny)


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def list_rows(limit: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 10) -> list[dict[str, Any]]:
    """The first rows of the table."""
    return list(Row.objects.values(*Row.FIELDS)[:limit])


async def big(kb: Annotated[int, Field(ge=0, le=MAX_KIB)]) -> str:
    """Return a text of this size in KiB."""
    return "x" * (kb * 1024)


async def slow(ms: Annotated[int, Field(ge=0, le=MAX_MILLISECONDS)]) -> str:
    """Wait for this number of milliseconds without blocking other calls."""
    await asyncio.sleep(ms / 1000)
    return f"waited {ms} ms"


async def touch() -> str:
    """Notify subscribers that bench://touched changed."""
    server.notify_resource_updated(TOUCHED)
    return "touched"


def add_sync(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


async def list_rows_async(
    limit: Annotated[int, Field(ge=0, le=MAX_ROWS)] = 10,
) -> list[dict[str, Any]]:
    """The first rows of the table, read by an asynchronous function."""
    return [row async for row in Row.objects.values(*Row.FIELDS)[:limit]]


TOOLS: Sequence[Callable[..., Any]] = (add, list_rows, big, slow, touch)
VARIANTS: Sequence[Callable[..., Any]] = (add_sync, list_rows_async)


def filler(
    query: Annotated[str, "Words to look for"],
    status: Annotated[Literal["open", "closed", "any"], "Which of them"] = "any",
    limit: Annotated[int, Field(ge=1, le=100, description="How many at most")] = 20,
) -> str:
    """Look for something: as long a description and schema as tools of real sites have."""
    return f"{limit} of {status}: {query}"


def touched() -> str:
    """The resource that ``touch`` reports as changed."""
    return "touched"


def register_tools(to: MCPServer, *, tools: int) -> None:
    """Register the tools and the resource on a server."""
    variants = VARIANTS[: max(0, tools - len(TOOLS))]
    for function in (*TOOLS, *variants):
        # A tool that may write is recorded twice in the call log; other rows measure that.
        to.tool(read_only=True, enforce=function is not touch)(function)
    for number in range(tools - len(TOOLS) - len(variants)):
        to.tool(f"filler_{number:02d}", read_only=True)(filler)
    to.resource(TOUCHED)(touched)


def tools_wanted() -> int:
    """Return the number of tools in ``BENCH_TOOLS``.

    Raises:
        ImproperlyConfigured: the value is not a number.
    """
    given = os.environ.get("BENCH_TOOLS", "") or str(DEFAULT_TOOLS)
    if not given.isdecimal():
        raise ImproperlyConfigured(
            f"BENCH_TOOLS={given!r} is not a number; write a number of tools."
        )
    return int(given)


for each in (server, members, connected, signed):
    register_tools(each, tools=tools_wanted())
# The same functions without read_only=True, so they count as tools that may write.
for each_function in (add, add_sync):
    writing.tool(each_function)
