"""Proves that one JSON Schema accepts every value that another accepts, for ``mcp contract``.

Covers JSON Schema 2020-12. ``format`` and similar annotations count as constraints, since clients
may validate them. Whatever cannot be proven is reported as a gap, so an incompatible change is
never reported as safe.

For each keyword of the outer schema, the proof shows that the inner schema implies it. Recursive
schemas are proven by induction over the size of the value: within its members, the claim itself
may be used.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from mcp_django.protocol.headers import map_subschemas, subschemas
from mcp_django.schema.structure import (
    Schema,
    resolve_reference,
    walk,
)

Path = tuple[str, ...]
ANY_ITEM, OTHER_MEMBERS = "[]", "*"

ABSENT: Final = object()
"""Marks a keyword that a schema does not have."""

CLOSED = "closed"
MEMBER = "member"

MAX_STEPS = 5_000

_VALIDATING = frozenset(
    {
        *("type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "minLength", "maxLength", "pattern", "format", "contentEncoding"),
        *("contentMediaType", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "required", "dependentRequired", "$ref", "$dynamicRef"),
        *("$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id"),
    }
)
_APPLICATORS = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "unevaluatedItems"),
        *("unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("anyOf", "oneOf", "allOf", "prefixItems", "properties", "patternProperties"),
        *("dependentSchemas", "dependencies", "$defs", "definitions", "contentSchema"),
    }
)
CONSTRAINTS = _VALIDATING | _APPLICATORS
"""All keywords that constrain a value."""

_NOT_CONSTRAINING = frozenset(
    {"$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions", "$id"}
)
"""Keywords that do not constrain a value on their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A keyword of the outer schema that the inner schema does not imply for the value at ``path``.

    ``inner`` and ``outer`` are the values of the keyword in the two schemas. ``keyword`` is
    ``CLOSED`` if the outer schema does not allow the member, and ``MEMBER`` if it constrains a
    member that the inner schema leaves open. If ``is_sure`` is false, there may be no gap, but that
    could not be proven.
    """

    path: Path
    keyword: str
    inner: Any = ABSENT
    outer: Any = ABSENT
    is_sure: bool = True


Gaps = list[Gap]


class SchemaTooLarge(Exception):
    """The schemas are too large to compare."""


def gaps_between(inner: Any, outer: Any) -> Gaps:
    """Return why ``outer`` may reject a value that ``inner`` accepts; empty if it accepts all."""
    roots = SchemaRoot(inner), SchemaRoot(outer)
    if roots[0].fingerprint == roots[1].fingerprint:
        return []
    try:
        if not all(root.has_supported_dialect for root in roots):
            return [Gap(path=(), keyword="$schema", is_sure=False)]
        return list(dict.fromkeys(_Containment(*roots).gaps((inner,), outer, (), 0)))
    except (SchemaTooLarge, RecursionError, ValueError):
        return [Gap(path=(), keyword="$ref", is_sure=False)]


class _Containment:
    """A comparison of two whole schemas."""

    def __init__(self, inner: SchemaRoot, outer: SchemaRoot) -> None:
        self.inner = inner
        self.outer = outer
        self._alike = inner.fingerprint == outer.fingerprint
        self._steps = 0
        self._claims: dict[tuple[str, ...], int] = {}
        # Keeps a reference to each schema, so that its id() is not reused.
        self._prints: dict[int, tuple[Any, str, bool]] = {}

    def gaps(self, inner: tuple[Any, ...], outer: Any, path: Path, depth: int) -> Gaps:
        """Return the gaps for the value at a path, ``depth`` members deep, that fits all ``inner``.

        Raises:
            SchemaTooLarge: the comparison takes more than ``MAX_STEPS``.
        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaTooLarge
        if outer is True or outer == {} or any(self.is_same(one, outer) for one in inner):
            return []
        parts = self.inner.flatten(*inner)
        if parts is None:
            return []
        kinds = _kinds_in(parts)
        values = _values_in(parts, kinds)
        if not kinds or values == []:
            return []
        if outer is False:
            return [Gap(path=path, keyword=CLOSED)]
        if not isinstance(outer, dict):
            return [Gap(path=path, keyword="$ref", is_sure=False)]
        if not _refers(inner) and not _refers((outer,)):
            return self._compare_keywords(
                parts, _KnownFacts(parts, kinds, values), outer, path, depth
            )
        claim = tuple(self._print(one)[0] for one in (*inner, outer))
        if (since := self._claims.get(claim)) is not None:
            # The induction hypothesis: the claim may be used for a smaller value.
            return [] if depth > since else [Gap(path=path, keyword="$ref", is_sure=False)]
        self._claims[claim] = depth
        try:
            return self._compare_keywords(
                parts, _KnownFacts(parts, kinds, values), outer, path, depth
            )
        finally:
            del self._claims[claim]

    def is_same(self, inner: Any, outer: Any) -> bool:
        """Return whether two schemas have equal constraints, ignoring annotations."""
        if not isinstance(inner, dict) or not isinstance(outer, dict):
            return inner is outer
        if inner.keys() & CONSTRAINTS != outer.keys() & CONSTRAINTS:
            return False
        mine, theirs = self._print(inner), self._print(outer)
        # The same reference may resolve differently in the two whole schemas.
        return mine[0] == theirs[0] and (self._alike or not mine[1])

    def _print(self, schema: Any) -> tuple[str, bool]:
        """Return the fingerprint of a schema, and whether it has references."""
        found = self._prints.get(id(schema))
        if found is None:
            print_ = fingerprint(_without_annotations(schema))
            found = self._prints[id(schema)] = schema, print_, _has_references(schema)
        return found[1], found[2]

    def _compare_keywords(
        self, parts: list[Schema], known: _KnownFacts, outer: Schema, path: Path, depth: int
    ) -> Gaps:
        found = [
            gap
            for keyword in outer
            if keyword in CONSTRAINTS and keyword not in _NOT_CONSTRAINING
            for gap in self._keyword_gaps(known, keyword, outer, path, depth)
        ]
        if not found:
            return []
        for part in parts:
            for keyword in ("anyOf", "oneOf"):
                branches = part.get(keyword)
                if isinstance(branches, list) and branches:
                    rest = [one for one in parts if one is not part]
                    left = {k: v for k, v in part.items() if k != keyword}
                    return [
                        gap
                        for branch in branches
                        for gap in self.gaps((*rest, left, branch), outer, path, depth)
                    ]
        return found

    def _keyword_gaps(
        self, known: _KnownFacts, keyword: str, outer: Schema, path: Path, depth: int
    ) -> Gaps:
        """Return the gaps of one keyword."""
        wanted = outer[keyword]
        if keyword == "$ref":
            return self._reference_gaps(known, wanted, path, depth)
        if keyword == "type":
            missing = known.kinds - _kinds_of_types(wanted)
            return [_gap(known, keyword, wanted, path)] if missing else []
        if keyword in ("enum", "const"):
            return self._enum_gaps(known, keyword, [wanted] if keyword == "const" else wanted, path)
        holds = _implies(known, keyword, wanted)
        if holds is not None:
            return [] if holds else [_gap(known, keyword, wanted, path)]
        if keyword in _CONTAINERS:
            return _container_gaps(self, known, keyword, outer, path, depth)
        return _applicator_gaps(self, known, keyword, outer, path, depth)

    def _reference_gaps(self, known: _KnownFacts, reference: Any, path: Path, depth: int) -> Gaps:
        target = self.outer.resolve_reference(reference)
        if target is None:
            return [Gap(path=path, keyword="$ref", is_sure=False)]
        return self.gaps(tuple(known.parts), target, path, depth)

    def _enum_gaps(self, known: _KnownFacts, keyword: str, wanted: Any, path: Path) -> Gaps:
        if not isinstance(wanted, list):
            return [Gap(path=path, keyword=keyword, is_sure=False)]
        if known.values is None:
            return [Gap(path=path, keyword=keyword, outer=tuple(map(fingerprint, wanted)))]
        lost = _without(known.values, wanted)
        shown = tuple(map(fingerprint, lost))
        return [Gap(path=path, keyword="enum", inner=shown)] if lost else []


