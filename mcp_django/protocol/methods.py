"""Tables of the methods of each revision; a method that is not listed is "method not found"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mcp_django.protocol.errors import SKILLS, TASKS
from mcp_django.protocol.revisions import DRAFT_2026_V1, HANDSHAKE, STATELESS, V2025_11_25, Revision


def _versions(revisions: Iterable[Revision]) -> frozenset[str]:
    return frozenset(revision.version for revision in revisions)


_HANDSHAKE = _versions(HANDSHAKE)
_STATELESS = _versions(STATELESS)
_ALL = _HANDSHAKE | _STATELESS
_DRAFT = _versions([DRAFT_2026_V1])
_WITH_TASKS = _versions(revision for revision in HANDSHAKE if revision.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A request that a client may send."""

    name: str
    revisions: frozenset[str]
    """The protocol versions that define it."""
    capability: str | None = None
    """The server capability that it requires; without it, the method is not found."""
    name_member: str | None = None
    """The member of `params` that the `Mcp-Name` header repeats."""
    cacheable: bool = False
    """Complete results have `ttlMs` and `cacheScope` if the revision defines them."""
    may_request_input: bool = False
    """The result may be `input_required`."""
    is_list: bool = False
    """The method takes a `cursor` and returns a page."""
    extension: str = ""
    """The extension that it belongs to; if it is not advertised, the method is not found."""


_METHODS = (
    Method(name="initialize", revisions=_HANDSHAKE),
    Method(name="ping", revisions=_HANDSHAKE),
    Method(name="server/discover", revisions=_STATELESS, cacheable=True),
    Method(name="tools/list", revisions=_ALL, capability="tools", cacheable=True, is_list=True),
    Method(
        name="tools/call",
        revisions=_ALL,
        capability="tools",
        name_member="name",
        may_request_input=True,
    ),
    Method(
        name="resources/list",
        revisions=_ALL,
        capability="resources",
        cacheable=True,
        is_list=True,
    ),
    Method(
        name="resources/templates/list",
        revisions=_ALL,
        capability="resources",
        cacheable=True,
        is_list=True,
    ),
    Method(
        name="resources/read",
        revisions=_ALL,
        capability="resources",
        name_member="uri",
        cacheable=True,
        may_request_input=True,
    ),
    Method(name="resources/subscribe", revisions=_HANDSHAKE, capability="resources"),
    Method(name="resources/unsubscribe", revisions=_HANDSHAKE, capability="resources"),
    Method(name="prompts/list", revisions=_ALL, capability="prompts", cacheable=True, is_list=True),
    Method(
        name="prompts/get",
        revisions=_ALL,
        capability="prompts",
        name_member="name",
        may_request_input=True,
    ),
    Method(name="completion/complete", revisions=_ALL, capability="completions"),
    Method(name="logging/setLevel", revisions=_HANDSHAKE, capability="logging"),
    Method(
        name="skills/list",
        revisions=_STATELESS,
        capability="resources",
        cacheable=True,
        is_list=True,
        extension=SKILLS,
    ),
    Method(
        name="skills/get",
        revisions=_STATELESS,
        capability="resources",
        cacheable=True,
        extension=SKILLS,
    ),
    Method(
        name="resources/directory/read",
        revisions=_STATELESS,
        capability="resources",
        is_list=True,
        extension=SKILLS,
    ),
    Method(name="subscriptions/listen", revisions=_STATELESS),
    Method(
        name="tasks/get",
        revisions=_WITH_TASKS | _STATELESS,
        name_member="taskId",
        extension=TASKS,
    ),
    Method(
        name="tasks/cancel",
        revisions=_WITH_TASKS | _STATELESS,
        name_member="taskId",
        extension=TASKS,
    ),
    Method(name="tasks/update", revisions=_STATELESS, name_member="taskId", extension=TASKS),
    Method(name="tasks/result", revisions=_WITH_TASKS, extension=TASKS),
    Method(name="tasks/list", revisions=_WITH_TASKS, is_list=True, extension=TASKS),
)

REQUESTS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _METHODS})
"""Requests from client to server."""

REQUESTS_AT: Mapping[str, Mapping[str, Method]] = MappingProxyType(
    {
        version: {method.name: method for method in _METHODS if version in method.revisions}
        for version in _ALL
    }
)
"""Requests from client to server at each version."""

LIST_METHODS = frozenset(method.name for method in _METHODS if method.is_list)
"""The methods that return a page."""

SERVER_REQUESTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "ping": _HANDSHAKE,
        "roots/list": _HANDSHAKE,
        "sampling/createMessage": _HANDSHAKE,
        "elicitation/create": _versions(r for r in HANDSHAKE if r.elicitation_form),
    }
)
"""Requests from server to client. The stateless revisions have none: there, elicitation, sampling
and roots requests are part of the result of the client's own request."""

CLIENT_NOTIFICATIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "notifications/initialized": _HANDSHAKE,
        "notifications/cancelled": _ALL,
        "notifications/progress": _HANDSHAKE | _DRAFT,
        "notifications/roots/list_changed": _HANDSHAKE,
    }
)
"""Notifications from client to server. From `2026-07-28` on, `notifications/cancelled` has a
meaning on stdio only: over HTTP, the ids of unrelated clients collide."""

SERVER_NOTIFICATIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "notifications/cancelled": _ALL,
        "notifications/progress": _ALL,
        "notifications/message": _ALL,
        "notifications/tools/list_changed": _ALL,
        "notifications/prompts/list_changed": _ALL,
        "notifications/resources/list_changed": _ALL,
        "notifications/resources/updated": _ALL,
        "notifications/elicitation/complete": _versions([V2025_11_25]) | _DRAFT,
        "notifications/subscriptions/acknowledged": _STATELESS,
        "notifications/tasks": _STATELESS,
        "notifications/tasks/status": _WITH_TASKS,
    }
)
"""Notifications from server to client."""
