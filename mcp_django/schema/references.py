"""Replacing local references by what they point at.

Hosts drop tools whose schema holds `$ref`. A type that contains itself cannot be written without
one, so those references stay, together with the definitions they need, and `lint` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcp_django.schema.structure import MAX_SUBSCHEMAS, Schema, map_children, resolve, walk

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords that accept every value: beside a reference they replace those of its target."""

_DEFINITIONS = ("$defs", "definitions")


def inline(schema: Schema) -> Schema:
    """Return the schema without references, those of recursive types excepted.

    Raises:
        ValueError: written out, the schema would be larger than any host accepts.
    """
    return _Inliner(schema).run()


def merge(schema: Schema, beside: Schema) -> Schema:
    """Return one schema for two that must both hold; `allOf` only where they contradict."""
    clash = any(
        keyword in schema and schema[keyword] != value and not _is_annotation(keyword)
        for keyword, value in beside.items()
    )
    return {"allOf": [schema], **beside} if clash else {**schema, **beside}


def _is_annotation(keyword: str) -> bool:
    return keyword in ANNOTATIONS or keyword.startswith("x-")


class _Inliner:
    def __init__(self, root: Schema) -> None:
        self.root = root
        self.recursive = self._find_recursive()
        self.kept: dict[str, None] = {}
        self.count = 0

    def run(self) -> Schema:
        body = {key: value for key, value in self.root.items() if key not in _DEFINITIONS}
        # The root has to be a plain object, also when it is the type that contains itself.
        result = self._follow(body) if "$ref" in body else self._visit(body)
        done: dict[str, Any] = {}
        while pending := [pointer for pointer in self.kept if pointer not in done]:
            for pointer in pending:
                done[pointer] = self._visit(resolve(self.root, pointer))
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
                "share fewer large types, or give the argument a plainer one."
            )
        pointer = schema.get("$ref")
        if pointer in self.recursive:
            self.kept[pointer] = None
        elif isinstance(pointer, str) and isinstance(resolve(self.root, pointer), dict):
            return self._follow(schema)
        return map_children(schema, self._visit)

    def _follow(self, schema: Schema) -> Schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = self._visit(resolve(self.root, schema["$ref"]))
        return merge(target, self._visit(beside)) if isinstance(target, dict) else schema

    def _find_recursive(self) -> frozenset[str]:
        pointers = set(_pointers(self.root))
        edges = {pointer: set(_pointers(resolve(self.root, pointer))) for pointer in pointers}
        return frozenset(pointer for pointer in pointers if pointer in _reachable(pointer, edges))


def _pointers(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for _, member in walk(schema):
        pointer = member.get("$ref")
        if isinstance(pointer, str) and pointer.startswith("#"):
            yield pointer


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(edges[start])
    while pending:
        pointer = pending.pop()
        if pointer not in found:
            found.add(pointer)
            pending.extend(edges.get(pointer, ()))
    return found
