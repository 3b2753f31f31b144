"""The portable subset: what each rewrite does, and that nothing valid becomes invalid."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.schema.portable import portable_input, portable_output
from mcp_django.schema.structure import MAX_SUBSCHEMAS
from mcp_django.schema.vocabulary import RULES_KEYWORD
from tests.spec import spec

NULL = {"type": "null"}
TEXT = {"type": "string"}


def published(member: dict[str, Any], *, required: bool = True) -> Any:
    schema = {"type": "object", "properties": {"x": member}, "required": ["x"] if required else []}
    return portable_input(schema)["properties"]["x"]


@spec("TOOL-2")
def test_the_root_is_a_plain_object_and_nothing_else():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Arguments",
        "description": "From a docstring",
        "type": "object",
        "properties": {"title": {"title": "Title", "type": "string"}},
        "required": ["title"],
    }
    assert portable_input(schema) == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema", [TEXT, {}, {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]
)
def test_arguments_without_names_are_refused(schema):
    with pytest.raises(ValueError, match="must be an object"):
        portable_input(schema)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        (
            {"enum": ["a", 1], "description": "d"},
            {
                "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}],
                "description": "d",
            },
        ),
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}),
        (
            {"type": ["number", "null"], "enum": [1, 2.5]},
            {"anyOf": [{"type": "number", "enum": [1, 2.5]}, NULL]},
        ),
        ({"type": ["string", "integer"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string"]}, TEXT),
        (
            {"type": ["string", "null"], "maxLength": 3, "description": "d"},
            {"anyOf": [{"type": "string", "maxLength": 3}, NULL], "description": "d"},
        ),
        ({"type": ["string", "null"], "anyOf": [{}, TEXT]},) * 2,
        ({"oneOf": [TEXT, NULL], "discriminator": {}}, {"anyOf": [TEXT, NULL]}),
        ({"oneOf": [TEXT, NULL], "anyOf": [TEXT, {}]},) * 2,
        ({"anyOf": [TEXT, {"title": "T", "type": "string"}]}, TEXT),
        ({"allOf": [TEXT], "description": "d"}, {"type": "string", "description": "d"}),
        ({"allOf": [TEXT], "type": "integer"},) * 2,
        ({"allOf": [TEXT, {"minLength": 1}]},) * 2,
        ({"anyOf": [True]}, {}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [TEXT]},) * 2,
        (
            {"type": "array", "prefixItems": [TEXT, TEXT], "items": False},
            {"type": "array", "items": TEXT, "maxItems": 2},
        ),
        (
            {"type": "array", "prefixItems": [TEXT], "items": False, "maxItems": 0},
            {"type": "array", "items": TEXT, "maxItems": 0},
        ),
        ({"type": "array", "prefixItems": [TEXT]}, {"type": "array", "items": {}}),
        (
            {"type": "array", "prefixItems": [TEXT], "items": NULL},
            {"type": "array", "items": {"anyOf": [TEXT, NULL]}},
        ),
        (
            {"type": "array", "prefixItems": [], "items": False},
            {"type": "array", "items": {}, "maxItems": 0},
        ),
        ({"type": "integer", "exclusiveMinimum": 0.5}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 5}, {"type": "integer", "maximum": 4}),
        (
            {"type": "integer", "exclusiveMinimum": 0, "minimum": 7},
            {"type": "integer", "minimum": 7},
        ),
        (
            {"type": "number", "exclusiveMinimum": 0.0, "exclusiveMaximum": 1.5},
            {
                "type": "number",
                "minimum": 0.0,
                "maximum": 1.5,
                "description": "Must be greater than 0, less than 1.5.",
            },
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "minimum": 3},
            {"type": "number", "minimum": 3},
        ),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True},) * 2,
        (
            {"type": "string", "description": "An amount", RULES_KEYWORD: "small"},
            {"type": "string", "description": "An amount. Must be small."},
        ),
        (
            {"type": "string", "description": "How much?", RULES_KEYWORD: "small"},
            {"type": "string", "description": "How much? Must be small."},
        ),
        (
            {"type": "object", "additionalProperties": True, "propertyNames": {"pattern": "a"}},
            {"type": "object", "additionalProperties": True},
        ),
        (
            {"type": "object", "properties": {"const": True, "title": TEXT}},
            {"type": "object", "properties": {"const": {}, "title": TEXT}},
        ),
        ({"type": "string", "default": {"title": "data", "const": 1}},) * 2,
    ],
)
def test_a_rewrite_says_the_same_in_portable_words(before, after):
    assert published(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"anyOf": [TEXT, NULL], "default": None}, TEXT),
        ({"anyOf": [TEXT, NULL], "description": "d"}, {"type": "string", "description": "d"}),
        (
            {"anyOf": [TEXT, {"type": "integer"}, NULL], "default": None},
            {"anyOf": [TEXT, {"type": "integer"}]},
        ),
        # Here null is a value of its own.
        ({"anyOf": [TEXT, NULL], "default": "a"},) * 2,
        ({"type": "string", "default": None}, TEXT),
        ({"default": None},) * 2,
        (True, {}),
        (False, {"not": {}}),
    ],
)
def test_null_disappears_where_leaving_the_member_out_says_the_same(before, after):
    assert published(before, required=False) == after


def test_null_stays_where_the_member_is_required():
    assert published({"anyOf": [TEXT, NULL]}) == {"anyOf": [TEXT, NULL]}


def test_null_stays_in_results():
    schema = {"type": "object", "properties": {"x": {"anyOf": [TEXT, NULL], "default": None}}}
    assert portable_output(schema) == schema


def test_references_are_written_out_with_what_stands_beside_them():
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A", "description": "mine"},
            "b": {"$ref": "#/definitions/a~1b%20c"},
            "c": {"$ref": "#/$defs/A", "type": "integer"},
        },
        "$defs": {"A": {"title": "A", "type": "string", "description": "theirs"}},
        "definitions": {"a/b c": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
    }
    assert portable_input(schema)["properties"] == {
        "a": {"type": "string", "description": "mine"},
        "b": {"type": "array", "items": {"type": "string", "description": "theirs"}},
        "c": {"allOf": [{"type": "string", "description": "theirs"}], "type": "integer"},
    }


RECURSIVE = {
    "$ref": "#/$defs/A",
    "$defs": {
        "A": {
            "type": "object",
            "properties": {
                "b": {"anyOf": [{"$ref": "#/$defs/B"}, NULL], "default": None},
                "leaf": {"$ref": "#/$defs/Leaf"},
            },
        },
        "B": {"type": "array", "items": {"$ref": "#/$defs/A"}},
        "Leaf": {"title": "Leaf", "type": "integer"},
        "Unused": {"type": "integer"},
    },
}


def test_only_recursive_references_stay_with_the_definitions_they_need():
    assert portable_input(RECURSIVE) == {
        "type": "object",
        "properties": {"b": {"$ref": "#/$defs/B"}, "leaf": {"type": "integer"}},
        "$defs": {
            "A": {
                "type": "object",
                "properties": {"b": {"$ref": "#/$defs/B"}, "leaf": {"type": "integer"}},
            },
            "B": {"type": "array", "items": {"$ref": "#/$defs/A"}},
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"$ref": "#"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}},
        {"type": "object", "properties": {"x": {"$ref": "other.json"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/Missing"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/required/0"}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"$ref": "#/required/7"}}, "required": ["x"]},
        {"$ref": "other.json"},
    ],
)
def test_references_that_cannot_be_written_out_stay(schema):
    assert portable_output(schema) == schema


@spec("OUT-8")
def test_references_that_multiply_without_end_are_refused():
    definitions: dict[str, Any] = {"D0": TEXT}
    for level in range(1, 15):
        inner = {"$ref": f"#/$defs/D{level - 1}"}
        definitions[f"D{level}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    with pytest.raises(ValueError, match=f"more than {MAX_SUBSCHEMAS} parts"):
        portable_output({"$ref": "#/$defs/D14", "$defs": definitions})
