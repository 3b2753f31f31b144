"""The keywords that put schemas together, and those that are taken for the same or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_django.management.contract.schemas import members
from mcp_django.management.contract.schemas.gap import Gap, Path
from mcp_django.management.contract.schemas.part import Root, kinds_in, values_in
from mcp_django.management.contract.schemas.scalars import Known
from mcp_django.management.contract.schemas.values import without
from mcp_django.schema.structure import Schema

if TYPE_CHECKING:
    from mcp_django.management.contract.schemas.containment import Containment

TYPE_OF_KIND = {"fraction": "number"}
TOGETHER = {
    "contains": ("contains", "minContains", "maxContains"),
    "minContains": ("contains", "minContains", "maxContains"),
    "maxContains": ("contains", "minContains", "maxContains"),
    "if": ("if", "then", "else"),
    "then": ("if", "then", "else"),
    "else": ("if", "then", "else"),
    "additionalItems": ("items", "additionalItems"),
}
"""Keywords that mean something only beside others."""
Gaps = list[Gap]


def gaps(
    proof: Containment, known: Known, keyword: str, outer: Schema, path: Path, depth: int
) -> Gaps:
    """The gaps by one of these keywords."""
    wanted = outer[keyword]
    if keyword == "allOf" and isinstance(wanted, list):
        inner = tuple(known.parts)
        return [gap for one in wanted for gap in proof.gaps(inner, one, path, depth)]
    if keyword in ("anyOf", "oneOf") and isinstance(wanted, list) and wanted:
        return _any_of(proof, known, keyword, wanted, path, depth)
    if keyword == "contentSchema":
        return []
    if keyword.startswith("unevaluated") or not _is_said(proof, known, keyword, outer):
        return [Gap(path=path, keyword=keyword, is_sure=False)]
    return []


def _is_said(proof: Containment, known: Known, keyword: str, outer: Schema) -> bool:
    """Whether the same is said in the same words."""
    together = TOGETHER.get(keyword, (keyword,))
    wanted = {name: outer[name] for name in together if name in outer}
    return any(
        proof.is_same({name: part[name] for name in together if name in part}, wanted)
        for part in known.parts
    )


def _any_of(
    proof: Containment, known: Known, keyword: str, branches: list[Any], path: Path, depth: int
) -> Gaps:
    if any(proof.is_same({keyword: one}, {keyword: branches}) for one in known.said(keyword)):
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
    # What comes nearest says most; of branches that all fit, none is known to fit alone.
    nearest = min(attempts, key=len)
    return nearest or [Gap(path=path, keyword=keyword, is_sure=False)]


def _cases(known: Known) -> list[Schema]:
    """What it may be, one by one, where that is more than one thing."""
    if known.values is not None:
        return [{"const": one} for one in known.values] if len(known.values) > 1 else []
    types = sorted({TYPE_OF_KIND.get(kind, kind) for kind in known.kinds})
    if "number" in types and "integer" in types:
        types.remove("integer")
    return [{"type": one} for one in types] if len(types) > 1 else []


def _excludes(proof: Containment, known: Known, branches: list[Any]) -> bool:
    """Whether nothing of what is known fits any of these."""
    return all(are_apart(proof.inner, list(known.parts), proof.outer, [one]) for one in branches)


def are_apart(one: Root, mine: list[Any], other: Root, theirs: list[Any], depth: int = 0) -> bool:
    """Whether no value satisfies all of both."""
    left, right = one.parts(*mine), other.parts(*theirs)
    if left is None or right is None:
        return True
    kinds = kinds_in(left) & kinds_in(right)
    if not kinds:
        return True
    values, others = values_in(left, kinds), values_in(right, kinds)
    if values is not None and others is not None and len(without(values, others)) == len(values):
        return True
    if kinds != {"object"} or depth > 1:
        return False
    return any(
        are_apart(one, _said_of(left, name), other, _said_of(right, name), depth + 1)
        for name in members.required_in(left) | members.required_in(right)
    )


def _said_of(parts: list[Schema], name: str) -> list[Any]:
    """What is certain of a member."""
    return [schemas[0] for part in parts if len(schemas := members.member(part, name)) == 1]
