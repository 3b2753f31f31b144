"""Describes the changes from one JSON Schema to another and their severity, for ``mcp contract``.

An input schema may accept more values but not fewer; an output schema may allow fewer but not
more. Titles, descriptions and other annotations count as well: models read them, and some hosts
require that they stay exactly as a person approved them.

The schemas of JSON Schema 2020-12 are compared part by part, after their references are inlined:
a rule for each keyword says whether its change makes a schema wider or narrower. A change for which
there is no rule counts as breaking, as do other ways to write the same constraint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Literal, TypeVar

from mcp_django.protocol.headers import HEADER_KEYWORD, map_subschemas
from mcp_django.protocol.text import clip
from mcp_django.schema.structure import (
    Schema,
    inline_references,
    is_annotation,
    resolve_reference,
    walk,
)


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


Direction = Literal["input", "output"]
LeveledChange = tuple[Level, str]
Path = tuple[str, ...]
_T = TypeVar("_T", list[Any], dict[str, Any])

MAX_SHOWN = 200


class Effect(Enum):
    """What the change of a keyword does to the set of values that a schema accepts."""

    NONE = "none"
    WIDER = "wider"
    NARROWER = "narrower"
    UNKNOWN = "unknown"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare_lower_limits(old: Any, new: Any) -> Effect:
    if not _is_number(old) or not _is_number(new):
        return Effect.UNKNOWN
    if new == old:
        return Effect.NONE
    return Effect.NARROWER if new > old else Effect.WIDER


def _compare_flags(old: Any, new: Any) -> Effect:
    if not isinstance(old, bool) or not isinstance(new, bool):
        return Effect.UNKNOWN
    return Effect.NARROWER if new else Effect.WIDER


def _compare_types(old: Any, new: Any) -> Effect:
    before, after = _types(old), _types(new)
    if before == after:
        return Effect.NONE
    if before < after:
        return Effect.WIDER
    return Effect.NARROWER if after < before else Effect.UNKNOWN


def _types(value: Any) -> set[str]:
    types = {value} if isinstance(value, str) else {*value}
    return types | {"integer"} if "number" in types else types


_LOWER_LIMITS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_LIMITS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_INDEPENDENT = (
    *("pattern", "format", "multipleOf", "contentEncoding", "contentMediaType"),
    *("propertyNames", "dependentRequired", "dependentSchemas", "oneOf", "anyOf", "allOf", "not"),
)
RULES: Mapping[str, Callable[[Any, Any], Effect]] = {
    "type": _compare_types,
    "uniqueItems": _compare_flags,
    **dict.fromkeys(_LOWER_LIMITS, _compare_lower_limits),
    **dict.fromkeys(_UPPER_LIMITS, lambda old, new: _compare_lower_limits(new, old)),
    **dict.fromkeys(_INDEPENDENT, lambda old, new: Effect.UNKNOWN),
}
"""The effect of changing a keyword's value, for keywords whose meaning depends on no other keyword.

