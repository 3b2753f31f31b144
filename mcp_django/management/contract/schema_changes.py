"""What differs between two schemas, in words.

What callers send may become more and must not become less; of what they are answered it is the
other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from mcp_django.management.contract.change import Level
from mcp_django.management.contract.schemas.containment import gaps_between
from mcp_django.management.contract.schemas.gap import ABSENT, CLOSED, MEMBER, Gap, Path, TooLarge
from mcp_django.management.contract.schemas.texts import texts_of

Direction = Literal["input", "output"]
Found = tuple[Level, str]
HEADER = "x-mcp-header"
MOST_SHOWN = 200
WORDS: dict[tuple[str, Direction | None], tuple[str, str]] = {
    (CLOSED, None): ("it is gone", "it is new"),
    (MEMBER, "output"): ("it is new", "it is gone"),
    (MEMBER, "input"): ("it has a form now", "it is described no more"),
    ("required", None): ("it is required now", "it is required no more"),
}
"""What is said where the inner schema is the old one, and where it is the new one."""


def schema_changes(old: Any, new: Any, direction: Direction) -> list[Found]:
    """The changes from one schema to the other, none if they are the same."""
    if old == new:
        return []
    # Nobody sends an argument that was not declared, whether or not a schema says so.
    before, after = (_closed(old), _closed(new)) if direction == "input" else (old, new)
    refused, granted = gaps_between(before, new), gaps_between(after, before)
    breaking, safe = (refused, granted) if direction == "input" else (granted, refused)
    is_lost = direction == "input"
    lost = [(Level.BREAKING, _in_words(one, direction, is_lost=is_lost)) for one in breaking]
    won = [
        (_level_of_gain(one, direction), _in_words(one, direction, is_lost=not is_lost))
        for one in safe
        if one.is_sure and not _is_told(one, breaking)
    ]
    found = [*lost, *won, *_words(old, new, direction)]
    return list(dict.fromkeys(found)) or [(Level.SAFE, f"{direction}: written in another way")]


def _level_of_gain(gap: Gap, direction: Direction) -> Level:
    """Safe, but for a member of an answer that is gone: somebody may have looked for it."""
    is_gone = direction == "output" and gap.keyword == CLOSED and gap.path
    return Level.BREAKING if is_gone else Level.SAFE


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict) and "additionalProperties" not in schema:
        return {**schema, "additionalProperties": False}
    return schema


def _is_told(gap: Gap, others: Iterable[Gap]) -> bool:
    """Whether the same change is told as one that breaks."""
    return any((one.path, one.keyword) == (gap.path, gap.keyword) for one in others)


def _in_words(gap: Gap, direction: Direction, *, is_lost: bool) -> str:
    """One gap; ``is_lost`` where the inner schema is the old one."""
    where = f"{direction} {_shown(gap.path)}".rstrip()
    if not gap.is_sure:
        return f"{where}: nobody can tell what the change of {gap.keyword} means; look at it"
    if gap.keyword in ("enum", "const"):
        return f"{where}: {_of_values(gap, is_lost=is_lost)}"
    if words := WORDS.get((gap.keyword, direction)) or WORDS.get((gap.keyword, None)):
        return f"{where}: {words[0] if is_lost else words[1]}"
    old, new = (gap.inner, gap.outer) if is_lost else (gap.outer, gap.inner)
    return f"{where}: {gap.keyword} was {_value(old)}, is {_value(new)}"


def _shown(path: Path) -> str:
    return ".".join(path).replace(".[", "[")


def _value(value: Any) -> str:
    if value is ABSENT:
        return "not given"
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _of_values(gap: Gap, *, is_lost: bool) -> str:
    if gap.inner is ABSENT:
        return f"it {'has to be' if is_lost else 'had to be'} one of {_value(gap.outer)}"
    return f"{'no longer' if is_lost else 'now also'} {_value(gap.inner)}"


def _words(old: Any, new: Any, direction: Direction) -> Iterator[Found]:
    """What differs in what is said, of everything that both have."""
    try:
        before, after = texts_of(old), texts_of(new)
    except (TooLarge, RecursionError):
        yield Level.APPROVAL, f"{direction}: the words are too many to compare; look at them"
        return
    for path, said in before.items():
        if path not in after or after[path] == said:
            continue
        keywords = sorted({keyword for keyword, _ in said ^ after[path]})
        where = f"{direction} {_shown(path)}".rstrip()
        if HEADER in keywords:
            yield Level.BREAKING, f"{where}: {HEADER} changed, and callers send another header"
        if rest := [one for one in keywords if one != HEADER]:
            yield Level.APPROVAL, f"{where}: other {' and '.join(rest)}"
