"""Calls that run as tasks: which calls, when the task starts, and what the client gets.

In revision 2026-07-28 the server decides, for clients that declare the tasks extension in the same
request; in 2025-11-25 the client requests a task for each call; earlier revisions have no tasks.

The row of a task is written and committed first. Then ``tasks.worker`` enqueues it on the
site's task backend, where ``tasks.job`` runs it, or runs it in a thread of this process
if no backend is configured. If the task is not accepted, its row is marked as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast

import msgspec

from mcp_django.components.context import CurrentTask
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RateLimited,
    TooManyRequests,
)
from mcp_django.execution.call import Call, ClientDialogue, Step, run_steps
from mcp_django.execution.interaction import capability_result
from mcp_django.execution.task_support import TaskRequestParams, declares_tasks, has_task_tools
from mcp_django.protocol.envelope import trim_capabilities, trim_client_info
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.protocol.jsonrpc import is_empty_array
from mcp_django.storage import task_rows
from mcp_django.tasks import runs, status, worker

if TYPE_CHECKING:
    from mcp_django.models import Task

TaskMode: TypeAlias = Literal["", "task", "handle"]
"""How a call is answered: its result, a task, or a handle for the tool ``get_result``."""


def _task_mode(call: Call, tool: Tool, *, is_requested: bool) -> TaskMode:
    """Return whether a call is answered with its result, a task or a handle.

    Raises:
        MethodNotFound: at 2025-11-25, the client requests a task from a tool without tasks, or no
            task from a tool that runs only as one.
        MissingCapability: the tool runs only as a task, and the client does not support tasks.
    """
    if not tool.task:
        if is_requested and has_task_tools(call.server.catalog):
            raise MethodNotFound(
                f"The tool {tool.name!r} does not run as a task; omit params.task."
            )
        return ""
    if is_requested or declares_tasks(call):
        return "task"
    if tool.polling_fallback:
        return "handle"
    if tool.task == "optional":
        return ""
    if call.revision.tasks:
        raise MethodNotFound(f"The tool {tool.name!r} runs only as a task; send params.task.")
    raise MissingCapability(
        f"The tool {tool.name!r} runs only as a task; the client must declare {TASKS}.",
        data={"requiredCapabilities": extension_declaration(TASKS)},
    )


class _TaskRequest(msgspec.Struct):
    """The ``params.task`` object of 2025-11-25; ``ttl`` is in milliseconds."""

    ttl: int | float | None = None


class DeferredTask(CurrentTask):
    """``ctx.task`` of a call that becomes a task when its function calls ``begin``."""

    def __init__(self, interaction: ClientDialogue) -> None:
        self._interaction = interaction

    def begin(self) -> None:
        """Leave the function, which runs again as a task.

        Raises:
            InputRequired: always.
        """
        self._interaction.start_task()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """How a call becomes a task: one that the client sees, or one behind a handle.

    ``is_requested`` is whether the client requested a task, so that it accepts only a task or an
    error.
    """

    tool: Tool
    mode: TaskMode
    is_requested: bool
    ttl: timedelta | None = None

    def admit(self, call: Call, steps: Iterable[Step]) -> None:
        """Admit the call, which becomes a task before or while its function runs.

        Raises:
            MCPError: the call is rejected, and its client accepts only a task or an error.
        """
        try:
            run_steps(call, steps)
        except TooManyRequests as exc:
            if not self.is_requested:
                raise
            # Another class, so that ``THROTTLE_AS`` does not convert it to a result.
            raise RateLimited(exc.message, data=exc.data) from None
        if isinstance(call.result, dict):
            if self.is_requested:
                raise InvalidParams(_result_text(call.result))
            return
        assert call.interaction is not None
        call.task = DeferredTask(call.interaction)
        call.task_factory = partial(self._create_task, call.raw_arguments)
        call.start_as_task = self.tool.ask == "during"
        if self.is_requested:
            call.must_become_task = True
            call.to_error = partial(_raise_error, call.to_error)

    def _create_task(self, raw: bytes, call: Call, state: bytes) -> dict[str, Any]:
        row = _create_task(
            call, self.tool, raw, state=state, ttl=self.ttl, by_handle=self.mode == "handle"
        )
        if self.mode == "handle":
            return status.handle_result(row)
        text = f"{self.tool.name} runs in the background; its result follows later."
        return status.created_result(row, text=text if self.is_requested else "")


def _raise_error(to_error: Callable[[Exception], dict[str, Any]], exc: Exception) -> NoReturn:
    """Raise a tool's error result as a JSON-RPC error, for a client that requested a task."""
    raise InternalError(_result_text(to_error(exc))) from exc


def _result_text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


def admit_task(call: Call, rest: Iterable[Step]) -> None:
    """Decide whether the call becomes a task, and run the remaining steps of its admission.

    Raises:
        MCPError: the tool runs only as a task, which the client did not request or does not
            support; the client requests a task from a tool without tasks; or the call is rejected,
            and its client accepts only a task or an error.
    """
    tool, task_param = cast(Tool, call.component), cast(TaskRequestParams, call.params).task
    # Only 2025-11-25 has the parameter.
    is_requested = call.revision.tasks and bytes(task_param) != b"null"
    try:
        mode = _task_mode(call, tool, is_requested=is_requested)
    except MissingCapability as exc:
        call.result = capability_result(call, exc)
        return
    if not mode:
        run_steps(call, rest)
        return
    # The requested lifetime, which ``_create_task`` limits.
    ttl: timedelta | None = None
    if is_requested:
        try:
            task = b"{}" if is_empty_array(bytes(task_param)) else task_param
            milliseconds = msgspec.json.decode(task, type=_TaskRequest).ttl
            if milliseconds is not None and milliseconds <= 0:
                raise InvalidParams("params.task.ttl must be greater than 0 (milliseconds).")
            ttl = None if milliseconds is None else timedelta(milliseconds=milliseconds)
        except msgspec.MsgspecError:
            raise InvalidParams(
                "params.task must be an object, and its ttl a number (milliseconds)."
            ) from None
        except OverflowError:
            # The maximum applies.
            ttl = timedelta.max
    # At 2025-11-25 a task is created only for a client that requests it.
    is_only_answer = mode == "task" and call.revision.tasks
    plan = TaskPlan(tool=tool, mode=mode, is_requested=is_only_answer, ttl=ttl)
    plan.admit(call, rest)


def _create_task(
    call: Call,
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
    settings, envelope = get_settings(), call.envelope
    lifetime = timedelta(seconds=tool.task_ttl or settings.task_ttl)
    if ttl is not None:
        most = max(lifetime, timedelta(seconds=settings.task_max_ttl))
        lifetime = min(max(ttl, timedelta(milliseconds=1)), most)
    row = task_rows.create_task(
        server=call.server.name,
        tool=tool.name,
        arguments=raw,
        principal=call.principal,
        user=runs.user_row(call.principal),
        network=call.network,
        capabilities=trim_capabilities(envelope.client_capabilities),
        client_info=trim_client_info(envelope.client_info or {}),
        trace=envelope.trace,
        protocol_version=call.revision.version,
        state=state.decode(),
        ttl=lifetime,
        poll=timedelta(seconds=settings.task_poll_seconds),
        session_pk=getattr(getattr(call.session, "row", None), "pk", None),
        engine=settings.task_backend,
        caller={
            **runs.caller_details(call),
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
        worker.enqueue(row.pk, row.run)
    except worker.TaskNotAccepted as exc:
        task_rows.fail_task(row.pk, str(exc))
        row.refresh_from_db(using=row._state.db)
        raise InternalError(str(exc)) from exc
