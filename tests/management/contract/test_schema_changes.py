"""What a change of a schema means for callers, and for those who read answers."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.management.contract_schemas import Direction, Level, schema_changes

STR, INT, NUM, NULL = ({"type": name} for name in ("string", "integer", "number", "null"))
SAFE, APPROVAL, BREAKING = Level.SAFE, Level.APPROVAL, Level.BREAKING


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of an object that is closed, as the schemas of arguments are."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


def opened(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of an object that is open, as the schemas of answers are."""
    return {"type": "object", "properties": properties, "required": [*required]}


def tree(label: dict[str, Any]) -> dict[str, Any]:
    kids = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    return {
        **closed(root={"$ref": "#/$defs/Tree"}),
        "$defs": {"Tree": closed(label=label, kids=kids)},
    }


def kinds(*names: str) -> dict[str, Any]:
    return {"anyOf": [closed(("kind",), kind={"const": name}) for name in names]}


INPUTS = [
    (closed(a=STR), closed(a=STR, b=INT), [(SAFE, "b: added")]),
    (opened(a=STR), opened(a=STR, b=INT), [(SAFE, "b: added")]),
    (
        closed(a=STR),
        closed(("b",), a=STR, b=INT),
        [(BREAKING, "b: now required"), (SAFE, "b: added")],
    ),
    (closed(("a",), a=STR), closed(a=STR), [(SAFE, "a: no longer required")]),
    (closed(a=STR, b=INT), closed(a=STR), [(BREAKING, "b: removed")]),
    (closed(a=INT), closed(a=NUM), [(SAFE, 'a: type was "integer", is "number"')]),
    (closed(a=NUM), closed(a=INT), [(BREAKING, 'a: type was "number", is "integer"')]),
    (closed(a={"enum": ["x"]}), closed(a={"enum": ["x", "y"]}), [(SAFE, 'a: values added: "y"')]),
    (
        closed(a={"enum": ["x", "y"]}),
        closed(a={"enum": ["x"]}),
        [(BREAKING, 'a: values removed: "y"')],
    ),
    (closed(a=STR), closed(a={**STR, "enum": ["x"]}), [(BREAKING, 'a: now must be one of "x"')]),
    (
        closed(a={**INT, "minimum": 1}),
        closed(a={**INT, "exclusiveMinimum": 0}),
        [(BREAKING, "exclusiveMinimum was not given, is 0"), (SAFE, "minimum was 1, is not given")],
    ),
    (
        closed(a={**STR, "maxLength": 9}),
        closed(a={**STR, "maxLength": 8}),
        [(BREAKING, "a: maxLength was 9, is 8")],
    ),
    (
        closed(a=STR),
        closed(a={**STR, "format": "date"}),
        [(BREAKING, 'format was not given, is "date"')],
    ),
    (
        closed(a={"type": ["integer", "null"]}),
        closed(a={"anyOf": [NUM, NULL]}),
        [(BREAKING, "anyOf was not given, is"), (SAFE, "type was")],
    ),
    (closed(a=kinds("x")), closed(a=kinds("x", "y")), [(SAFE, "a: alternatives added: ")]),
    (closed(a=kinds("x", "y")), closed(a=kinds("x")), [(BREAKING, "a: alternatives removed: ")]),
    (closed(a=kinds("x")), closed(a=kinds("y")), [(BREAKING, "removed"), (SAFE, "added")]),
    (closed(a=STR), closed(a={"anyOf": [STR, NULL]}), [(SAFE, "a: alternatives added: ")]),
    (closed(a={"anyOf": [STR, NULL]}), closed(a=STR), [(BREAKING, "a: alternatives removed: ")]),
    (
        closed(a={"anyOf": [tree(INT), NULL]}),
        closed(a={"anyOf": [NULL, closed(b=INT), STR]}),
        [(BREAKING, "anyOf is not proven safe")],
    ),
    (tree(INT), tree(NUM), [(SAFE, "label: type was")]),
    (tree(NUM), tree(INT), [(BREAKING, "label: type was")]),
    (closed(a={"not": STR}), closed(a={"not": INT}), [(BREAKING, "not proven safe")]),
    (
        closed(a={**STR, "description": "The name"}),
        closed(a={**STR, "description": "The password"}),
        [(APPROVAL, "a: description changed")],
    ),
    (closed(a={**STR, "default": "x"}), closed(a=STR), [(APPROVAL, "a: default changed")]),
    (closed(a=STR), closed(a={**STR, "x-mcp-header": "A"}), [(BREAKING, "x-mcp-header changed")]),
    (
        closed(a={**STR, "title": "A"}),
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": {**STR, "title": "B"}}},
        [(APPROVAL, "a: title changed")],
    ),
]

