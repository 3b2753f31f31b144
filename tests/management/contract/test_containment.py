"""Each keyword by itself: what it says of a value is found in the inner schema, or is a gap."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.management.contract_containment import gaps_between

CLOSED = {"type": "object", "properties": {"ab": {}, "a": {}}, "additionalProperties": False}
EITHER = {"anyOf": [{"type": "integer"}, {"maxLength": 3}]}
DRAFT = {name: f"http://json-schema.org/draft-{name}/schema#" for name in ("03", "07")}
LIST = {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}}
OTHER_LIST = {"$defs": {"item": {"properties": {"next": {"$ref": "#/$defs/item"}}}}}


def kind(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (False, {"type": "string"}),
        ({"enum": []}, {"type": "string"}),
        ({"type": []}, {"type": "string"}),
        ({"const": 2.5}, {"type": "number"}),
        ({"enum": [[1.0], {"a": 2.0}]}, {"enum": [{"a": 2}, [1], "more"]}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["null", "integer"]}),
        ({"$schema": DRAFT["07"], "type": "integer"}, {"type": "number"}),
        ({"$ref": "#/$defs/node", **LIST}, {"$ref": "#/$defs/item", **OTHER_LIST}),
        (kind("a"), {"oneOf": [kind("a"), kind("b")]}),
        ({"type": "integer", "minimum": 1}, {"allOf": [{"type": "number"}, {"minimum": 0}]}),
        (EITHER, EITHER),
        ({"type": "integer"}, EITHER),
        ({"type": ["integer", "null"]}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}),
        ({"enum": [1, 2]}, {"minimum": 1, "maximum": 2, "multipleOf": 1}),
        ({"enum": [2, 4]}, {"multipleOf": 2}),
        ({"type": "integer"}, {"multipleOf": 1}),
        ({"multipleOf": 4, "type": "integer"}, {"multipleOf": 2}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"minimum": 1}),
        ({"enum": ["ab", "abc"]}, {"minLength": 2, "maxLength": 3}),
        ({"type": "string"}, {"minItems": 2, "maxProperties": 1, "minimum": 3}),
        ({"type": "array", "maxItems": 2}, {"maxItems": 3, "minItems": 0, "uniqueItems": False}),
        ({"prefixItems": [{"type": "integer"}, {}]}, {"prefixItems": [{"type": "number"}]}),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
            {"patternProperties": {"^a": {"type": "number"}}},
        ),
        ({"propertyNames": {"maxLength": 3}}, {"propertyNames": {"maxLength": 3}}),
        (CLOSED, {"propertyNames": {"maxLength": 2}, "maxProperties": 2}),
        ({"required": ["a", "b"], "type": "object"}, {"minProperties": 2, "required": ["b"]}),
        ({"contentSchema": {}}, {"contentSchema": {"type": "string"}}),
        ({"not": {"const": 1}}, {"not": {"const": 1}}),
    ],
)
def test_what_is_implied_is_no_gap(inner: Any, outer: Any) -> None:
    assert gaps_between(inner, outer) == []


@pytest.mark.parametrize(
    ("inner", "outer", "keyword"),
    [
        ({"type": "string"}, False, "closed"),
        ({"type": "string"}, 5, "$ref"),
        ({"type": "string"}, {"$ref": "#/nowhere"}, "$ref"),
        ({"$ref": "#/$defs/node", **LIST}, {"$ref": "https://else.where/schema"}, "$ref"),
        ({"allOf": [{"$ref": "#"}], "title": "round"}, {"type": "string"}, "type"),
        ({"$schema": DRAFT["03"], "type": "integer"}, {"type": "number"}, "$schema"),
        ({"$schema": DRAFT["07"], "items": [{"type": "integer"}]}, {"type": "array"}, "$schema"),
        ({"type": "string"}, {"enum": "a"}, "enum"),
        ({"type": "string"}, {"enum": ["a"]}, "enum"),
        ({"enum": ["a", [1]]}, {"enum": ["a"]}, "enum"),
        ({"const": 2.5}, {"type": "integer"}, "type"),
        (kind("a"), {"oneOf": [kind("a"), {"type": "object"}]}, "oneOf"),
        ({"type": "integer"}, {"allOf": [{"type": "number"}, {"minimum": 0}]}, "minimum"),
        ({"type": "number"}, {"anyOf": [{"type": "integer"}]}, "type"),
        ({"type": "integer"}, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"enum": [1, 5]}, {"maximum": 2}, "maximum"),
        ({"type": "integer"}, {"exclusiveMinimum": True}, "exclusiveMinimum"),
        ({"type": "number"}, {"multipleOf": 0.5}, "multipleOf"),
        ({"type": "string"}, {"minLength": "two"}, "minLength"),
        ({"enum": ["a", "abc"]}, {"minLength": 2}, "minLength"),
        ({"type": "array"}, {"items": [{"type": "integer"}]}, "items"),
        ({"type": "array"}, {"uniqueItems": True}, "uniqueItems"),
        ({"type": "array"}, {"maxItems": "two"}, "maxItems"),
        ({"const": [1]}, {"minItems": 2}, "minItems"),
        ({"type": "object"}, {"patternProperties": {"^a": {}}}, "patternProperties"),
        ({"type": "object"}, {"propertyNames": {"maxLength": 2}}, "propertyNames"),
        (CLOSED, {"propertyNames": {"maxLength": 1}}, "maxLength"),
        ({"type": "object"}, {"required": True}, "required"),
        ({"type": "object"}, {"unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"type": "array"}, {"contains": {"type": "integer"}}, "contains"),
    ],
)
def test_what_is_not_implied_is_a_gap(inner: Any, outer: Any, keyword: str) -> None:
    assert keyword in [gap.keyword for gap in gaps_between(inner, outer)]
