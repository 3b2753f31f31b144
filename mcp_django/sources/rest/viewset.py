"""``register_viewset``: the actions of a viewset as tools."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.tool import Tool
from mcp_django.sources.rest.actions import viewset_endpoints
from mcp_django.sources.rest.endpoint import Endpoint
from mcp_django.sources.rest.naming import (
    basename_of,
    description_of,
    plural_of,
    slug,
    viewset_tool_name,
)
from mcp_django.sources.rest.tools import Options, rest_tool


def viewset_tools(
    viewset: Any,
    *,
    basename: str | None = None,
    actions: Sequence[str] | None = None,
    name: str = "",
    plural: str = "",
    names: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
    serializers: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Tool]:
    """One tool for each action.

    Raises:
        ImproperlyConfigured: there is no such action, or no way to call it with arguments.
    """
    space, _, base = basename_of(viewset, basename).rpartition(":")
    endpoints = viewset_endpoints(viewset, actions, basename=base)
    for option, given in (
        ("names", names),
        ("descriptions", descriptions),
        ("serializers", serializers),
    ):
        _check_actions(option, given or {}, endpoints)
    shared = Options(**options)
    noun = slug(name or base)
    several = slug(plural) or plural_of(noun, endpoints[0].model)
    own_names = _names(endpoints, noun, several, names or {})
    for endpoint, own in zip(endpoints, own_names, strict=True):
        yield rest_tool(
            endpoint,
            shared,
            name=own,
            description=(descriptions or {}).get(endpoint.action) or description_of(endpoint, noun),
            namespace=space,
            serializer=(serializers or {}).get(endpoint.action),
        )


def _names(
    endpoints: Sequence[Endpoint], noun: str, plural: str, given: Mapping[str, str]
) -> Iterator[str]:
    taken: set[str] = set()
    for endpoint in endpoints:
        name = given.get(endpoint.action) or viewset_tool_name(endpoint, noun, plural)
        # One function for several verbs: the first of them has the name.
        yield f"{name}_{endpoint.method}" if name in taken else name
        taken.add(name)


def _check_actions(option: str, given: Mapping[str, Any], endpoints: Iterable[Endpoint]) -> None:
    known = list(dict.fromkeys(endpoint.action for endpoint in endpoints))
    for action in given:
        if action not in known:
            nearest = difflib.get_close_matches(action, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there is {', '.join(known)}."
            raise ImproperlyConfigured(
                f"{option} speaks of {action!r}, which is not registered; {hint}"
            )
