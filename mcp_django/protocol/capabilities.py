"""What a client declared that it can be asked for, and how a lack of it is said.

Names are dotted as the declaration is nested: `elicitation.url` stands for
`{"elicitation": {"url": {}}}`. MCP 2026-07-28, "Elicitation" and "Sampling", capabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ASKABLE = ("elicitation", "elicitation.url", "roots", "sampling", "sampling.tools")
"""Everything that a component may need of a client."""


def check_askable(name: str) -> None:
    """Refuse a name that no client declares.

    Raises:
        ValueError: naming those that exist.
    """
    if name not in ASKABLE:
        raise ValueError(f"{name!r} is nothing a client can be asked for; use {_listed(ASKABLE)}")


def declares(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client that declares `capabilities` can be asked for `name`.

    `elicitation` is the form mode, which an empty declaration means too; a client that declares
    the URL mode alone has no forms.
    """
    kind, _, mode = name.partition(".")
    declared = capabilities.get(kind)
    if not isinstance(declared, Mapping):
        return False
    if mode:
        return isinstance(declared.get(mode), Mapping)
    if kind == "elicitation":
        return not declared or isinstance(declared.get("form"), Mapping)
    return True


def requirement(names: Iterable[str]) -> dict[str, Any]:
    """Return `names` in the shape in which a client would declare them."""
    required: dict[str, Any] = {}
    wanted = frozenset(names)
    for name in sorted(wanted):
        kind, _, mode = name.partition(".")
        within = required.setdefault(kind, {})
        if mode:
            within[mode] = {}
    if {"elicitation", "elicitation.url"} <= wanted:
        # Beside another mode forms have to be named.
        required["elicitation"]["form"] = {}
    return required


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