def _refers(schemas: tuple[Any, ...]) -> bool:
    return any(isinstance(one, dict) and "$ref" in one for one in schemas)


# Keywords that combine schemas --------------------------------------------------------------------

# Some of these keywords are compared by meaning; the others count as equal only if identical.

_RELATED_KEYWORDS = {
    "contains": ("contains", "minContains", "maxContains"),
    "minContains": ("contains", "minContains", "maxContains"),
    "maxContains": ("contains", "minContains", "maxContains"),
    "if": ("if", "then", "else"),
    "then": ("if", "then", "else"),
    "else": ("if", "then", "else"),
    "additionalItems": ("items", "additionalItems"),
}
"""Keywords whose meaning depends on other keywords."""


def _applicator_gaps(
    proof: _Containment, known: _KnownFacts, keyword: str, outer: Schema, path: Path, depth: int
) -> Gaps:
    """Return the gaps of one keyword that combines schemas."""
    wanted = outer[keyword]
    if keyword == "allOf" and isinstance(wanted, list):
        inner = tuple(known.parts)
        return [gap for one in wanted for gap in proof.gaps(inner, one, path, depth)]
    if keyword in ("anyOf", "oneOf") and isinstance(wanted, list) and wanted:
        return _any_of(proof, known, keyword, wanted, path, depth)
    if keyword == "contentSchema":
        return []
    if keyword.startswith("unevaluated") or not _has_equal_constraint(proof, known, keyword, outer):
        return [Gap(path=path, keyword=keyword, is_sure=False)]
    return []


