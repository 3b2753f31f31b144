"""pydantic's validation errors as problems that name only what the sender wrote.

pydantic reports a union once for each of its members and names classes and validators on the way.
Here each location is followed through the data that was sent, so that steps which are no part of
it fall out, and of several alternatives the nearest one speaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    Problem,
    format_path,
    unknown_argument,
)
from mcp_django.schema.structure import Path, Schema, at
from mcp_django.schema.wording import one_of, rule_of

_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CHOICE = frozenset({"enum", "literal_error"})
_ABSENT = frozenset({"missing", "missing_argument"})
_OWN = frozenset({"value_error", "assertion_error"})
_KEY = "[key]"
_NOWHERE = object()


def explain(exc: ValidationError, data: Any, schema: Schema) -> tuple[Problem, ...]:
    """Return what is wrong with `data`; `schema` knows the names and choices there are."""
    if exc.error_count() > MAX_KEPT_PROBLEMS:
        known = ", ".join(schema.get("properties", ())) or "none"
        message = f"{exc.error_count()} things are wrong with the arguments; known: {known}"
        return (Problem(path="", message=message),)
    located = [_locate(details, data) for details in exc.errors(include_url=False)]
    # A union inside a union repeats itself.
    return tuple({str(problem): problem for problem in _problems(located, schema)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Located:
    details: ErrorDetails
    path: Path
    union: Path | None
    """Where the outermost choice between alternatives was, if there was one."""
    branch: str
    """Which of the alternatives this error speaks for."""


def _locate(details: ErrorDetails, data: Any) -> _Located:
    path: Path = ()
    union: Path | None = None
    branch = ""
    steps = details["loc"]
    for index, step in enumerate(steps):
        is_absent = index == len(steps) - 1 and details["type"] in _ABSENT
        inner = _inside(data, step)
        if inner is not _NOWHERE or is_absent:
            path, data = (*path, step), inner
        elif union is None and step != _KEY:
            union, branch = path, str(step)
    return _Located(details=details, path=path, union=union, branch=branch)


def _inside(data: Any, step: str | int) -> Any:
    """Return the member that a step of a location names, `_NOWHERE` if it names none."""
    if isinstance(data, dict):
        return data.get(step, _NOWHERE)
    if isinstance(data, str | int | float | None):
        return _NOWHERE
    if isinstance(step, int):
        return data[step] if isinstance(data, list | tuple) and step < len(data) else None
    return getattr(data, step, _NOWHERE)


def _problems(located: list[_Located], schema: Schema) -> Iterator[Problem]:
    seen: set[Path] = set()
    for error in located:
        if error.union is None:
            yield _problem(error, schema)
        elif error.union not in seen:
            seen.add(error.union)
            yield from _nearest([e for e in located if e.union == error.union], schema)


def _nearest(errors: list[_Located], schema: Schema) -> Iterator[Problem]:
    branches: dict[str, list[_Located]] = {}
    for error in errors:
        branches.setdefault(error.branch, []).append(error)
    # Of the right shape, with something wrong inside, is nearer than of another shape.
    inside = [
        branch for branch in branches.values() if any(error.path != error.union for error in branch)
    ]
    if inside:
        yield from (_problem(error, schema) for error in min(inside, key=len))
    else:
        yield _either([_problem(error, schema) for error in errors])


def _either(problems: list[Problem]) -> Problem:
    first = problems[0]
    messages = list(dict.fromkeys(problem.message for problem in problems))
    words = [
        message.removeprefix("must be ") if index else message
        for index, message in enumerate(messages)
    ]
    return Problem(path=first.path, value=first.value, message=" or ".join(words))


def _problem(error: _Located, schema: Schema) -> Problem:
    details = error.details
    kind = details["type"]
    if kind in _UNKNOWN:
        *around, name = error.path
        return unknown_argument(str(name), _names(at(schema, around)), path=format_path(around))
    is_key = _KEY in details["loc"]
    choices = _choices(at(schema, error.path)) if kind in _CHOICE and not is_key else []
    rule = one_of(choices) if choices else rule_of(kind, details.get("ctx", {}), details["msg"])
    return Problem(
        path=format_path(error.path),
        value=MISSING if _says_nothing(details) else details["input"],
        message=f"the key {rule}" if is_key else rule,
    )


def _says_nothing(details: ErrorDetails) -> bool:
    # A rule about several members of an object shows the members it means by itself.
    is_own = details["type"] in _OWN and not isinstance(details["input"], str | int | float)
    return details["type"] in _ABSENT or details["type"] == "json_invalid" or is_own


def _names(schemas: Iterable[Schema]) -> list[str]:
    return list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", ())))


def _choices(schemas: Iterable[Schema]) -> list[Any]:
    found = [value for schema in schemas for value in schema.get("enum", ())]
    return found + [schema["const"] for schema in schemas if "const" in schema]
