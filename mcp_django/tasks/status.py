"""The wire form of a task: its status and result, and the tool ``get_result``.

The form has the members of all revisions; ``protocol/projection.py`` reduces it to one revision. A
caller who may no longer call the tool of a task may not read its result either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from mcp_django.auth.principal import Principal
from mcp_django.components import declare
from mcp_django.components.catalog import Catalog, Server
from mcp_django.components.context import Context
from mcp_django.components.registry import Registrar
from mcp_django.exceptions import AlreadyRegistered, InternalError, MCPError, ToolError
from mcp_django.execution.policy import PermissionCache, authorize, is_visible
from mcp_django.protocol import projection
from mcp_django.protocol.content import Text, ToolResult
from mcp_django.protocol.envelope import MODEL_IMMEDIATE_RESPONSE, RELATED_TASK
from mcp_django.storage import task_rows
from mcp_django.storage.databases import run_in_db_thread
from mcp_django.tasks import worker

if TYPE_CHECKING:
    from mcp_django.models import Task
    from mcp_django.protocol.revisions import Revision

CANCELLED_MESSAGE = "The task was cancelled."


class TaskFailed(MCPError):
    """The JSON-RPC error with which the call of a task ended."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], data=error.get("data"))
        self.code = error["code"]  # type: ignore[misc]  # the call's, not the class's


def describe_task(row: Task) -> dict[str, Any]:
    """Return the status and the lifetime of a task, without its result."""
    described: dict[str, Any] = {"taskId": row.pk, "status": row.status}
    if row.status_message:
        described["statusMessage"] = row.status_message
    return {
        **described,
        "createdAt": _format_time(row, row.created_at),
        "lastUpdatedAt": _format_time(row, row.updated_at),
        "ttlMs": row.ttl_ms,
        "pollIntervalMs": row.poll_ms,
    }


def created_result(row: Task, *, text: str = "") -> dict[str, Any]:
    """Return the result of a call that became a task; ``text`` is the immediate model response."""
    meta = {"_meta": {MODEL_IMMEDIATE_RESPONSE: text}} if text else {}
    # The worker may already have finished; clients poll for the current status.
    return {"resultType": "task", **describe_task(row), "status": task_rows.WORKING, **meta}


def task_details(row: Task) -> dict[str, Any]:
    """Return a task with what belongs to its status: open questions, result or error."""
    described = describe_task(row)
    if row.status == task_rows.INPUT_REQUIRED:
        described["inputRequests"] = row.questions
    elif row.status == task_rows.COMPLETED:
        described["result"] = row.result or {}
    elif row.status == task_rows.FAILED:
        described["error"] = row.error or {}
    return described


def call_result(row: Task, server: Server, revision: Revision) -> dict[str, Any]:
    """Return the result of the call of an ended task, with the task's id in ``_meta``.

    Raises:
        MCPError: the call ended with an error or was cancelled.
    """
    if row.status == task_rows.CANCELLED:
        raise InternalError(row.status_message or CANCELLED_MESSAGE)
    if row.status == task_rows.FAILED:
        raise TaskFailed(row.error or {"code": InternalError.code, "message": row.status_message})
    tool = server.catalog.find_tool(row.tool)
    schema = tool.output.json_schema if tool is not None and tool.output is not None else None
    result = projection.project_result(
        "tools/call", row.result or {}, revision, identity=None, output_schema=schema
    )
    return {**result, "_meta": {**result.get("_meta", {}), **related_task_meta(row.pk)}}


def related_task_meta(task_id: str) -> dict[str, Any]:
    """Return the ``_meta`` of every 2025-11-25 message that relates to a task."""
    return {RELATED_TASK: {"taskId": task_id}}


def handle_result(row: Task) -> dict[str, Any]:
    """Return the result of a call that became a task, for a client without tasks."""
    text = (
        f"{row.tool} has been started and runs in the background. To get its result, call the tool "
        f"get_result with the handle {row.pk}."
    )
    structured = {"handle": row.pk, "status": task_rows.WORKING}
    return {"content": [Text(text).to_wire()], "structuredContent": structured}


