"""Describes the changes from one JSON Schema to another and their severity, for ``mcp contract``.

An input schema may accept more values but not fewer; an output schema may allow fewer but not
more. Titles, descriptions and other annotations count as well: models read them, and some hosts
require that they stay exactly as a person approved them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from mcp_django.management.contract_containment import (
    ABSENT,
    ANY_ITEM,
    CLOSED,
    CONSTRAINTS,
    MAX_STEPS,
    MEMBER,
    OTHER_MEMBERS,
    Gap,
    Path,
    SchemaRoot,
    SchemaTooLarge,
    fingerprint,
    gaps_between,
)
from mcp_django.protocol.headers import HEADER_KEYWORD, subschemas


class Level(IntEnum):
    """The severity of a change.

    ``SAFE``: every valid call stays valid, and every result conforms to the old schema.
    ``APPROVAL``: as ``SAFE``, but texts changed that a person or a host has approved.
    ``BREAKING``: a call or a reader of results may fail, or the opposite cannot be proven.
    """

    SAFE = 0
    APPROVAL = 1
    BREAKING = 2

    @property
    def label(self) -> str:
        """The level's name in commands and output."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: ``where`` is (server,) or (server, kind, component); ``what`` describes it."""

    level: Level
    where: tuple[str, ...]
    what: str


# Descriptions of changes --------------------------------------------------------------------------

Direction = Literal["input", "output"]
LeveledChange = tuple[Level, str]
_MOST_SHOWN = 200
_GAP_TEXTS: dict[tuple[str, Direction | None], tuple[str, str]] = {
    (CLOSED, None): ("removed", "added"),
    (MEMBER, "output"): ("added", "removed"),
    (MEMBER, "input"): ("now has a schema", "no longer has a schema"),
    ("required", None): ("now required", "no longer required"),
}
"""The text if the inner schema is the old one, and the text if it is the new one."""


def schema_changes(old: Any, new: Any, direction: Direction) -> list[LeveledChange]:
    """Return the changes from one schema to the other; empty if the schemas are equal."""
    if old == new:
        return []
    # Clients send declared arguments only, even if the schema allows additional ones.
    before, after = (_closed(old), _closed(new)) if direction == "input" else (old, new)
    refused, granted = gaps_between(before, new), gaps_between(after, before)
    breaking, safe = (refused, granted) if direction == "input" else (granted, refused)
    is_lost = direction == "input"
    lost = [(Level.BREAKING, _describe_gap(one, direction, is_lost=is_lost)) for one in breaking]
    gained = [
        (_level_of_safe_gap(one, direction), _describe_gap(one, direction, is_lost=not is_lost))
        for one in safe
        if one.is_sure and not _is_reported(one, breaking)
    ]
    found = [*lost, *gained, *_annotation_changes(old, new, direction)]
    return list(dict.fromkeys(found)) or [(Level.SAFE, f"{direction}: equivalent schema")]


def _level_of_safe_gap(gap: Gap, direction: Direction) -> Level:
    """Return ``SAFE``, or ``BREAKING`` for a removed member of a result, which clients may read."""
    is_gone = direction == "output" and gap.keyword == CLOSED and gap.path
    return Level.BREAKING if is_gone else Level.SAFE


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict) and "additionalProperties" not in schema:
        return {**schema, "additionalProperties": False}
    return schema


def _is_reported(gap: Gap, others: Iterable[Gap]) -> bool:
    """Return whether the same change is already reported as breaking."""
    return any((one.path, one.keyword) == (gap.path, gap.keyword) for one in others)


def _describe_gap(gap: Gap, direction: Direction, *, is_lost: bool) -> str:
    """Return the description of one gap; ``is_lost`` if the inner schema is the old one."""
    where = f"{direction} {_format_path(gap.path)}".rstrip()
    if not gap.is_sure:
        return f"{where}: the effect of the change of {gap.keyword} is not proven safe; review it"
    if gap.keyword in ("enum", "const"):
        return f"{where}: {_describe_values(gap, is_lost=is_lost)}"
    if words := _GAP_TEXTS.get((gap.keyword, direction)) or _GAP_TEXTS.get((gap.keyword, None)):
        return f"{where}: {words[0] if is_lost else words[1]}"
    old, new = (gap.inner, gap.outer) if is_lost else (gap.outer, gap.inner)
    return f"{where}: {gap.keyword} was {_format_value(old)}, is {_format_value(new)}"


