"""Walking a schema by keyword."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.protocol.headers import map_subschemas, subschemas

INNER = {"type": "string"}


@pytest.mark.parametrize(
    "keyword",
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ],
)
def test_a_keyword_may_hold_one_schema(keyword):
    assert [*subschemas({keyword: INNER})] == [((keyword,), INNER)]
    assert [*subschemas({keyword: False})] == [((keyword,), False)]
    assert [*subschemas({keyword: None})] == []


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "items", "oneOf", "prefixItems"])
def test_a_keyword_may_hold_several_schemas(keyword):
    assert [*subschemas({keyword: [INNER, True]})] == [((keyword, 0), INNER), ((keyword, 1), True)]
    assert [*subschemas({keyword: (INNER,)})] == [((keyword, 0), INNER)]


@pytest.mark.parametrize(
    "keyword",
    [
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    ],
)
def test_a_keyword_may_hold_schemas_by_name(keyword):
    # An array is a list of names (draft-07, "dependencies"), and the caller handles it.
    assert [*subschemas({keyword: {"a": INNER, "b": True, "c": ["a"]}})] == [
        ((keyword, "a"), INNER),
        ((keyword, "b"), True),
        ((keyword, "c"), ["a"]),
    ]


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples", "required", "x-own"])
def test_other_keywords_hold_data(keyword):
    assert [*subschemas({keyword: INNER})] == []
    assert [*subschemas({keyword: [INNER]})] == []


def test_mapping_changes_schemas_and_leaves_data_alone():
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": INNER, "b": True, "type": INNER},
        "items": INNER,
        "anyOf": (INNER, False),
        "default": {"type": "string"},
        "enum": [INNER],
        "not": False,
    }
    before = repr(schema)

    def change(inner: Any) -> Any:
        return {**inner, "seen": True} if isinstance(inner, dict) else inner

    seen = {"type": "string", "seen": True}
    assert map_subschemas(schema, change) == {
        "type": "object",
        "properties": {"a": seen, "b": True, "type": seen},
        "items": seen,
        "anyOf": [seen, False],
        "default": {"type": "string"},
        "enum": [INNER],
        "not": False,
    }
    assert repr(schema) == before
