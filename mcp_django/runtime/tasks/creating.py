"""From a call to a task: the row first, committed, and then whoever runs it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from mcp_django.auth.limits import network_of
from mcp_django.conf import get_settings
from mcp_django.core.tool import Tool
from mcp_django.exceptions import InternalError
from mcp_django.protocol.envelope import kept_capabilities, kept_client
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.tasks import caller, engine
from mcp_django.store import tasks

if TYPE_CHECKING:
    from mcp_django.models import Task


def create_task(
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
    row = tasks.create(
        server=incoming.server.name,
        tool=tool.name,
        arguments=raw,
        principal=incoming.principal,
        user=caller.user_of(incoming.principal),
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
            **caller.details_of(incoming),
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
        engine.enqueue(row.pk, row.run)
    except engine.NotTaken as exc:
        tasks.fail(row.pk, str(exc))
        row.refresh_from_db(using=row._state.db)
        raise InternalError(str(exc)) from exc


def _time_to_live(tool: Tool, wanted: timedelta | None) -> timedelta:
    settings = get_settings()
    usual = timedelta(seconds=tool.task_ttl or settings.task_ttl)
    if wanted is None:
        return usual
    most = max(usual, timedelta(seconds=settings.task_max_ttl))
    return min(max(wanted, timedelta(milliseconds=1)), most)
