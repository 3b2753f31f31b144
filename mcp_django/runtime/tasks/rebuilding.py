"""From the row of a task to the call that it is, admitted anew.

Whoever made the call may have lost what he needs for it since: so each run asks again, and fails
with the words that a call would have been refused with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.urls import get_resolver
from django.utils.module_loading import import_string

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.core.context import Cancellation, CurrentTask
from mcp_django.core.tool import Tool
from mcp_django.exceptions import (
    AuthenticationRequired,
    InternalError,
    InvalidParams,
    NotApproved,
)
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.jsonrpc import Request, encode
from mcp_django.protocol.revisions import LATEST
from mcp_django.runtime import failures, results, telemetry
from mcp_django.runtime.approving import gate_of
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.journal import keeping
from mcp_django.runtime.policy import admit, admit_connection
from mcp_django.runtime.tasks.caller import principal_of
from mcp_django.runtime.tasks.interaction import TaskInteraction
from mcp_django.schema.arguments import ArgumentSource, InvalidArguments

if TYPE_CHECKING:
    from mcp_django.models import Task

# Of a layer above this one.
ALL_SERVERS = "mcp_django.server.all_servers"
TRANSPORT = "task"


class RunningTask(CurrentTask):
    """``ctx.task`` inside a task, where ``begin`` has nothing left to do."""

    def __init__(self, pk: str) -> None:
        self.id = pk


def rebuild(row: Task, cancellation: Cancellation) -> Invocation | dict[str, Any]:
    """The call of a task, or its result where the arguments do not fit any more.

    Raises:
        MCPError: the tool is not there any more, not for this caller, or not for this client.
        AccessRefused: the caller would not be let in any more.
    """
    server = server_named(row.server)
    principal = principal_of(row)
    if principal is None:
        raise AuthenticationRequired("Whoever began this task may not use the site any more.")
    incoming = _incoming(row, server, principal)
    operation = telemetry.begin(incoming)
    incoming.entry.open(incoming)
    try:
        outcome = _admitted(row, incoming, cancellation)
    except Exception as exc:
        keeping.refused(incoming.entry, exc)
        if operation is not None:
            operation.raised(exc)
        raise
    if isinstance(outcome, dict):
        keeping.answered(incoming.entry, outcome)
        if operation is not None:
            operation.returned(outcome)
    return outcome


def _admitted(
    row: Task, incoming: Incoming, cancellation: Cancellation
) -> Invocation | dict[str, Any]:
    server, principal, entry = incoming.server, incoming.principal, incoming.entry
    raw = row.arguments.encode()
    entry.wants(row.tool)
    server.refresh()
    admit_connection(server, principal)
    # What it was called when the task was made, perhaps before the last deployment.
    tool = server.offered.find_tool(row.tool)
    if tool is not None:
        entry.found(tool)
    if tool is None or not admit(principal, tool, entry=entry):
        raise InvalidParams(
            f"No tool named {row.tool[:80]!r} on server {row.server!r}; see tools/list."
        )
    entry.admitted(raw)
    try:
        arguments = _arguments(tool, principal).parse(raw)
    except InvalidArguments as exc:
        entry.wrong(exc.problems)
        return results.tool_error(str(exc))
    # A yes was taken when the task began, if one was needed by then.
    if tool.approval != row.caller.get("approval", "") and gate_of(incoming, tool, raw, arguments):
        unasked = NotApproved(f"{tool.name} needs approval since this task began; call it again.")
        entry.failed(unasked)
        return results.tool_error(str(unasked))
    return Invocation(
        incoming=incoming,
        component=tool,
        arguments=arguments,
        cancellation=cancellation,
        interaction=TaskInteraction(incoming, tool, raw, state=row.state, answers=_answers(row)),
        conclude=partial(results.tool_result, tool),
        excuse=partial(failures.tool_failure, tool, incoming.revision),
        task=RunningTask(row.pk),
        # Its time is that of the task, and whoever keeps the lease looks at that.
        seconds=row.ttl_ms / 1000,
        entry=entry,
    )


def server_named(name: str) -> Server:
    """The server of this name, where need be after the URLconf of the site was imported.

    Raises:
        InternalError: this process has none.
    """
    for look in (lambda: None, lambda: get_resolver().url_patterns):
        look()
        for server in import_string(ALL_SERVERS)():
            if server.name == name:
                found: Server = server
                return found
    raise InternalError(f"This process has no server {name!r}; see that its workers import it.")


def _incoming(row: Task, server: Server, principal: Principal) -> Incoming:
    return Incoming(
        server=server,
        request=Request(id=row.pk, method="tools/call", params=encode({"name": row.tool})),
        envelope=Envelope(
            revision=LATEST,
            client_capabilities=row.capabilities,
            client_info=row.client_info or None,
            progress_token=row.pk,
            trace=row.trace,
        ),
        principal=principal,
        origin=row.caller.get("origin", "client"),
        acting=row.caller.get("acting", ""),
        transport=TRANSPORT,
    )


def _answers(row: Task) -> dict[str, Any]:
    """What was answered since the last run, by the keys that its function knows."""
    return {row.keys[key]: one for key, one in row.answers.items() if key in row.keys}


def _arguments(tool: Tool, principal: Principal) -> ArgumentSource:
    """The arguments as this caller has them, where they differ from caller to caller."""
    for_caller: Callable[[Principal], ArgumentSource] | None = getattr(
        tool.arguments, "for_caller", None
    )
    return tool.arguments if for_caller is None else for_caller(principal)
