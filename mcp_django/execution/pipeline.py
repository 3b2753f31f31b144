"""The data path: one request in, one outcome out. Read this first.

    bytes → transport → jsonrpc.decode → envelope.classify → authenticate
          → dispatch → handler → policy.admit → Invocation → invoke.run → shapes → bytes

A handler answers at once (a result), hands back a call of the developer's function to be run
where the transport decides (an ``Invocation``), or opens a stream (``Listening``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.exceptions import InternalError, MethodNotFound, TooManyRequests
from mcp_django.execution import call_log, quotas, telemetry
from mcp_django.execution.call import Incoming, Invocation, Outcome
from mcp_django.execution.call_record import KINDS
from mcp_django.execution.handlers import listing, prompts, resources, session, tasks, tools
from mcp_django.execution.policy import admit_connection
from mcp_django.protocol import jsonrpc, methods, shapes
from mcp_django.protocol.methods import Method

logger = logging.getLogger("mcp_django")

Handler = Callable[[Incoming], Outcome]

HANDLERS: dict[str, Handler] = {
    "server/discover": listing.discover,
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "resources/list": resources.list_resources,
    "resources/templates/list": resources.list_templates,
    "resources/read": resources.read_resource,
    "prompts/list": prompts.list_prompts,
    "skills/list": resources.list_skills,
    "skills/get": resources.get_skill,
    "resources/directory/read": resources.read_directory,
    "prompts/get": prompts.get_prompt,
    "completion/complete": prompts.complete,
    "subscriptions/listen": session.listen,
    "ping": session.ping,
    "logging/setLevel": session.set_level,
    "resources/subscribe": session.subscribe,
    "resources/unsubscribe": session.unsubscribe,
    "tasks/get": tasks.get_task,
    "tasks/update": tasks.update_task,
    "tasks/cancel": tasks.cancel_task,
    "tasks/result": tasks.task_result,
    "tasks/list": tasks.list_tasks,
}

# The methods that run the site's own functions, or wait for one; everything else is short.
WORK_METHODS = frozenset(
    {
        "tools/call",
        "resources/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "tasks/result",
    }
)


def dispatch(incoming: Incoming) -> Outcome:
    """Find the method in the table of the request's revision and let its handler decide.

    Raises:
        MethodNotFound: the revision has no such method, or the server offers nothing of the kind.
        MCPError: what the handler refuses.
        AccessRefused: the caller has to authenticate, or needs another scope.
        Busy: what the admin says of the server is not known, and cannot be read.
    """
    operation = telemetry.begin(incoming)
    if operation is None:
        return _dispatch(incoming)
    with operation.active():
        try:
            outcome = _dispatch(incoming)
        except SynchronousOnlyOperation:
            operation.forget()
            raise
        except Exception as exc:
            operation.raised(exc)
            raise
    if not isinstance(outcome, Invocation):
        # A subscription is acknowledged now; how long it lasts is no time of ours.
        operation.returned(outcome if isinstance(outcome, dict) else {})
    return outcome


def _dispatch(incoming: Incoming) -> Outcome:
    name = incoming.request.method
    method = methods.lookup(name, incoming.revision)
    if method is None or method.name not in HANDLERS:
        raise MethodNotFound(f"No method {name[:80]!r} in {incoming.revision.version}.")
    if method.name not in KINDS:
        return _outcome(incoming, method)
    incoming.entry.open(incoming)
    try:
        outcome = _outcome(incoming, method)
    except SynchronousOnlyOperation:
        # Asked again in a thread.
        incoming.entry.forget()
        raise
    except Exception as exc:
        call_log.refused(incoming.entry, exc)
        raise
    if isinstance(outcome, dict):
        call_log.answered(incoming.entry, outcome)
    return outcome


def _look_up(incoming: Incoming, method: Method) -> None:
    """See what the server offers now, and let in again a caller who came in before."""
    if incoming.was_let_in and not method.is_list:
        return
    server = incoming.server
    before = server.offered
    server.refresh(is_list=method.is_list)
    if server.offered is not before:
        admit_connection(server, incoming.principal)


def _outcome(incoming: Incoming, method: Method) -> Outcome:
    if method.name != "server/discover":
        # Who probes is answered without the database (IO-11), and learns of no component.
        _look_up(incoming, method)
    if method.capability:
        offered = incoming.server.offered
        if method.capability not in listing.of_components(offered, can_stream=incoming.can_stream):
            raise MethodNotFound(f"This server offers no {method.capability}.")
    if (
        method.extension
        and incoming.revision.extensions
        and method.extension not in listing.advertised(incoming.server)
    ):
        # A revision without the map has the method of its own accord, or not at all.
        raise MethodNotFound(f"This server does not offer {method.extension}.")
    try:
        return HANDLERS[method.name](incoming)
    except TooManyRequests as exc:
        told = quotas.in_band(incoming.request, exc)
        incoming.entry.refuse("limited")
        if told is None:
            raise
        return told


def respond(incoming: Incoming, result: dict[str, Any]) -> bytes:
    """A result as the bytes of its JSON-RPC response, in the revision of its request.

    Raises:
        InternalError: the site's function answered with something that is no JSON.
    """
    projected = shapes.project_result(
        incoming.request.method,
        result,
        incoming.revision,
        identity=incoming.server.identity(),
        output_schema=_output_schema(incoming),
    )
    try:
        return jsonrpc.encode(jsonrpc.result_message(incoming.request.id, projected))
    except (TypeError, ValueError) as exc:
        # The site put it there: half a surrogate pair in a text, an object in a block's meta.
        logger.exception("The answer to %s is no JSON.", incoming.request.method)
        raise InternalError("The answer cannot be written as JSON; it was logged.") from exc


def _output_schema(incoming: Incoming) -> Mapping[str, Any] | None:
    """What the called tool published, which decides how older revisions wrap its value."""
    if incoming.revision.stateless or incoming.request.method != "tools/call":
        return None
    tool = incoming.server.offered.find_tool(tools.name_of(incoming.request))
    return tool.output.json_schema if tool is not None and tool.output is not None else None
