"""JSON text to values, with the liberties that hosts take."""

import json
from decimal import Decimal

import pytest

from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.values import decode_arguments, drop_nulls, sorted_members, unknown_members
from tests.spec import spec


@spec("TOOL-17")
@pytest.mark.parametrize("raw", [b"", b" ", b"null", b"{}"])
def test_no_arguments_are_an_empty_object(raw):
    assert decode_arguments(raw) == {}


def test_a_number_remembers_how_it_was_written():
    value = decode_arguments(b'{"a": 0.10000000000000000001}')["a"]
    assert Decimal(str(value)) == Decimal("0.10000000000000000001")
    assert value == 0.1
    assert json.dumps(value) == "0.1"


@pytest.mark.parametrize(
    "raw",
    [b"{", b'{"a": NaN}', b'{"a": -Infinity}', b"\xff", b'{"a": ' + b"[" * 100000],
)
def test_what_is_no_json_is_refused(raw):
    with pytest.raises(InvalidArguments, match="the arguments are not valid JSON"):
        decode_arguments(raw)


SCHEMA = {
    "type": "object",
    "properties": {
        "required": {"type": "string"},
        "optional": {"type": "string"},
        "nullable": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "either": {
            "anyOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}},
                {"type": "object", "properties": {"b": {"type": "string"}}},
            ]
        },
        "bare": {"type": "array"},
    },
    "required": ["required"],
    "additionalProperties": False,
    "$defs": {
        "Line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}},
            "additionalProperties": False,
        }
    },
}


def test_only_null_that_can_mean_left_out_is_dropped():
    value = {
        "required": None,
        "optional": None,
        "nullable": None,
        "unknown": None,
        "lines": [{"sku": None}, 1],
        "either": {"a": None},
        "bare": [None],
    }
    assert drop_nulls(value, SCHEMA, SCHEMA) == {
        "required": None,
        "nullable": None,
        "unknown": None,
        "lines": [{}, 1],
        "either": {"a": None},
        "bare": [None],
    }


def test_names_that_nobody_declared_are_found_at_every_depth():
    schema = {
        **SCHEMA,
        "properties": {"lines": {"items": SCHEMA["$defs"]["Line"]}, "open": {"properties": {}}},
    }
    value = {"lines": [{"sku": "a", "x": 1}], "open": {"y": 1}, "z": [], "scalar": 1}
    assert [str(problem) for problem in unknown_members(value, schema)] == [
        'lines[0]: unknown member "x"; known: sku',
        'unknown argument "z"; known: lines, open',
        'unknown argument "scalar"; known: lines, open',
    ]


def test_members_are_sorted_at_every_depth_and_items_are_not():
    first, second = {"b": [{"d": 1, "c": 2}], "a": 3}, {"a": 3, "b": [{"c": 2, "d": 1}]}
    assert repr(sorted_members(first)) == repr(sorted_members(second))
    assert sorted_members(first) == first
    assert sorted_members([2, 1]) == [2, 1]
    assert sorted_members([]) != sorted_members({})
