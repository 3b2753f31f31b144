"""``tasks/…``: the calls that go on by themselves, for whoever made them.

2026-07-28 has these methods in the extension ``io.modelcontextprotocol/tasks``, 2025-11-25 as a
capability; a task is one and the same for both.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from django.db.models import Q, QuerySet, Subquery

from mcp_django.auth.authentication import with_user_anew
from mcp_django.core.catalog import Server
from mcp_django.exceptions import (
    AccessRefused,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
)
from mcp_django.execution import task_status
from mcp_django.execution.call import CURSORS, Awaiting, Incoming, read_response
from mcp_django.execution.handlers.listing import ListParams, scope_of
from mcp_django.execution.interaction import NO_STREAM
from mcp_django.execution.policy import Verdicts, is_open
from mcp_django.execution.task_plan import enqueue, knows_tasks, offers_tasks
from mcp_django.execution.task_status import may_read, unreadable
from mcp_django.protocol.cursors import decode_cursor, encode_cursor
from mcp_django.protocol.errors import TASKS, clip, required_extension
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.storage import task_rows

if TYPE_CHECKING:
    from mcp_django.models import Task

# Each comes with its result, which tells whether its tool failed.
MAX_LISTED = 20
# How long a request that has no stream waits for the end of a task, in its thread.
WAIT_SECONDS = 10
LOOK_SECONDS = 0.1
# How many of them wait in a process at a time, so that the threads of its tools are left to those.
MAX_WAITING = 2
_waiting = threading.BoundedSemaphore(MAX_WAITING)


class TaskParams(msgspec.Struct, rename="camel"):
    """Parameters of the methods that name a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of ``tasks/update``; answers stay raw until they are known to be asked for."""

    input_responses: dict[str, msgspec.Raw]


def task_capability(server: Server) -> dict[str, Any]:
    """The capability of a revision that has tasks without an extension; often none (TKD-1)."""
    if not offers_tasks(server.offered):
        return {}
    listing: dict[str, Any] = {} if is_open(server) else {"list": {}}
    return {"tasks": {**listing, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def get_task(incoming: Incoming) -> dict[str, Any]:
    """The task as it is now (TKE-5)."""
    return task_status.detailed(_found(incoming))


def cancel_task(incoming: Incoming) -> dict[str, Any]:
    """Cancel a task: the row at once, its function as soon as it looks (TKD-7, TKE-8).

    Raises:
        InvalidParams: there is no such task, or, for 2025-11-25, it is over already.
    """
    row = _own(incoming)
    if not task_rows.cancel(row) and incoming.revision.tasks:
        raise InvalidParams(f"The task is {row.status} already; there is nothing to cancel.")
    return task_status.detailed(row)


def update_task(incoming: Incoming) -> dict[str, Any]:
    """Take answers to what the task asks; others are ignored (TKE-7)."""
    row = _found(incoming)
    given = read_params(incoming.request.params, UpdateParams).input_responses
    wanted = {key: read_response(key, raw) for key, raw in given.items() if key in row.questions}
    take_answers(row, wanted)
    return {}


def take_answers(row: Task, answers: dict[str, Any]) -> None:
    """Keep answers by the keys of their questions, and go on once all are there; for a thread.

    Raises:
        InternalError: the backend that runs tasks does not take it; it was closed.
    """
    if task_rows.answer(row, answers):
        enqueue(row)


def list_tasks(incoming: Incoming) -> dict[str, Any]:
    """One page of the caller's tasks, newest first.

    Raises:
        MethodNotFound: on a server that lets in everybody, nobody could tell whose they are.
    """
    _check(incoming)
    if not _lists_tasks(incoming):
        raise MethodNotFound("This server does not list tasks, since it lets in everybody.")
    cursor = read_params(incoming.request.params, ListParams).cursor
    principal = incoming.principal
    hidden = unreadable(incoming.server.offered, principal)
    # So that a list says of each what a look at it says.
    task_rows.close_late()
    found = task_rows.of_principal(incoming.server.name, principal.key).exclude(tool__in=hidden)
    scope, size = scope_of(incoming), min(incoming.server.page_size, MAX_LISTED)
    if cursor is not None:
        (last,) = decode_cursor(cursor, scope=scope, signer=CURSORS)
        found = _behind(found, last)
    page = [*found[: size + 1]]
    result: dict[str, Any] = {"tasks": [task_status.detailed(row) for row in page[:size]]}
    if len(page) > size:
        result["nextCursor"] = encode_cursor([page[size - 1].pk], scope=scope, signer=CURSORS)
    return result


def _behind(found: QuerySet[Task], last: str) -> QuerySet[Task]:
    """Those that are older than one of them.

    Raises:
        InvalidParams: that one is not there any more.
    """
    if not found.filter(pk=last).exists():
        raise InvalidParams("The cursor is not good any more; begin again without one.")
    # Compared by the database, which may keep fewer digits of a time than are read of it.
    at = Subquery(found.order_by().filter(pk=last).values("created_at")[:1])
    return found.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=last))


def _lists_tasks(incoming: Incoming) -> bool:
    """Whether tasks can be told apart by their callers, so that they can be listed (TKD-9)."""
    return not is_open(incoming.server) and incoming.principal.is_authenticated


def task_result(incoming: Incoming) -> dict[str, Any] | Awaiting:
    """What the call would have been answered with, or that it has to be waited for (TKD-4).

    Raises:
        MCPError: that is what it would have been answered with.
        InvalidRequest: there is no stream, and it is not over in ``WAIT_SECONDS``, or now where
            ``MAX_WAITING`` others wait.
    """
    row = _found(incoming)
    if not row.is_terminal and incoming.can_ask:
        return Awaiting(incoming=incoming, task_id=row.pk)
    if not row.is_terminal and _waiting.acquire(blocking=False):
        try:
            row = wait_for(incoming)
        finally:
            _waiting.release()
    return outcome_of(incoming, row)


def wait_for(incoming: Incoming) -> Task:
    """The task that a request names, once it does not work; for a thread that may wait.

    It still works after ``WAIT_SECONDS``.
    """
    until = time.monotonic() + WAIT_SECONDS
    row = _found(incoming)
    while row.status == task_rows.WORKING and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        row = _found(incoming)
    return row


def outcome_of(incoming: Incoming, row: Task) -> dict[str, Any]:
    """What the call would have been answered with.

    Raises:
        MCPError: that is what it would have been answered with.
        InvalidRequest: it is not over.
    """
    if not row.is_terminal:
        raise InvalidRequest(_still(row))
    return task_status.outcome(row, incoming.server, incoming.revision)


def _still(row: Task) -> str:
    if row.status == task_rows.INPUT_REQUIRED:
        return f"The task waits for answers; {NO_STREAM}"
    return "The task is still working; look at it with tasks/get, and come again."


# Whose it is --------------------------------------------------------------------------------------


def readable_task(
    incoming: Incoming, task_id: str, *, verdicts: Verdicts | None = None
) -> Task | None:
    """``_task_of_caller``, of a tool that the caller may still use."""
    row = _task_of_caller(incoming, task_id)
    try:
        is_readable = may_read(incoming.server.offered, incoming.principal, row, verdicts=verdicts)
    except AccessRefused:
        return None
    return row if is_readable else None


def readable_now(incoming: Incoming, task_id: str) -> Task | None:
    """``readable_task`` after a wait, in which the caller may have lost what the tool needs."""
    row = readable_task(incoming, task_id)
    if row is None or row.status == task_rows.WORKING:
        return row
    principal = with_user_anew(incoming.principal)
    if principal is None:
        return None
    return readable_task(replace(incoming, principal=principal), task_id)


def _check(incoming: Incoming) -> None:
    """Refuse a client that has no tasks, or a server that has none.

    Raises:
        MissingCapability: the request does not declare the extension (TKE-9).
        MethodNotFound: no tool runs as a task.
    """
    if incoming.revision.extensions and not knows_tasks(incoming):
        raise MissingCapability(
            f"{incoming.request.method} needs a client with {TASKS}.",
            data={"requiredCapabilities": required_extension(TASKS)},
        )
    if not offers_tasks(incoming.server.offered):
        raise MethodNotFound("No tool of this server runs as a task.")


def _own(incoming: Incoming) -> Task:
    """The task that the request names, if it is the caller's.

    Raises:
        InvalidParams: it is not, or there is none.
    """
    task_id = _asked_for(incoming)
    row = _task_of_caller(incoming, task_id)
    if row is None:
        raise _no_task(task_id)
    return row


def _found(incoming: Incoming) -> Task:
    """``_own``, if the caller may still use its tool.

    Raises:
        InsufficientScope: the caller may, this credential may not.
    """
    task_id = _asked_for(incoming)
    row = _task_of_caller(incoming, task_id)
    is_readable = may_read(incoming.server.offered, incoming.principal, row)
    if row is None or not is_readable:
        raise _no_task(task_id)
    return row


def _asked_for(incoming: Incoming) -> str:
    _check(incoming)
    return read_params(incoming.request.params, TaskParams).task_id


def _task_of_caller(incoming: Incoming, task_id: str) -> Task | None:
    """The task of this id, if it is the caller's."""
    # No id has that character, and PostgreSQL does not look for it.
    if "\0" in task_id:
        return None
    return task_rows.find(
        task_id, server=incoming.server.name, principal_key=incoming.principal.key
    )


def _no_task(task_id: str) -> InvalidParams:
    return InvalidParams(f"No task {clip(task_id)!r} of yours; it may have expired.")
