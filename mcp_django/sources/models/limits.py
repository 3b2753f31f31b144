"""What a model's validators say in a schema, so that a caller need not find out by trying."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.core import validators

from mcp_django.schema.portable import RULES, with_sentence
from mcp_django.schema.structure import Schema

# Bounds of a column's type, which say nothing about what it is for.
_LARGE = 2**31 - 1
_BOUNDS: tuple[tuple[type[validators.BaseValidator], str, str], ...] = (
    (validators.MinValueValidator, "minimum", "at least"),
    (validators.MaxValueValidator, "maximum", "at most"),
    (validators.MinLengthValidator, "minLength", ""),
    (validators.MaxLengthValidator, "maxLength", ""),
)


def with_limits(schema: Schema, rules: Iterable[Any]) -> Schema:
    """The schema with the bounds and patterns that these validators hold a value to."""
    limited = dict(schema)
    if "enum" in schema:
        return limited
    words: list[str] = []
    for keyword, limit, word in _bounds(rules):
        if schema.get("type") in {"integer", "number"} or "Length" in keyword:
            limited.setdefault(keyword, limit)
        elif word:
            words.append(f"{word} {limit}")
    if words:
        limited[RULES] = ", ".join([*words, *([schema[RULES]] if RULES in schema else [])])
    if "format" not in schema:
        for sentence in _patterns(rules):
            limited["description"] = with_sentence(limited.get("description", ""), sentence)
    return limited


def _bounds(rules: Iterable[Any]) -> Iterator[tuple[str, Any, str]]:
    for rule in rules:
        for kind, keyword, word in _BOUNDS:
            if isinstance(rule, kind):
                limit: Any = rule.limit_value
                limit = limit() if callable(limit) else limit
                if not isinstance(limit, int) or abs(limit) < _LARGE:
                    yield keyword, limit, word


def _patterns(rules: Iterable[Any]) -> Iterator[str]:
    """What a pattern asks for, in the words of its author; not every host reads Python's own."""
    for rule in rules:
        if isinstance(rule, validators.RegexValidator):
            yield str(rule.message)
