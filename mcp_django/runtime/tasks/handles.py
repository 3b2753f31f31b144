"""``get_result``: how clients that know nothing of tasks come by the result of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from mcp_django.core import declare
from mcp_django.core.catalog import Collection
from mcp_django.core.context import Context
from mcp_django.exceptions import AlreadyRegistered, ToolError
from mcp_django.protocol.content import ToolResult
from mcp_django.runtime.tasks import engine
from mcp_django.runtime.tasks.reading import may_read
from mcp_django.store import tasks
from mcp_django.store.clerk import in_thread

if TYPE_CHECKING:
    from mcp_django.models import Task

NAME = "get_result"
# Hosts give a call up after a minute, or sooner.
WAIT_SECONDS = 10
LOOK_SECONDS = 0.5


class Stored(ToolResult):
    """What a tool has answered, as it is in the row of its task."""

    _wire: Mapping[str, Any]

    def __init__(self, wire: Mapping[str, Any]) -> None:
        super().__init__(is_error=bool(wire.get("isError")))
        object.__setattr__(self, "_wire", wire)

    def to_wire(self) -> dict[str, Any]:
        """The result, as the tool gave it."""
        return dict(self._wire)


async def get_result(ctx: Context, handle: str) -> ToolResult:
    """Get the result of a call that goes on by itself and has given a handle.

    It waits some seconds for the result. If there is none by then it says so; call it again.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not (row := await _look(ctx, handle)).is_terminal:
        if row.status == tasks.INPUT_REQUIRED:
            raise ToolError(f"{row.tool} asks its user something, which has no way to them here.")
        if time.monotonic() >= deadline:
            said = f": {row.status_message}" if row.status_message else "."
            return ToolResult(f"Still working{said}\nCall {NAME} with the same handle again.")
        await asyncio.sleep(LOOK_SECONDS)
    if row.status == tasks.COMPLETED:
        return Stored(row.result or {})
    raise ToolError(row.status_message or f"The call of {row.tool} was cancelled.")


async def _look(ctx: Context, handle: str) -> Task:
    if engine.is_here():
        # In the transaction of the test, which no other thread can look into.
        return await sync_to_async(_row)(ctx, handle)
    return await in_thread(_row, ctx, handle)


def _row(ctx: Context, handle: str) -> Task:
    row = tasks.find(handle, server=ctx.server.name, principal_key=ctx.principal.key)
    is_readable = may_read(ctx.server.offered, ctx.principal, row)
    if row is None or not is_readable:
        raise ToolError(
            "There is no such handle, or its time is over; call the tool that gave it again."
        )
    return row


def offer(collection: Collection) -> None:
    """Have the tool on a server, once.

    Raises:
        AlreadyRegistered: the site has another tool of this name.
    """
    known = collection.tools.get(NAME)
    if known is None:
        collection.add(declare.tool(get_result, {"title": "Get a result", "read_only": True}))
    elif known.callable is not get_result:
        raise AlreadyRegistered(
            f"A tool with handle=True needs the name {NAME!r} for the tool that answers handles; "
            f"give the one from {known.origin} another name."
        )
