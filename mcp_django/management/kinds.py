"""The four kinds of component as a command line names them, and what each is on the wire."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.core.component import Component
from mcp_django.execution.handlers import prompts, resources, tools
from mcp_django.management.offering import components_of
from mcp_django.protocol import shapes
from mcp_django.protocol.revisions import Revision
from mcp_django.server import MCPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind; ``component_kind`` is the specification's word for it."""

    name: str
    plural: str
    component_kind: str
    describe: Callable[[Any], dict[str, Any]]
    project: Callable[[Mapping[str, Any], Revision], dict[str, Any]]

    def components(self, server: MCPServer) -> list[Component]:
        """Those of a server, in the order in which its lists have them."""
        found = [one for one in components_of(server) if one.kind == self.component_kind]
        return sorted(found, key=lambda one: one.key)

    def wire(self, component: Component, revision: Revision) -> dict[str, Any]:
        """The entry that a client of this revision finds in its list."""
        return self.project(self.describe(component), revision)


KINDS = (
    Kind(
        name="tool",
        plural="tools",
        component_kind="tool",
        describe=tools.describe,
        project=shapes.project_tool,
    ),
    Kind(
        name="resource",
        plural="resources",
        component_kind="resource",
        describe=resources.describe_resource,
        project=shapes.project_resource,
    ),
    Kind(
        name="template",
        plural="templates",
        component_kind="resource template",
        describe=resources.describe_template,
        project=shapes.project_resource,
    ),
    Kind(
        name="prompt",
        plural="prompts",
        component_kind="prompt",
        describe=prompts.describe,
        project=shapes.project_prompt,
    ),
)
PLURALS = tuple(kind.plural for kind in KINDS)


def kind_of(component: Component) -> Kind:
    """The kind of a component."""
    return next(kind for kind in KINDS if kind.component_kind == component.kind)


def kind_argument(text: str) -> Kind:
    """The kind that a command line names, in the plural or in the singular.

    Raises:
        ArgumentTypeError: it names none.
    """
    for kind in KINDS:
        if text in (kind.plural, kind.name):
            return kind
    raise argparse.ArgumentTypeError(f"{text!r} is no kind; use {', '.join(PLURALS)}")
