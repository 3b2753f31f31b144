"""Validation of arguments and results against hand-written JSON Schemas.

Each schema is checked and compiled once, when it is declared. A schema is rejected then, not when
the component is called, if it is not valid, names an unknown dialect, refers to another document,
or is designed to exhaust resources (MCP 2026-07-28, "Tools", and its security notes on schemas).
References are never fetched.

Dialects: 2020-12 (the default), 2019-09 and draft-07.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    InvalidArguments,
    OutputMismatch,
    ValidationProblem,
    format_path,
    to_short_json,
    unknown_argument_problem,
)
from mcp_django.schema.portable import readable_by_clients, without_nullable
from mcp_django.schema.problems import enum_rule, format_rule, type_rule
from mcp_django.schema.structure import Path, Schema, alternatives, resolve_reference, walk
from mcp_django.schema.values import decode_arguments, exact_integers, finite_float, jsonable
from mcp_django.schema.vocabulary import DIGITS

DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)


class CompiledSchema:
    """A compiled JSON Schema that validates values; `what` is the option that contains the schema.

    Without a validation library, only the names of an object's members are checked.
    """

    def __init__(self, schema: Mapping[str, Any], *, what: str) -> None:
        try:
            self.schema: Schema = jsonable(schema)
            for _, member in walk(self.schema):
                _check_dialect(member)
                _check_references(self.schema, member)
            self._validate = compile_schema(self.schema)
        except (TypeError, ValueError) as exc:
            raise ImproperlyConfigured(f"{what} is not valid: {exc}") from exc

    def find_problems(self, value: Any) -> tuple[ValidationProblem, ...]:
        """Return one problem for each rule that a JSON value breaks."""
        schema = self.schema
        if self._validate is not None:
            return explain_violations(self._validate(value), schema)
        if not isinstance(value, dict) or schema.get("type") != "object":
            return ()
        problems = [
            ValidationProblem(path=format_path((name,)), message="is required")
            for name in schema.get("required", ())
            if name not in value
        ]
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            problems += [
                unknown_argument_problem(name, properties)
                for name in value
                if name not in properties
            ]
        return tuple(problems)


def _check_dialect(schema: Schema) -> None:
    dialect = schema.get("$schema", DIALECTS[0])
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        dialects = ", ".join(DIALECTS)
        raise ValueError(f"the dialect {dialect!r} is not supported; use one of {dialects}")


def _check_references(root: Schema, schema: Schema) -> None:
    """Reject references that leave the schema, lead to no schema, or lead back to themselves."""
    if "$id" in schema and schema is not root:
        raise ValueError(f"a subschema has its own $id ({schema['$id']!r}); remove it")
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        reference = schema.get(keyword, "#")
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(
                f"it refers to {reference!r}, and references outside of the schema are never "
                "fetched; copy the definition into $defs"
            )
        is_pointer = reference.startswith("#/") or reference == "#"
        if is_pointer and not isinstance(resolve_reference(root, reference), dict | bool):
            raise ValueError(f"it refers to {reference!r}, which is not a schema")
    if "$ref" not in schema:
        return
    pending, seen = [resolve_reference(root, schema["$ref"])], [schema]
    while pending:
        member = pending.pop()
        if member is schema:
            raise ValueError(
                f"{schema['$ref']!r} refers to itself without a member or an item in between"
            )
        if isinstance(member, dict) and not any(member is other for other in seen):
            seen.append(member)
            for keyword in ("anyOf", "oneOf", "allOf"):
                pending.extend(member.get(keyword, ()))
            pending.extend(member.get(keyword) for keyword in ("not", "if", "then", "else"))
            if "$ref" in member:
                pending.append(resolve_reference(root, member["$ref"]))


# Both validation libraries report the keyword and the schema that a value violates. The messages
# are built from these, because the libraries' own messages differ. They use the same words as the
# messages that ``problems.explain_errors`` builds from pydantic's errors.

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

_CLOSING_KEYWORDS = frozenset({"additionalProperties", "unevaluatedProperties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One schema keyword that a value violates."""

    keyword: str
    schema: Schema
    """The schema with the keyword, empty if it was not found."""
    path: Path
    """The path from the root of the data to the value."""
    value: Any
    is_key: bool
    """Whether a key of the value is invalid, not the value itself."""


