"""Checks that what is to stay out of the log is called as callers call it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage

from mcp_django.core.component import Component
from mcp_django.schema.structure import walk
from mcp_django.server import all_servers


def check_sensitive(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W017: ``sensitive`` names an argument that there is not, so that nothing is hidden."""
    return [
        checks.Warning(
            f"The {component} has sensitive={name!r}, and no argument of that name.",
            hint="Write the name as it is in the input schema, where an alias takes its place.",
            obj=server,
            id="mcp_django.W017",
        )
        for server in all_servers()
        for component in server
        if component.sensitive
        for name in _unheard_of(component)
    ]


def _unheard_of(component: Component) -> Iterator[str]:
    source: Any = getattr(component, "arguments", None)
    schema = source.json_schema if source is not None else {}
    known: set[str] = set()
    for _path, member in walk(schema):
        if member.get("additionalProperties") not in (None, False):
            # Names that nobody declared may come.
            return
        known.update(member.get("properties", ()))
    yield from (name for name in component.sensitive if name not in known)
