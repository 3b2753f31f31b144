"""Whether everything that one schema takes is taken by another, and where not.

For each keyword of the outer schema it is shown that the inner one implies it. What is recursive is
shown by induction over the size of the value: within its members, the claim itself may be used.
"""

from __future__ import annotations

from typing import Any

from mcp_django.management.contract.schemas import applicators, containers
from mcp_django.management.contract.schemas.gap import ABSENT, CLOSED, Gap, Path, TooLarge
from mcp_django.management.contract.schemas.part import (
    HOLDING,
    MAX_STEPS,
    VALIDATING,
    Root,
    has_references,
    kinds_in,
    stripped,
    values_in,
)
from mcp_django.management.contract.schemas.scalars import Known, implies
from mcp_django.management.contract.schemas.values import fingerprint, kinds_of_types, without
from mcp_django.schema.structure import Schema

SILENT = frozenset({"$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions", "$id"})
"""They say nothing of a value by themselves."""

SAYING = VALIDATING | HOLDING
Gaps = list[Gap]


def gaps_between(inner: Any, outer: Any) -> Gaps:
    """Why some value that ``inner`` takes may not be taken by ``outer``; nothing: all are taken."""
    roots = Root(inner), Root(outer)
    if roots[0].fingerprint == roots[1].fingerprint:
        return []
    try:
        if not all(root.is_readable for root in roots):
            return [Gap(path=(), keyword="$schema", is_sure=False)]
        return list(dict.fromkeys(Containment(*roots).gaps((inner,), outer, (), 0)))
    except (TooLarge, RecursionError, ValueError):
        return [Gap(path=(), keyword="$ref", is_sure=False)]


class Containment:
    """One comparison of two whole schemas."""

    def __init__(self, inner: Root, outer: Root) -> None:
        self.inner = inner
        self.outer = outer
        self._alike = inner.fingerprint == outer.fingerprint
        self._steps = 0
        self._claims: dict[tuple[str, ...], int] = {}
        # Each with its schema, which lives as long: else another may get its id.
        self._prints: dict[int, tuple[Any, str, bool]] = {}

    def gaps(self, inner: tuple[Any, ...], outer: Any, path: Path, depth: int) -> Gaps:
        """The same for the value at a path, ``depth`` members deep; all of ``inner`` hold.

        Raises:
            TooLarge: it takes too long.
        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooLarge
        if outer is True or outer == {} or any(self.is_same(one, outer) for one in inner):
            return []
        parts = self.inner.parts(*inner)
        if parts is None:
            return []
        kinds = kinds_in(parts)
        values = values_in(parts, kinds)
        if not kinds or values == []:
            return []
        if outer is False:
            return [Gap(path=path, keyword=CLOSED)]
        if not isinstance(outer, dict):
            return [Gap(path=path, keyword="$ref", is_sure=False)]
        if not _refers(inner) and not _refers((outer,)):
            return self._compared(parts, Known(parts, kinds, values), outer, path, depth)
        claim = tuple(self._print(one)[0] for one in (*inner, outer))
        if (since := self._claims.get(claim)) is not None:
            # Of a smaller value it may be taken for granted.
            return [] if depth > since else [Gap(path=path, keyword="$ref", is_sure=False)]
        self._claims[claim] = depth
        try:
            return self._compared(parts, Known(parts, kinds, values), outer, path, depth)
        finally:
            del self._claims[claim]

    def is_same(self, inner: Any, outer: Any) -> bool:
        """Whether two say the same by the same words."""
        if not isinstance(inner, dict) or not isinstance(outer, dict):
            return inner is outer
        if inner.keys() & SAYING != outer.keys() & SAYING:
            return False
        mine, theirs = self._print(inner), self._print(outer)
        # By the same reference two schemas may say different things.
        return mine[0] == theirs[0] and (self._alike or not mine[1])

    def _print(self, schema: Any) -> tuple[str, bool]:
        """The fingerprint of a schema, and whether it has references."""
        found = self._prints.get(id(schema))
        if found is None:
            print_ = fingerprint(stripped(schema))
            found = self._prints[id(schema)] = schema, print_, has_references(schema)
        return found[1], found[2]

    def _compared(
        self, parts: list[Schema], known: Known, outer: Schema, path: Path, depth: int
    ) -> Gaps:
        found = [
            gap
            for keyword in outer
            if keyword in SAYING and keyword not in SILENT
            for gap in self._missing(known, keyword, outer, path, depth)
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

    def _missing(self, known: Known, keyword: str, outer: Schema, path: Path, depth: int) -> Gaps:
        """The gaps by one keyword."""
        wanted = outer[keyword]
        if keyword == "$ref":
            return self._referred(known, wanted, path, depth)
        if keyword == "type":
            missing = known.kinds - kinds_of_types(wanted)
            return [_gap(known, keyword, wanted, path)] if missing else []
        if keyword in ("enum", "const"):
            return self._listed(known, keyword, [wanted] if keyword == "const" else wanted, path)
        holds = implies(known, keyword, wanted)
        if holds is not None:
            return [] if holds else [_gap(known, keyword, wanted, path)]
        if keyword in containers.KEYWORDS:
            return containers.gaps(self, known, keyword, outer, path, depth)
        return applicators.gaps(self, known, keyword, outer, path, depth)

    def _referred(self, known: Known, reference: Any, path: Path, depth: int) -> Gaps:
        target = self.outer.follow(reference)
        if target is None:
            return [Gap(path=path, keyword="$ref", is_sure=False)]
        return self.gaps(tuple(known.parts), target, path, depth)

    def _listed(self, known: Known, keyword: str, wanted: Any, path: Path) -> Gaps:
        if not isinstance(wanted, list):
            return [Gap(path=path, keyword=keyword, is_sure=False)]
        if known.values is None:
            return [Gap(path=path, keyword=keyword, outer=tuple(map(fingerprint, wanted)))]
        lost = without(known.values, wanted)
        shown = tuple(map(fingerprint, lost))
        return [Gap(path=path, keyword="enum", inner=shown)] if lost else []


def _refers(schemas: tuple[Any, ...]) -> bool:
    return any(isinstance(one, dict) and "$ref" in one for one in schemas)


def _gap(known: Known, keyword: str, wanted: Any, path: Path) -> Gap:
    said = known.said(keyword)
    inner = fingerprint(said[0]) if said else ABSENT
    return Gap(path=path, keyword=keyword, inner=inner, outer=fingerprint(wanted))
