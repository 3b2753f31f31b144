"""``Gap``: one reason why a value that one schema takes may not be taken by another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Path = tuple[str, ...]

ABSENT: Final = object()
"""Stands for a keyword that a schema does not have."""

CLOSED = "closed"
MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """``inner`` and ``outer`` are what the two say by ``keyword``, of the value at ``path``.

    ``CLOSED`` stands in place of a keyword where the outer schema has no such member, and
    ``MEMBER`` where it describes one that is anything in the inner schema. Without ``is_sure``
    nobody knows: it could not be shown that there is no gap.
    """

    path: Path
    keyword: str
    inner: Any = ABSENT
    outer: Any = ABSENT
    is_sure: bool = True


class TooLarge(Exception):
    """There is more to compare than any schema in good faith gives."""
