"""The data path: from one request to its outcome. Read this module first.

    bytes → transport → jsonrpc.decode → envelope.classify → authenticate
          → dispatch → handler → policy.admit → Invocation → invoke.run → shapes → bytes

A handler returns a result, a prepared call of the component's function that the transport runs
(an ``Invocation``), a stream (a ``Listening``) or the wait for a task (an ``Awaiting``).
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

# Methods that run the site's own functions, or wait for one. All other methods are short.
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
    """Call the handler of the request's method and return its outcome.

    Raises:
        MethodNotFound: the request's revision, or the server, does not have this method.
        MCPError: the handler rejects the request.
        AccessRefused: the caller has to authenticate, or needs another scope.
        Busy: the admin overrides of the server are not loaded, and cannot be read.
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
        # A subscription is acknowledged now; the span does not include how long it lasts.
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
        # The request is dispatched again in a thread.
        incoming.entry.forget()
        raise
    except Exception as exc:
        call_log.refused(incoming.entry, exc)
        raise
    if isinstance(outcome, dict):
        call_log.answered(incoming.entry, outcome)
    return outcome


def _look_up(incoming: Incoming, method: Method) -> None:
    """Refresh the server's catalog, and authorize the connection again if it changed."""
    if incoming.was_let_in and not method.is_list:
        return
    server = incoming.server
    before = server.offered
    server.refresh(is_list=method.is_list)
    if server.offered is not before:
        admit_connection(server, incoming.principal)


def _outcome(incoming: Incoming, method: Method) -> Outcome:
    if method.name != "server/discover":
        # Does not query the database, so that clients can probe; the result names no component.
        _look_up(incoming, method)
    if method.capability:
        offered = incoming.server.offered
        if method.capability not in listing.of_components(offered, can_stream=incoming.can_stream):
            raise MethodNotFound(f"This server has no {method.capability}.")
    if (
        method.extension
        and incoming.revision.extensions
        and method.extension not in listing.advertised(incoming.server)
    ):
        # A revision without extensions defines the method itself, or not at all.
        raise MethodNotFound(f"This server does not support {method.extension}.")
    try:
        return HANDLERS[method.name](incoming)
    except TooManyRequests as exc:
        told = quotas.in_band(incoming.request, exc)
        incoming.entry.refuse("limited")
        if told is None:
            raise
        return told


def respond(incoming: Incoming, result: dict[str, Any]) -> bytes:
    """Return a result as the bytes of its JSON-RPC response, in the revision of its request.

    Raises:
        InternalError: the site's function returned something that cannot be encoded as JSON.
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
        # From the site's function: a lone surrogate in a text, an object in a block's meta.
        logger.exception("The result of %s cannot be encoded as JSON.", incoming.request.method)
        raise InternalError("The result cannot be encoded as JSON. The error was logged.") from exc


def _output_schema(incoming: Incoming) -> Mapping[str, Any] | None:
    """Return the called tool's output schema, which decides how older revisions wrap its value."""
    if incoming.revision.stateless or incoming.request.method != "tools/call":
        return None
    tool = incoming.server.offered.find_tool(tools.name_of(incoming.request))
    return tool.output.json_schema if tool is not None and tool.output is not None else None