def _has_equal_constraint(
    proof: _Containment, known: _KnownFacts, keyword: str, outer: Schema
) -> bool:
    """Return whether the inner schema has an identical constraint."""
    together = _RELATED_KEYWORDS.get(keyword, (keyword,))
    wanted = {name: outer[name] for name in together if name in outer}
    return any(
        proof.is_same({name: part[name] for name in together if name in part}, wanted)
        for part in known.parts
    )


def _any_of(
    proof: _Containment,
    known: _KnownFacts,
    keyword: str,
    branches: list[Any],
    path: Path,
    depth: int,
) -> Gaps:
    if any(proof.is_same({keyword: one}, {keyword: branches}) for one in known.values_of(keyword)):
        return []
    inner = tuple(known.parts)
    attempts: list[Gaps] = []
    for index, branch in enumerate(branches):
        others = branches[:index] + branches[index + 1 :]
        missing = proof.gaps(inner, branch, path, depth)
        if not missing and (keyword == "anyOf" or _excludes(proof, known, others)):
            return []
        attempts.append(missing)
    if cases := _cases(known):
        return [
            gap
            for case in cases
            for gap in proof.gaps((*inner, case), {keyword: branches}, path, depth)
        ]
    # Report the branch with the fewest gaps. If a branch has none, oneOf may still match several.
    nearest = min(attempts, key=len)
    return nearest or [Gap(path=path, keyword=keyword, is_sure=False)]


def _cases(known: _KnownFacts) -> list[Schema]:
    """Return schemas of the possible values or types, one each; empty if there is only one."""
    if known.values is not None:
        return [{"const": one} for one in known.values] if len(known.values) > 1 else []
    types = sorted({"number" if kind == _FRACTION else kind for kind in known.kinds})
    if "number" in types and "integer" in types:
        types.remove("integer")
    return [{"type": one} for one in types] if len(types) > 1 else []


def _excludes(proof: _Containment, known: _KnownFacts, branches: list[Any]) -> bool:
    """Return whether no possible value fits any of the branches."""
    return all(
        _are_disjoint(proof.inner, list(known.parts), proof.outer, [one]) for one in branches
    )


