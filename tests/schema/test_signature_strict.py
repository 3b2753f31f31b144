"""The dialect in which every member is required."""

import copy

import pytest

from mcp_django.schema.signature import to_strict

NULL = {"type": "null"}


def one_member(member):
    return {"type": "object", "properties": {"x": member}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string"}, {"anyOf": [{"type": "string"}, NULL]}),
        (
            {"type": "integer", "default": 10, "description": "How many"},
            {"anyOf": [{"type": "integer"}, NULL], "description": "How many. Default: 10."},
        ),
        ({"anyOf": [{"type": "string"}, NULL]},) * 2,
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "d"},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, NULL], "description": "d"},
        ),
        (
            {"anyOf": [{"type": "string"}], "maxLength": 3},
            {"anyOf": [{"anyOf": [{"type": "string"}], "maxLength": 3}, NULL]},
        ),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, NULL]},
        ),
        (False, False),
    ],
)
def test_an_optional_member_becomes_required_and_nullable(before, after):
    schema = one_member(before)
    original = copy.deepcopy(schema)
    result = to_strict(schema)
    assert result == {**one_member(after), "required": ["x"]}
    assert schema == original
    assert to_strict(result) == result


def test_objects_inside_are_closed_too():
    schema = one_member({"type": "array", "items": {"type": "object", "properties": {}}})
    items = to_strict({**schema, "required": ["x"]})["properties"]["x"]["items"]
    assert items == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ({"type": "object"}, "properties/x"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "properties/x"),
        ({"type": "object", "properties": {}, "additionalProperties": True}, "properties/x"),
        ({"type": "object", "properties": {}, "patternProperties": {}}, "properties/x"),
    ],
)
def test_a_map_with_free_keys_is_refused(member, place):
    with pytest.raises(ValueError, match=f"object at {place}"):
        to_strict(one_member(member))


def test_a_root_with_free_keys_is_refused():
    with pytest.raises(ValueError, match="object at the root"):
        to_strict({"type": "object"})
