"""What a schema says beside its rules: descriptions, titles, defaults, examples and the like.

A model reads these, and some hosts hold what a person approved to them word for word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcp_django.management.contract.schemas.gap import Path, TooLarge
from mcp_django.management.contract.schemas.part import HOLDING, MAX_STEPS, VALIDATING, Root
from mcp_django.management.contract.schemas.values import fingerprint
from mcp_django.schema.structure import children

Texts = dict[Path, frozenset[tuple[str, str]]]
"""By the path of the value; in what order alternatives say something makes no difference."""

_DEFINITIONS = frozenset({"$defs", "definitions"})
_NO_TEXT = VALIDATING | HOLDING | {"$schema", "$comment", "$vocabulary"}


def texts_of(schema: Any) -> Texts:
    """Everything that is said, with references followed.

    Raises:
        TooLarge: there is no end of it.
    """
    root = Root(schema)
    found: dict[Path, set[tuple[str, str]]] = {}
    for steps, (path, keyword, value) in enumerate(_said(root, schema, (), ())):
        if steps > MAX_STEPS:
            raise TooLarge
        found.setdefault(path, set())
        if keyword:
            found[path].add((keyword, fingerprint(value)))
    return {path: frozenset(said) for path, said in found.items()}


def _said(
    root: Root, schema: Any, path: Path, following: tuple[str, ...]
) -> Iterator[tuple[Path, str, Any]]:
    yield path, "", None
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        if keyword not in _NO_TEXT:
            yield path, keyword, value
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in following:
        yield from _said(root, root.follow(reference), path, (*following, reference))
    for steps, child in children(schema):
        if steps[0] not in _DEFINITIONS:
            yield from _said(root, child, (*path, *_step(steps)), following)


def _step(steps: tuple[str | int, ...]) -> Path:
    """What a keyword adds to the path of the value: nothing where it speaks of the same value."""
    keyword = str(steps[0])
    if keyword in ("properties", "patternProperties"):
        mark = "/" if keyword == "patternProperties" else ""
        return (f"{mark}{steps[1]}{mark}",)
    if keyword == "prefixItems":
        return (f"[{steps[1]}]",)
    if keyword in ("items", "contains", "unevaluatedItems", "additionalItems"):
        return ("[]",)
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return ("*",)
    return ()
