"""Calls that run as tasks: which calls, when the task starts, and what the client gets.

In revision 2026-07-28 the server decides, for clients that declare the tasks extension in the same
request; in 2025-11-25 the client requests a task for each call; earlier revisions have no tasks.

The row of a task is written and committed first. Then ``execution.task_worker`` enqueues it on the
site's task backend, where ``execution.task_job`` runs it, or runs it in a thread of this process
if no backend is configured. If the task is not accepted, its row is marked as failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import msgspec

from mcp_django.auth.limits import anonymous_network
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Catalog
from mcp_django.core.context import CurrentTask
from mcp_django.core.tool import Tool
from mcp_django.exceptions import (
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RateLimited,
    TooManyRequests,
)
from mcp_django.execution import task_runs, task_status, task_worker
from mcp_django.execution.call import PreparedCall, RequestContext
from mcp_django.execution.interaction import Interaction
from mcp_django.protocol.envelope import trim_capabilities, trim_client_info
from mcp_django.protocol.errors import TASKS, declares_extension, extension_declaration
from mcp_django.storage import task_rows

if TYPE_CHECKING:
    from mcp_django.models import Task

# Whether a call becomes a task --------------------------------------------------------------------

TaskMode: TypeAlias = Literal["", "task", "handle"]
"""Answer a call with its result, with a task, or with a handle for the tool ``get_result``."""


def has_task_tools(catalog: Catalog) -> bool:
    """Return whether any tool can run as a task, so that the ``tasks/…`` methods exist."""
    return any(tool.task for tool in catalog.tools.values())


def declares_tasks(request_context: RequestContext) -> bool:
    """Return whether the revision has extensions and the request declares the tasks extension."""
    return request_context.revision.extensions and declares_extension(
        request_context.envelope.client_capabilities, TASKS
    )


def _task_mode(request_context: RequestContext, tool: Tool, *, is_requested: bool) -> TaskMode:
    """Return whether a call is answered with its result, a task or a handle.

    Raises:
        MethodNotFound: 2025-11-25, and the client requests a task from a tool without tasks, or no
            task from one that requires it.
        MissingCapability: the tool runs only as a task, and the client does not support tasks.
    """
    if not tool.task:
        if is_requested and has_task_tools(request_context.server.catalog):
            raise MethodNotFound(
                f"The tool {tool.name!r} does not run as a task; omit params.task."
            )
        return ""
    if is_requested or declares_tasks(request_context):
        return "task"
    if tool.polling_fallback:
        return "handle"
    if tool.task == "optional":
        return ""
    if request_context.revision.tasks:
        raise MethodNotFound(f"The tool {tool.name!r} runs only as a task; send params.task.")
    raise MissingCapability(
        f"The tool {tool.name!r} runs only as a task; the client must declare {TASKS}.",
        data={"requiredCapabilities": extension_declaration(TASKS)},
    )


def task_support(tool: Tool) -> str:
    """Return ``taskSupport`` for 2025-11-25; with handles, a tool also works without tasks."""
    return "optional" if tool.polling_fallback else tool.task


# How a call becomes a task ------------------------------------------------------------------------


class _TaskRequest(msgspec.Struct):
    """The ``params.task`` object of 2025-11-25; ``ttl`` is in milliseconds."""

    ttl: int | float | None = None


class DeferredTask(CurrentTask):
    """``ctx.task`` of a call that becomes a task when its function calls ``begin``."""

    def __init__(self, interaction: Interaction) -> None:
        self._interaction = interaction

    def begin(self) -> None:
        """Leave the function, which runs again as a task.

        Raises:
            InputRequired: always.
        """
        self._interaction.start_task()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """How a call becomes a task: as one that the client sees, or as a handle."""

    request_context: RequestContext
    tool: Tool
    mode: TaskMode
    ttl: timedelta | None = None

    @property
    def is_requested(self) -> bool:
        """Whether the client requested a task, so that it accepts only a task or an error."""
        return self.mode == "task" and self.request_context.revision.tasks

    def prepare(
        self, prepare_call: Callable[[], PreparedCall | dict[str, Any]], raw: bytes
    ) -> PreparedCall | dict[str, Any]:
        """Return the prepared call, which becomes a task before or while its function runs.

        Raises:
            MCPError: the call is rejected, and its client accepts only a task or an error.
        """
        if not self.is_requested:
            call = prepare_call()
            return call if isinstance(call, dict) else self._as_task_call(call, raw)
        try:
            call = prepare_call()
        except TooManyRequests as exc:
            # Another class, so that ``THROTTLE_AS`` does not make it a result.
            raise RateLimited(exc.message, data=exc.data) from None
        if isinstance(call, dict):
            raise InvalidParams(_result_text(call))
        call = self._as_task_call(call, raw)
        return replace(call, must_become_task=True, to_error=partial(_raise_error, call.to_error))

    def _as_task_call(self, call: PreparedCall, raw: bytes) -> PreparedCall:
        assert call.interaction is not None
        return replace(
            call,
            task=DeferredTask(call.interaction),
            task_factory=partial(self._create_task, raw),
            start_as_task=self.tool.ask == "during",
        )

    def _create_task(self, raw: bytes, state: bytes) -> dict[str, Any]:
        row = _create_task(
            self.request_context,
            self.tool,
            raw,
            state=state,
            ttl=self.ttl,
            by_handle=self.mode == "handle",
        )
        if self.mode == "handle":
            return task_status.handle_result(row)
        text = f"{self.tool.name} runs in the background; its result follows later."
        return task_status.created_result(row, text=text if self.is_requested else "")


def _raise_error(to_error: Callable[[Exception], dict[str, Any]], exc: Exception) -> NoReturn:
    """Raise a tool's error result as a JSON-RPC error, for a client that requested a task."""
    raise InternalError(_result_text(to_error(exc))) from exc


