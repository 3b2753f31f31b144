"""The ``tasks/…`` methods: status, result, cancellation and list of the caller's tasks.

2026-07-28 defines these methods in the extension ``io.modelcontextprotocol/tasks``, 2025-11-25 as
a capability; both use the same tasks.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from django.db.models import Q, QuerySet, Subquery

from mcp_django.auth.authentication import reload_user
from mcp_django.exceptions import (
    AccessRefused,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
)
from mcp_django.execution.call import Call, TaskWait
from mcp_django.execution.handlers.listing import open_list, with_next_cursor
from mcp_django.execution.interaction import NEEDS_STREAM, decode_answer
from mcp_django.execution.pipeline import HANDLERS
from mcp_django.execution.policy import PermissionCache, is_open
from mcp_django.execution.task_support import (
    TaskDecisions,
    declares_tasks,
    hand_in,
    has_task_tools,
)
from mcp_django.process import at_fork
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.text import clip
from mcp_django.storage import task_rows
from mcp_django.tasks import status
from mcp_django.tasks.admission import admit_task, enqueue
from mcp_django.tasks.status import may_read_result, unreadable_tools
from mcp_django.tenants import by_tenant

if TYPE_CHECKING:
    from mcp_django.models import Task

# The maximum number of tasks on a page: each has its result, which shows whether its tool failed.
MAX_LISTED = 20
# How long a request without a stream waits in its thread for the end of a task.
WAIT_SECONDS = 10
POLL_SECONDS = 0.1
# How many such requests of a process wait at a time, so that threads remain for tools: at most one
# of each user, and one of all anonymous callers together.
MAX_WAITING = 2
# The users whose requests wait, by key. A forked process begins with none.
_waiting: set[str] = set()
_waiting_lock = threading.Lock()


@at_fork
def _reset_after_fork() -> None:
    global _waiting_lock  # noqa: PLW0603 - a copied lock may be locked
    _waiting.clear()
    _waiting_lock = threading.Lock()


class TaskParams(msgspec.Struct, rename="camel"):
    """Parameters of the methods for one task."""

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of ``tasks/update``; answers stay raw until a question for them is found."""

    input_responses: dict[str, msgspec.Raw]


def get_task(call: Call) -> dict[str, Any]:
    """Return the current status of a task."""
    return status.task_details(_usable_task(call))


def cancel_task(call: Call) -> dict[str, Any]:
    """Cancel a task: the row immediately, its function when it next checks.

    Raises:
        InvalidParams: the task does not exist, or, for 2025-11-25, it has already ended.
    """
    # The caller need not be able to use the tool of the task any more.
    task_id = _requested_task_id(call)
    row = _task_of_caller(call, task_id)
    if row is None:
        raise _no_task(task_id)
    if not task_rows.cancel_task(row) and call.revision.tasks:
        raise InvalidParams(f"The task is {row.status} already; there is nothing to cancel.")
    return status.task_details(row)


def update_task(call: Call) -> dict[str, Any]:
    """Store the client's answers to the task's questions; other answers are ignored."""
    row = _usable_task(call)
    responses = read_params(call.request.params, UpdateParams).input_responses
    answers = {
        key: decode_answer(key, raw) for key, raw in responses.items() if key in row.questions
    }
    store_answers(row, answers)
    return {}


def store_answers(row: Task, answers: dict[str, Any]) -> None:
    """Store answers by the keys of their questions, and enqueue the task once all are there.

    For a thread: uses the database.

    Raises:
        InternalError: the task backend did not accept the task, which has failed.
    """
    if task_rows.store_responses(row, answers):
        enqueue(row)


def list_tasks(call: Call) -> dict[str, Any]:
    """Return one page of the caller's tasks, newest first.

    Raises:
        MethodNotFound: the server is open to all callers, so tasks cannot be told apart by caller.
    """
    _check_support(call)
    # Only an identified caller has tasks of its own.
    if is_open(call.server) or not call.principal.is_authenticated:
        raise MethodNotFound("This server does not list tasks, since it is open to all callers.")
    principal = call.principal
    hidden = unreadable_tools(call.server.catalog, principal)
    # So that the list agrees with tasks/get.
    task_rows.close_expired()
    queryset = task_rows.tasks_of_principal(call.server.name, principal.key).exclude(
        tool__in=hidden
    )
    pager, after = open_list(call)
    pager = replace(pager, size=min(pager.size, MAX_LISTED))
    if after is not None:
        queryset = _older_than(queryset, *after)
    rows, cursor = pager.page([*queryset[: pager.size + 1]], lambda row: row.pk)
    return with_next_cursor({"tasks": [status.task_details(row) for row in rows]}, cursor)


def _older_than(queryset: QuerySet[Task], last: str) -> QuerySet[Task]:
    """Return the tasks that are older than the task with the id ``last``.

    Raises:
        InvalidParams: the task ``last`` no longer exists.
    """
    if not queryset.filter(pk=last).exists():
        raise InvalidParams("The cursor has expired; start again without one.")
    # Compare in the database, which may store times with less precision than Python.
    at = Subquery(queryset.order_by().filter(pk=last).values("created_at")[:1])
    return queryset.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=last))


