"""The kinds of component, their entries in the lists of clients, and the tokens that these take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.components.component import Component
from mcp_django.execution.handlers import prompts, resources, tools
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.projection import project_prompt, project_resource, project_tool
from mcp_django.protocol.revisions import Revision


@dataclass(frozen=True, slots=True)
class ComponentType:
    """One kind of component, by its names on the command line and in the specification."""

    name: str
    component_kind: str
    describe: Callable[[Any], dict[str, Any]]
    project: Callable[[Mapping[str, Any], Revision], dict[str, Any]]

    @property
    def plural(self) -> str:
        """The name of several components of this kind."""
        return f"{self.name}s"

    def wire(self, component: Component, revision: Revision) -> dict[str, Any]:
        """Return the component's entry in the list that a client of this revision receives."""
        return self.project(self.describe(component), revision)


KINDS = (
    ComponentType("tool", "tool", tools.describe_tool, project_tool),
    ComponentType("resource", "resource", resources.describe_resource, project_resource),
    ComponentType("template", "resource template", resources.describe_template, project_resource),
    ComponentType("prompt", "prompt", prompts.describe, project_prompt),
)


def component_type(component: Component) -> ComponentType:
    """Return the kind of a component."""
    return next(kind for kind in KINDS if kind.component_kind == component.kind)


# Not a tokenizer: each model has its own, and the size in bytes is enough to find large tools.
BYTES_PER_TOKEN = 4
ESTIMATE = f"estimate: UTF-8 bytes / {BYTES_PER_TOKEN}"


def estimate_tokens(wire: Any) -> int:
    """Return an estimate of the tokens that a JSON value takes in a model's context."""
    return math.ceil(len(encode(wire)) / BYTES_PER_TOKEN)