def explain_violations(
    violations: Iterable[Violation], root: Schema
) -> tuple[ValidationProblem, ...]:
    """Return the problems of the data, in the order of the violations."""
    all_problems = (
        problem for violation in violations for problem in _explain_violation(violation, root)
    )
    problems = islice(all_problems, MAX_KEPT_PROBLEMS)
    # A library reports a violation for each missing member, and each violation lists all of them.
    return tuple({str(problem): problem for problem in problems}.values())


def _explain_violation(violation: Violation, root: Schema) -> Iterator[ValidationProblem]:
    keyword, limit = violation.keyword, violation.schema.get(violation.keyword, MISSING)
    if keyword == "required" and isinstance(limit, list):
        for name in limit:
            if name not in violation.value:
                yield ValidationProblem(
                    path=format_path((*violation.path, name)), message="is required"
                )
    elif keyword in _CLOSING_KEYWORDS and limit is False and isinstance(violation.value, dict):
        members = list(alternatives(root, violation.schema))
        names = dict.fromkeys(name for member in members for name in member.get("properties", ()))
        if not any("patternProperties" in member for member in members):
            yield from (
                unknown_argument_problem(name, names, path=format_path(violation.path))
                for name in violation.value
                if name not in names
            )
            return
        # The names are not matched against the patterns: the author's patterns, applied to the
        # caller's names by a backtracking engine, can take forever.
        yield ValidationProblem(
            path=format_path(violation.path),
            message=f"has a member that is not allowed; known: {', '.join(names) or 'none'}",
        )
    else:
        rule = _rule_text(keyword, limit)
        yield ValidationProblem(
            path=format_path(violation.path),
            value=MISSING if violation.is_key else violation.value,
            message=f"each key {rule}" if violation.is_key else rule,
        )


def _rule_text(keyword: str, limit: Any) -> str:
    if limit is False:
        return "is not allowed"
    if limit is MISSING:
        return "does not fit the schema"
    if keyword in _RULES:
        return format_rule(_RULES[keyword], {"limit": limit})
    if keyword == "type":
        return type_rule(*limit) if isinstance(limit, list) else type_rule(limit)
    if keyword == "anyOf" and DIGITS in limit:
        return type_rule(
            *(str(schema["type"]) for schema in limit if schema != DIGITS and "type" in schema)
        )
    if keyword in {"enum", "const"}:
        return enum_rule(limit if keyword == "enum" else [limit])
    return f"must fit {to_short_json({keyword: limit})}"


# Two optional libraries validate hand-written schemas. ``jsonschema-rs`` validates a call in
# microseconds, ``jsonschema`` in 0.1 ms or more. They are imported when the first such schema is
# compiled. ``format`` is only an annotation, the default of JSON Schema 2020-12.

Validate = Callable[[Any], Iterable[Violation]]


def validation_engine() -> str | None:
    """Return the name of the validation library to use, or `None` if none is installed."""
    for name in _COMPILERS:
        with suppress(ImportError):
            importlib.import_module(name)
            return name
    return None


def compile_schema(schema: Schema) -> Validate | None:
    """Return a validator for a schema, or `None` if no library is installed.

    Raises:
        ValueError: the schema is not valid in its dialect.
    """
    name = validation_engine()
    return None if name is None else _COMPILERS[name](importlib.import_module(name), schema)


def _compile_jsonschema_rs(library: Any, schema: Schema) -> Validate:
    try:
        validator = library.validator_for(schema, validate_formats=False)
    except library.ValidationError as exc:
        raise ValueError(exc.message) from exc

    def validate(value: Any) -> Iterable[Violation]:
        for error in validator.iter_errors(value):
            yield Violation(
                keyword=str(error.schema_path[-1]),
                schema=_schema_at(schema, error.schema_path[:-1]),
                path=tuple(error.instance_path),
                value=error.instance,
                is_key="propertyNames" in error.schema_path,
            )

    return validate