OUTPUTS = [
    (opened(a=STR), opened(a=STR, b=INT), [(SAFE, "b: added")]),
    (opened(a=STR, b=INT), opened(a=STR), [(BREAKING, "b: removed")]),
    (closed(a=STR, b=INT), closed(a=STR), [(BREAKING, "b: removed")]),
    (closed(a=STR), closed(a=STR, b=INT), [(BREAKING, "b: added")]),
    (opened(("a",), a=STR), opened(a=STR), [(BREAKING, "a: no longer required")]),
    (opened(a=STR), opened(("a",), a=STR), [(SAFE, "a: now required")]),
    (opened(a=NUM), opened(a=INT), [(SAFE, 'a: type was "number", is "integer"')]),
    (opened(a=INT), opened(a=NUM), [(BREAKING, 'a: type was "integer", is "number"')]),
    (
        opened(a={"enum": ["x"]}),
        opened(a={"enum": ["x", "y"]}),
        [(BREAKING, 'a: values added: "y"')],
    ),
    (opened(a={"enum": ["x", "y"]}), opened(a={"enum": ["x"]}), [(SAFE, 'a: values removed: "y"')]),
]


WIDER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (INT, NUM),
    (STR, {"type": ["null", "string"]}),
    (STR, {}),
    ({"minimum": 1}, {"minimum": 0}),
    ({"exclusiveMinimum": 1}, {}),
    ({"maximum": 1}, {"maximum": 2}),
    ({"exclusiveMaximum": 1}, {"exclusiveMaximum": 1.5}),
    ({"minLength": 2}, {"minLength": 1}),
    ({"maxItems": 2}, {"maxItems": 3}),
    ({"minProperties": 2}, {"minProperties": 1}),
    ({"uniqueItems": True}, {"uniqueItems": False}),
    ({"enum": ["a"]}, {"enum": ["b", "a"]}),
    ({"const": "a"}, {"enum": ["a", "b"]}),
    ({"const": "a"}, {}),
    ({"items": False}, {"items": True}),
    ({"pattern": "^a"}, {}),
    ({"not": STR}, {}),
    ({"oneOf": [STR, INT]}, {}),
    ({"required": ["a", "b"]}, {"required": ["b"]}),
    (closed(a=INT), closed(a=INT, b=INT)),
    (closed(a=INT), opened(a=INT)),
    (closed(a=INT), {**closed(a=NUM), "additionalProperties": STR}),
    (opened(a=INT), opened()),
    ({"additionalProperties": INT}, {"additionalProperties": NUM}),
    ({"additionalProperties": INT}, {"properties": {"a": NUM}, "additionalProperties": INT}),
    ({"items": INT}, {"items": NUM}),
    ({"items": INT}, {}),
    ({"prefixItems": [INT]}, {"prefixItems": [NUM]}),
    ({"anyOf": [STR]}, {"anyOf": [INT, STR]}),
    ({"anyOf": [NULL, closed(a=INT)]}, {"anyOf": [closed(a=NUM), NULL]}),
    ({"not": {}}, {}),
]
"""Pairs of schemas, of which the second one accepts more values, by a rule."""

UNKNOWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"pattern": "^a"}, {"pattern": "a"}),
    ({"format": "date"}, {"format": "date-time"}),
    ({"multipleOf": 4}, {"multipleOf": 2}),
    ({"not": STR}, {"not": INT}),
    ({"oneOf": [STR, INT]}, {"oneOf": [STR]}),
    ({"allOf": [STR]}, {"allOf": [{}]}),
    (STR, {"type": "integer"}),
    (STR, {"anyOf": [INT, NULL]}),
    ({"if": STR, "then": {"minLength": 1}}, {"if": STR}),
    ({"contains": INT}, {}),
    ({"minContains": 1}, {"minContains": 0}),
    ({"prefixItems": [INT]}, {}),
    ({"patternProperties": {"^a": INT}}, {"patternProperties": {"^a": NUM}}),
    (
        {"patternProperties": {"^a": INT}},
        {"patternProperties": {"^a": INT}, "properties": {"a": NUM}},
    ),
    ({"unevaluatedProperties": False}, {"unevaluatedProperties": False, "properties": {"a": INT}}),
    ({"const": True}, {"const": 1}),
    ({"minimum": True}, {"minimum": 1}),
    ({"exclusiveMinimum": 1}, {"exclusiveMinimum": True}),
    ({"required": True}, {"required": ["a"]}),
    ({"items": [INT]}, {"items": [NUM]}),
    ({"const": 1, "enum": [1, 2]}, {"const": 1, "enum": [2]}),
    ({"type": 5}, {"type": "string"}),
    ({"$ref": "#/nowhere"}, {"$ref": "#/elsewhere"}),
    ({"$ref": "https://else.where/schema"}, {}),
    ({"$dynamicRef": "#a"}, {"$dynamicRef": "#b"}),
    ({"$id": "a", "items": INT}, {"$id": "a", "items": NUM}),
    ({"a-keyword-of-the-future": 1}, {"a-keyword-of-the-future": 2}),
]
"""Pairs of schemas for whose difference there is no rule."""


