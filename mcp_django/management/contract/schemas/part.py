"""A schema as several that hold together, with references followed, and what they say in sum.

Leaving out one of them, or a keyword, says less than there is: that is safe for whoever asks what
certainly holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mcp_django.management.contract.schemas.gap import TooLarge
from mcp_django.management.contract.schemas.values import (
    FRACTION,
    INTEGER,
    KINDS,
    fingerprint,
    is_among,
    kind_of,
    kinds_of_types,
)
from mcp_django.schema.structure import Schema, children, map_children, resolve, walk

MAX_STEPS = 5_000
MODERN = ("2020-12", "2019-09")
OLDER = ("draft-07", "draft-06")

VALIDATING = frozenset(
    {
        *("type", "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "minLength", "maxLength", "pattern", "format", "contentEncoding"),
        *("contentMediaType", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "required", "dependentRequired", "$ref", "$dynamicRef"),
        *("$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id"),
    }
)
HOLDING = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "unevaluatedItems"),
        *("unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("anyOf", "oneOf", "allOf", "prefixItems", "properties", "patternProperties"),
        *("dependentSchemas", "dependencies", "$defs", "definitions", "contentSchema"),
    }
)


_HOLDS = (VALIDATING | HOLDING) - {"$ref", "$defs", "definitions", "$id"}


def stripped(schema: Any) -> Any:
    """The schema without what validates nothing: texts, defaults, and words of others."""
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name in VALIDATING | HOLDING}
    return map_children(kept, stripped)


def has_references(schema: Any) -> bool:
    """Whether a schema says anything by reference."""
    if not isinstance(schema, dict):
        return False
    return any(name.endswith(("$ref", "Ref")) for name in schema if name.startswith("$")) or any(
        has_references(child) for _, child in children(schema)
    )


class Root:
    """A whole schema, in which references are followed."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._has_islands = isinstance(schema, dict) and any(_islands(schema))

    @cached_property
    def fingerprint(self) -> str:
        """The same for two that validate alike by the same words."""
        return fingerprint(stripped(self.schema))

    @cached_property
    def is_readable(self) -> bool:
        """Whether its dialect means by these words what 2020-12 does; none given is 2020-12."""
        if not isinstance(self.schema, dict) or "$schema" not in self.schema:
            return True
        dialect = str(self.schema["$schema"])
        if MODERN[0] in dialect:
            return True
        if not any(one in dialect for one in (*MODERN, *OLDER)):
            return False
        # Lists in `items` were tuples, and what stood beside a reference was ignored.
        return not any(
            isinstance(one.get("items"), list)
            or "prefixItems" in one
            or ("$ref" in one and one.keys() & _HOLDS)
            for _, one in walk(self.schema)
        )

    def follow(self, reference: Any) -> Any:
        """What a reference leads to; ``None`` if that is not within the schema."""
        if self._has_islands or not isinstance(reference, str):
            # Another base address: it may mean anything.
            return None
        return resolve(self.schema, reference)

    def parts(self, *schemas: Any) -> list[Schema] | None:
        """The schemas as such without references and ``allOf``; ``None`` where nothing is valid.

        What a reference cannot be followed to is left out.

        Raises:
            TooLarge: it does not end.
        """
        found: list[Schema] = []
        pending = list(schemas)
        seen: set[str] = set()
        steps = 0
        while pending:
            steps += 1
            if steps > MAX_STEPS:
                raise TooLarge
            schema = pending.pop(0)
            if schema is False:
                return None
            if not isinstance(schema, dict):
                continue
            if (reference := schema.get("$ref")) is not None and str(reference) not in seen:
                seen.add(str(reference))
                pending.append(self.follow(reference))
            whole = schema.get("allOf")
            pending.extend(whole if isinstance(whole, list) else ())
            found.append({k: v for k, v in schema.items() if k not in ("$ref", "allOf")})
        return found


def _islands(schema: Schema) -> Iterator[bool]:
    for _, child in children(schema):
        if isinstance(child, dict):
            yield "$id" in child
            yield from _islands(child)


def kinds_in(parts: list[Schema]) -> frozenset[str]:
    """The kinds of value that all parts let in."""
    found = KINDS
    for part in parts:
        if "type" in part:
            found &= kinds_of_types(part["type"])
        if (values := listed(part)) is not None:
            found &= {kind_of(one) for one in values}
    return found


def listed(part: Schema) -> list[Any] | None:
    """The values that one part lists."""
    if "const" in part:
        return [part["const"]]
    values = part.get("enum")
    return list(values) if isinstance(values, list) else None


def values_in(parts: list[Schema], kinds: frozenset[str]) -> list[Any] | None:
    """All values there are, where they can be counted."""
    every = [values for part in parts if (values := listed(part)) is not None]
    if kinds <= {"null", "boolean"}:
        simple = [None] * ("null" in kinds) + [True, False] * ("boolean" in kinds)
        every.append(simple)
    if not every:
        return None
    first, *others = every
    # Of equal ones one is enough, and who goes through them one by one has to come to an end.
    first = list({fingerprint(one): one for one in first}.values())
    return [
        one
        for one in first
        if kind_of(one) in kinds and all(is_among(one, values) for values in others)
    ]


def are_whole(kinds: frozenset[str]) -> bool:
    """Whether all numbers of these kinds are integers."""
    return INTEGER in kinds and FRACTION not in kinds
