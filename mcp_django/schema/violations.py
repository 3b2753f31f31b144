"""Violations of a JSON Schema in the words that `wording` has for pydantic's errors.

Both validators say where they were in the schema and in the data. The rule is read from the schema
at that place, so that their own messages, which differ, are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.schema.arguments import Problem, format_path, shorten, unknown_argument
from mcp_django.schema.structure import Path, Schema, alternatives, resolve
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One keyword that did not hold."""

    schema_path: Path
    """From the root of the schema to the keyword, whether references are named or followed."""
    path: Path
    """From the root of the data to the value."""
    value: Any


def explain_violations(violations: Iterable[Violation], schema: Schema) -> tuple[Problem, ...]:
    """Return what is wrong with the data, in the order of the violations."""
    problems = (problem for one in violations for problem in _problems(one, schema))
    # A required member that is missing is reported for each of them, and explained for all.
    return tuple({str(problem): problem for problem in problems}.values())


def _problems(violation: Violation, root: Schema) -> Iterator[Problem]:
    *around, keyword = violation.schema_path or ("",)
    schema = _follow(root, around)
    if keyword in _NAMES and isinstance(violation.value, dict):
        yield from _NAMES[str(keyword)](violation, schema, root)
    else:
        rule = _rule(str(keyword), schema)
        is_key = "propertyNames" in around
        yield Problem(
            path=format_path(violation.path),
            value=violation.value,
            message=f"the key {rule}" if is_key else rule,
        )


def _follow(root: Schema, path: Iterable[str | int]) -> Schema:
    here: Any = root
    for step in path:
        if step == "$ref" and isinstance(here, dict):
            here = resolve(root, here["$ref"])
        elif isinstance(here, dict | list):
            here = here[step]  # type: ignore[index]
    return here if isinstance(here, dict) else {}


def _missing(violation: Violation, schema: Schema, root: Schema) -> Iterator[Problem]:
    for name in schema["required"]:
        if name not in violation.value:
            yield Problem(path=format_path((*violation.path, name)), message="is required")


def _unknown(violation: Violation, schema: Schema, root: Schema) -> Iterator[Problem]:
    members = list(alternatives(root, schema))
    known = dict.fromkeys(name for member in members for name in member.get("properties", ()))
    patterns = [name for member in members for name in member.get("patternProperties", ())]
    for name in violation.value:
        if name not in known and not any(re.search(pattern, name) for pattern in patterns):
            yield unknown_argument(name, known, path=format_path(violation.path))


_NAMES: Mapping[str, Callable[[Violation, Schema, Schema], Iterator[Problem]]] = {
    "required": _missing,
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
}


def _rule(keyword: str, schema: Schema) -> str:
    limit: Any = schema.get(keyword)
    if keyword in _RULES:
        return fill(_RULES[keyword], {"limit": limit})
    if keyword == "type":
        return of_kind(*limit) if isinstance(limit, list) else of_kind(limit)
    if keyword in {"enum", "const"}:
        return one_of(limit if keyword == "enum" else [limit])
    if limit is False:
        return "is not allowed"
    return f"must fit {shorten({keyword: limit})}"
