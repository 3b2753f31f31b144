"""Violations of a JSON Schema in the words that `wording` has for pydantic's errors.

Both validators say which keyword of which schema did not hold. The rule is read from there, so that
their own messages, which differ, are not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    Problem,
    format_path,
    shorten,
    unknown_argument,
)
from mcp_django.schema.structure import Path, Schema, alternatives
from mcp_django.schema.wording import fill, of_kind, one_of

_RULES: Mapping[str, str] = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be greater than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {limit}",
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "pattern": "must match the pattern {limit}",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "uniqueItems": "must not have the same item twice",
    "minProperties": "must have at least {limit} members",
    "maxProperties": "must have at most {limit} members",
}

_CLOSED = frozenset({"additionalProperties", "unevaluatedProperties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One keyword that did not hold."""

    keyword: str
    schema: Schema
    """The schema that has the keyword, empty if it could not be found."""
    path: Path
    """From the root of the data to the value."""
    value: Any
    is_key: bool
    """Whether it is about a name in the value, not about the value."""


def explain_violations(violations: Iterable[Violation], root: Schema) -> tuple[Problem, ...]:
    """Return what is wrong with the data, in the order of the violations."""
    found = (problem for one in violations for problem in _problems(one, root))
    problems = islice(found, MAX_KEPT_PROBLEMS)
    # A required member that is missing is reported for each of them, and explained for all.
    return tuple({str(problem): problem for problem in problems}.values())


def _problems(violation: Violation, root: Schema) -> Iterator[Problem]:
    keyword, limit = violation.keyword, violation.schema.get(violation.keyword, MISSING)
    if keyword == "required" and isinstance(limit, list):
        yield from _missing(violation, limit)
    elif keyword in _CLOSED and limit is False and isinstance(violation.value, dict):
        yield from _unknown(violation, root)
    else:
        rule = _rule(keyword, limit)
        yield Problem(
            path=format_path(violation.path),
            value=MISSING if violation.is_key else violation.value,
            message=f"each key {rule}" if violation.is_key else rule,
        )


def _missing(violation: Violation, required: Iterable[str]) -> Iterator[Problem]:
    for name in required:
        if name not in violation.value:
            yield Problem(path=format_path((*violation.path, name)), message="is required")


def _unknown(violation: Violation, root: Schema) -> Iterator[Problem]:
    members = list(alternatives(root, violation.schema))
    known = dict.fromkeys(name for member in members for name in member.get("properties", ()))
    if any("patternProperties" in member for member in members):
        # Which names they would allow is not tried: the author's patterns, run on the caller's
        # names by an engine that backtracks, can take for ever.
        yield Problem(
            path=format_path(violation.path),
            message=f"has a member that is not allowed; known: {', '.join(known) or 'none'}",
        )
        return
    for name in violation.value:
        if name not in known:
            yield unknown_argument(name, known, path=format_path(violation.path))


def _rule(keyword: str, limit: Any) -> str:
    if limit is False:
        return "is not allowed"
    if limit is MISSING:
        return "does not fit the schema"
    if keyword in _RULES:
        return fill(_RULES[keyword], {"limit": limit})
    if keyword == "type":
        return of_kind(*limit) if isinstance(limit, list) else of_kind(limit)
    if keyword in {"enum", "const"}:
        return one_of(limit if keyword == "enum" else [limit])
    return f"must fit {shorten({keyword: limit})}"
