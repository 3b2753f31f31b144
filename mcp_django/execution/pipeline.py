"""The data path: from one request to its answer. Read this module first.

    bytes → transport → jsonrpc.decode → envelope.classify → authenticate → Call
          → admit → handler → the steps of a plan → invoke.run → projection → bytes

A handler returns a result, a stream (``Subscription``) or the wait for a task (``TaskWait``); or it
prepares the call of a component's function, which the transport then runs.
"""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.exceptions import MethodNotFound, TooManyRequests
from mcp_django.execution import call_log, quotas, telemetry
from mcp_django.execution.call import Answer, Call
from mcp_django.execution.call_record import COMPONENT_METHODS
from mcp_django.execution.handlers import listing, prompts, resources, session, tasks, tools
from mcp_django.execution.plan import plan_for
from mcp_django.execution.policy import authorize_connection
from mcp_django.protocol.methods import REQUESTS_AT, Method

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


# The methods that use a component, which has a plan.
KINDS = {kind.method: kind for kind in (tools.TOOL, resources.RESOURCE, prompts.PROMPT)}
# Other methods that never need the database or the cache.
LOOP_METHODS = frozenset({"server/discover"})


def runs_on_loop(call: Call) -> bool:
    """Return whether the call can be admitted and run on an event loop.

    Only for a caller of whom nothing has to be looked up, with its ``catalog`` and ``name`` set.
    """
    kind = KINDS.get(call.request.method)
    if kind is None:
        return call.request.method in LOOP_METHODS
    return plan_for(call, kind, call.name).where == "loop"


def admit(call: Call) -> None:
    """Decide everything before a function runs: set ``call.result``, or prepare the call.

    Raises:
        MethodNotFound: the request's revision, or the server, does not have this method.
        MCPError: the handler rejects the request.
        AccessRefused: the caller has to authenticate, or needs another scope.
        Busy: the admin overrides of the server are not loaded, and cannot be read.
    """
    operation = telemetry.begin_operation(call)
    if operation is None:
        _admit(call)
        return
    with operation.activate():
        try:
            _admit(call)
        except SynchronousOnlyOperation:
            operation.discard()
            raise
        except Exception as exc:
            operation.end_raised(exc)
            raise
    if call.result is not None:
        # A subscription is acknowledged now; the span does not include how long it lasts.
        operation.end_returned(call.result if isinstance(call.result, dict) else {})


def _admit(call: Call) -> None:
    name, version = call.request.method, call.envelope.revision.version
    method = REQUESTS_AT[version].get(name)
    if method is None or name not in HANDLERS:
        raise MethodNotFound(f"No method {name[:80]!r} in {version}.")
    if name not in COMPONENT_METHODS:
        call.result = _call_handler(call, method)
        return
    call.record.begin(call)
    try:
        call.result = _call_handler(call, method)
    except SynchronousOnlyOperation:
        # The request is admitted again in a thread.
        call.record.discard()
        raise
    except Exception as exc:
        call_log.end_rejected(call.record, exc)
        raise
    if isinstance(call.result, dict):
        call_log.end_answered(call, call.result)


def _call_handler(call: Call, method: Method) -> Answer:
    if call.catalog is None or method.is_list:
        _refresh_catalog(call, method)
    catalog = call.catalog
    assert catalog is not None
    if method.capability not in catalog.capabilities and not _is_available(call, method):
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


def _refresh_catalog(call: Call, method: Method) -> None:
    """Set the current catalog, and authorize the connection again if it changed."""
    server = call.server
    # ``server/discover`` does not query the database, so that clients can probe; its result names
    # no component.
    if method.name != "server/discover":
        before = server.catalog
        server.refresh(is_list=method.is_list)
        if server.catalog is not before:
            authorize_connection(server, call.principal)
    call.catalog = server.catalog


def _is_available(call: Call, method: Method) -> bool:
    """Return whether the method needs no capability, or that of logging, which needs a stream."""
    if method.capability != "logging":
        return method.capability is None
    return call.can_stream and bool(call.server.catalog.capabilities)
