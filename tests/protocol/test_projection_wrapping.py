"""Wrapping output that is not an object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.projection import is_object_schema, wrap_schema, wrap_value
from tests.spec import spec

# Validates values against schemas; it is missing where the package is tested without extras.
jsonschema = pytest.importorskip("jsonschema")

TREE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "array",
    "items": {"$ref": "#/$defs/node"},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"$ref": {"type": "string"}, "children": {"$ref": "#"}},
            "required": ["$ref"],
            "additionalProperties": False,
        }
    },
}


@spec("OUT-3")
@pytest.mark.parametrize(
    ("schema", "is_object"),
    [
        ({"type": "object"}, True),
        ({"type": "array"}, False),
        ({"type": ["object", "null"]}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, False),
        ({"anyOf": [{"type": "object"}]}, False),
        ({}, False),
    ],
)
def test_only_a_plain_object_at_the_root_needs_no_wrapping(schema, is_object):
    assert is_object_schema(schema) is is_object


@spec("OUT-5")
def test_a_schema_is_put_below_result_with_its_references():
    wrapped = wrap_schema(TREE)
    assert wrapped == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "result": {
                "type": "array",
                "items": {"$ref": "#/properties/result/$defs/node"},
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {
                            "$ref": {"type": "string"},
                            "children": {"$ref": "#/properties/result"},
                        },
                        "required": ["$ref"],
                        "additionalProperties": False,
                    }
                },
            }
        },
        "required": ["result"],
    }
    assert TREE["items"] == {"$ref": "#/$defs/node"}


@spec("OUT-5", "OUT-1")
@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ([], True),
        ([{"$ref": "a", "children": [{"$ref": "b"}]}], True),
        ([{"$ref": "a", "children": [{"other": "b"}]}], False),
        ([{"$ref": 5}], False),
        ({}, False),
    ],
)
def test_a_wrapped_value_fits_the_wrapped_schema_as_it_did_before(value, fits):
    plain = jsonschema.Draft202012Validator(TREE)
    wrapped = jsonschema.Draft202012Validator(wrap_schema(TREE))
    assert plain.is_valid(value) is fits
    assert wrapped.is_valid(wrap_value(value)) is fits


def test_references_that_do_not_count_from_the_root_stay():
    schema = {
        "anyOf": [
            {"$ref": "#anchor"},
            {"$ref": "https://shop.example/schema#/a"},
            {"$dynamicRef": "#/$defs/a"},
            {"$id": "https://shop.example/own", "$ref": "#/$defs/x", "$defs": {"x": {}}},
        ],
        "default": {"$ref": "#/data"},
    }
    assert wrap_schema(schema)["properties"]["result"] == {
        "anyOf": [
            {"$ref": "#anchor"},
            {"$ref": "https://shop.example/schema#/a"},
            {"$dynamicRef": "#/properties/result/$defs/a"},
            {"$id": "https://shop.example/own", "$ref": "#/$defs/x", "$defs": {"x": {}}},
        ],
        "default": {"$ref": "#/data"},
    }


@spec("OUT-4", "OUT-5")
@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none()))
def test_any_value_can_be_wrapped(value):
    assert wrap_value(value) == {"result": value}
