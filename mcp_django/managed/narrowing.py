"""A component as the admin narrows it: never more than code allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mcp_django.auth.permissions import BasePermission, HasCodename, InGroups
from mcp_django.conf import Rate
from mcp_django.core.component import Component
from mcp_django.core.resource import Resource, UIResource
from mcp_django.core.tool import Approval, Tool

C = TypeVar("C", bound=Component)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What the admin says of one component; empty means as in code."""

    is_enabled: bool = True
    title: str = ""
    description: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    approval: Approval = ""


AS_IN_CODE = Override()


def guards_of(groups: Sequence[str], codenames: Iterable[str]) -> tuple[BasePermission, ...]:
    """Names of groups, one of which the user has to be in, and codenames, all of which he needs."""
    named = (InGroups(groups),) if groups else ()
    return (*named, *map(HasCodename, codenames))


def narrowed(component: C, override: Override) -> C | None:
    """The component as it is offered, ``None`` for not at all."""
    if not override.is_enabled:
        return None
    if override == AS_IN_CODE:
        return component
    changes: dict[str, Any] = {}
    if override.title:
        changes["title"] = override.title
    if override.description:
        changes["description"] = override.description
    if guards := guards_of(override.groups, override.permissions):
        changes["permission"] = [component.permission, *guards]
    if override.scopes:
        changes["scopes"] = tuple(dict.fromkeys((*component.scopes, *override.scopes)))
    if override.rates:
        changes["rates"] = (*component.rates, *override.rates)
    if override.approval and isinstance(component, Tool):
        changes["approval"] = stricter(component.approval, override.approval)
    return replace(component, **changes)


def with_their_tools(
    resources: dict[str, Resource], tools: Mapping[str, Tool]
) -> dict[str, Resource]:
    """Resources, the pages of views among them as narrow as their tools, without which they go."""
    if not any(isinstance(one, UIResource) for one in resources.values()):
        return resources
    guarded = {key: _as_its_tool(one, tools) for key, one in resources.items()}
    return {key: one for key, one in guarded.items() if one is not None}


def _as_its_tool(resource: Resource, tools: Mapping[str, Tool]) -> Resource | None:
    if not isinstance(resource, UIResource):
        return resource
    tool = tools.get(resource.tool)
    if tool is None:
        return None
    if tool.permission == resource.permission and tool.scopes == resource.scopes:
        return resource
    return replace(
        resource,
        permission=[resource.permission, tool.permission],
        scopes=tuple(dict.fromkeys((*resource.scopes, *tool.scopes))),
    )


def stricter(declared: Approval, decided: Approval) -> Approval:
    """Of two kinds of approval the one that asks more: somebody else rather than the caller."""
    return "staff" if "staff" in (declared, decided) else decided or declared
