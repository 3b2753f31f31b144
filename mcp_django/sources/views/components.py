"""From a view of the site to the component that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import lazystr

from mcp_django.core.component import Component, ComponentFunction, Prompt
from mcp_django.core.resource import Resource, ResourceTemplate
from mcp_django.core.tool import Tool
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.sources.views.source import ViewSource

Kind = Literal["tool", "resource", "prompt"]


def component_of(
    source: ViewSource,
    *,
    kind: Kind,
    name: str,
    verb: str,
    options: Mapping[str, Any],
    template: URITemplate | None = None,
) -> Component:
    """The component that a source answers for.

    It opens no transaction, since Django's handler opens the one that the view asks for, and is
    not governed: a page may count its visitors.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given.setdefault("name", name)
    given["description"] = given.get("description") or lazystr(_Described(source))
    for listed in ("scopes", "icons"):
        if isinstance(given.get(listed), str):
            raise ImproperlyConfigured(f"{listed} is a list: write {listed}=[{given[listed]!r}].")
        given[listed] = tuple(given.get(listed, ()))
    common = {**given, "atomic": False, "enforce": False}
    found: Component
    if kind == "tool":
        hints = {"read_only": True} if verb == "GET" else {}
        found = Tool(
            **{**hints, **common}, function=_function(source.run_tool), arguments=source.arguments
        )
    elif kind == "prompt":
        _refuse(Prompt, common)
        found = Prompt(**common, function=_function(source.run_prompt), arguments=source.arguments)
    else:
        assert template is not None
        _refuse(Resource, common)
        function = _function(source.run_resource)
        if template.variables:
            found = ResourceTemplate(
                **common, function=function, template=template, arguments=source.arguments
            )
        else:
            found = Resource(**common, function=function, uri=template.template)
    source.arguments.is_published = True
    return found


class _Described:
    """The description of a component as late as it is read: it is with the view."""

    def __init__(self, source: ViewSource) -> None:
        self._source = source

    def __str__(self) -> str:
        return self._source.description()


def _function(method: Callable[..., Any]) -> ComponentFunction:
    return ComponentFunction(function=method, is_async=False, context_parameter="ctx")


def _refuse(kind: type[Component], options: Mapping[str, Any]) -> None:
    """Refuse what belongs to tools alone."""
    known = {field.name for field in fields(kind)}
    for name in options:
        if name not in known:
            raise ImproperlyConfigured(f"A {kind.kind} has no option {name!r}.")
