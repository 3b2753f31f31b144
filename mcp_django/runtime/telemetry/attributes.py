"""The attributes of a request, in the words of the semantic conventions.

Nothing that a client makes up is a name of a span or an attribute of a measurement: methods,
components, revisions and transports are all countable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mcp_django.core.component import Component
from mcp_django.protocol.errors import clip
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.text import one_line
from mcp_django.runtime.journal import arguments

OTHER = "_OTHER"
NOTIFICATIONS = frozenset({"notifications/initialized", "notifications/cancelled"})
QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
MAX_ID = 100
MAX_URI = 2000

_KNOWN = NOTIFICATIONS | QUESTIONS
_NETWORK: Mapping[str, Mapping[str, str]] = {
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "sse": {"network.transport": "tcp", "network.protocol.name": "http"},
    "stdio": {"network.transport": "pipe"},
}


@lru_cache(maxsize=1024)
def common(method: str, version: str, transport: str) -> Mapping[str, str]:
    """What spans and measurements both have; the same object for the same request."""
    found = {"mcp.method.name": method, **_NETWORK.get(transport, {})}
    if version:
        found["mcp.protocol.version"] = version
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    return found


def known(method: str) -> str:
    """The method, or one word for all that nobody defines."""
    return method if method in REQUESTS or method in _KNOWN else OTHER


def identity(request_id: RequestId | None, session: str) -> dict[str, str]:
    """Which request it is, for the span alone.

    A session is told by its digest, as in the call log: its id is for its client alone.
    """
    found = {}
    if request_id is not None:
        found["jsonrpc.request.id"] = clip(one_line(str(request_id)[: MAX_ID + 1]), limit=MAX_ID)
    if session:
        found["mcp.session.id"] = session
    return found


def of_component(component: Component) -> dict[str, str]:
    """What a tool or a prompt is called; resources, of which templates make any number, are not."""
    if component.kind == "tool":
        return {"gen_ai.tool.name": component.key}
    if component.kind == "prompt":
        return {"gen_ai.prompt.name": component.key}
    return {}


def uri_of(component: Component, uri: str, *, is_logged: bool) -> str:
    """The URI of a resource; of a template the template itself, unless its arguments are logged."""
    if is_logged and not arguments.has_secrets(component):
        return clip(one_line(uri[: MAX_URI + 1]), limit=MAX_URI)
    return component.key


def shown_arguments(component: Component, given: bytes | Mapping[str, Any]) -> Any:
    """The arguments as the call log shows them: without secrets, and no longer than a page."""
    return arguments.shown(arguments.read(given), component)