def _are_disjoint(
    one: SchemaRoot, mine: list[Any], other: SchemaRoot, theirs: list[Any], depth: int = 0
) -> bool:
    """Return whether no value satisfies all schemas of both lists."""
    left, right = one.flatten(*mine), other.flatten(*theirs)
    if left is None or right is None:
        return True
    kinds = _kinds_in(left) & _kinds_in(right)
    if not kinds:
        return True
    values, others = _values_in(left, kinds), _values_in(right, kinds)
    if values is not None and others is not None and len(_without(values, others)) == len(values):
        return True
    if kinds != {"object"} or depth > 1:
        return False
    return any(
        _are_disjoint(
            one,
            _certain_member_schemas(left, name),
            other,
            _certain_member_schemas(right, name),
            depth + 1,
        )
        for name in _required_in(left) | _required_in(right)
    )


def _certain_member_schemas(parts: list[Schema], name: str) -> list[Any]:
    """Return the schemas that a member certainly has to satisfy."""
    return [schemas[0] for part in parts if len(schemas := _member(part, name)) == 1]


# Keywords of arrays and objects -------------------------------------------------------------------

_ARRAYS = frozenset({"minItems", "maxItems", "uniqueItems", "items", "prefixItems"})
_OBJECTS = frozenset(
    {
        *("required", "minProperties", "maxProperties", "properties", "additionalProperties"),
        *("patternProperties", "propertyNames"),
    }
)
_CONTAINERS = _ARRAYS | _OBJECTS
_MEMBER_KEYWORDS = ("properties", "additionalProperties", "patternProperties")


def _container_gaps(
    proof: _Containment, known: _KnownFacts, keyword: str, outer: Schema, path: Path, depth: int
) -> Gaps:
    """Return the gaps of one keyword for arrays or objects."""
    kind = "array" if keyword in _ARRAYS else "object"
    if kind not in known.kinds:
        return []
    if known.values is not None:
        # Arrays and objects listed by enum or const are not compared in detail.
        return [Gap(path=path, keyword=keyword, is_sure=False)]
    if keyword in ("items", "prefixItems"):
        is_first = keyword == "prefixItems" or "prefixItems" not in outer
        return _items(proof, known, outer, path, depth) if is_first else []
    if keyword in _MEMBER_KEYWORDS:
        is_first = keyword == next(one for one in outer if one in _MEMBER_KEYWORDS)
        return _members(proof, known, outer, path, depth) if is_first else []
    if keyword == "required":
        return _required(known, outer[keyword], path)
    if keyword == "propertyNames":
        return _names(proof, known, outer[keyword], path, depth)
    wanted = outer[keyword]
    return [] if _implies_size(known, keyword, wanted) else [_gap(known, keyword, wanted, path)]


def _gap(known: _KnownFacts, keyword: str, wanted: Any, path: Path) -> Gap:
    said = known.values_of(keyword)
    inner = fingerprint(said[0]) if said else ABSENT
    return Gap(path=path, keyword=keyword, inner=inner, outer=fingerprint(wanted))


