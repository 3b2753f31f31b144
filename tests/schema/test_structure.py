"""Finding the parts of a JSON Schema."""

from __future__ import annotations

import pytest

from mcp_django.protocol.headers import subschemas
from mcp_django.schema.structure import (
    MAX_SCHEMA_DEPTH,
    MAX_SUBSCHEMAS,
    accepts_null,
    schemas_at,
    walk,
)
from tests.spec import spec

ROOT = {
    "type": "object",
    "properties": {
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}},
        "either": {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}}, True]},
    },
    "additionalProperties": {"type": "number"},
    "$defs": {"Line": {"type": "object", "properties": {"sku": {"enum": ["a"]}}}},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), [ROOT]),
        (("lines", 3, "sku"), [{"enum": ["a"]}]),
        (("pair", 0), [{"type": "string"}]),
        (("pair", 1), [{"type": "null"}]),
        (("either", "a"), [{"const": 1}]),
        (("other",), [{"type": "number"}]),
        (("lines", "no", 3), []),
    ],
)
def test_a_path_through_a_value_leads_to_its_schemas(path, expected):
    assert schemas_at(ROOT, path) == expected


def test_a_definition_that_is_only_itself_has_an_end():
    root = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert schemas_at(root, ("x",)) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, True),
        (True, True),
        (False, False),
        (None, False),
        ({"type": "null"}, True),
        ({"type": ["string", "null"]}, True),
        ({"type": "string"}, False),
        ({"enum": ["a", None]}, True),
        ({"enum": ["a"]}, False),
        ({"const": None}, True),
        ({"const": 0}, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}]}, False),
        ({"allOf": [{}, {"type": "string"}]}, False),
        ({"$ref": "#/$defs/Line"}, False),
    ],
)
def test_null_is_found_among_the_values_of_a_schema(schema, expected):
    assert accepts_null(ROOT, schema) is expected


def test_keywords_that_hold_data_are_not_searched_for_schemas():
    schema = {"default": {"type": "a"}, "enum": [{"type": "b"}], "items": [{"type": "c"}]}
    assert list(subschemas(schema)) == [(("items", 0), {"type": "c"})]


@spec("OUT-8")
def test_a_schema_nested_without_end_is_refused():
    schema: dict[str, object] = {}
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        schema = {"not": schema}
    with pytest.raises(ValueError, match=f"deeper than {MAX_SCHEMA_DEPTH} levels"):
        list(walk(schema))


@spec("OUT-8")
def test_a_schema_of_too_many_parts_is_refused():
    schema = {"anyOf": [{}] * MAX_SUBSCHEMAS}
    with pytest.raises(ValueError, match=f"more than {MAX_SUBSCHEMAS} parts"):
        list(walk(schema))
