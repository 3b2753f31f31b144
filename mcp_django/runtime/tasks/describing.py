"""A task's row in the richest wire shape; ``protocol/task_shapes.py`` cuts it to a revision."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.utils import timezone

from mcp_django.core.catalog import Server
from mcp_django.exceptions import InternalError, MCPError
from mcp_django.protocol import shapes
from mcp_django.protocol.content import Text
from mcp_django.protocol.envelope import MODEL_IMMEDIATE_RESPONSE, RELATED_TASK
from mcp_django.store import tasks

if TYPE_CHECKING:
    from mcp_django.models import Task
    from mcp_django.protocol.revisions import Revision

CANCELLED_MESSAGE = "The task was cancelled."


class TaskFailed(MCPError):
    """The JSON-RPC error that a task ended with, as its call would have met it."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], data=error.get("data"))
        self.code = error["code"]  # type: ignore[misc]  # the call's, not the class's


def task(row: Task) -> dict[str, Any]:
    """The task alone: its status, and for how long it is good."""
    described: dict[str, Any] = {"taskId": row.pk, "status": row.status}
    if row.status_message:
        described["statusMessage"] = row.status_message
    return {
        **described,
        "createdAt": _moment(row, row.created_at),
        "lastUpdatedAt": _moment(row, row.updated_at),
        "ttlMs": row.ttl_ms,
        "pollIntervalMs": row.poll_ms,
    }


def created(row: Task, *, text: str = "") -> dict[str, Any]:
    """The result of a call that became a task; ``text`` is for a model that is not to wait."""
    meta = {"_meta": {MODEL_IMMEDIATE_RESPONSE: text}} if text else {}
    # A worker may have been faster; whoever is told of a task finds that out by looking.
    return {"resultType": "task", **task(row), "status": tasks.WORKING, **meta}


def detailed(row: Task) -> dict[str, Any]:
    """The task with what belongs to its status: questions, result or error."""
    described = task(row)
    if row.status == tasks.INPUT_REQUIRED:
        described["inputRequests"] = row.questions
    elif row.status == tasks.COMPLETED:
        described["result"] = row.result or {}
    elif row.status == tasks.FAILED:
        described["error"] = row.error or {}
    return described


def outcome(row: Task, server: Server, revision: Revision) -> dict[str, Any]:
    """What the call of a task that is over would have been answered with, naming the task.

    Raises:
        MCPError: the call met an error, or was cancelled.
    """
    if row.status == tasks.CANCELLED:
        raise InternalError(row.status_message or CANCELLED_MESSAGE)
    if row.status == tasks.FAILED:
        raise TaskFailed(row.error or {"code": InternalError.code, "message": row.status_message})
    tool = server.offered.find_tool(row.tool)
    schema = tool.output.json_schema if tool is not None and tool.output is not None else None
    result = shapes.project_result(
        "tools/call", row.result or {}, revision, identity=None, output_schema=schema
    )
    return {**result, "_meta": {**result.get("_meta", {}), **related(row.pk)}}


def related(task_id: str) -> dict[str, Any]:
    """What every message about a task has in its ``_meta`` at 2025-11-25 (TKD-8)."""
    return {RELATED_TASK: {"taskId": task_id}}


def handle(row: Task) -> dict[str, Any]:
    """The result of a call that became a task, for a client that knows of none."""
    text = (
        f"{row.tool} has been started and goes on by itself. To get its result, call the tool "
        f"get_result with the handle {row.pk}."
    )
    structured = {"handle": row.pk, "status": tasks.WORKING}
    return {"content": [Text(text).to_wire()], "structuredContent": structured}


def _moment(row: Task, value: datetime) -> str:
    """A time of the database in ISO 8601, in UTC."""
    if timezone.is_naive(value):
        # A site without time zones has the time of its zone, except in SQLite.
        is_utc = connections[row._state.db or "default"].vendor == "sqlite"
        value = timezone.make_aware(value, UTC if is_utc else timezone.get_default_timezone())
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
