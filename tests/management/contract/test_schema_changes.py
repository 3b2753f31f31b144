"""What a change of a schema means to those who call and to those who read answers."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.management.contract_schemas import Direction, Level, schema_changes

STR, INT, NUM = {"type": "string"}, {"type": "integer"}, {"type": "number"}
SAFE, APPROVAL, BREAKING = Level.SAFE, Level.APPROVAL, Level.BREAKING


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object as the schemas of arguments are."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


def opened(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object as the schemas of answers are."""
    return {"type": "object", "properties": properties, "required": [*required]}


def tree(label: dict[str, Any]) -> dict[str, Any]:
    kids = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    return {
        **closed(root={"$ref": "#/$defs/Tree"}),
        "$defs": {"Tree": closed(label=label, kids=kids)},
    }


def kinds(*names: str) -> dict[str, Any]:
    return {"oneOf": [closed(("kind",), kind={"const": one}) for one in names]}


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
        [(SAFE, "equivalent schema")],
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
        closed(a={"anyOf": [NUM, {"type": "null"}]}),
        [(SAFE, "type was")],
    ),
    (closed(a=kinds("x")), closed(a=kinds("x", "y")), [(SAFE, 'a.kind: values added: "y"')]),
    (closed(a=kinds("x", "y")), closed(a=kinds("x")), [(BREAKING, 'a.kind: values removed: "y"')]),
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


def outline(found: list[tuple[Level, str]], wanted: list[tuple[Level, str]]) -> list[Any]:
    """The levels, with the wanted words where they are there."""
    assert len(found) == len(wanted), found
    return [
        (level, said if said in what else what)
        for (level, what), (_, said) in zip(found, wanted, strict=True)
    ]


@pytest.mark.parametrize(
    ("direction", "cases"), [("input", INPUTS), ("output", OUTPUTS)], ids=["input", "output"]
)
def test_a_change_is_told_with_what_it_means(direction: Direction, cases: list[Any]) -> None:
    for old, new, wanted in cases:
        found = schema_changes(old, new, direction)
        assert outline(found, wanted) == wanted
        assert schema_changes(old, old, direction) == []


def test_a_schema_in_a_dialect_that_is_not_known_is_for_a_person_to_look_at() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", **closed(a={**INT, "minimum": 1})}
    new = {**old, **closed(a=INT)}
    assert [level for level, _ in schema_changes(old, new, "input")] == [BREAKING]


def test_what_has_no_end_is_for_a_person_to_look_at() -> None:
    old = closed(a={"anyOf": [{"allOf": [{"minimum": n}, {"not": STR}]} for n in range(2)]})
    for _ in range(6):
        old = closed(a={"anyOf": [old, {"oneOf": [old, STR]}]})
    new = {**old, "minProperties": 1}
    assert BREAKING in {level for level, _ in schema_changes(old, new, "input")}
