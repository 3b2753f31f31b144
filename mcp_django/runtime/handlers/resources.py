"""``resources/list``, ``resources/templates/list`` and ``resources/read``."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from mcp_django.core.resource import ReadableComponent, Resource, ResourceTemplate, UIResource
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    ElicitationDeclined,
    MCPError,
    ResourceNotFound,
)
from mcp_django.protocol.content import ResourceContents
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.runtime import calls, failures, results
from mcp_django.runtime.handlers import entries
from mcp_django.runtime.handlers.paging import common, page
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.input_responses import RoundParams
from mcp_django.runtime.interaction import Interaction
from mcp_django.runtime.journal import Entry
from mcp_django.runtime.policy import admit, depends_on_caller
from mcp_django.runtime.throttling import spend
from mcp_django.schema.arguments import InvalidArguments

NOT_CACHEABLE = {"ttlMs": 0, "cacheScope": "private"}


class ReadParams(RoundParams, kw_only=True):
    """Parameters of ``resources/read``."""

    uri: str


def list_resources(incoming: Incoming) -> dict[str, Any] | Invocation:
    """The fixed resources that the caller may see, and behind them those that templates list."""
    server = incoming.server
    listing = [one for one in server.offered.templates.values() if one.entries is not None]
    shown = [one for one in listing if entries.are_shown(incoming.principal, one)]
    if shown:
        return entries.list_entries(incoming, shown, describe=describe_resource)
    return page(
        incoming,
        server.offered.resources.values(),
        member="resources",
        describe=describe_resource,
        # Others have rows here.
        is_private=bool(listing),
    )


def list_templates(incoming: Incoming) -> dict[str, Any]:
    """The resource templates that the caller may see."""
    templates = incoming.server.offered.templates.values()
    return page(incoming, templates, member="resourceTemplates", describe=describe_template)


def describe_resource(resource: Resource) -> dict[str, Any]:
    """A resource in its richest shape."""
    described = {"uri": resource.uri, **_describe(resource)}
    if resource.size is not None:
        described["size"] = resource.size
    return described


def describe_template(template: ResourceTemplate) -> dict[str, Any]:
    """A resource template in its richest shape."""
    return {"uriTemplate": template.key, **_describe(template)}


def _describe(component: ReadableComponent) -> dict[str, Any]:
    described = common(component)
    if component.mime_type:
        described["mimeType"] = component.mime_type
    if component.annotations is not None:
        described["annotations"] = component.annotations.to_wire()
    return described


def read_resource(incoming: Incoming) -> Invocation:
    """Admit the reading of a resource; the function itself runs later."""
    params = read_params(incoming.request.params, ReadParams)
    reading = admit_reading(incoming, params.uri, entry=incoming.entry)
    interaction = Interaction(incoming, reading.component, encode(params.uri), params)
    spend(incoming, reading.component, interaction)
    reading = replace(reading, interaction=interaction)
    return _not_cacheable(reading) if params.is_retry else reading


def _not_cacheable(reading: Invocation) -> Invocation:
    """An answer of the user went into the result, which is for this once (CCH-2)."""
    return replace(reading, conclude=lambda value: {**reading.conclude(value), **NOT_CACHEABLE})


def admit_reading(incoming: Incoming, uri: str, *, entry: Entry | None = None) -> Invocation:
    """The call that reads a URI for this caller; without an ``entry`` it is a part of another one.

    Raises:
        ResourceNotFound: nothing answers for the URI, or the caller may not see what does; the
            two are told apart by nobody.
    """
    entry = entry or Entry()
    entry.wants(uri)
    try:
        check_uri(uri)
    except ValueError:
        raise _not_found(uri) from None
    offered = incoming.server.offered
    component, variables = offered.find_resource(uri) or (None, {})
    if component is not None:
        entry.found(component, uri=uri)
    is_admitted = admit(incoming.principal, component, among=offered.readable(), entry=entry)
    if component is None or not is_admitted:
        raise _not_found(uri)
    entry.admitted(variables)
    return Invocation(
        incoming=incoming,
        component=component,
        arguments=_arguments(component, variables, uri, entry=entry),
        entry=entry,
        conclude=partial(results.resource_result, component, uri, _hints(incoming, component)),
        excuse=partial(failures.resource_failure, component, uri),
    )


def is_readable(incoming: Incoming, uri: str) -> bool:
    """Whether the caller could read a URI now.

    What a template's function lets through only the function knows, so it is tried; a fixed
    resource has no rows to guard. Uses the database.
    """
    try:
        invocation = admit_reading(incoming, uri)
        if isinstance(invocation.component, ResourceTemplate):
            calls.run(replace(invocation, conclude=lambda value: {}))
    except (MCPError, AccessRefused):
        return False
    return True


def read_contents(
    incoming: Incoming, uri: str, interaction: Interaction | None
) -> list[ResourceContents]:
    """What a resource holds, for a component that reads another on behalf of its caller.

    Raises:
        InputRequired: the resource asks something, and the component has to wait for it too.
        ElicitationDeclined: the user did not want to answer; the component may go on without.
    """
    try:
        invocation = admit_reading(incoming, uri)
    except AuthenticationRequired:
        # Told apart from "not found" it would tell an anonymous caller what there is.
        raise _not_found(uri) from None
    component = invocation.component
    assert isinstance(component, ReadableComponent)
    found: list[ResourceContents] = []

    def keep(value: Any) -> dict[str, Any]:
        found.extend(results.resource_contents(component, value))
        return {}

    def excuse(exc: Exception) -> dict[str, Any]:
        if isinstance(exc, ElicitationDeclined):
            raise exc
        return invocation.excuse(exc)

    calls.perform(replace(invocation, conclude=keep, excuse=excuse, interaction=interaction))
    return found


def _arguments(
    component: ReadableComponent, variables: dict[str, str], uri: str, *, entry: Entry
) -> dict[str, Any]:
    if not isinstance(component, ResourceTemplate):
        return {}
    try:
        return component.arguments.parse(json.dumps(variables).encode())
    except InvalidArguments as exc:
        entry.wrong(exc.problems)
        # "orders/abc" where a number is expected names nothing that exists.
        raise _not_found(uri) from None


def _hints(incoming: Incoming, component: ReadableComponent) -> dict[str, Any]:
    public = component.cache_public and not depends_on_caller(incoming.server, component)
    if isinstance(component, UIResource) and component.is_of_any_host:
        public = False
    return {
        "ttlMs": int(component.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if public else "private",
    }


def _not_found(uri: str) -> ResourceNotFound:
    return ResourceNotFound(
        "Resource not found; see resources/list and resources/templates/list.", data={"uri": uri}
    )