def _result_text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


def plan_task(
    request_context: RequestContext, tool: Tool, task_param: msgspec.Raw
) -> TaskPlan | None:
    """Return how this call becomes a task, ``None`` if it does not.

    ``task_param`` is ``params.task`` of the request, which is used only in 2025-11-25.

    Raises:
        MCPError: the tool runs only as a task, which the client did not request or does not
            support, or the client requests a task from a tool without tasks.
    """
    is_requested = request_context.revision.tasks and bytes(task_param) != b"null"
    mode = _task_mode(request_context, tool, is_requested=is_requested)
    if not mode:
        return None
    ttl = _requested_ttl(task_param) if is_requested else None
    return TaskPlan(request_context=request_context, tool=tool, mode=mode, ttl=ttl)


def _requested_ttl(task_param: msgspec.Raw) -> timedelta | None:
    """Return the requested lifetime; ``_allowed_ttl`` limits it."""
    try:
        ttl = msgspec.json.decode(task_param, type=_TaskRequest).ttl
        if ttl is not None and ttl <= 0:
            raise InvalidParams("params.task.ttl must be greater than 0 (milliseconds).")
        return None if ttl is None else timedelta(milliseconds=ttl)
    except msgspec.MsgspecError:
        raise InvalidParams(
            "params.task must be an object, and its ttl a number (milliseconds)."
        ) from None
    except OverflowError:
        # The maximum applies.
        return timedelta.max


# Creating a task ----------------------------------------------------------------------------------


def _create_task(
    request_context: RequestContext,
    tool: Tool,
    raw: bytes,
    *,
    state: bytes = b"",
    ttl: timedelta | None = None,
    by_handle: bool = False,
) -> Task:
    """Create the row of a task and enqueue it. Uses the database.

    ``raw`` is the JSON of the arguments, ``state`` the encoded state of the interaction, ``ttl``
    the lifetime that the client requests. With ``by_handle`` the client cannot answer questions
    later.

    Raises:
        TooManyTasks: the caller has too many unfinished tasks, or the arguments of the caller's
            tasks are too long in total.
        InvalidParams: the client's capabilities are too long to store.
        InternalError: the task was not accepted, and its row is marked as failed.
    """
    settings, envelope = get_settings(), request_context.envelope
    row = task_rows.create_task(
        server=request_context.server.name,
        tool=tool.name,
        arguments=raw,
        principal=request_context.principal,
        user=task_runs.user_row(request_context.principal),
        network=anonymous_network(request_context.principal, request_context.http_request),
        capabilities=trim_capabilities(envelope.client_capabilities),
        client_info=trim_client_info(envelope.client_info or {}),
        trace=envelope.trace,
        protocol_version=request_context.revision.version,
        state=state.decode(),
        ttl=_allowed_ttl(tool, ttl),
        poll=timedelta(seconds=settings.task_poll_seconds),
        session_pk=getattr(getattr(request_context.session, "row", None), "pk", None),
        engine=settings.task_backend,
        caller={
            **task_runs.caller_details(request_context),
            "by_handle": by_handle,
            "approval": tool.approval,
        },
    )
    enqueue(row)
    return row


def enqueue(row: Task) -> None:
    """Enqueue a task that is ``working``, with the number of its next run.

    Raises:
        InternalError: the task was not accepted, and its row is marked as failed.
    """
    try:
        task_worker.enqueue(row.pk, row.run)
    except task_worker.TaskNotAccepted as exc:
        task_rows.fail_task(row.pk, str(exc))
        row.refresh_from_db(using=row._state.db)
        raise InternalError(str(exc)) from exc


def _allowed_ttl(tool: Tool, wanted: timedelta | None) -> timedelta:
    settings = get_settings()
    usual = timedelta(seconds=tool.task_ttl or settings.task_ttl)
    if wanted is None:
        return usual
    most = max(usual, timedelta(seconds=settings.task_max_ttl))
    return min(max(wanted, timedelta(milliseconds=1)), most)