def _format_time(row: Task, value: datetime) -> str:
    """Return a time from the database in ISO 8601, in UTC."""
    if timezone.is_naive(value):
        # With ``USE_TZ = False`` it is in the site's time zone, but on SQLite in UTC.
        is_utc = connections[row._state.db or "default"].vendor == "sqlite"
        value = timezone.make_aware(value, UTC if is_utc else timezone.get_default_timezone())
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def may_read_result(
    catalog: Catalog,
    principal: Principal,
    row: Task | None,
    *,
    permission_cache: PermissionCache | None = None,
) -> bool:
    """Return whether the caller may read the result of the task, which belongs to the caller.

    The caller must be allowed to use its tool, which must not be disabled. If the tool was
    removed from the code, its permissions are unknown and its results remain readable. A task
    that does not exist (``None``) takes as long as one that the caller may not read.

    Raises:
        AccessRefused: a credential with more scopes would be authorized.
    """
    tool = catalog.find_tool(row.tool) if row is not None else None
    may_use = authorize(
        principal, tool, siblings=catalog.tools.values(), permission_cache=permission_cache
    )
    if row is None or tool is not None:
        return may_use
    return (catalog.declared_catalog or catalog).find_tool(row.tool) is None


def unreadable_tools(catalog: Catalog, principal: Principal) -> list[str]:
    """Return the names of tools, including aliases, whose results the caller may not read."""
    return [
        name
        for tool in (catalog.declared_catalog or catalog).tools.values()
        if (current := catalog.tools.get(tool.name)) is None or not is_visible(principal, current)
        for name in (tool.name, *tool.aliases)
    ]


TOOL_NAME = "get_result"
# Hosts abandon a call after a minute or sooner.
WAIT_SECONDS = 10
POLL_SECONDS = 0.5


class _StoredResult(ToolResult):
    """A tool result that is stored in the row of its task."""

    _wire: Mapping[str, Any]

    def __init__(self, wire: Mapping[str, Any]) -> None:
        super().__init__(is_error=bool(wire.get("isError")))
        object.__setattr__(self, "_wire", wire)

    def to_wire(self) -> dict[str, Any]:
        """Return the stored result."""
        return dict(self._wire)


async def get_result(ctx: Context, handle: str) -> ToolResult:
    """Get the result of a call that runs in the background and returned a handle.

    Waits some seconds for the result. If the call is still working then, call this tool again.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        if worker.is_inline():
            # In this thread: other threads cannot see the data of the test's transaction.
            row = await sync_to_async(_readable_row)(ctx, handle)
        else:
            row = await run_in_db_thread(_readable_row, ctx, handle)
        if row.is_terminal:
            break
        if row.status == task_rows.INPUT_REQUIRED:
            raise ToolError(f"{row.tool} asks the user a question, which this client cannot show.")
        if time.monotonic() >= deadline:
            progress = f": {row.status_message}" if row.status_message else "."
            return ToolResult(
                f"Still working{progress}\nCall {TOOL_NAME} with the same handle again."
            )
        await asyncio.sleep(POLL_SECONDS)
    if row.status == task_rows.COMPLETED:
        return _StoredResult(row.result or {})
    raise ToolError(row.status_message or f"The call of {row.tool} was cancelled.")


def _readable_row(ctx: Context, handle: str) -> Task:
    row = task_rows.find_task(handle, server=ctx.server.name, principal_key=ctx.principal.key)
    is_readable = may_read_result(ctx.server.catalog, ctx.principal, row)
    if row is None or not is_readable:
        raise ToolError(
            "This handle does not exist or has expired; call the tool that returned it again."
        )
    return row


def register_get_result(server: Registrar) -> None:
    """Register the tool ``get_result`` on a server, unless it is registered.

    Raises:
        AlreadyRegistered: the site has another tool of this name.
    """
    tool = server.registry.tools.get(TOOL_NAME)
    if tool is None:
        server.add(declare.build_tool(get_result, {"title": "Get a result", "read_only": True}))
    elif tool.callable is not get_result:
        raise AlreadyRegistered(
            f"A tool with polling_fallback=True reserves the name {TOOL_NAME!r} for the tool "
            "that returns results "
            f"by handle; give the tool from {tool.origin} another name."
        )
