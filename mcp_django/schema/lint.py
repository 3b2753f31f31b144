"""What model hosts choke on, found in a schema that is about to be published.

For schemas that were written by hand, and for what `portable` cannot rewrite. Each finding is one
sentence with the place, for a system check. It judges portability: whether a schema is valid at all
is decided where it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mcp_django.schema.rewriting import is_number
from mcp_django.schema.structure import Path, Schema, children, walk

MAX_PORTABLE_DEPTH = 10

_COMBINATIONS = ("anyOf", "oneOf", "allOf", "not", "if")

_KEYWORDS: Mapping[str, str] = {
    "$ref": "uses a reference; write the definition where it is used",
    "oneOf": "uses oneOf; write anyOf",
    "allOf": "uses allOf; write one schema with all members",
    "not": "uses not; put the rule into the description",
    "if": "uses if/then/else; put the rule into the description",
    "const": "uses const; write an enum of one value",
    "prefixItems": "uses prefixItems; write items",
    "patternProperties": "uses patternProperties; write additionalProperties",
    "propertyNames": "uses propertyNames; put the rule into the description",
    "unevaluatedProperties": "uses unevaluatedProperties; write additionalProperties",
    "dependentSchemas": "uses dependentSchemas; put the rule into the description",
    "$dynamicRef": "uses a dynamic reference; write the definition where it is used",
}


def lint(schema: Schema) -> list[str]:
    """Return one sentence for each thing that makes some host drop or misread the schema."""
    findings = _lint_root(schema)
    for path, member in walk(schema):
        where = "/".join(map(str, path)) or "root"
        findings += [f"{where}: {finding}." for finding in _lint_member(path, member)]
    return findings


def _lint_root(schema: Schema) -> list[str]:
    findings = []
    if schema.get("type") != "object":
        findings.append("root: is not of type object; some hosts drop every tool of the server.")
    if "properties" not in schema:
        findings.append("root: has no properties; write an empty object for none.")
    findings += [
        f"root: combines schemas with {keyword}; some hosts drop the tool."
        for keyword in _COMBINATIONS
        if keyword in schema
    ]
    return findings


def _lint_member(path: Path, schema: Schema) -> list[str]:
    findings = [
        text
        for keyword, text in _KEYWORDS.items()
        if keyword in schema and (path or keyword not in _COMBINATIONS)
    ]
    findings += [text for matches, text in _SHAPES if matches(schema)]
    if _depth(path) == MAX_PORTABLE_DEPTH + 1:
        findings.append(f"is nested deeper than {MAX_PORTABLE_DEPTH} levels")
    return findings


def _depth(path: Path) -> int:
    """Return how many objects and arrays of a value lie around this place."""
    return sum(step in {"properties", "items", "additionalProperties"} for step in path)


def _has_bare_array(schema: Schema) -> bool:
    is_array = schema.get("type") == "array"
    return is_array and not isinstance(schema.get("items"), dict)


def _has_boolean_schema(schema: Schema) -> bool:
    return any(
        isinstance(child, bool) and path not in {("additionalProperties",), ("items",)}
        for path, child in children(schema)
    )


def _has_exclusive_bound(schema: Schema) -> bool:
    return is_number(schema.get("exclusiveMinimum")) or is_number(schema.get("exclusiveMaximum"))


def _nests_arrays_of_objects(schema: Schema) -> bool:
    items = schema.get("items")
    inner = items.get("items") if isinstance(items, dict) else None
    return isinstance(inner, dict) and inner.get("type") == "object"


_SHAPES: tuple[tuple[Callable[[Schema], bool], str], ...] = (
    (lambda schema: isinstance(schema.get("type"), list), "has several types; write anyOf"),
    (lambda schema: "enum" in schema and "type" not in schema, "has an enum without a type"),
    (_has_bare_array, "is an array without items"),
    (_has_exclusive_bound, "has an exclusive bound; write minimum or maximum"),
    (_has_boolean_schema, "has true or false in place of a schema; write an object"),
    (_nests_arrays_of_objects, "is an array of arrays of objects"),
)