def _schema_at(root: Schema, path: Iterable[str | int]) -> Schema:
    here: Any = root
    for step in path:
        # Releases differ in whether the path has a step for a reference.
        here = resolve_reference(root, here["$ref"]) if step == "$ref" else here[step]
        if not isinstance(here, dict | list):
            return {}
    return here if isinstance(here, dict) else {}


def _compile_jsonschema(library: Any, schema: Schema) -> Validate:
    kind = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except library.SchemaError as exc:
        raise ValueError(exc.message) from exc
    validator = kind(schema)

    def validate(value: Any) -> Iterable[Violation]:
        for error in validator.iter_errors(value):
            yield Violation(
                keyword=str(error.validator),
                # The schema may be `false`, which has no keywords.
                schema=error.schema or {str(error.validator): False},
                path=tuple(error.absolute_path),
                value=error.instance,
                is_key="propertyNames" in error.absolute_schema_path,
            )

    return validate


# The faster library first.
_COMPILERS: dict[str, Callable[[Any, Schema], Validate]] = {
    "jsonschema_rs": _compile_jsonschema_rs,
    "jsonschema": _compile_jsonschema,
}


FindProblems = Callable[[Any], tuple[ValidationProblem, ...]]


def _compiled_again(compiled: CompiledSchema, schema: Schema, *, what: str) -> CompiledSchema:
    """Return the compiled form of a rewritten schema; rewriting leaves most schemas unchanged."""
    return compiled if schema == compiled.schema else CompiledSchema(schema, what=what)


class JSONSchemaArguments:
    """Validates arguments against a JSON Schema and returns them as plain JSON values.

    The schema is published unchanged except where clients could not read it
    (`portable.readable_by_clients`); `lint` reports what hosts do not support.

    `closed` rejects names that the schema does not list, even if the schema allows them: only the
    listed names are arguments, and the caller must not set other parameters of the function.
    """

    def __init__(self, input_schema: Mapping[str, Any], *, closed: bool = False) -> None:
        self._closed = closed
        compiled = CompiledSchema(input_schema, what="input_schema")
        # Arguments as a whole are never null.
        declared = {key: value for key, value in compiled.schema.items() if key != "nullable"}
        self.json_schema = readable_by_clients(declared, is_input=True)
        self._schema = _compiled_again(compiled, without_nullable(declared), what="input_schema")
        if self.json_schema.get("type") != "object":
            raise ImproperlyConfigured(
                'input_schema must have "type": "object" at its root, because arguments have names.'
            )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments by name.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        arguments = decode_arguments(raw, parse_float=finite_float)
        properties = self.json_schema.get("properties", {})
        if self._closed and (unknown := [name for name in arguments if name not in properties]):
            raise InvalidArguments(
                [unknown_argument_problem(name, properties) for name in unknown[:MAX_KEPT_PROBLEMS]]
            )
        if problems := self._schema.find_problems(arguments):
            raise InvalidArguments(problems)
        return arguments


def require_fit(value: Any, find_problems: FindProblems) -> Any:
    """Return plain JSON, with integers beyond 2^53-1 as digits in text if the schema accepts that.

    Raises:
        OutputMismatch: the value fits the schema neither with digits nor without.
    """
    exact = exact_integers(value)
    problems = find_problems(exact)
    if problems and exact is not value and not find_problems(value):
        return value
    if problems:
        raise OutputMismatch(problems)
    return exact


class JSONSchemaOutput:
    """Validates results against a JSON Schema and returns them as plain JSON values.

    Results are validated against the published schema, because clients validate against it, too.
    """

    def __init__(self, output_schema: Mapping[str, Any]) -> None:
        compiled = CompiledSchema(output_schema, what="output_schema")
        self.json_schema = readable_by_clients(compiled.schema, is_input=False)
        self._schema = _compiled_again(compiled, self.json_schema, what="output_schema")

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: the value does not match the schema.
        """
        try:
            plain = jsonable(value)
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([ValidationProblem(path="", message=str(exc))]) from exc
        return require_fit(plain, self._schema.find_problems)


class SerializerOutput(JSONSchemaOutput):
    """Validates the results of a serializer, which also provides the schema."""
