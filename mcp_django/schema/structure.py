"""Traversal of JSON Schemas: paths, references, and inlining of references.

The functions never change their input. JSON Schema 2020-12, core sections 8.2.3 (``$ref``) and 10
(applicators); pointers are RFC 6901 in the fragment form of section 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard
from urllib.parse import unquote

from mcp_django.protocol.headers import map_subschemas, subschemas

Schema = dict[str, Any]
Path = tuple[str | int, ...]

MAX_SCHEMA_DEPTH = 64
MAX_SUBSCHEMAS = 5000
"""Larger schemas are rejected: they are not written by hand, and models cannot use them."""

JSON_TYPES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def walk(schema: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield the schema and all of its subschemas, outermost first, with their paths.

    Raises:
        ValueError: the schema is nested too deep or has too many subschemas.
    """
    pending: list[tuple[Path, int, Any]] = [((), 0, schema)]
    count = 0
    while pending:
        path, depth, member = pending.pop()
        if not isinstance(member, dict):
            continue
        count += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.")
        if count > MAX_SUBSCHEMAS:
            raise ValueError(f"The schema has more than {MAX_SUBSCHEMAS} parts.")
        yield path, member
        if inner := [((*path, *steps), depth + 1, child) for steps, child in subschemas(member)]:
            pending.extend(reversed(inner))


def resolve_reference(root: Schema, pointer: str) -> Any:
    """Return the target of a local reference such as `#/$defs/Order`, or `None`."""
    if pointer == "#":
        return root
    if not pointer.startswith("#/"):
        return None
    here: Any = root
    for part in unquote(pointer[2:]).split("/"):
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            return None
    return here


def alternatives(root: Schema, schema: Any) -> Iterator[Schema]:
    """Yield the schema, the targets of its references, and its `anyOf`, `oneOf` and `allOf`."""
    pending, seen = [schema], 0
    # The limit ends the loop if a definition refers to itself.
    while pending and (seen := seen + 1) <= MAX_SUBSCHEMAS:
        member = pending.pop(0)
        if not isinstance(member, dict):
            continue
        yield member
        if "$ref" in member:
            pending.append(resolve_reference(root, member["$ref"]))
        for keyword in ("anyOf", "oneOf", "allOf"):
            pending.extend(member.get(keyword, ()))


def schemas_at(root: Schema, path: Sequence[str | int]) -> list[Schema]:
    """Return every schema that may apply to the value at `path`."""
    schemas = list(alternatives(root, root))
    for step in path:
        schemas = schemas_below(root, schemas, step)
    return schemas


def schemas_below(root: Schema, schemas: Iterable[Schema], step: str | int) -> list[Schema]:
    """Return every schema that may apply to a member or an item of a value with `schemas`."""
    inner: list[Any] = []
    for schema in schemas:
        if isinstance(step, int):
            fixed = schema.get("prefixItems", [])
            inner.append(fixed[step] if step < len(fixed) else schema.get("items"))
        else:
            properties = schema.get("properties", {})
            inner.append(properties.get(step, schema.get("additionalProperties")))
    return [member for child in inner for member in alternatives(root, child)]


def accepts_null(root: Schema, schema: Any) -> bool:
    """Return whether a schema of types and alternatives accepts `null`."""
    if not isinstance(schema, dict):
        return schema is True
    if "$ref" in schema:
        return accepts_null(root, resolve_reference(root, schema["$ref"]))
    if "const" in schema:
        return schema["const"] is None
    if "enum" in schema:
        return None in schema["enum"]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return any(accepts_null(root, member) for member in schema[keyword])
    if "allOf" in schema:
        return all(accepts_null(root, member) for member in schema["allOf"])
    kind = schema.get("type", "null")
    return "null" in (kind if isinstance(kind, list) else [kind])


