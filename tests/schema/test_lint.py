"""What hosts cannot process is reported, with its place."""

import pytest

from mcp_django.schema.lint import lint


def around(member):
    return {"type": "object", "properties": {"x": member}}


@pytest.mark.parametrize(
    ("schema", "finding"),
    [
        (
            {"type": "array", "items": {}, "properties": {}},
            "root: is not of type object; some hosts drop every tool of the server.",
        ),
        ({"type": "object"}, "root: has no properties; write an empty object for none."),
        (
            {"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}]},
            "root: combines schemas with anyOf; some hosts drop the tool.",
        ),
        (
            around({"$ref": "#"}),
            "properties/x: uses a reference; write the definition where it is used.",
        ),
        (around({"oneOf": []}), "properties/x: uses oneOf; write anyOf."),
        (around({"const": 1}), "properties/x: uses const; write an enum of one value."),
        (around({"type": ["string", "null"]}), "properties/x: has several types; write anyOf."),
        (around({"enum": ["a"]}), "properties/x: has an enum without a type."),
        (around({"type": "array"}), "properties/x: is an array without items."),
        (around({"type": "array", "items": True}), "properties/x: is an array without items."),
        (
            around({"type": "integer", "exclusiveMinimum": 0}),
            "properties/x: has an exclusive bound; write minimum or maximum.",
        ),
        (
            around({"type": "integer", "exclusiveMaximum": 0}),
            "properties/x: has an exclusive bound; write minimum or maximum.",
        ),
        (
            around({"anyOf": [True]}),
            "properties/x: has true or false in place of a schema; write an object.",
        ),
        (
            around({"type": "array", "items": {"type": "array", "items": {"type": "object"}}}),
            "properties/x: is an array of arrays of objects.",
        ),
    ],
)
def test_a_finding_names_the_place_and_the_remedy(schema, finding):
    assert lint(schema) == [finding]


def test_deep_nesting_is_reported_once():
    schema = {"type": "string"}
    for _ in range(12):
        schema = {"type": "object", "properties": {"x": schema}}
    place = "/".join(["properties/x"] * 11)
    assert lint(schema) == [f"{place}: is nested deeper than 10 levels."]


def test_names_of_members_are_not_mistaken_for_nesting():
    schema = {"type": "string"}
    for _ in range(6):
        schema = {"type": "object", "properties": {"items": schema}}
    assert lint(schema) == []


def test_a_portable_schema_has_no_findings():
    schema = around({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    assert lint({**schema, "additionalProperties": False}) == []
