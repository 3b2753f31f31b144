"""The data path: from one request to its answer. Read this module first.

    bytes → transport → jsonrpc.decode → envelope.classify → authenticate → Call
          → dispatch → handler → policy.authorize → invoke.run → projection → bytes

A handler returns a result, a stream (``Subscription``) or the wait for a task (``TaskWait``); or it
prepares the call of a component's function, which the transport then runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.exceptions import InternalError, MethodNotFound, TooManyRequests
from mcp_django.execution import call_log, quotas, telemetry
from mcp_django.execution.call import Answer, Call
from mcp_django.execution.call_record import COMPONENT_METHODS
from mcp_django.execution.handlers import listing, prompts, resources, session, tasks, tools
from mcp_django.execution.policy import authorize_connection
from mcp_django.protocol import jsonrpc, methods, projection
from mcp_django.protocol.methods import Method

logger = logging.getLogger("mcp_django")

Handler = Callable[[Call], Answer]

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


def dispatch(call: Call) -> None:
    """Call the handler of the request's method, which sets ``call.result`` or prepares the call.

    Raises:
        MethodNotFound: the request's revision, or the server, does not have this method.
        MCPError: the handler rejects the request.
        AccessRefused: the caller has to authenticate, or needs another scope.
        Busy: the admin overrides of the server are not loaded, and cannot be read.
    """
    operation = telemetry.begin_operation(call)
    if operation is None:
        _dispatch(call)
        return
    with operation.activate():
        try:
            _dispatch(call)
        except SynchronousOnlyOperation:
            operation.discard()
            raise
        except Exception as exc:
            operation.end_raised(exc)
            raise
    if call.result is not None:
        # A subscription is acknowledged now; the span does not include how long it lasts.
        operation.end_returned(call.result if isinstance(call.result, dict) else {})


def _dispatch(call: Call) -> None:
    name = call.request.method
    method = methods.lookup(name, call.revision)
    if method is None or method.name not in HANDLERS:
        raise MethodNotFound(f"No method {name[:80]!r} in {call.revision.version}.")
    if method.name not in COMPONENT_METHODS:
        call.result = _call_handler(call, method)
        return
    call.record.begin(call)
    try:
        call.result = _call_handler(call, method)
    except SynchronousOnlyOperation:
        # The request is dispatched again in a thread.
        call.record.discard()
        raise
    except Exception as exc:
        call_log.end_rejected(call.record, exc)
        raise
    if isinstance(call.result, dict):
        call_log.end_answered(call.record, call.result)


def _refresh_catalog(call: Call, method: Method) -> None:
    """Refresh the server's catalog, and authorize the connection again if it changed."""
    if call.is_authorized and not method.is_list:
        return
    server = call.server
    before = server.catalog
    server.refresh(is_list=method.is_list)
    if server.catalog is not before:
        authorize_connection(server, call.principal)


def _call_handler(call: Call, method: Method) -> Answer:
    if method.name != "server/discover":
        # Does not query the database, so that clients can probe; the result names no component.
        _refresh_catalog(call, method)
    if method.capability and not _has_capability(call, method.capability):
        raise MethodNotFound(f"This server has no {method.capability}.")
    if (
        method.extension
        and call.revision.extensions
        and method.extension not in listing.server_extensions(call.server)
    ):
        # A revision without extensions defines the method itself, or not at all.
        raise MethodNotFound(f"This server does not support {method.extension}.")
    try:
        return HANDLERS[method.name](call)
    except TooManyRequests as exc:
        limited_result = quotas.limited_tool_result(call.request, exc)
        call.record.preset("limited")
        if limited_result is None:
            raise
        return limited_result


def _has_capability(call: Call, name: str) -> bool:
    known = call.server.catalog.capabilities
    return name in known or (name == "logging" and bool(known) and call.can_stream)


def encode_response(call: Call, result: dict[str, Any]) -> bytes:
    """Return a result as the bytes of its JSON-RPC response, in the revision of its request.

    Raises:
        InternalError: the site's function returned something that cannot be encoded as JSON.
    """
    projected = projection.project_result(
        call.request.method,
        result,
        call.revision,
        identity=call.server.identity() if call.revision.stateless else None,
        output_schema=_output_schema(call),
    )
    try:
        return jsonrpc.encode(jsonrpc.build_result(call.request.id, projected))
    except (TypeError, ValueError) as exc:
        # From the site's function: a lone surrogate in a text, an object in a block's meta.
        logger.exception("The result of %s cannot be encoded as JSON.", call.request.method)
        raise InternalError("The result cannot be encoded as JSON. The error was logged.") from exc


def _output_schema(call: Call) -> Mapping[str, Any] | None:
    """Return the called tool's output schema, which decides how older revisions wrap its value."""
    if call.revision.stateless or call.request.method != "tools/call":
        return None
    tool = call.server.catalog.find_tool(tools.tool_name(call.request))
    return tool.output.json_schema if tool is not None and tool.output is not None else None
