"""``initialize`` and the methods of a session: ping, log level, resource subscriptions, listening.

``initialize`` is the handshake of 2024-11-05 to 2025-11-25; ping, log level and
``resources/subscribe`` exist only in these revisions. ``subscriptions/listen`` replaces the
subscriptions at 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mcp_django.components.catalog import Server
from mcp_django.exceptions import (
    AuthenticationRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
)
from mcp_django.execution.call import WHY_NO_STREAMS, Call
from mcp_django.execution.handlers.listing import capabilities
from mcp_django.execution.handlers.resources import authorize_read, is_readable, not_found
from mcp_django.execution.handlers.subscribed_resources import (
    SubscribedResources,
    Subscription,
    select_uris,
)
from mcp_django.execution.policy import PermissionCache
from mcp_django.execution.task_support import declares_tasks, may_follow_task, task_capability
from mcp_django.protocol import jsonrpc, projection
from mcp_django.protocol.envelope import (
    trim_capabilities,
    trim_client_info,
)
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.protocol.jsonrpc import Request, read_params
from mcp_django.protocol.revisions import HANDSHAKE, Revision, severity
from mcp_django.schema.values import MAX_DEPTH, is_too_deep
from mcp_django.storage.sessions import ClientSession, TooManySubscriptions


class LevelParams(msgspec.Struct):
    """Parameters of ``logging/setLevel``."""

    level: str


class UriParams(msgspec.Struct):
    """Parameters of ``resources/subscribe`` and ``resources/unsubscribe``."""

    uri: str


def ping(call: Call) -> dict[str, Any]:
    """Return an empty result."""
    return {}


def set_level(call: Call) -> dict[str, Any]:
    """Store the log level of the session."""
    level = read_params(call.request.params, LevelParams).level
    severity(level)
    _require_session(call).set_log_level(level)
    return {}


def authorize_subscription(call: Call) -> str:
    """Return the URI to subscribe to, if the caller may read its resource.

    For a template, whether the row exists is not checked.

    Raises:
        InsufficientScope: the user may read the resource, but the credential lacks a scope.
        MethodNotFound: there is no stream to send changes on, as under WSGI.
        ResourceNotFound: no resource that allows subscriptions has this URI, or the caller may not
            see it.
    """
    if not call.channel.can_stream:
        raise MethodNotFound(
            "This server cannot send changes: it has no streams, since it runs under WSGI."
        )
    uri = read_params(call.request.params, UriParams).uri
    # Not valid in a URI, and PostgreSQL cannot store it.
    if "\0" in uri:
        raise not_found(uri)
    try:
        component = authorize_read(call.nested(), uri)
    except AuthenticationRequired:
        raise not_found(uri) from None
    if not component.subscribe:
        raise not_found(uri)
    return uri


def subscribe(call: Call) -> dict[str, Any]:
    """Subscribe the session to changes of a resource that its caller may read."""
    uri = authorize_subscription(call)
    if not is_readable(call, uri):
        raise not_found(uri)
    try:
        _require_session(call).subscribe(uri)
    except TooManySubscriptions:
        raise InvalidParams("The session has too many subscriptions; end some first.") from None
    return {}


def unsubscribe(call: Call) -> dict[str, Any]:
    """End a subscription of the session; one that does not exist is not an error."""
    _require_session(call).unsubscribe(read_params(call.request.params, UriParams).uri)
    return {}


def _require_session(call: Call) -> ClientSession:
    if call.session is None:
        raise InvalidRequest("Send initialize first.")
    return call.session


# The maximum number of tasks on one stream; others are left out of the acknowledgement.
MAX_TASKS = 100


class NotificationFilter(msgspec.Struct, rename="camel"):
    """The notifications that the client requests; absent and false are the same."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


class ListenParams(msgspec.Struct):
    """Parameters of ``subscriptions/listen``."""

    notifications: NotificationFilter