def _implies_size(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
    if keyword == "uniqueItems":
        return wanted is False or True in known.values_of(keyword)
    if not _is_number(wanted):
        return False
    own = [one for one in known.values_of(keyword) if _is_number(one)]
    if keyword == "minProperties":
        own.append(len(_required_in(list(known.parts))))
    if keyword == "maxProperties":
        own += [len(part.get("properties", {})) for part in known.parts if _is_closed(part)]
    if keyword.startswith("min"):
        return bool(wanted <= 0 or any(one >= wanted for one in own))
    return any(one <= wanted for one in own)


def _is_closed(part: Schema) -> bool:
    return part.get("additionalProperties") is False and not part.get("patternProperties")


def _items(proof: _Containment, known: _KnownFacts, outer: Schema, path: Path, depth: int) -> Gaps:
    if not isinstance(outer.get("items", True), dict | bool):
        return [Gap(path=path, keyword="items", is_sure=False)]
    parts = list(known.parts)
    longest = max(len(_fixed_items(one)) for one in [*parts, outer])
    found: Gaps = []
    for index in range(longest):
        here = tuple(_item(part, index) for part in parts)
        place = (*path, f"[{index}]")
        found += proof.gaps(here, _item(outer, index), place, depth + 1)
    every = tuple(map(_other_items, parts))
    return found + proof.gaps(every, _other_items(outer), (*path, ANY_ITEM), depth + 1)


def _members(
    proof: _Containment, known: _KnownFacts, outer: Schema, path: Path, depth: int
) -> Gaps:
    parts = list(known.parts)
    patterns = _named(outer, "patternProperties")
    same_patterns = next((one for one in parts if _has_patterns_of(one, outer)), None)
    if patterns and same_patterns is None:
        return [Gap(path=path, keyword="patternProperties", is_sure=False)]
    found: Gaps = []
    for pattern, wanted in patterns.items():
        here = (_named(same_patterns or {}, "patternProperties")[pattern],)
        found += proof.gaps(here, wanted, (*path, f"/{pattern}/"), depth + 1)
    described, wanted_names = _named_members(parts), _named(outer, "properties")
    for name in dict.fromkeys([*described, *wanted_names]):
        wanted = wanted_names.get(name, outer.get("additionalProperties", True))
        missing = [
            gap
            for case in _combined([_member(part, name) for part in parts])
            for gap in proof.gaps(case, wanted, (*path, name), depth + 1)
        ]
        if missing and name not in described:
            missing = [Gap(path=(*path, name), keyword=MEMBER)]
        found += missing
    rest = [_unnamed_members(part, is_same=part is same_patterns) for part in parts]
    for case in _combined(rest):
        wanted = outer.get("additionalProperties", True)
        left = proof.gaps(case, wanted, (*path, OTHER_MEMBERS), depth + 1)
        found += [Gap(path=path, keyword=CLOSED)] if left and wanted is False else left
    return found


def _unnamed_members(part: Schema, *, is_same: bool) -> _Alternatives:
    # Members that match a pattern of both schemas are compared separately.
    return [part.get("additionalProperties", True)] if is_same else _other_members(part)


def _has_patterns_of(part: Schema, outer: Schema) -> bool:
    patterns = _named(outer, "patternProperties")
    return bool(patterns) and set(_named(part, "patternProperties")) == set(patterns)


def _required(known: _KnownFacts, wanted: Any, path: Path) -> Gaps:
    if not isinstance(wanted, list):
        # A boolean in JSON Schema draft 3.
        return [Gap(path=path, keyword="required", is_sure=False)]
    have = _required_in(list(known.parts))
    missing = [name for name in wanted if name not in have]
    return [Gap(path=(*path, str(name)), keyword="required") for name in missing]


def _names(proof: _Containment, known: _KnownFacts, wanted: Any, path: Path, depth: int) -> Gaps:
    if any(proof.is_same(one, wanted) for one in known.values_of("propertyNames")):
        return []
    if not any(map(_is_closed, known.parts)):
        return [Gap(path=path, keyword="propertyNames", is_sure=False)]
    closed = next(filter(_is_closed, known.parts))
    return [
        gap
        for name in _named(closed, "properties")
        for gap in proof.gaps(({"const": name},), wanted, (*path, name), depth + 1)
    ]


# Schemas of items and members ---------------------------------------------------------------------

_Alternatives = list[Any]
"""Alternative schemas: one of them applies, but it is unknown which one."""


def _named(part: Schema, keyword: str) -> Mapping[str, Any]:
    """Return the schemas that a keyword contains by name."""
    found = part.get(keyword)
    return found if isinstance(found, dict) else {}


def _named_members(parts: list[Schema]) -> list[str]:
    """Return the names of all members in ``properties``."""
    return list(dict.fromkeys(name for part in parts for name in _named(part, "properties")))


def _required_in(parts: list[Schema]) -> set[str]:
    """Return the names of all required members."""
    return {
        name
        for part in parts
        if isinstance(part.get("required"), list)
        for name in part["required"]
        if isinstance(name, str)
    }


def _member(part: Schema, name: str) -> _Alternatives:
    """Return the possible schemas of a member; a pattern may or may not match its name."""
    properties = _named(part, "properties")
    if name in properties:
        return [properties[name]]
    return _other_members(part)


def _other_members(part: Schema) -> _Alternatives:
    """Return the possible schemas of members that are not in ``properties``."""
    return [part.get("additionalProperties", True), *_named(part, "patternProperties").values()]


def _combined(alternatives: list[_Alternatives]) -> Iterator[tuple[Any, ...]]:
    """Yield every combination of one schema of each part."""
    return itertools.product(*alternatives)


def _item(part: Schema, index: int) -> Any:
    """Return the schema of the item at an index."""
    fixed = _fixed_items(part)
    return fixed[index] if index < len(fixed) else _other_items(part)


def _fixed_items(part: Schema) -> list[Any]:
    """Return the schemas of ``prefixItems``."""
    found = part.get("prefixItems")
    return found if isinstance(found, list) else []


def _other_items(part: Schema) -> Any:
    """Return the schema of the items after ``prefixItems``."""
    found = part.get("items", True)
    return found if isinstance(found, dict | bool) else True


# A schema with references resolved ----------------------------------------------------------------


_MODERN = ("2020-12", "2019-09")
_OLDER = ("draft-07", "draft-06")
_BESIDE_REFERENCES = CONSTRAINTS - {"$ref", "$defs", "definitions", "$id"}


class SchemaRoot:
    """A whole schema, in which references are followed.

    It is treated as a conjunction of parts. Omitting a part or a keyword makes it accept more
    values, which is safe for proving that an inner schema implies something.
    """

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._has_nested_ids = isinstance(schema, dict) and any(_nested_ids(schema))

    @cached_property
    def fingerprint(self) -> str:
        """A text that is equal for schemas with equal constraints."""
        return fingerprint(_without_annotations(self.schema))

    @cached_property
    def has_supported_dialect(self) -> bool:
        """Whether the dialect's keywords mean the same as in 2020-12, the default dialect."""
        if not isinstance(self.schema, dict) or "$schema" not in self.schema:
            return True
        dialect = str(self.schema["$schema"])
        if _MODERN[0] in dialect:
            return True
        if not any(one in dialect for one in (*_MODERN, *_OLDER)):
            return False
        # In older dialects a list in `items` is a tuple, and siblings of `$ref` are ignored.
        return not any(
            isinstance(one.get("items"), list)
            or "prefixItems" in one
            or ("$ref" in one and one.keys() & _BESIDE_REFERENCES)
            for _, one in walk(self.schema)
        )

    def resolve_reference(self, reference: Any) -> Any:
        """Return the target of a reference; ``None`` if it is not within the schema."""
        if self._has_nested_ids or not isinstance(reference, str):
            # A subschema with its own $id changes the base URI of references.
            return None
        return resolve_reference(self.schema, reference)

    def flatten(self, *schemas: Any) -> list[Schema] | None:
        """Return the schemas with references and ``allOf`` flattened; ``None`` if one is ``False``.

        References that cannot be followed are omitted.

        Raises:
            SchemaTooLarge: there are more than ``MAX_STEPS`` schemas.
        """
        found: list[Schema] = []
        pending = list(schemas)
        seen: set[str] = set()
        steps = 0
        while pending:
            steps += 1
            if steps > MAX_STEPS:
                raise SchemaTooLarge
            schema = pending.pop(0)
            if schema is False:
                return None
            if not isinstance(schema, dict):
                continue
            if (reference := schema.get("$ref")) is not None and str(reference) not in seen:
                seen.add(str(reference))
                pending.append(self.resolve_reference(reference))
            whole = schema.get("allOf")
            pending.extend(whole if isinstance(whole, list) else ())
            found.append({k: v for k, v in schema.items() if k not in ("$ref", "allOf")})
        return found


def _without_annotations(schema: Any) -> Any:
    """Return the schema without keywords that do not constrain: titles, defaults, extensions."""
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name in CONSTRAINTS}
    return map_subschemas(kept, _without_annotations)