def task_result(call: Call) -> dict[str, Any] | TaskWait:
    """Return the result of the task's call, or a wait for it.

    Raises:
        MCPError: the call ended with this error.
        InvalidRequest: the request has no stream, and the task has not ended: after
            ``WAIT_SECONDS``, or immediately if another request of the user, or ``MAX_WAITING``
            requests in total, already wait.
    """
    row = _usable_task(call)
    if row.is_terminal:
        return task_outcome(call, row)
    if call.can_ask:
        return TaskWait(row.pk)
    user_key = by_tenant(call.principal.user_key)
    with _waiting_lock:
        may_wait = len(_waiting) < MAX_WAITING and user_key not in _waiting
        if may_wait:
            _waiting.add(user_key)
    if may_wait:
        try:
            row = wait_for_task(call)
        finally:
            with _waiting_lock:
                _waiting.discard(user_key)
    return task_outcome(call, row)


def wait_for_task(call: Call) -> Task:
    """Wait at most ``WAIT_SECONDS`` until the request's task stops working, and return it.

    For a thread that may block.
    """
    until = time.monotonic() + WAIT_SECONDS
    row = _usable_task(call)
    while row.status == task_rows.WORKING and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        row = _usable_task(call)
    return row


def task_outcome(call: Call, row: Task) -> dict[str, Any]:
    """Return the result of the task's call.

    Raises:
        MCPError: the call ended with this error.
        InvalidRequest: the task has not ended.
    """
    if row.status == task_rows.INPUT_REQUIRED:
        raise InvalidRequest(f"The task waits for answers; {NEEDS_STREAM}")
    if not row.is_terminal:
        raise InvalidRequest(
            "The task is still working; check its status with tasks/get, and try again."
        )
    return status.call_result(row, call.server, call.revision)


# The caller's tasks -------------------------------------------------------------------------------


def readable_task(
    call: Call,
    task_id: str,
    *,
    permission_cache: PermissionCache | None = None,
) -> Task | None:
    """Return the caller's task of this id, if the caller may still use its tool."""
    row = _task_of_caller(call, task_id)
    try:
        is_readable = may_read_result(
            call.server.catalog,
            call.principal,
            row,
            permission_cache=permission_cache,
        )
    except AccessRefused:
        return None
    return row if is_readable else None


def readable_task_after_wait(call: Call, task_id: str) -> Task | None:
    """Return ``readable_task`` after a wait, with the user's current permissions."""
    row = readable_task(call, task_id)
    if row is None or row.status == task_rows.WORKING:
        return row
    principal = reload_user(call.principal)
    if principal is None:
        return None
    return readable_task(replace(call, principal=principal), task_id)


def _check_support(call: Call) -> None:
    """Check that both the client and the server support tasks.

    Raises:
        MissingCapability: the request does not declare the extension.
        MethodNotFound: no tool runs as a task.
    """
    if call.revision.extensions and not declares_tasks(call):
        raise MissingCapability(
            f"{call.request.method} needs a client with {TASKS}.",
            data={"requiredCapabilities": extension_declaration(TASKS)},
        )
    if not has_task_tools(call.server.catalog):
        raise MethodNotFound("No tool of this server runs as a task.")


def _usable_task(call: Call) -> Task:
    """Return the task that the request names, if the caller may still use its tool.

    Raises:
        InvalidParams: the task does not exist, or the caller may not use its tool.
        InsufficientScope: the user may use it, but the credential lacks a scope.
    """
    task_id = _requested_task_id(call)
    row = _task_of_caller(call, task_id)
    is_readable = may_read_result(call.server.catalog, call.principal, row)
    if row is None or not is_readable:
        raise _no_task(task_id)
    return row


def _requested_task_id(call: Call) -> str:
    _check_support(call)
    return read_params(call.request.params, TaskParams).task_id


def _task_of_caller(call: Call, task_id: str) -> Task | None:
    """Return the task of this id, if it is the caller's."""
    # Not valid in an id, and PostgreSQL rejects it in queries.
    if "\0" in task_id:
        return None
    return task_rows.find_task(task_id, server=call.server.name, principal_key=call.principal.key)


def _no_task(task_id: str) -> InvalidParams:
    return InvalidParams(f"No task {clip(task_id)!r} found among your tasks; it may have expired.")


def connect() -> None:
    """Register the handlers of the methods, and the decisions about tasks in calls and streams."""
    HANDLERS.update(
        {
            "tasks/get": get_task,
            "tasks/update": update_task,
            "tasks/cancel": cancel_task,
            "tasks/result": task_result,
            "tasks/list": list_tasks,
        }
    )
    hand_in(
        TaskDecisions(
            admit=admit_task,
            may_follow=lambda call, task_id, permission_cache: (
                readable_task(call, task_id, permission_cache=permission_cache) is not None
            ),
        )
    )