def without_null(schema: Any) -> Any:
    """Return the only alternative to `null` if there is exactly one, else the schema."""
    members = schema.get("anyOf", ()) if isinstance(schema, dict) else ()
    others = [
        member
        for member in members
        if not (isinstance(member, dict) and member.get("type") == "null")
    ]
    if len(others) != 1 or len(others) == len(members) or not isinstance(others[0], dict):
        return schema
    return {**others[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a bound is a number; in draft 4 it could be a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_bounds(schema: Schema) -> tuple[float, float]:
    """Return the minimum and the maximum of a number; for integers, exclusive bounds count, too."""
    low = number_keyword(schema, "minimum", -math.inf)
    high = number_keyword(schema, "maximum", math.inf)
    if schema.get("type") == "integer":
        above = number_keyword(schema, "exclusiveMinimum", -math.inf)
        below = number_keyword(schema, "exclusiveMaximum", math.inf)
        low = max(low, math.floor(above) + 1) if math.isfinite(above) else low
        high = min(high, math.ceil(below) - 1) if math.isfinite(below) else high
    return low, high


def number_keyword(schema: Mapping[str, Any], keyword: str, otherwise: float) -> float:
    """Return the number that a schema has for a keyword, or a default."""
    value = schema.get(keyword, otherwise)
    return value if is_number(value) else otherwise


# Local references are replaced by their targets, because some hosts drop tools whose schema has a
# ``$ref``. A recursive type needs a reference, so those references are kept together with their
# definitions, and ``lint`` reports them.

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
"""Annotation keywords: next to a reference, they replace those of its target."""

_DEFINITIONS = ("$defs", "definitions")


def inline_references(schema: Schema) -> Schema:
    """Return the schema with its references inlined, except those of recursive types.

    Raises:
        ValueError: the inlined schema would have more than `MAX_SUBSCHEMAS` parts.
    """
    has_definitions = any(keyword in schema for keyword in _DEFINITIONS)
    if not has_definitions and not any("$ref" in member for _, member in walk(schema)):
        return schema
    return _Inliner(schema).run()


def merge_schemas(schema: Schema, beside: Schema) -> Schema:
    """Return a schema that combines two; it has `allOf` only if their keywords conflict."""
    clash = any(
        keyword in schema and schema[keyword] != value and not is_annotation(keyword)
        for keyword, value in beside.items()
    )
    return {"allOf": [schema], **beside} if clash else {**schema, **beside}


def is_annotation(keyword: str) -> bool:
    """Return whether a keyword describes values without constraining them."""
    return keyword in _ANNOTATIONS or keyword.startswith("x-")


class _Inliner:
    def __init__(self, root: Schema) -> None:
        self.root = root
        pointers = set(_pointers(root))
        edges = {pointer: set(_pointers(resolve_reference(root, pointer))) for pointer in pointers}
        self.recursive = frozenset(
            pointer for pointer in pointers if pointer in _reachable(pointer, edges)
        )
        self.kept: dict[str, None] = {}
        self.count = 0

    def run(self) -> Schema:
        body = {key: value for key, value in self.root.items() if key not in _DEFINITIONS}
        # The root must be a plain object, even if it is a recursive type.
        result = self._follow(body) if "$ref" in body else self._visit(body)
        done: dict[str, Any] = {}
        while pending := [pointer for pointer in self.kept if pointer not in done]:
            for pointer in pending:
                done[pointer] = self._visit(resolve_reference(self.root, pointer))
        for pointer, target in done.items():
            keyword, _, name = pointer.removeprefix("#/").partition("/")
            if keyword in _DEFINITIONS:
                result.setdefault(keyword, {})[name.replace("~1", "/").replace("~0", "~")] = target
        return result

    def _visit(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        self.count += 1
        if self.count > MAX_SUBSCHEMAS:
            raise ValueError(
                f"Without references the schema would have more than {MAX_SUBSCHEMAS} parts; "
                "use fewer shared large types, or a simpler type for the argument."
            )
        pointer = schema.get("$ref")
        if pointer in self.recursive:
            self.kept[pointer] = None
        elif isinstance(pointer, str) and isinstance(resolve_reference(self.root, pointer), dict):
            return self._follow(schema)
        return map_subschemas(schema, self._visit)

    def _follow(self, schema: Schema) -> Schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = self._visit(resolve_reference(self.root, schema["$ref"]))
        return merge_schemas(target, self._visit(beside)) if isinstance(target, dict) else schema


def _pointers(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for _, member in walk(schema):
        pointer = member.get("$ref")
        if isinstance(pointer, str) and pointer.startswith("#"):
            yield pointer


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    pointers: set[str] = set()
    pending = list(edges[start])
    while pending:
        pointer = pending.pop()
        if pointer not in pointers:
            pointers.add(pointer)
            pending.extend(edges.get(pointer, ()))
    return pointers