def _has_references(schema: Any) -> bool:
    """Return whether a schema contains a reference."""
    if not isinstance(schema, dict):
        return False
    return any(name.endswith(("$ref", "Ref")) for name in schema if name.startswith("$")) or any(
        _has_references(child) for _, child in subschemas(schema)
    )


def _nested_ids(schema: Schema) -> Iterator[bool]:
    for _, child in subschemas(schema):
        if isinstance(child, dict):
            yield "$id" in child
            yield from _nested_ids(child)


def _kinds_in(parts: list[Schema]) -> frozenset[str]:
    """Return the kinds of value that all parts allow."""
    found = _KINDS
    for part in parts:
        if "type" in part:
            found &= _kinds_of_types(part["type"])
        if (values := _listed_values(part)) is not None:
            found &= {_kind_of(one) for one in values}
    return found


def _listed_values(part: Schema) -> list[Any] | None:
    """Return the values that one part lists by ``const`` or ``enum``."""
    if "const" in part:
        return [part["const"]]
    values = part.get("enum")
    return list(values) if isinstance(values, list) else None


def _values_in(parts: list[Schema], kinds: frozenset[str]) -> list[Any] | None:
    """Return all possible values, or ``None`` if they are not enumerable."""
    every = [values for part in parts if (values := _listed_values(part)) is not None]
    if kinds <= {"null", "boolean"}:
        simple = [None] * ("null" in kinds) + [True, False] * ("boolean" in kinds)
        every.append(simple)
    if not every:
        return None
    first, *others = every
    # Duplicates are dropped: the comparison of one value at a time then always ends.
    first = list({fingerprint(one): one for one in first}.values())
    return [
        one
        for one in first
        if _kind_of(one) in kinds and all(_is_among(one, values) for values in others)
    ]


