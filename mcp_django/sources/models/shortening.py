"""Answers that are too long: a page ends earlier, and a single row has its longest texts cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp_django.execution import results

LENGTHS = (20_000, 5_000, 1_000, 200)


def fitted(items: list[Any], first: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """The longest page that an answer may be; ``first`` makes one of so many of the items."""
    kept = len(items)
    page = first(kept)
    while kept > 1 and not results.fits(page):
        # The cursor needs room, too.
        kept = max(1, min(kept - 1, results.fitting(items)))
        page = first(kept)
    return shortened(page)


def shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or one whose texts say how much of them is missing."""
    cut = answer
    for length in LENGTHS:
        if results.fits(cut):
            break
        cut = {
            name: member if name == "next_cursor" else _cut(member, length)
            for name, member in answer.items()
        }
    return cut


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}… [Cut: the first {length} of {len(value)} characters.]"
    if isinstance(value, dict):
        return {name: _cut(member, length) for name, member in value.items()}
    if isinstance(value, list):
        return [_cut(item, length) for item in value]
    return value
