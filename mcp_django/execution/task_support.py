"""Support for tasks in calls: which tools run as tasks, which clients support them, who decides.

``mcp_django.tasks`` runs calls, so it imports this package and not the reverse. When the app is
ready, it passes its decisions about calls to this module, as functions (``TaskDecisions``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from mcp_django.components.catalog import Catalog, Server
from mcp_django.components.tool import Tool
from mcp_django.execution.call import Call, RetryParams, Step
from mcp_django.execution.policy import PermissionCache, is_open
from mcp_django.protocol.errors import TASKS, declares_extension


class TaskRequestParams(RetryParams, kw_only=True):
    """The parameter of 2025-11-25 that requests a task; raw until the tool is known."""

    task: msgspec.Raw = msgspec.Raw(b"null")


def has_task_tools(catalog: Catalog) -> bool:
    """Return whether any tool can run as a task, so that the ``tasks/…`` methods exist."""
    return any(tool.task for tool in catalog.tools.values())


def declares_tasks(call: Call) -> bool:
    """Return whether the revision has extensions and the request declares the tasks extension."""
    return call.revision.extensions and declares_extension(call.envelope.client_capabilities, TASKS)


def describe_task_support(tool: Tool) -> str:
    """Return ``taskSupport`` for 2025-11-25; with handles, a tool also works without tasks."""
    return "optional" if tool.polling_fallback else tool.task


def task_capability(server: Server) -> dict[str, Any]:
    """Return the ``tasks`` capability of 2025-11-25, empty if no tool runs as a task."""
    if not has_task_tools(server.catalog):
        return {}
    listing: dict[str, Any] = {} if is_open(server) else {"list": {}}
    return {"tasks": {**listing, "cancel": {}, "requests": {"tools": {"call": {}}}}}


class TaskDecisions(NamedTuple):
    """The functions of ``mcp_django.tasks`` that decide about calls."""

    admit: Callable[[Call, Iterable[Step]], None]
    """Decides whether a call becomes a task, and runs the remaining steps of its admission."""
    may_follow: Callable[[Call, str, PermissionCache], bool]
    """Decides whether the caller of a ``subscriptions/listen`` may be notified of a task."""


_decisions: TaskDecisions


def hand_in(decisions: TaskDecisions) -> None:
    """Set the functions that decide about tasks in this process; they never change."""
    global _decisions  # noqa: PLW0603 - set once, when the app is ready
    _decisions = decisions


def admit_task(call: Call, rest: Iterable[Step]) -> None:
    """Decide whether the call becomes a task, and run the remaining steps of its admission.

    Raises:
        MCPError: the tool runs only as a task, which the client did not request or does not
            support; the client requests a task from a tool without tasks; or the call is rejected,
            and its client accepts only a task or an error.
    """
    _decisions.admit(call, rest)


def may_follow_task(call: Call, task_id: str, permission_cache: PermissionCache) -> bool:
    """Return whether the caller of a ``subscriptions/listen`` may be notified of a task."""
    return _decisions.may_follow(call, task_id, permission_cache)