def listen(call: Call) -> Subscription:
    """Return the subset of the requested notifications that the server will send."""
    requested = read_params(call.request.params, ListenParams).notifications
    available = capabilities(call.server, can_stream=call.channel.can_stream)
    if not call.channel.can_stream:
        raise MethodNotFound(WHY_NO_STREAMS)
    if not available:
        raise MethodNotFound("This server has no changes to listen for.")
    if requested.task_ids and not declares_tasks(call):
        raise MissingCapability(
            f"taskIds needs the extension {TASKS}.",
            data={"requiredCapabilities": extension_declaration(TASKS)},
        )
    permission_cache, catalog = PermissionCache(call.principal), call.server.catalog
    subscribed = SubscribedResources(select_uris(requested.resource_subscriptions))
    visible = subscribed.visible_to(call.principal, catalog, permission_cache)
    if len(visible.uris) < len(subscribed.uris):
        # Hidden and unknown URIs take the same time.
        permission_cache.check_all(catalog.readable_components())
    flags = {
        "tools": requested.tools_list_changed,
        "prompts": requested.prompts_list_changed,
        "resources": requested.resources_list_changed,
    }
    return Subscription(
        kinds=frozenset(kind for kind, flag in flags.items() if flag and kind in available),
        resources=visible,
        tasks=tuple(
            task_id
            for task_id in dict.fromkeys(requested.task_ids[:MAX_TASKS])
            if may_follow_task(call, task_id, permission_cache)
        ),
    )


class InitializeParams(msgspec.Struct, rename="camel"):
    """Parameters of ``initialize``."""

    protocol_version: Any = None
    capabilities: dict[str, Any] = {}
    client_info: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The result of the handshake."""

    revision: Revision
    capabilities: Mapping[str, Any]
    client_info: Mapping[str, Any]


def negotiate(server: Server, request: Request) -> HandshakeResult:
    """Negotiate the revision: the requested one, or else the newest that the server supports.

    Raises:
        InvalidParams: no revision is requested, or the parameters are too large to be stored.
    """
    params = read_params(request.params, InitializeParams, lenient=True)
    if is_too_deep(request.params, [params.capabilities, params.client_info]):
        raise InvalidParams(f"params are nested deeper than {MAX_DEPTH} levels")
    enabled = supported_revisions(server)
    requested = params.protocol_version
    if not isinstance(requested, str):
        raise InvalidParams(
            "params.protocolVersion must be a string",
            data={
                "supported": [candidate.version for candidate in enabled],
                "requested": requested,
            },
        )
    revision = next(
        (candidate for candidate in enabled if candidate.version == requested), enabled[0]
    )
    return HandshakeResult(
        revision,
        trim_capabilities(_with_objects(params.capabilities)),
        trim_client_info(params.client_info),
    )


def _with_objects(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return capabilities with empty objects in place of the empty arrays that PHP clients send.

    They are replaced two levels deep, as in ``{"elicitation": {"form": []}}``; a deeper value may
    really be an array.
    """
    meant: dict[str, Any] = {}
    for kind, declared in capabilities.items():
        if isinstance(declared, dict):
            meant[kind] = {name: {} if value == [] else value for name, value in declared.items()}
        else:
            meant[kind] = {} if declared == [] else declared
    return meant


def initialize_response(
    server: Server, request: Request, agreement: HandshakeResult, *, can_stream: bool
) -> bytes:
    """Return the response to ``initialize``."""
    result: dict[str, Any] = {
        "protocolVersion": agreement.revision.version,
        "capabilities": {
            **capabilities(server, can_stream=can_stream),
            **task_capability(server),
        },
        "serverInfo": server.identity(),
    }
    if server.instructions:
        result["instructions"] = server.instructions
    projected = projection.project_result("initialize", result, agreement.revision, identity=None)
    return jsonrpc.encode(jsonrpc.build_result(request.id, projected))


def supported_revisions(server: Server) -> list[Revision]:
    """Return the handshake revisions that a server supports, newest first."""
    return [revision for revision in HANDSHAKE if revision.version in server.protocol_versions]
