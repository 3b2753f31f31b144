"""The keywords about arrays and objects: whether what is known of a value implies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_django.management.contract.schemas import members
from mcp_django.management.contract.schemas.gap import ABSENT, CLOSED, MEMBER, Gap, Path
from mcp_django.management.contract.schemas.scalars import Known
from mcp_django.management.contract.schemas.values import fingerprint
from mcp_django.schema.structure import Schema

if TYPE_CHECKING:
    from mcp_django.management.contract.schemas.containment import Containment

ARRAYS = frozenset({"minItems", "maxItems", "uniqueItems", "items", "prefixItems"})
OBJECTS = frozenset(
    {
        *("required", "minProperties", "maxProperties", "properties", "additionalProperties"),
        *("patternProperties", "propertyNames"),
    }
)
KEYWORDS = ARRAYS | OBJECTS
ANY_ITEM, OTHER_MEMBERS = "[]", "*"
Gaps = list[Gap]


def gaps(
    proof: Containment, known: Known, keyword: str, outer: Schema, path: Path, depth: int
) -> Gaps:
    """The gaps by one of these keywords."""
    kind = "array" if keyword in ARRAYS else "object"
    if kind not in known.kinds:
        return []
    if known.values is not None:
        # A listed array or object, which nobody wrote yet.
        return [Gap(path=path, keyword=keyword, is_sure=False)]
    if keyword in ("items", "prefixItems"):
        is_first = keyword == "prefixItems" or "prefixItems" not in outer
        return _items(proof, known, outer, path, depth) if is_first else []
    if keyword in ("properties", "additionalProperties", "patternProperties"):
        is_first = keyword == next(one for one in outer if one in _TOGETHER)
        return _members(proof, known, outer, path, depth) if is_first else []
    if keyword == "required":
        return _required(known, outer[keyword], path)
    if keyword == "propertyNames":
        return _names(proof, known, outer[keyword], path, depth)
    return [] if _counts(known, keyword, outer[keyword]) else [_gap(known, keyword, outer, path)]


_TOGETHER = ("properties", "additionalProperties", "patternProperties")


def _gap(known: Known, keyword: str, outer: Schema, path: Path) -> Gap:
    said = known.said(keyword)
    inner = fingerprint(said[0]) if said else ABSENT
    return Gap(path=path, keyword=keyword, inner=inner, outer=fingerprint(outer[keyword]))


def _counts(known: Known, keyword: str, wanted: Any) -> bool:
    if keyword == "uniqueItems":
        return wanted is False or True in known.said(keyword)
    if not _is_count(wanted):
        return False
    own = [one for one in known.said(keyword) if _is_count(one)]
    if keyword == "minProperties":
        own.append(len(members.required_in(list(known.parts))))
    if keyword == "maxProperties":
        own += [len(part.get("properties", {})) for part in known.parts if _is_closed(part)]
    if keyword.startswith("min"):
        return bool(wanted <= 0 or any(one >= wanted for one in own))
    return any(one <= wanted for one in own)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_closed(part: Schema) -> bool:
    return part.get("additionalProperties") is False and not part.get("patternProperties")


def _items(proof: Containment, known: Known, outer: Schema, path: Path, depth: int) -> Gaps:
    if not isinstance(outer.get("items", True), dict | bool):
        return [Gap(path=path, keyword="items", is_sure=False)]
    parts = list(known.parts)
    longest = max(len(members.fixed_items(one)) for one in [*parts, outer])
    found: Gaps = []
    for index in range(longest):
        here = tuple(members.item(part, index) for part in parts)
        place = (*path, f"[{index}]")
        found += proof.gaps(here, members.item(outer, index), place, depth + 1)
    every = tuple(map(members.rest, parts))
    return found + proof.gaps(every, members.rest(outer), (*path, ANY_ITEM), depth + 1)


def _members(proof: Containment, known: Known, outer: Schema, path: Path, depth: int) -> Gaps:
    parts = list(known.parts)
    patterns = members.named(outer, "patternProperties")
    twin = next((one for one in parts if _has_patterns_of(one, outer)), None)
    if patterns and twin is None:
        return [Gap(path=path, keyword="patternProperties", is_sure=False)]
    found: Gaps = []
    for pattern, wanted in patterns.items():
        here = (members.named(twin or {}, "patternProperties")[pattern],)
        found += proof.gaps(here, wanted, (*path, f"/{pattern}/"), depth + 1)
    described, wanted_names = members.members_of(parts), members.named(outer, "properties")
    for name in dict.fromkeys([*described, *wanted_names]):
        wanted = wanted_names.get(name, outer.get("additionalProperties", True))
        missing = [
            gap
            for case in members.combined([members.member(part, name) for part in parts])
            for gap in proof.gaps(case, wanted, (*path, name), depth + 1)
        ]
        if missing and name not in described:
            missing = [Gap(path=(*path, name), keyword=MEMBER)]
        found += missing
    rest = [_rest(part, is_twin=part is twin) for part in parts]
    for case in members.combined(rest):
        wanted = outer.get("additionalProperties", True)
        left = proof.gaps(case, wanted, (*path, OTHER_MEMBERS), depth + 1)
        found += [Gap(path=path, keyword=CLOSED)] if left and wanted is False else left
    return found


def _rest(part: Schema, *, is_twin: bool) -> members.Alternatives:
    # What fits a pattern that both have was compared by itself.
    return [part.get("additionalProperties", True)] if is_twin else members.others(part)


def _has_patterns_of(part: Schema, outer: Schema) -> bool:
    patterns = members.named(outer, "patternProperties")
    return bool(patterns) and set(members.named(part, "patternProperties")) == set(patterns)


def _required(known: Known, wanted: Any, path: Path) -> Gaps:
    if not isinstance(wanted, list):
        # In draft 3 it was a flag.
        return [Gap(path=path, keyword="required", is_sure=False)]
    have = members.required_in(list(known.parts))
    missing = [name for name in wanted if name not in have]
    return [Gap(path=(*path, str(name)), keyword="required") for name in missing]


def _names(proof: Containment, known: Known, wanted: Any, path: Path, depth: int) -> Gaps:
    if any(proof.is_same(one, wanted) for one in known.said("propertyNames")):
        return []
    if not any(map(_is_closed, known.parts)):
        return [Gap(path=path, keyword="propertyNames", is_sure=False)]
    closed = next(filter(_is_closed, known.parts))
    return [
        gap
        for name in members.named(closed, "properties")
        for gap in proof.gaps(({"const": name},), wanted, (*path, name), depth + 1)
    ]
