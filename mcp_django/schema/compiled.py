"""A JSON Schema written by hand, checked once and compiled.

A schema that cannot be checked is refused where it is declared, not when it is called: one that is
not valid, names a dialect we do not know, points outside of itself or is built to exhaust (MCP
2026-07-28, "Tools", and the security notes on schemas there). Nothing is ever fetched.

Dialects: 2020-12, which is meant when none is named, 2019-09 and draft-07.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.arguments import Problem, format_path, unknown_argument
from mcp_django.schema.engines import compile_schema
from mcp_django.schema.jsonable import jsonable
from mcp_django.schema.structure import Schema, resolve, walk
from mcp_django.schema.violations import explain_violations

DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
)


class CompiledSchema:
    """Tells what is wrong with a value; `what` names the option that holds the schema.

    Without a validation library only the names of an object's members are checked.
    """

    def __init__(self, schema: Mapping[str, Any], *, what: str) -> None:
        try:
            self.schema: Schema = jsonable(schema)
            for _, member in walk(self.schema):
                _check_dialect(member)
                _check_reference(self.schema, member)
                _check_progress(self.schema, member)
            self._validate = compile_schema(self.schema)
        except (TypeError, ValueError) as exc:
            raise ImproperlyConfigured(f"{what} is refused: {exc}") from exc

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return one problem for each rule that a plain JSON value breaks."""
        if self._validate is None:
            return tuple(_check_names(value, self.schema))
        return explain_violations(self._validate(value), self.schema)


def _check_dialect(schema: Schema) -> None:
    dialect = schema.get("$schema", DIALECTS[0])
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise ValueError(f"it is written in the dialect {dialect!r}; take one of {known}")


def _check_reference(root: Schema, schema: Schema) -> None:
    if "$id" in schema and schema is not root:
        raise ValueError(f"a schema inside it has an $id of its own ({schema['$id']!r})")
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        reference = schema.get(keyword, "#")
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(
                f"it points to {reference!r}, and nothing outside of the schema is ever fetched; "
                "copy the definition into $defs"
            )
        is_pointer = reference.startswith("#/") or reference == "#"
        if is_pointer and not isinstance(resolve(root, reference), dict | bool):
            raise ValueError(f"it points to {reference!r}, where there is no schema")


def _check_names(value: Any, schema: Schema) -> Iterator[Problem]:
    if not isinstance(value, dict) or schema.get("type") != "object":
        return
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(path=format_path((name,)), message="is required")
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in value:
            if name not in properties:
                yield unknown_argument(name, properties)


def _check_progress(root: Schema, schema: Schema) -> None:
    """Refuse a reference that leads back to itself without a member or an item in between."""
    if "$ref" not in schema:
        return
    pending, seen = [resolve(root, schema["$ref"])], [schema]
    while pending:
        member = pending.pop()
        if member is schema:
            raise ValueError(f"{schema['$ref']!r} refers to itself with nothing in between")
        if isinstance(member, dict) and not any(member is other for other in seen):
            seen.append(member)
            pending.extend(_in_place(root, member))


def _in_place(root: Schema, schema: Schema) -> Iterator[Any]:
    for keyword in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(keyword, ())
    for keyword in ("not", "if", "then", "else"):
        yield schema.get(keyword)
    if "$ref" in schema:
        yield resolve(root, schema["$ref"])
