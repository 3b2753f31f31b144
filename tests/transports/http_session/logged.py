"""A server whose calls are logged, in a process that dies on demand.

`MCP_TEST_KILLED` is `first` or `last`: the process dies before that row of a call is written.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.urls import path

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.storage.call_rows import CALL_ROWS, CallRow

PATIENCE_SECONDS = 60

server = MCPServer("logged", permission=AllowAny)
urlpatterns = [path("mcp", server.urls)]


@server.tool
def write(name: str) -> str:
    """Add a group."""
    Group.objects.create(name=name)
    return name


@server.tool
async def write_nothing(name: str) -> str:
    """Write nothing, on the event loop."""
    return name


@server.tool
def die(name: str) -> str:
    """Add a group, and end the process as the kernel does when memory is short."""
    Group.objects.create(name=name)
    os.kill(os.getpid(), signal.SIGKILL)
    return name


@server.tool
def hold(gate: str) -> str:
    """Keep a connection in a transaction until a file exists."""
    never = threading.Event()
    with transaction.atomic():
        Group.objects.count()
        for _ in range(100 * PATIENCE_SECONDS):
            if Path(gate).exists():
                break
            never.wait(0.01)
    return gate


@server.tool(read_only=True)
async def waits() -> int:
    """Return how often somebody had to wait for a connection of the pool."""
    pool: Any = connection.pool
    return int(pool.get_stats().get("requests_queued", 0))


def die_before(*, is_end: bool) -> None:
    """End the process before it writes the first row of a call, or its last one."""
    write_rows = CALL_ROWS.write

    def die_or_write(rows: Sequence[CallRow], *, again: bool) -> Sequence[None]:
        if any(row.is_end is is_end for row in rows):
            os.kill(os.getpid(), signal.SIGKILL)
        return write_rows(rows, again=again)

    CALL_ROWS.write = die_or_write


if moment := os.environ.get("MCP_TEST_KILLED"):
    die_before(is_end=moment == "last")
