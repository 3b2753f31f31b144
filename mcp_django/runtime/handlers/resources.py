"""``resources/list``, ``resources/templates/list`` and ``resources/read``."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.exceptions import AccessRefused, AuthenticationRequired, MCPError, ResourceNotFound
from mcp_django.protocol.content import ResourceContents
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.uritemplate import check_uri
from mcp_django.runtime import calls, failures, results
from mcp_django.runtime.handlers.paging import common, page
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.policy import admit, depends_on_caller
from mcp_django.schema.arguments import InvalidArguments


class ReadParams(msgspec.Struct):
    """Parameters of ``resources/read``."""

    uri: str


def list_resources(incoming: Incoming) -> dict[str, Any]:
    """The fixed resources that the caller may see."""
    resources = incoming.server.resources.values()
    return page(incoming, resources, member="resources", describe=_describe_resource)


def list_templates(incoming: Incoming) -> dict[str, Any]:
    """The resource templates that the caller may see."""
    templates = incoming.server.templates.values()
    return page(incoming, templates, member="resourceTemplates", describe=_describe_template)


def _describe_resource(resource: Resource) -> dict[str, Any]:
    described = {"uri": resource.uri, **_describe(resource)}
    if resource.size is not None:
        described["size"] = resource.size
    return described


def _describe_template(template: ResourceTemplate) -> dict[str, Any]:
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
    return admit_reading(incoming, read_params(incoming.request.params, ReadParams).uri)


def admit_reading(incoming: Incoming, uri: str) -> Invocation:
    """The call that reads a URI for this caller.

    Raises:
        ResourceNotFound: nothing answers for the URI, or the caller may not see what does; the
            two are told apart by nobody.
    """
    try:
        check_uri(uri)
    except ValueError:
        raise _not_found(uri) from None
    found = incoming.server.find_resource(uri)
    if found is None or not admit(incoming.principal, found[0]):
        raise _not_found(uri)
    component, variables = found
    return Invocation(
        incoming=incoming,
        component=component,
        arguments=_arguments(component, variables, uri),
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


def read_contents(incoming: Incoming, uri: str) -> list[ResourceContents]:
    """What a resource holds, for a component that reads another on behalf of its caller."""
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

    calls.run(replace(invocation, conclude=keep))
    return found


def _arguments(component: ReadableComponent, variables: dict[str, str], uri: str) -> dict[str, Any]:
    if not isinstance(component, ResourceTemplate):
        return {}
    try:
        return component.arguments.parse(json.dumps(variables).encode())
    except InvalidArguments:
        # "orders/abc" where a number is expected names nothing that exists.
        raise _not_found(uri) from None


def _hints(incoming: Incoming, component: ReadableComponent) -> dict[str, Any]:
    public = component.cache_public and not depends_on_caller(incoming.server, component)
    return {
        "ttlMs": int(component.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if public else "private",
    }


def _not_found(uri: str) -> ResourceNotFound:
    return ResourceNotFound(
        "Resource not found; see resources/list and resources/templates/list.", data={"uri": uri}
    )