def _are_whole(kinds: frozenset[str]) -> bool:
    """Return whether all numbers of these kinds are integers."""
    return _INTEGER in kinds and _FRACTION not in kinds


# Equal values and kinds of values -----------------------------------------------------------------

_INTEGER, _FRACTION = "integer", "fraction"
_NUMBERS = frozenset({_INTEGER, _FRACTION})
_KINDS = frozenset({"null", "boolean", "string", "array", "object"}) | _NUMBERS
"""The JSON types, with numbers split into integers and fractions; each value has exactly one."""


def _kind_of(value: Any) -> str:
    """Return the kind of a value; 1.0 is an integer (JSON Schema Validation, section 6.1.1)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return _INTEGER
    if isinstance(value, float):
        return _FRACTION
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


def _kinds_of_types(types: Any) -> frozenset[str]:
    """Return the kinds that ``type`` allows; unknown types are ignored."""
    names = {types} if isinstance(types, str) else {one for one in types if isinstance(one, str)}
    found = names & _KINDS
    return frozenset(found | _NUMBERS if "number" in names else found)


def fingerprint(value: Any) -> str:
    """Return a text that is equal exactly for equal JSON values."""
    return json.dumps(_normalized(value), sort_keys=True, ensure_ascii=False)


def _normalized(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_normalized(one) for one in value]
    if isinstance(value, dict):
        return {name: _normalized(one) for name, one in value.items()}
    return value


def _is_among(value: Any, values: Iterable[Any]) -> bool:
    """Return whether the values contain an equal one."""
    mine = fingerprint(value)
    return any(mine == fingerprint(one) for one in values)


def _without(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return the values that are not among the others."""
    known = {fingerprint(one) for one in others}
    return [one for one in values if fingerprint(one) not in known]


