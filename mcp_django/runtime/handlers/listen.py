"""``subscriptions/listen``: decide what a stream of changes may carry (2026-07-28)."""

from __future__ import annotations

import msgspec

from mcp_django.exceptions import MethodNotFound, MissingCapability
from mcp_django.protocol.errors import TASKS, required_extension
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.runtime.handlers.discover import capabilities
from mcp_django.runtime.handlers.tasks import readable_task
from mcp_django.runtime.incoming import Incoming, Listening
from mcp_django.runtime.policy import visible
from mcp_django.runtime.reasons import Verdicts
from mcp_django.runtime.tasks.choosing import knows_tasks

# More addresses than this on one stream are left out of the acknowledgement.
MAX_URIS = 1000
MAX_TASKS = 100


class Filter(msgspec.Struct, rename="camel"):
    """What the client wants to hear of; absent and false are the same."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


class ListenParams(msgspec.Struct):
    """Parameters of ``subscriptions/listen``."""

    notifications: Filter


def listen(incoming: Incoming) -> Listening:
    """The subset of the wishes that will be honored (SUB-8)."""
    wanted = read_params(incoming.request.params, ListenParams).notifications
    offered = capabilities(incoming.server, can_stream=incoming.can_stream)
    if not incoming.can_stream:
        raise MethodNotFound("There are no streams here; this site is served over WSGI.")
    if not offered:
        raise MethodNotFound("This server has no changes to listen for.")
    if wanted.task_ids and not knows_tasks(incoming):
        raise MissingCapability(
            f"taskIds needs the extension {TASKS}.",
            data={"requiredCapabilities": required_extension(TASKS)},
        )
    verdicts = Verdicts(incoming.principal)
    flags = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
    }
    return Listening(
        incoming=incoming,
        kinds=frozenset(kind for kind, flag in flags.items() if flag and kind in offered),
        uris=_audible(incoming, wanted.resource_subscriptions[:MAX_URIS], verdicts),
        tasks=tuple(
            task_id
            for task_id in dict.fromkeys(wanted.task_ids[:MAX_TASKS])
            if readable_task(incoming, task_id, verdicts=verdicts) is not None
        ),
    )


def _audible(incoming: Incoming, uris: list[str], verdicts: Verdicts) -> tuple[str, ...]:
    """Those of which the caller may hear; what is hidden takes as long as what is not there."""
    wanted = dict.fromkeys(uris)
    found = tuple(uri for uri in wanted if may_hear_of(incoming, uri, verdicts=verdicts))
    if len(found) < len(wanted):
        verdicts.ask_all(incoming.server.offered.readable())
    return found


def may_hear_of(incoming: Incoming, uri: str, *, verdicts: Verdicts | None = None) -> bool:
    """Whether the caller may know of this resource and the resource can be subscribed to."""
    try:
        check_uri(uri)
    except ValueError:
        return False
    component, _ = incoming.server.offered.find_resource(uri) or (None, {})
    if component is None or not component.subscribe:
        return False
    return visible(incoming.principal, component, verdicts=verdicts)
