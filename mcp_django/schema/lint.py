"""The problems that hosts have with a schema.

For hand-written schemas, and for schemas that cannot be rewritten. Each finding is one sentence
with the place in the schema, for a system check. ``lint`` checks only portability; the schema is
validated when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_django.protocol.headers import subschemas
from mcp_django.schema.structure import Path, Schema, is_number, walk

MAX_PORTABLE_DEPTH = 10

_COMBINATIONS = ("anyOf", "oneOf", "allOf", "not", "if")

_KEYWORD_FINDINGS: Mapping[str, str] = {
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
    """Return one sentence for each part of the schema that some hosts reject or misread."""
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
    for path, member in walk(schema):
        where = "/".join(map(str, path)) or "root"
        findings += [f"{where}: {finding}." for finding in _lint_member(path, member)]
    return findings


def _lint_member(path: Path, schema: Schema) -> list[str]:
    findings = [
        text
        for keyword, text in _KEYWORD_FINDINGS.items()
        if keyword in schema and (path or keyword not in _COMBINATIONS)
    ]
    items = schema.get("items")
    inner = items.get("items") if isinstance(items, dict) else None
    bounds = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    structure = {
        "has several types; write anyOf": isinstance(schema.get("type"), list),
        "has an enum without a type": "enum" in schema and "type" not in schema,
        "is an array without items": (
            schema.get("type") == "array" and not isinstance(items, dict)
        ),
        "has an exclusive bound; write minimum or maximum": any(map(is_number, bounds)),
        "has true or false in place of a schema; write an object": any(
            isinstance(child, bool) and place not in {("additionalProperties",), ("items",)}
            for place, child in subschemas(schema)
        ),
        "is an array of arrays of objects": (
            isinstance(inner, dict) and inner.get("type") == "object"
        ),
    }
    findings += [text for text, applies in structure.items() if applies]
    # How many objects and arrays of a value enclose this place.
    depth = sum(step in {"properties", "items", "additionalProperties"} for step in path)
    if depth == MAX_PORTABLE_DEPTH + 1:
        findings.append(f"is nested deeper than {MAX_PORTABLE_DEPTH} levels")
    return findings