def _format_path(path: Path) -> str:
    return ".".join(path).replace(".[", "[")


def _format_value(value: Any) -> str:
    if value is ABSENT:
        return "not given"
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _describe_values(gap: Gap, *, is_lost: bool) -> str:
    if gap.inner is ABSENT:
        return (
            f"{'now must be' if is_lost else 'no longer must be'} one of {_format_value(gap.outer)}"
        )
    return f"{'values removed' if is_lost else 'values added'}: {_format_value(gap.inner)}"


def _annotation_changes(old: Any, new: Any, direction: Direction) -> Iterator[LeveledChange]:
    """Yield the changes of titles, descriptions and other annotations at paths that both have."""
    try:
        before, after = _annotations_of(old), _annotations_of(new)
    except (SchemaTooLarge, RecursionError):
        yield Level.APPROVAL, f"{direction}: too many annotations to compare; review them"
        return
    for path, said in before.items():
        if path not in after or after[path] == said:
            continue
        keywords = sorted({keyword for keyword, _ in said ^ after[path]})
        where = f"{direction} {_format_path(path)}".rstrip()
        if HEADER_KEYWORD in keywords:
            text = f"{HEADER_KEYWORD} changed, and callers send the old header"
            yield Level.BREAKING, f"{where}: {text}"
        if rest := [one for one in keywords if one != HEADER_KEYWORD]:
            yield Level.APPROVAL, f"{where}: {' and '.join(rest)} changed"


# Descriptions, titles and examples ----------------------------------------------------------------

_Annotations = dict[Path, frozenset[tuple[str, str]]]
"""The (keyword, value) pairs by the path of the value; the order of alternatives is ignored."""

_DEFINITIONS = frozenset({"$defs", "definitions"})
_NOT_ANNOTATIONS = CONSTRAINTS | {"$schema", "$comment", "$vocabulary"}


def _annotations_of(schema: Any) -> _Annotations:
    """Return all annotations of a schema, with references followed.

    Raises:
        SchemaTooLarge: there are more than ``MAX_STEPS``.
    """
    root = SchemaRoot(schema)
    found: dict[Path, set[tuple[str, str]]] = {}
    for steps, (path, keyword, value) in enumerate(_walk_annotations(root, schema, (), ())):
        if steps > MAX_STEPS:
            raise SchemaTooLarge
        found.setdefault(path, set())
        if keyword:
            found[path].add((keyword, fingerprint(value)))
    return {path: frozenset(said) for path, said in found.items()}


def _walk_annotations(
    root: SchemaRoot, schema: Any, path: Path, following: tuple[str, ...]
) -> Iterator[tuple[Path, str, Any]]:
    yield path, "", None
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        if keyword not in _NOT_ANNOTATIONS:
            yield path, keyword, value
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in following:
        yield from _walk_annotations(
            root, root.resolve_reference(reference), path, (*following, reference)
        )
    for steps, child in subschemas(schema):
        if steps[0] not in _DEFINITIONS:
            yield from _walk_annotations(root, child, (*path, *_step(steps)), following)


def _step(steps: tuple[str | int, ...]) -> Path:
    """Return what a keyword adds to the path; nothing if it applies to the same value."""
    keyword = str(steps[0])
    if keyword in ("properties", "patternProperties"):
        mark = "/" if keyword == "patternProperties" else ""
        return (f"{mark}{steps[1]}{mark}",)
    if keyword == "prefixItems":
        return (f"[{steps[1]}]",)
    if keyword in ("items", "contains", "unevaluatedItems", "additionalItems"):
        return (ANY_ITEM,)
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return (OTHER_MEMBERS,)
    return ()
