"""From the words of a command line to the request that uses a component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from mcp_django.core.component import Component, Prompt
from mcp_django.core.resource import ReadableComponent, ResourceTemplate
from mcp_django.core.tool import Tool
from mcp_django.management.values import read_object, read_pairs, read_text_pairs

Request = tuple[str, dict[str, Any]]


def request_for(
    component: Component, name: str, *, pairs: Sequence[str], json_arguments: str | None
) -> Request:
    """The method that uses the component, and its parameters.

    ``name`` is what the component was called by: of a template it may be a whole URI.

    Raises:
        CommandError: the arguments do not fit.
    """
    given = read_object(json_arguments, "--json-args") if json_arguments else {}
    if isinstance(component, Tool):
        arguments = {**given, **read_pairs(pairs, component.arguments.json_schema)}
        return "tools/call", {"name": component.name, "arguments": arguments}
    if isinstance(component, Prompt):
        known = [one.name for one in component.parameters]
        arguments = {**given, **read_text_pairs(pairs, known)}
        return "prompts/get", {"name": component.name, "arguments": arguments}
    assert isinstance(component, ReadableComponent)
    if isinstance(component, ResourceTemplate) and name in (component.key, component.name):
        values = {**given, **read_text_pairs(pairs, component.template.variables)}
        return "resources/read", {"uri": _expanded(component, values)}
    if given or pairs:
        raise CommandError(f"{component} takes no arguments; its URI says everything.")
    return "resources/read", {"uri": component.key if name == component.name else name}


def _expanded(component: ResourceTemplate, values: Mapping[str, Any]) -> str:
    template = component.template
    try:
        return template.expand({name: str(value) for name, value in values.items()})
    except ValueError as exc:
        names = " ".join(f"{variable}=…" for variable in template.variables)
        raise CommandError(f"{exc}. Give {names}, or a whole URI.") from None
