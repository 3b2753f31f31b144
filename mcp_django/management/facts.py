"""What the commands say of a component: the same facts for the eye and for ``--json``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mcp_django.core.component import Component
from mcp_django.core.resource import ReadableComponent, SkillFile
from mcp_django.core.tool import Tool
from mcp_django.management.guards import guard_names
from mcp_django.management.kinds import kind_of
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.revisions import LATEST

# No tokenizer: each model has its own, and the bytes tell which tool is the big one.
BYTES_PER_TOKEN = 4
ESTIMATE = f"estimate: UTF-8 bytes / {BYTES_PER_TOKEN}"


def estimated_tokens(wire: Any) -> int:
    """About how much of a model's context a JSON value takes."""
    return math.ceil(len(encode(wire)) / BYTES_PER_TOKEN)


def flags(component: Component) -> list[str]:
    """What tells a component from a plain one, a few words each."""
    hints = component.hints if isinstance(component, Tool) else {}
    marks = {
        "read-only": hints.get("readOnlyHint"),
        "destructive": hints.get("destructiveHint"),
        "slow": component.slow,
        "skill": isinstance(component, SkillFile) and component.frontmatter is not None,
    }
    lists = {
        "needs": component.needs,
        "permission": guard_names(component.permission),
        "scopes": component.scopes,
    }
    return [
        *(word for word, holds in marks.items() if holds),
        *(f"{word} {' '.join(names)}" for word, names in lists.items() if names),
        *([f"rate {', '.join(map(str, component.rates))}"] if component.rates else []),
        *([f"approval {approval_of(component)}"] if approval_of(component) else []),
    ]


def approval_of(component: Component) -> str:
    """Who has to approve each call: ``"caller"``, ``"staff"`` or nobody."""
    return component.approval if isinstance(component, Tool) else ""


def facts(component: Component) -> dict[str, Any]:
    """The component as an entry of a JSON list."""
    kind = kind_of(component)
    address = {"uri": component.key} if isinstance(component, ReadableComponent) else {}
    return {
        "kind": kind.name,
        "name": component.name,
        **address,
        "aliases": list(component.aliases),
        "title": str(component.title),
        "hints": component.hints if isinstance(component, Tool) else {},
        "slow": component.slow,
        "needs": list(component.needs),
        "permission": guard_names(component.permission),
        "scopes": list(component.scopes),
        "rate": [str(rate) for rate in component.rates],
        "approval": approval_of(component),
        "estimated_tokens": estimated_tokens(kind.wire(component, LATEST)),
    }


def total_tokens(entries: Iterable[Mapping[str, Any]], instructions: str) -> int:
    """What a client takes in that loads every list of a server, and its instructions."""
    lists: int = sum(one["estimated_tokens"] for one in entries)
    return lists + (estimated_tokens(instructions) if instructions else 0)
