"""What numbers and texts are held to: whether certain limits imply another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.management.contract.schemas.part import are_whole
from mcp_django.management.contract.schemas.values import NUMBERS
from mcp_django.schema.structure import Schema


@dataclass(frozen=True, slots=True)
class Known:
    """What is certain of a value: the parts that hold, its kinds, its values if they are few."""

    parts: Sequence[Schema]
    kinds: frozenset[str]
    values: Sequence[Any] | None = field(default=None)

    def said(self, keyword: str) -> list[Any]:
        """What the parts say by a keyword."""
        return [part[keyword] for part in self.parts if keyword in part]

    def numbers(self) -> list[int | float] | None:
        """The numbers that it may be, where they can be counted."""
        if self.values is None:
            return None
        return [one for one in self.values if _is_number(one)]

    def lengths(self) -> list[int] | None:
        """How long the text may be, where that can be counted."""
        if self.values is None:
            return None
        return [len(one) for one in self.values if isinstance(one, str)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Limit = tuple[float, bool]
"""A number, and whether it is itself out of bounds; of lower limits the greater one is stricter."""


def implies(known: Known, keyword: str, wanted: Any) -> bool | None:
    """Whether the keyword holds of what is known; ``None`` for one that is not about scalars."""
    rule = RULES.get(keyword)
    if rule is None:
        return None
    kinds, holds = rule
    return not known.kinds & kinds or holds(known, keyword, wanted)


def _at_least(known: Known, keyword: str, wanted: Any) -> bool:
    return _bounded(known, ("minimum", "exclusiveMinimum"), keyword, wanted, sign=1)


def _at_most(known: Known, keyword: str, wanted: Any) -> bool:
    return _bounded(known, ("maximum", "exclusiveMaximum"), keyword, wanted, sign=-1)


def _bounded(
    known: Known, keywords: tuple[str, str], keyword: str, wanted: Any, *, sign: int
) -> bool:
    """Whether it is on the right side of a limit; upper limits are lower ones of ``-x``."""
    if not _is_number(wanted):
        # In draft 4 these were flags.
        return False
    whole = are_whole(known.kinds)
    limit = _limit(sign * wanted, whole=whole, excludes=keyword == keywords[1])
    numbers = known.numbers()
    if numbers is not None:
        return all(_limit(sign * one, whole=whole, excludes=False) >= limit for one in numbers)
    own = [
        _limit(sign * value, whole=whole, excludes=name == keywords[1])
        for name in keywords
        for value in known.said(name)
        if _is_number(value)
    ]
    return any(one >= limit for one in own)


def _limit(value: float, *, whole: bool, excludes: bool) -> Limit:
    if whole and excludes:
        return math.floor(value) + 1, False
    return (math.ceil(value), False) if whole else (value, excludes)


def _multiple(known: Known, keyword: str, wanted: Any) -> bool:
    if wanted in known.said(keyword):
        return True
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        # Fractions divide differently in each validator.
        return False
    if are_whole(known.kinds) and wanted == 1:
        return True
    numbers = known.numbers()
    if numbers is not None:
        return all(isinstance(one, int) and one % wanted == 0 for one in numbers)
    return any(isinstance(one, int) and one % wanted == 0 for one in known.said(keyword))


def _counted(lowest: str, *, what: Callable[[Known], list[int] | None]) -> Callable[..., bool]:
    def holds(known: Known, keyword: str, wanted: Any) -> bool:
        if not _is_number(wanted):
            return False
        counted = what(known)
        own = known.said(keyword) if counted is None else counted
        sizes = [one for one in own if _is_number(one)]
        check = all if counted is not None else any
        if keyword == lowest:
            return wanted <= 0 or check(one >= wanted for one in sizes)
        return check(one <= wanted for one in sizes)

    return holds


def _said_alike(known: Known, keyword: str, wanted: Any) -> bool:
    return wanted in known.said(keyword)


_TEXT = frozenset({"string"})
_length = _counted("minLength", what=Known.lengths)
RULES: dict[str, tuple[frozenset[str], Callable[[Known, str, Any], bool]]] = {
    "minimum": (NUMBERS, _at_least),
    "exclusiveMinimum": (NUMBERS, _at_least),
    "maximum": (NUMBERS, _at_most),
    "exclusiveMaximum": (NUMBERS, _at_most),
    "multipleOf": (NUMBERS, _multiple),
    "minLength": (_TEXT, _length),
    "maxLength": (_TEXT, _length),
    "pattern": (_TEXT, _said_alike),
    "format": (_TEXT, _said_alike),
    "contentEncoding": (_TEXT, _said_alike),
    "contentMediaType": (_TEXT, _said_alike),
}