# Limits of numbers and texts ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _KnownFacts:
    """The facts about a value: the schemas that it satisfies, its kinds, its enumerable values."""

    parts: Sequence[Schema]
    kinds: frozenset[str]
    values: Sequence[Any] | None = field(default=None)

    def values_of(self, keyword: str) -> list[Any]:
        """Return the values of a keyword in all parts."""
        return [part[keyword] for part in self.parts if keyword in part]

    def numbers(self) -> list[int | float] | None:
        """Return the possible numbers, or ``None`` if they are not enumerable."""
        if self.values is None:
            return None
        return [one for one in self.values if _is_number(one)]

    def lengths(self) -> list[int] | None:
        """Return the possible lengths of a string, or ``None`` if they are not enumerable."""
        if self.values is None:
            return None
        return [len(one) for one in self.values if isinstance(one, str)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_Limit = tuple[float, bool]
"""A lower limit: a number, and whether it is exclusive. The greater tuple is the stricter limit."""


def _implies(known: _KnownFacts, keyword: str, wanted: Any) -> bool | None:
    """Return whether the known facts imply the keyword; ``None`` if it is not about scalars."""
    rule = _RULES.get(keyword)
    if rule is None:
        return None
    kinds, holds = rule
    return not known.kinds & kinds or holds(known, keyword, wanted)


def _implies_minimum(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
    return _implies_limit(known, ("minimum", "exclusiveMinimum"), keyword, wanted, sign=1)


def _implies_maximum(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
    return _implies_limit(known, ("maximum", "exclusiveMaximum"), keyword, wanted, sign=-1)


def _implies_limit(
    known: _KnownFacts, keywords: tuple[str, str], keyword: str, wanted: Any, *, sign: int
) -> bool:
    """Return whether the value is within a limit; an upper limit is a lower limit of ``-x``."""
    if not _is_number(wanted):
        # exclusiveMinimum and exclusiveMaximum are booleans in JSON Schema draft 4.
        return False
    whole = _are_whole(known.kinds)
    limit = _limit(sign * wanted, whole=whole, excludes=keyword == keywords[1])
    numbers = known.numbers()
    if numbers is not None:
        return all(_limit(sign * one, whole=whole, excludes=False) >= limit for one in numbers)
    own = [
        _limit(sign * value, whole=whole, excludes=name == keywords[1])
        for name in keywords
        for value in known.values_of(name)
        if _is_number(value)
    ]
    return any(one >= limit for one in own)


def _limit(value: float, *, whole: bool, excludes: bool) -> _Limit:
    if whole and excludes:
        return math.floor(value) + 1, False
    return (math.ceil(value), False) if whole else (value, excludes)


def _implies_multiple(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
    if wanted in known.values_of(keyword):
        return True
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        # Validators differ in how they divide fractions.
        return False
    if _are_whole(known.kinds) and wanted == 1:
        return True
    numbers = known.numbers()
    if numbers is not None:
        return all(isinstance(one, int) and one % wanted == 0 for one in numbers)
    return any(isinstance(one, int) and one % wanted == 0 for one in known.values_of(keyword))


def _size_rule(
    lowest: str, *, what: Callable[[_KnownFacts], list[int] | None]
) -> Callable[..., bool]:
    def holds(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
        if not _is_number(wanted):
            return False
        counted = what(known)
        own = known.values_of(keyword) if counted is None else counted
        sizes = [one for one in own if _is_number(one)]
        check = all if counted is not None else any
        if keyword == lowest:
            return wanted <= 0 or check(one >= wanted for one in sizes)
        return check(one <= wanted for one in sizes)

    return holds


def _is_equal(known: _KnownFacts, keyword: str, wanted: Any) -> bool:
    return wanted in known.values_of(keyword)


_TEXT = frozenset({"string"})
_length = _size_rule("minLength", what=_KnownFacts.lengths)
_RULES: dict[str, tuple[frozenset[str], Callable[[_KnownFacts, str, Any], bool]]] = {
    "minimum": (_NUMBERS, _implies_minimum),
    "exclusiveMinimum": (_NUMBERS, _implies_minimum),
    "maximum": (_NUMBERS, _implies_maximum),
    "exclusiveMaximum": (_NUMBERS, _implies_maximum),
    "multipleOf": (_NUMBERS, _implies_multiple),
    "minLength": (_TEXT, _length),
    "maxLength": (_TEXT, _length),
    "pattern": (_TEXT, _is_equal),
    "format": (_TEXT, _is_equal),
    "contentEncoding": (_TEXT, _is_equal),
    "contentMediaType": (_TEXT, _is_equal),
}
