"""The measured tools, on a server for anonymous callers and on one for bearer tokens, and the URLs.

``BENCH_TOOLS`` is the number of tools of each of these servers: those of ``TOOLS``, and fillers for
the rest. A tool on the server ``writing`` may write, so it is recorded before and after it runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.urls import path
from pydantic import Field

from benchmarks.site import floor
from benchmarks.site.models import Row
from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

TOUCHED = "bench://touched"
DEFAULT_TOOLS = 50
MAX_ROWS = 1000
MAX_KIB = 10_240
MAX_MILLISECONDS = 60_000

server = MCPServer("bench", permission=AllowAny)
members = MCPServer("members")
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
    return "done"


async def touch() -> str:
    """Notify subscribers that bench://touched changed."""
    server.notify_resource_updated(TOUCHED)
    return "touched"


def add_sync(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


TOOLS: Sequence[Callable[..., Any]] = (add, add_sync, list_rows, big, slow, touch)


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
    for function in TOOLS:
        # A tool that may write is recorded twice in the call log; other rows measure that.
        to.tool(read_only=True, enforce=function is not touch)(function)
    for number in range(tools - len(TOOLS)):
        to.tool(f"filler_{number:02d}", read_only=True)(filler)
    to.resource(TOUCHED)(touched)


def tools_wanted() -> int:
    """Return the number of tools in ``BENCH_TOOLS``.

    Raises:
        ImproperlyConfigured: the value is not a number.
    """
    value = os.environ.get("BENCH_TOOLS", "") or str(DEFAULT_TOOLS)
    if not value.isdecimal():
        raise ImproperlyConfigured(
            f"BENCH_TOOLS={value!r} is not a number; write a number of tools."
        )
    return int(value)


for mcp_server in (server, members):
    register_tools(mcp_server, tools=tools_wanted())
writing.tool(add)

urlpatterns = [
    path("mcp", server.urls),
    path("members/mcp", members.urls),
    path("admin/", admin.site.urls),
    path("floor/add", floor.add),
    path("floor/add_sync", floor.add_sync),
    path("floor/rows", floor.rows),
]