Adding such a keyword makes a schema narrower, and removing it makes it wider.
"""
_IGNORED = frozenset({"$schema", "$comment", "$defs", "definitions"})
_DIALECTS = ("2020-12", "2019-09", "draft-07", "draft-06")
_BESIDE_REFERENCES = {"$ref", "required", "enum", "const", *_IGNORED, *RULES}
_DYNAMIC = frozenset({"$dynamicRef", "$recursiveRef"})
_DEPENDING_ON_OTHERS = frozenset({"unevaluatedProperties", "unevaluatedItems"})


# Comparing two schemas ----------------------------------------------------------------------------


def schema_changes(old: Any, new: Any, direction: Direction) -> list[LeveledChange]:
    """Return the changes from one schema to the other; empty if the schemas are equal."""
    if _text(old) == _text(new):
        return []
    try:
        unique_changes = dict.fromkeys(_compare(old, new, direction))
    except (ValueError, TypeError, RecursionError):
        # A schema is malformed or too large, or its dialect is not supported.
        text = f"{direction}: the effect of the change is not proven safe; review it"
        return [(Level.BREAKING, text)]
    changes = sorted(unique_changes, key=lambda change: -change[0])
    return changes or [(Level.SAFE, f"{direction}: equivalent schema")]


def _compare(old: Any, new: Any, direction: Direction) -> Iterator[LeveledChange]:
    """Yield the changes from one whole schema to the other.

    Raises:
        ValueError: the schemas cannot be compared.
    """
    is_same = _text(_constraints(old)) == _text(_constraints(new))
    dialects = {_check_dialect(schema, is_same=is_same) for schema in (old, new)}
    if len(dialects) > 1:
        raise ValueError("The dialect changed.")
    before, after = inline_references(_as_object(old)), inline_references(_as_object(new))
    comparison = _Comparison(before, after, direction, is_same=is_same)
    if direction == "input":
        # Clients send declared arguments only, even if the schema allows additional ones.
        before, after = ({"additionalProperties": False, **schema} for schema in (before, after))
    yield from comparison.changes(before, after, ())


def _check_dialect(schema: Any, *, is_same: bool) -> str:
    """Return the dialect of a schema that can be compared by the rules of 2020-12.

    Raises:
        ValueError: its keywords may have another meaning, or its references cannot be inlined.
    """
    dialect = str(_as_object(schema).get("$schema", "2020-12"))
    dialect = next((name for name in _DIALECTS if name in dialect), dialect)
    if is_same:
        return dialect
    for path, part in walk(schema):
        # A nested $id changes the base of references, and a dynamic reference has no fixed target.
        if part.keys() & _DYNAMIC or (path and "$id" in part):
            raise ValueError("References with another base are not supported.")
        # Older dialects ignore the siblings of a reference.
        if dialect not in _DIALECTS or ("$ref" in part and dialect != "2020-12"):
            raise ValueError(f"The dialect {dialect} is not supported.")
        # Some keywords would change their meaning if they were merged with those of the target.
        if "$ref" in part and any(
            not is_annotation(keyword) and keyword not in _BESIDE_REFERENCES for keyword in part
        ):
            raise ValueError("The siblings of a reference cannot be merged with its target.")
    return dialect


def _constraints(schema: Any) -> Any:
    """Return a schema without its annotations."""
    if not isinstance(schema, dict):
        return schema
    constraints = {
        name: value
        for name, value in schema.items()
        if not is_annotation(name) and name not in ("$schema", "$comment")
    }
    return map_subschemas(constraints, _constraints)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _definitions(schema: Schema) -> str | None:
    """Return the definitions as a text, or ``None`` if a reference points to anything else."""
    for _, part in walk(schema):
        reference = str(part.get("$ref", "#/$defs/"))
        if not reference.startswith(("#/$defs/", "#/definitions/")):
            return None
        if "$ref" in part and resolve_reference(schema, reference) is None:
            return None
    return _text([_constraints(schema.get(name)) for name in ("$defs", "definitions")])


class _Comparison:
    """A comparison of two whole schemas, part by part."""

    def __init__(self, old: Schema, new: Schema, direction: Direction, *, is_same: bool) -> None:
        self.old = old
        self.new = new
        self.direction = direction
        # Only recursive types are still references. Equal references may have different targets.
        definitions = _definitions(old)
        self.has_same_targets = is_same or None is not definitions == _definitions(new)
        self._followed: set[str] = set()

    def changes(self, old: Any, new: Any, path: Path) -> Iterator[LeveledChange]:
        """Yield the changes of the schema of the value at a path."""
        old, new = _as_object(old), _as_object(new)
        text = _text(old)
        if text == _text(new) and '"$ref"' not in text:
            return
        names = sorted(name for name in old.keys() | new.keys() if is_annotation(name))
        changed = [name for name in names if _text(_only(old, name)) != _text(_only(new, name))]
        if HEADER_KEYWORD in changed:
            changed.remove(HEADER_KEYWORD)
            what = f"{HEADER_KEYWORD} changed, and callers send the old header"
            yield Level.BREAKING, self._at(path, what)
        if changed:
            yield Level.APPROVAL, self._at(path, f"{' and '.join(changed)} changed")
        if _DEPENDING_ON_OTHERS & (old.keys() | new.keys()) and not self._is_same(old, new):
            # The meaning of these keywords depends on all others in the schema.
            yield self._unknown(path, "unevaluated members or items")
            return
        old, new = self._as_alternatives(old, new), self._as_alternatives(new, old)
        rest = {name for name in old.keys() | new.keys() if not is_annotation(name)} - _IGNORED
        for keywords, compare in _STRUCTURES.items():
            if not rest.isdisjoint(keywords):
                yield from compare(self, old, new, path)
                rest -= set(keywords)
        for name in sorted(rest):
            yield from self._keyword_changes(name, old, new, path)

    def _is_same(self, old: Any, new: Any) -> bool:
        """Return whether two schemas are equal, apart from annotations."""
        text = _text(_constraints(old))
        is_equal = text == _text(_constraints(new))
        return is_equal and (self.has_same_targets or '"$ref"' not in text)

    def _as_alternatives(self, schema: Schema, other: Schema) -> Schema:
        """Return the schema as ``anyOf``, if the other schema is an ``anyOf`` that contains it."""
        is_alternative = "anyOf" not in schema and _constraints(other).keys() == {"anyOf"}
        if is_alternative and any(
            self._is_same(schema, alternative) for alternative in other["anyOf"]
        ):
            return {"anyOf": [{k: v for k, v in schema.items() if not is_annotation(k)}]}
        return schema

    def _keyword_changes(
        self, name: str, old: Schema, new: Schema, path: Path
    ) -> Iterator[LeveledChange]:
        before, after = _only(old, name), _only(new, name)
        if self._is_same(before, after):
            if _text(before) != _text(after):
                yield Level.APPROVAL, self._at(path, f"texts of {name} changed")
            return
        effect = Effect.UNKNOWN
        if rule := RULES.get(name):
            effect = Effect.NARROWER if not before else Effect.WIDER
            effect = rule(old[name], new[name]) if before and after else effect
        if effect is Effect.UNKNOWN:
            yield self._unknown(path, name)
        elif effect is not Effect.NONE:
            what = f"{name} was {_shown(before)}, is {_shown(after)}"
            yield self._change(effect, path, what)

    def _change(self, effect: Effect, path: Path, what: str) -> LeveledChange:
        allowed = Effect.WIDER if self.direction == "input" else Effect.NARROWER
        return Level.SAFE if effect is allowed else Level.BREAKING, self._at(path, what)

    def _unknown(self, path: Path, what: str) -> LeveledChange:
        text = f"the effect of the change of {what} is not proven safe; review it"
        return Level.BREAKING, self._at(path, text)

    def _at(self, path: Path, what: str) -> str:
        place = ".".join(path).replace(".[", "[")
        return f"{self.direction} {place}".rstrip() + f": {what}"

    # Keywords that contain schemas or depend on each other

    def _reference_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        """Compare the targets of two references to recursive types, once for each pair."""
        pair = old.get("$ref"), new.get("$ref")
        if _text(pair) in self._followed:
            return
        self._followed.add(_text(pair))
        before, after = (
            resolve_reference(root, reference) if isinstance(reference, str) else None
            for root, reference in zip((self.old, self.new), pair, strict=True)
        )
        if before is not None and after is not None:
            yield from self.changes(before, after, path)
        elif not self._is_same(_only(old, "$ref"), _only(new, "$ref")):
            yield self._unknown(path, "$ref")

    def _value_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        before, after = _listed_values(old), _listed_values(new)
        if before is None and after is not None:
            yield self._change(Effect.NARROWER, path, f"now must be one of {_join(after)}")
        elif after is None and before is not None:
            yield self._change(Effect.WIDER, path, f"no longer must be one of {_join(before)}")
        else:
            if removed := [value for value in before or () if value not in (after or ())]:
                yield self._change(Effect.NARROWER, path, f"values removed: {_join(removed)}")
            if added := [value for value in after or () if value not in (before or ())]:
                yield self._change(Effect.WIDER, path, f"values added: {_join(added)}")

    def _required_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        before, after = _get(old, "required", list), _get(new, "required", list)
        for name in sorted({*after} - {*before}):
            yield self._change(Effect.NARROWER, (*path, name), "now required")
        for name in sorted({*before} - {*after}):
            yield self._change(Effect.WIDER, (*path, name), "no longer required")

    def _member_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        before, after = _get(old, "properties", dict), _get(new, "properties", dict)
        yield from self._keyword_changes("patternProperties", old, new, path)
        if "patternProperties" in old and before.keys() != after.keys():
            # A pattern may apply to a member that was added or removed.
            yield self._unknown(path, "properties")
            return
        others_before = old.get("additionalProperties", True)
        others_after = new.get("additionalProperties", True)
        for name in {**before, **after}:
            place = (*path, name)
            if name in before and name in after:
                yield from self.changes(before[name], after[name], place)
            elif name in after:
                if others_before is False:
                    yield self._change(Effect.WIDER, place, "added")
                elif _constraints(_as_object(others_before)):
                    yield from self.changes(others_before, after[name], place)
                else:
                    what = "now has a schema" if self.direction == "input" else "added"
                    yield self._change(Effect.NARROWER, place, what)
            elif others_after is False or self.direction == "output":
                # Clients may read a member that results had.
                yield Level.BREAKING, self._at(place, "removed")
            elif _constraints(_as_object(others_after)):
                yield from self.changes(before[name], others_after, place)
            else:
                yield self._change(Effect.WIDER, place, "no longer has a schema")
        if (others_before is False) == (others_after is False):
            yield from self.changes(others_before, others_after, (*path, "*"))
        elif others_after is False:
            yield self._change(Effect.NARROWER, path, "additional members no longer allowed")
        else:
            yield self._change(Effect.WIDER, path, "additional members allowed")

    def _item_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        before, after = _get(old, "prefixItems", list), _get(new, "prefixItems", list)
        if len(before) != len(after):
            yield self._unknown(path, "prefixItems")
            return
        for index, (was, now) in enumerate(zip(before, after, strict=True)):
            yield from self.changes(was, now, (*path, f"[{index}]"))
        yield from self.changes(old.get("items", True), new.get("items", True), (*path, "[]"))

    def _alternative_changes(self, old: Schema, new: Schema, path: Path) -> Iterator[LeveledChange]:
        if "anyOf" not in old or "anyOf" not in new:
            yield from self._keyword_changes("anyOf", old, new, path)
            return
        removed, added = [], list(_get(new, "anyOf", list))
        for alternative in _get(old, "anyOf", list):
            position = next(
                (n for n, other in enumerate(added) if self._is_same(alternative, other)), None
            )
            if position is None:
                removed.append(alternative)
            else:
                yield from self.changes(alternative, added.pop(position), path)
        if len(removed) == len(added):
            for was, now in zip(removed, added, strict=True):
                yield from self.changes(was, now, path)
        elif removed and added:
            yield self._unknown(path, "anyOf")
        elif added:
            what = f"alternatives added: {_join(map(_text, added))}"
            yield self._change(Effect.WIDER, path, what)
        else:
            what = f"alternatives removed: {_join(map(_text, removed))}"
            yield self._change(Effect.NARROWER, path, what)


_STRUCTURES: Mapping[
    tuple[str, ...], Callable[[_Comparison, Schema, Schema, Path], Iterator[LeveledChange]]
] = {
    ("$ref",): _Comparison._reference_changes,
    ("enum", "const"): _Comparison._value_changes,
    ("required",): _Comparison._required_changes,
    ("properties", "patternProperties", "additionalProperties"): _Comparison._member_changes,
    ("items", "prefixItems"): _Comparison._item_changes,
    ("anyOf",): _Comparison._alternative_changes,
}
"""How the keywords that contain schemas or depend on each other are compared."""


def _as_object(schema: Any) -> Schema:
    if not isinstance(schema, dict | bool):
        raise ValueError("A schema is an object or a boolean.")
    return schema if isinstance(schema, dict) else {} if schema else {"not": {}}


def _only(schema: Schema, keyword: str) -> Schema:
    return {keyword: schema[keyword]} if keyword in schema else {}


def _get(schema: Schema, keyword: str, kind: type[_T]) -> _T:
    """Return the value of a keyword, or an empty one.

    Raises:
        ValueError: the value is malformed.
    """
    value = schema.get(keyword, kind())
    if not isinstance(value, kind):
        raise ValueError(f"{keyword} is not of the type {kind.__name__}.")
    return value


def _listed_values(schema: Schema) -> list[str] | None:
    """Return the values of ``enum`` or ``const`` as JSON, or ``None`` if all are allowed."""
    if "const" in schema and "enum" in schema:
        raise ValueError("const and enum are not compared together.")
    if "const" in schema:
        return [_text(schema["const"])]
    return [_text(value) for value in _get(schema, "enum", list)] if "enum" in schema else None


def _shown(schema: Schema) -> str:
    """Return the value of the only keyword."""
    return _join(map(_text, schema.values())) if schema else "not given"


def _join(values: Iterable[str]) -> str:
    return clip(", ".join(values), limit=MAX_SHOWN)
