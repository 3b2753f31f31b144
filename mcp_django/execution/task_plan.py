"""Calls that become tasks: which do, when that happens, and what the client is answered.

At 2026-07-28 the server alone decides, for clients that declare the extension in the very
request; at 2025-11-25 the client asks for each call; before that there are no tasks (TKD-3,
TKE-1).

A task's row is written and committed first, then handed to ``execution.task_worker``, which
enqueues it on the site's task backend, where ``execution.task_job`` runs it, or without one runs
it in threads of this process. If no backend takes it, the row says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import msgspec

from mcp_django.auth.limits import network_of
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Offered
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
from mcp_django.execution.call import Incoming, Invocation
from mcp_django.execution.interaction import Interaction
from mcp_django.protocol.envelope import kept_capabilities, kept_client
from mcp_django.protocol.errors import TASKS, declares_extension, required_extension
from mcp_django.storage import task_rows

if TYPE_CHECKING:
    from mcp_django.models import Task

# Whether a call becomes a task --------------------------------------------------------------------

Way: TypeAlias = Literal["", "task", "handle"]
"""A call is answered with its result, with a task, or with a handle for ``get_result``."""


def offers_tasks(offered: Offered) -> bool:
    """Whether any tool runs as a task, so that the methods of tasks exist."""
    return any(tool.task for tool in offered.tools.values())


def knows_tasks(incoming: Incoming) -> bool:
    """Whether the client of an extension's revision declared it in this request."""
    return incoming.revision.extensions and declares_extension(
        incoming.envelope.client_capabilities, TASKS
    )


def _way_of(incoming: Incoming, tool: Tool, *, is_asked_for: bool) -> Way:
    """How a call is answered.

    Raises:
        MethodNotFound: 2025-11-25, and the client does not do what the tool declares.
        MissingCapability: the tool is nothing but a task, and the client knows none.
    """
    if not tool.task:
        if is_asked_for and offers_tasks(incoming.server.offered):
            raise MethodNotFound(f"The tool {tool.name!r} does not run as a task; leave task out.")
        return ""
    if is_asked_for or knows_tasks(incoming):
        return "task"
    if tool.handle:
        return "handle"
    if tool.task == "optional":
        return ""
    if incoming.revision.tasks:
        raise MethodNotFound(f"The tool {tool.name!r} runs as a task alone; send params.task.")
    raise MissingCapability(
        f"The tool {tool.name!r} runs as a task alone, and needs a client with {TASKS}.",
        data={"requiredCapabilities": required_extension(TASKS)},
    )


def support_of(tool: Tool) -> str:
    """What 2025-11-25 lists: a tool that gives handles can be called without a task too."""
    return "optional" if tool.handle else tool.task


# How a call becomes a task ------------------------------------------------------------------------


class _Wishes(msgspec.Struct):
    """What a client of 2025-11-25 asks of its task; ``ttl`` is in milliseconds."""

    ttl: int | float | None = None


class Beginning(CurrentTask):
    """``ctx.task`` of a call that becomes a task where its function says so."""

    def __init__(self, interaction: Interaction) -> None:
        self._interaction = interaction

    def begin(self) -> None:
        """Leave the function, which goes on as a task.

        Raises:
            InputRequired: always.
        """
        self._interaction.begin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Becoming:
    """How a call becomes a task."""

    incoming: Incoming
    tool: Tool
    way: Way
    ttl: timedelta | None = None

    @property
    def is_promised(self) -> bool:
        """Whether the client asked for a task, and can read nothing else but an error."""
        return self.way == "task" and self.incoming.revision.tasks

    def prepare(
        self, prepared: Callable[[], Invocation | dict[str, Any]], raw: bytes
    ) -> Invocation | dict[str, Any]:
        """The call that becomes one: before its function runs, or where that says so.

        Raises:
            MCPError: it is refused, and its client reads a task or an error.
        """
        if not self.is_promised:
            call = prepared()
            return call if isinstance(call, dict) else self._changed(call, raw)
        try:
            call = prepared()
        except TooManyRequests as exc:
            # As another error it stays one (``THROTTLE_AS``).
            raise RateLimited(exc.message, data=exc.data) from None
        if isinstance(call, dict):
            raise InvalidParams(_text(call))
        call = self._changed(call, raw)
        return replace(call, at_last=True, excuse=partial(_refuse, call.excuse))

    def _changed(self, call: Invocation, raw: bytes) -> Invocation:
        assert call.interaction is not None
        return replace(
            call,
            task=Beginning(call.interaction),
            become=partial(self._become, raw),
            at_once=self.tool.ask == "during",
        )

    def _become(self, raw: bytes, state: bytes) -> dict[str, Any]:
        row = _create_task(
            self.incoming,
            self.tool,
            raw,
            state=state,
            ttl=self.ttl,
            by_handle=self.way == "handle",
        )
        if self.way == "handle":
            return task_status.handle(row)
        text = f"{self.tool.name} goes on by itself; its result comes later."
        return task_status.created(row, text=text if self.is_promised else "")


