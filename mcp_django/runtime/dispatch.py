"""The data path: one request in, one outcome out. Read this first.

    bytes → transport → jsonrpc.decode → envelope.classify → authenticate
          → dispatch → handler → policy.admit → Invocation → calls.run → shapes → bytes

A handler answers at once (a result), hands back a call of the developer's function to be run
where the transport decides (an ``Invocation``), or opens a stream (``Listening``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mcp_django.exceptions import InternalError, MethodNotFound
from mcp_django.protocol import jsonrpc, methods, shapes
from mcp_django.runtime.handlers import completion, discover, listen, prompts, resources, tools
from mcp_django.runtime.incoming import Incoming, Outcome

logger = logging.getLogger("mcp_django")

Handler = Callable[[Incoming], Outcome]

HANDLERS: dict[str, Handler] = {
    "server/discover": discover.discover,
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "resources/list": resources.list_resources,
    "resources/templates/list": resources.list_templates,
    "resources/read": resources.read_resource,
    "prompts/list": prompts.list_prompts,
    "prompts/get": prompts.get_prompt,
    "completion/complete": completion.complete,
    "subscriptions/listen": listen.listen,
}


def dispatch(incoming: Incoming) -> Outcome:
    """Find the method in the table of the request's revision and let its handler decide.

    Raises:
        MethodNotFound: the revision has no such method, or the server offers nothing of the kind.
        MCPError: what the handler refuses.
        AccessRefused: the caller has to authenticate, or needs another scope.
    """
    name = incoming.request.method
    method = methods.lookup(name, incoming.revision)
    if method is None or method.name not in HANDLERS:
        raise MethodNotFound(f"No method {name[:80]!r} in {incoming.revision.version}.")
    offered = discover.capabilities(incoming.server, can_stream=incoming.can_stream)
    if method.capability and method.capability not in offered:
        raise MethodNotFound(f"This server offers no {method.capability}.")
    return HANDLERS[method.name](incoming)


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
    )
    try:
        return jsonrpc.encode(jsonrpc.result_message(incoming.request.id, projected))
    except (TypeError, ValueError) as exc:
        # The site put it there: half a surrogate pair in a text, an object in a block's meta.
        logger.exception("The answer to %s is no JSON.", incoming.request.method)
        raise InternalError("The answer cannot be written as JSON; it was logged.") from exc
