"""What changed from one JSON Schema to another, for ``mcp contract``: how grave, and in words.

What callers send may become more and must not become less; of what they are answered it is the
other way round. What a schema says beside its rules counts as well: a model reads it, and some
hosts require that it stays word for word what a person approved.
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
    MAX_STEPS,
    MEMBER,
    OTHER_MEMBERS,
    SAYING,
    Gap,
    Path,
    Root,
    TooLarge,
    fingerprint,
    gaps_between,
)
from mcp_django.schema.structure import children


class Level(IntEnum):
    """How much a change asks of others.

    ``SAFE``: every call that was right still is, and every answer is what was promised.
    ``APPROVAL``: so too, but a person, or a host on behalf of one, approved other words.
    ``BREAKING``: some call or some reader of answers may fail; or nobody can tell.
    """

    SAFE = 0
    APPROVAL = 1
    BREAKING = 2

    @property
    def word(self) -> str:
        """What commands call it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``where`` is a server, or a component with its server; ``what`` says the rest."""

    level: Level
    where: tuple[str, ...]
    what: str


# What differs, in words ---------------------------------------------------------------------------

Direction = Literal["input", "output"]
Found = tuple[Level, str]
_HEADER = "x-mcp-header"
_MOST_SHOWN = 200
_WORDS: dict[tuple[str, Direction | None], tuple[str, str]] = {
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
    if words := _WORDS.get((gap.keyword, direction)) or _WORDS.get((gap.keyword, None)):
        return f"{where}: {words[0] if is_lost else words[1]}"
    old, new = (gap.inner, gap.outer) if is_lost else (gap.outer, gap.inner)
    return f"{where}: {gap.keyword} was {_value(old)}, is {_value(new)}"


def _shown(path: Path) -> str:
    return ".".join(path).replace(".[", "[")


def _value(value: Any) -> str:
    if value is ABSENT:
        return "not given"
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _of_values(gap: Gap, *, is_lost: bool) -> str:
    if gap.inner is ABSENT:
        return f"it {'has to be' if is_lost else 'had to be'} one of {_value(gap.outer)}"
    return f"{'no longer' if is_lost else 'now also'} {_value(gap.inner)}"


def _words(old: Any, new: Any, direction: Direction) -> Iterator[Found]:
    """What differs in what is said, of everything that both have."""
    try:
        before, after = _texts_of(old), _texts_of(new)
    except (TooLarge, RecursionError):
        yield Level.APPROVAL, f"{direction}: the words are too many to compare; look at them"
        return
    for path, said in before.items():
        if path not in after or after[path] == said:
            continue
        keywords = sorted({keyword for keyword, _ in said ^ after[path]})
        where = f"{direction} {_shown(path)}".rstrip()
        if _HEADER in keywords:
            yield Level.BREAKING, f"{where}: {_HEADER} changed, and callers send another header"
        if rest := [one for one in keywords if one != _HEADER]:
            yield Level.APPROVAL, f"{where}: other {' and '.join(rest)}"


# Descriptions, titles and examples ----------------------------------------------------------------

_Texts = dict[Path, frozenset[tuple[str, str]]]
"""By the path of the value; in what order alternatives say something makes no difference."""

_DEFINITIONS = frozenset({"$defs", "definitions"})
_NO_TEXT = SAYING | {"$schema", "$comment", "$vocabulary"}


def _texts_of(schema: Any) -> _Texts:
    """Everything that is said, with references followed.

    Raises:
        TooLarge: there is no end of it.
    """
    root = Root(schema)
    found: dict[Path, set[tuple[str, str]]] = {}
    for steps, (path, keyword, value) in enumerate(_said(root, schema, (), ())):
        if steps > MAX_STEPS:
            raise TooLarge
        found.setdefault(path, set())
        if keyword:
            found[path].add((keyword, fingerprint(value)))
    return {path: frozenset(said) for path, said in found.items()}


def _said(
    root: Root, schema: Any, path: Path, following: tuple[str, ...]
) -> Iterator[tuple[Path, str, Any]]:
    yield path, "", None
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        if keyword not in _NO_TEXT:
            yield path, keyword, value
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in following:
        yield from _said(root, root.follow(reference), path, (*following, reference))
    for steps, child in children(schema):
        if steps[0] not in _DEFINITIONS:
            yield from _said(root, child, (*path, *_step(steps)), following)


def _step(steps: tuple[str | int, ...]) -> Path:
    """What a keyword adds to the path of the value: nothing where it speaks of the same value."""
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