def _refuse(excuse: Callable[[Exception], dict[str, Any]], exc: Exception) -> NoReturn:
    """The failure of a call before its task began, for a client that reads no result of it."""
    raise InternalError(_text(excuse(exc))) from exc


def _text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


def becoming_of(incoming: Incoming, tool: Tool, asked_for: msgspec.Raw) -> Becoming | None:
    """How this call becomes a task, ``None`` for one that does not.

    ``asked_for`` is the member ``task`` of its parameters, which means something at 2025-11-25.

    Raises:
        MCPError: the client does not do what the tool declares, or cannot.
    """
    is_asked_for = incoming.revision.tasks and bytes(asked_for) != b"null"
    way = _way_of(incoming, tool, is_asked_for=is_asked_for)
    if not way:
        return None
    ttl = _ttl(asked_for) if is_asked_for else None
    return Becoming(incoming=incoming, tool=tool, way=way, ttl=ttl)


def _ttl(asked_for: msgspec.Raw) -> timedelta | None:
    """The lifetime that a client asks for; how long it gets at most is not decided here."""
    try:
        ttl = msgspec.json.decode(asked_for, type=_Wishes).ttl
        if ttl is not None and ttl <= 0:
            raise InvalidParams("params.task.ttl must be more than 0 milliseconds.")
        return None if ttl is None else timedelta(milliseconds=ttl)
    except msgspec.MsgspecError:
        raise InvalidParams("params.task must be an object; its ttl, a number.") from None
    except OverflowError:
        # More than any task gets.
        return timedelta.max


# Creating a task ----------------------------------------------------------------------------------


def _create_task(
    incoming: Incoming,
    tool: Tool,
    raw: bytes,
    *,
    state: bytes = b"",
    ttl: timedelta | None = None,
    by_handle: bool = False,
) -> Task:
    """Write a task down and hand it to whoever runs it. Uses the database.

    ``raw`` are the arguments, ``state`` is how far its interaction has come, ``ttl`` what the
    client asks for; ``by_handle`` its client can answer nothing later.

    Raises:
        TooManyTasks: the caller has as many that are not over as one may, or their arguments are
            too long in all.
        InvalidParams: what the client says of its capabilities is longer than is kept.
        InternalError: nobody takes it; the row says so too.
    """
    settings, envelope = get_settings(), incoming.envelope
    row = task_rows.create(
        server=incoming.server.name,
        tool=tool.name,
        arguments=raw,
        principal=incoming.principal,
        user=task_runs.user_of(incoming.principal),
        network=network_of(incoming.principal, incoming.http_request),
        capabilities=kept_capabilities(envelope.client_capabilities),
        client_info=kept_client(envelope.client_info or {}),
        trace=envelope.trace,
        protocol_version=incoming.revision.version,
        state=state.decode(),
        ttl=_time_to_live(tool, ttl),
        poll=timedelta(seconds=settings.task_poll_seconds),
        session_pk=getattr(getattr(incoming.session, "row", None), "pk", None),
        engine=settings.task_backend,
        caller={
            **task_runs.details_of(incoming),
            "by_handle": by_handle,
            "approval": tool.approval,
        },
    )
    enqueue(row)
    return row


def enqueue(row: Task) -> None:
    """Hand a task that works to whoever runs it, under the number of its next run.

    Raises:
        InternalError: nobody takes it; the task has failed.
    """
    try:
        task_worker.enqueue(row.pk, row.run)
    except task_worker.NotTaken as exc:
        task_rows.fail(row.pk, str(exc))
        row.refresh_from_db(using=row._state.db)
        raise InternalError(str(exc)) from exc


def _time_to_live(tool: Tool, wanted: timedelta | None) -> timedelta:
    settings = get_settings()
    usual = timedelta(seconds=tool.task_ttl or settings.task_ttl)
    if wanted is None:
        return usual
    most = max(usual, timedelta(seconds=settings.task_max_ttl))
    return min(max(wanted, timedelta(milliseconds=1)), most)
