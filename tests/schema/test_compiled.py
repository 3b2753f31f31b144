"""Which schemas written by hand are refused when they are declared."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.compiled import JSONSchemaArguments
from mcp_django.schema.structure import MAX_SCHEMA_DEPTH
from tests.schema.samples import refusal
from tests.spec import spec


def refused(schema):
    with pytest.raises(ImproperlyConfigured) as caught:
        JSONSchemaArguments(schema)
    return str(caught.value)


@spec("TOOL-2")
@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"properties": {}}])
def test_the_root_has_to_be_an_object(schema):
    assert '"type": "object"' in refused(schema)


@spec("RPC-14")
@pytest.mark.parametrize(
    "broken",
    [{"properties": []}, {"required": "a"}, {"properties": {"a": {"type": "text"}}}],
)
def test_a_schema_that_is_not_valid_is_refused(engine, broken):
    assert refused({"type": "object", **broken}).startswith("input_schema is not valid: ")


@spec("RPC-14")
@pytest.mark.parametrize(
    "dialect",
    [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
    ],
)
def test_known_dialects_are_accepted(engine, dialect):
    schema = {"$schema": dialect, "type": "object", "properties": {"a": {"type": "integer"}}}
    assert JSONSchemaArguments(schema).parse(b'{"a": 1}') == {"a": 1}
    assert refusal(JSONSchemaArguments(schema), b'{"a": "x"}') == 'a: must be an integer (got "x")'


@spec("RPC-14")
@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-04/schema#", "urn:x", 7])
def test_another_dialect_is_refused_with_those_that_are_known(dialect):
    text = refused({"$schema": dialect, "type": "object"})
    assert repr(dialect) in text
    assert "draft/2020-12/schema" in text


@spec("OUT-7")
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("target", ["https://example.org/a.json", "other.json#/x", "//a/b", 5])
def test_a_reference_that_leaves_the_document_is_refused(keyword, target):
    schema = {"type": "object", "properties": {"a": {keyword: target}}}
    assert "references outside of the schema are never fetched" in refused(schema)


@pytest.mark.parametrize("target", ["#/$defs/Missing", "#/required"])
def test_a_reference_to_nothing_is_refused(target):
    schema = {"type": "object", "properties": {"a": {"$ref": target}}, "required": []}
    assert f"{target!r}, which is not a schema" in refused(schema)


def test_an_anchor_inside_the_document_is_followed(engine):
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#text"}},
        "$defs": {"Text": {"$anchor": "text", "type": "string"}},
    }
    assert JSONSchemaArguments(schema).parse(b'{"a": "x"}') == {"a": "x"}
    assert refusal(JSONSchemaArguments(schema), b'{"a": 1}').startswith("a: ")


def test_an_identifier_inside_that_moves_references_is_refused():
    schema = {"type": "object", "properties": {"a": {"$id": "https://example.org/"}}}
    assert "has its own $id" in refused(schema)


def test_an_identifier_at_the_root_is_fine():
    assert JSONSchemaArguments({"$id": "https://example.org/", "type": "object"}).parse(b"") == {}


@spec("OUT-8")
@pytest.mark.parametrize(
    "definition",
    [
        {"$ref": "#/$defs/A"},
        {"anyOf": [{"not": {"$ref": "#/$defs/A"}}, {}]},
        {"if": True, "then": {"$ref": "#/$defs/B"}},
    ],
)
def test_a_reference_that_leads_to_itself_at_once_is_refused(definition):
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": definition, "B": {"$ref": "#/$defs/A"}},
    }
    assert "refers to itself without a member or an item in between" in refused(schema)


def test_a_recursive_schema_is_fine(engine):
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#"}, "b": {"allOf": [{}, {"$ref": "#/$defs/B"}]}},
        "additionalProperties": False,
        "$defs": {"B": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/C"}]}, "C": {}},
    }
    assert JSONSchemaArguments(schema).parse(b'{"a": {"a": {}}}') == {"a": {"a": {}}}
    assert (
        refusal(JSONSchemaArguments(schema), b'{"a": {"a": {"x": 1}}}')
        == 'a.a: unknown member "x"; known: a, b'
    )


@spec("OUT-8")
def test_a_schema_nested_without_end_is_refused():
    schema: dict[str, object] = {}
    for _ in range(MAX_SCHEMA_DEPTH):
        schema = {"properties": {"a": schema}}
    assert "nested deeper" in refused({"type": "object", "properties": {"a": schema}})


def test_what_is_no_json_is_refused():
    assert "which cannot be converted to JSON" in refused({"type": "object", "default": object()})
