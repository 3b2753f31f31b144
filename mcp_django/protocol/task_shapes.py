"""Tasks as each revision writes them.

Built as the extension `io.modelcontextprotocol/tasks` of 2026-07-28 has them: flat, durations with
their unit, and with what came of them. 2025-11-25 nests a new task, calls durations otherwise,
fetches results by a method of its own, and fails the task of a tool that says it failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_django.protocol.errors import clip, code_in
from mcp_django.protocol.revisions import Revision

Wire = Mapping[str, Any]

_OLDER_MEMBERS = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt")
_OLDER_NAMES = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}
ACKNOWLEDGED = frozenset({"tasks/update", "tasks/cancel"})
"""Methods that the extension answers with nothing."""

ONE_TASK = frozenset({"tasks/get", "tasks/cancel"})
"""Methods that 2025-11-25 answers with a task."""


def newer_task(task: Wire, revision: Revision) -> dict[str, Any]:
    """Return a task with its outcome inlined as the result, or the error, of a call."""
    projected = dict(task)
    if "result" in task:
        projected["result"] = {"resultType": "complete", **task["result"]}
    if "code" in task.get("error", {}):
        error = task["error"]
        projected["error"] = {**error, "code": code_in(revision, error["code"])}
    return projected


def older_task(task: Wire) -> dict[str, Any]:
    """Return the task alone, as 2025-11-25 has it."""
    projected = {name: task[name] for name in _OLDER_MEMBERS if name in task}
    projected |= {older: task[name] for name, older in _OLDER_NAMES.items() if name in task}
    result = task.get("result")
    if task["status"] == "completed" and result is not None and result.get("isError"):
        projected["status"] = "failed"
        projected["statusMessage"] = _first_text(result) or "The tool reported an error."
    return projected


def _first_text(result: Wire) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block["type"] == "text")
    return clip(next(texts, ""), limit=500)


def created_task(result: Wire) -> dict[str, Any]:
    """Return the answer that announces a task, which 2025-11-25 nests."""
    meta = {"_meta": result["_meta"]} if "_meta" in result else {}
    return {"task": older_task(result), **meta}