@pytest.mark.parametrize(("fewer", "more"), WIDER)
def test_a_rule_says_what_is_safe_and_for_whom(fewer, more):
    def worst(old: Any, new: Any, direction: Direction) -> Level:
        return max(level for level, _ in schema_changes(closed(a=old), closed(a=new), direction))

    assert worst(fewer, more, "input") == SAFE
    assert worst(more, fewer, "input") == BREAKING
    assert worst(fewer, more, "output") == BREAKING
    if "properties" not in str(more):
        # Clients may read a member that is no longer in the results.
        assert worst(more, fewer, "output") == SAFE


@pytest.mark.parametrize(("schema", "other_schema"), UNKNOWN)
@pytest.mark.parametrize("direction", ["input", "output"])
def test_a_difference_without_a_rule_is_breaking(schema, other_schema, direction):
    for old, new in ((schema, other_schema), (other_schema, schema)):
        changes = schema_changes(closed(a=old), closed(a=new), direction)
        assert BREAKING in {level for level, _ in changes}


@pytest.mark.parametrize("keyword", ["oneOf", "allOf", "anyOf", "prefixItems"])
def test_other_texts_of_the_same_constraints_need_approval(keyword):
    old, new = ({keyword: [{**STR, "description": text}]} for text in ("A name.", "A password."))
    (change,) = schema_changes(closed(a=old), closed(a=new), "input")
    assert change[0] == APPROVAL


@pytest.mark.parametrize(
    "part", [{"oneOf": [{"$ref": "#/$defs/Tree"}, NULL]}, {"items": {"$ref": "#/properties/root"}}]
)
def test_an_equal_reference_may_lead_to_something_else(part):
    old, new = (
        {**tree(label), "properties": {**tree(label)["properties"], "a": part}}
        for label in (NUM, INT)
    )
    assert BREAKING in {level for level, _ in schema_changes(old, new, "input")}


def outline(changes: list[tuple[Level, str]], expected: list[tuple[Level, str]]) -> list[Any]:
    """Return the levels, each with the expected words if the text contains them."""
    assert len(changes) == len(expected), changes
    return [
        (level, words if words in what else what)
        for (level, what), (_, words) in zip(changes, expected, strict=True)
    ]


@pytest.mark.parametrize(
    ("direction", "cases"), [("input", INPUTS), ("output", OUTPUTS)], ids=["input", "output"]
)
def test_a_change_is_told_with_what_it_means(direction, cases):
    for old, new, expected in cases:
        changes = schema_changes(old, new, direction)
        assert outline(changes, expected) == expected
        assert schema_changes(old, old, direction) == []


def test_a_schema_in_a_dialect_that_is_not_known_is_for_a_person_to_look_at():
    old = {"$schema": "http://json-schema.org/draft-04/schema#", **closed(a={**INT, "minimum": 1})}
    new = {**old, **closed(a=INT)}
    assert [level for level, _ in schema_changes(old, new, "input")] == [BREAKING]


def test_a_schema_in_an_older_dialect_is_compared_if_it_means_the_same():
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **closed(a=INT)}
    assert schema_changes(old, {**old, **closed(a=NUM)}, "input")[0][0] == SAFE
    old = {**old, "definitions": {"A": NUM}, "properties": {"a": {"$ref": "#/definitions/A"}}}
    assert schema_changes(old, {**old, "definitions": {"A": INT}}, "input")[0][0] == BREAKING


def test_a_change_of_the_dialect_is_for_a_person_to_look_at():
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **closed(a={"prefixItems": [INT]})}
    new = closed(a={"prefixItems": [INT]})
    assert schema_changes(old, new, "input")[0][0] == BREAKING
    assert schema_changes(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **new}, new, "input"
    ) == [(SAFE, "input: equivalent schema")]


def test_what_stands_beside_a_reference_is_not_merged_with_what_it_says():
    """Beside a reference, `additionalProperties` also covers the members of the target."""
    beside = {"$ref": "#/$defs/A", "additionalProperties": False}
    new = {**closed(a=beside), "$defs": {"A": opened(b=INT)}}
    assert schema_changes(closed(a=closed(b=INT)), new, "input")[0][0] == BREAKING


def test_the_same_in_another_order_is_equivalent():
    old = closed(a={"type": ["string", "null"], "enum": ["x", None]}, b={"minimum": 1})
    new = closed(a={"type": ["null", "string"], "enum": [None, "x"]}, b={"minimum": 1.0})
    assert schema_changes(old, new, "output") == [(SAFE, "output: equivalent schema")]


def test_an_alternative_keeps_its_texts():
    part = closed(b={**INT, "description": "How many."})
    changes = schema_changes(closed(a=part), closed(a={"anyOf": [part, NULL]}), "input")
    assert [level for level, _ in changes] == [SAFE]


def test_what_has_no_end_is_for_a_person_to_look_at():
    old = closed(a={"anyOf": [{"allOf": [{"minimum": n}, {"not": STR}]} for n in range(2)]})
    for _ in range(6):
        old = closed(a={"anyOf": [old, {"oneOf": [old, STR]}]})
    new = {**old, "minProperties": 1}
    assert BREAKING in {level for level, _ in schema_changes(old, new, "input")}
