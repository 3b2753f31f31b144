"""The values of override and exposure rows, and a component with its override applied.

An override never allows more than code does. A row may contain anything, since the database can be
written without the admin, so rows are read strictly. The ``error`` of an exposure row describes its
invalid data, and such a row is not in the catalog: an invalid list of groups must not give every
user access.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import router

from mcp_django.auth.permissions import BasePermission, HasCodename, InGroups
from mcp_django.components.component import Component
from mcp_django.components.resource import Resource, UIResource
from mcp_django.components.tool import ApprovalMode, Tool
from mcp_django.conf import Rate
from mcp_django.storage.databases import tables
from mcp_django.tenants import of_tenant

C = TypeVar("C", bound=Component)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """The override of one component; an empty value leaves the value of code unchanged."""

    is_enabled: bool = True
    title: str = ""
    description: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    approval: ApprovalMode = ""


EMPTY_OVERRIDE = Override()


def build_permissions(
    groups: Sequence[str], codenames: Iterable[str]
) -> tuple[BasePermission, ...]:
    """Return permissions: the user must be in one of the groups and have all of the codenames."""
    group_permissions = (InGroups(groups),) if groups else ()
    return (*group_permissions, *map(HasCodename, codenames))


def apply_override(component: C, override: Override) -> C | None:
    """Return the component with its override applied, or ``None`` if it is disabled."""
    if not override.is_enabled:
        return None
    if override == EMPTY_OVERRIDE:
        return component
    changes: dict[str, Any] = {}
    if override.title:
        changes["title"] = override.title
    if override.description:
        changes["description"] = override.description
    if guards := build_permissions(override.groups, override.permissions):
        changes["permission"] = [component.permission, *guards]
    if override.scopes:
        changes["scopes"] = tuple(dict.fromkeys((*component.scopes, *override.scopes)))
    if override.rates:
        changes["rates"] = (*component.rates, *override.rates)
    if override.approval and isinstance(component, Tool):
        # The stricter of both kinds: staff is stricter than the caller.
        is_staff = "staff" in (component.approval, override.approval)
        changes["approval"] = "staff" if is_staff else override.approval
    return replace(component, **changes)


def restrict_app_pages(
    resources: dict[str, Resource], tools: Mapping[str, Tool]
) -> dict[str, Resource]:
    """Restrict the pages of MCP Apps like their tools; drop pages whose tool is missing."""
    if not any(isinstance(resource, UIResource) for resource in resources.values()):
        return resources
    restricted: dict[str, Resource] = {}
    for key, resource in resources.items():
        if not isinstance(resource, UIResource):
            restricted[key] = resource
            continue
        tool = tools.get(resource.tool)
        if tool is None:
            continue
        if tool.permission == resource.permission and tool.scopes == resource.scopes:
            restricted[key] = resource
        else:
            restricted[key] = replace(
                resource,
                permission=[resource.permission, tool.permission],
                scopes=tuple(dict.fromkeys((*resource.scopes, *tool.scopes))),
            )
    return restricted


# More than a form writes, but small enough to be processed quickly.
MAX_CHARACTERS = 100_000
MAX_NAMES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureSpec:
    """The values of one exposure row; hashable, so that results can be cached.

    ``options`` is JSON text, and ``error`` describes the invalid data of the row.
    """

    pk: int
    kind: str
    server: str
    target: str
    name: str = ""
    options: str = "{}"
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.target!r} on the server {self.server!r}"

    def load_options(self) -> dict[str, Any]:
        """Return the options.

        Raises:
            ImproperlyConfigured: the row has invalid data.
        """
        if self.error:
            raise ImproperlyConfigured(self.error)
        options: dict[str, Any] = json.loads(self.options)
        return options


COLUMNS = ("pk", "kind", "server", "target", "name", "options", "groups", "permissions", "scopes")


def read_exposures(*, of_all: bool = False) -> dict[str, tuple[ExposureSpec, ...]]:
    """Return the enabled exposure rows by the name of their server, the oldest first.

    On a site with tenants, they are those of the current tenant, or with ``of_all`` of all tenants.
    """
    model, alias = tables.Exposure, router.db_for_write(tables.Exposure)
    all_rows = model._default_manager.using(alias) if of_all else of_tenant(model, alias)
    rows = all_rows.filter(is_enabled=True)
    specs_by_server: dict[str, list[ExposureSpec]] = defaultdict(list)
    for row in rows.order_by("pk").values(*COLUMNS):
        spec = _spec_from(row)
        specs_by_server[spec.server].append(spec)
    return {server: tuple(specs) for server, specs in specs_by_server.items()}


def spec_of(row: Any) -> ExposureSpec:
    """Return the values of a row; never fails."""
    return _spec_from({name: getattr(row, name) for name in COLUMNS})


def _spec_from(values: dict[str, Any]) -> ExposureSpec:
    """Return the values of a row's columns; never fails."""
    lists, text = ("groups", "permissions", "scopes"), "{}"
    flaws = [f"{name} is not a list of names." for name in lists if not is_name_list(values[name])]
    if not isinstance(values["options"], dict):
        flaws.append("options is not a JSON object.")
    else:
        try:
            text = json.dumps(values["options"], sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            flaws.append("options is not valid JSON.")
    if len(text) > MAX_CHARACTERS:
        flaws.append(f"options has more than {MAX_CHARACTERS} characters.")
    return ExposureSpec(
        pk=values["pk"] or 0,
        kind=str(values["kind"]),
        server=str(values["server"]),
        target=str(values["target"]),
        name=str(values["name"]),
        options="{}" if flaws else text,
        **{name: () if flaws else tuple(values[name]) for name in lists},
        error=" ".join(flaws),
    )


def is_name_list(value: Any) -> bool:
    """Return whether a value is a list of at most ``MAX_NAMES`` valid names."""
    return isinstance(value, list | tuple) and len(value) <= MAX_NAMES and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        # JSON can contain a lone surrogate, which cannot be sent in a page.
        return bool(value.encode())
    except UnicodeEncodeError:
        return False
