"""What a schema becomes as a form, and what a filled-in form sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict

from mcp_django.admin.playground.forms import SchemaForm
from mcp_django.schema.structure import Schema

TEXT: Schema = {"type": "string", "maxLength": 50}
WHOLE: Schema = {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}
COLORS: Schema = {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}
ADDRESS: Schema = {
    "type": "object",
    "properties": {"street": TEXT, "number": {"type": "integer"}},
    "required": ["street"],
}


def schema_of(member: Schema, *, required: bool = False) -> Schema:
    """An object with one member ``x``."""
    return {"type": "object", "properties": {"x": member}, "required": ["x"] if required else []}


def nullable(member: Schema) -> Schema:
    return {"anyOf": [member, {"type": "null"}]}


def sent(schema: Schema, data: Mapping[str, Any], files: Any = None, **options: Any) -> SchemaForm:
    """A form that was filled in."""
    query = QueryDict(mutable=True)
    for key, value in data.items():
        query.setlist(key, value if isinstance(value, list) else [value])
    return SchemaForm(schema, query, files, **options)


def values(schema: Schema, data: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """What a filled-in form sends."""
    form = sent(schema, data, **options)
    assert form.is_valid(), form.errors
    return form.values


@pytest.mark.parametrize(
    ("member", "typed", "value"),
    [
        (TEXT, " a ", " a "),
        ({"type": "string"}, "a\r\nb", "a\nb"),
        (WHOLE, "3", 3),
        ({"type": "integer"}, "123456789012345678901234567890", 123456789012345678901234567890),
        ({"type": "number"}, "2.50", 2.5),
        ({"type": "number"}, "2", 2),
        ({"type": "boolean"}, "=true", True),
        ({"type": "boolean"}, "=false", False),
        ({"enum": ["a", 1, True]}, "=1", 1),
        ({"const": "only"}, "=only", "only"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "=b", "b"),
        ({"type": "string", "format": "date"}, "2026-03-01", "2026-03-01"),
        ({"type": "string", "format": "time"}, "14:30", "14:30"),
        (
            {"type": "string", "format": "date-time"},
            "2026-03-01T14:30",
            "2026-03-01T14:30:00+00:00",
        ),
        (
            {"type": "string", "format": "date-time"},
            "2026-03-01T14:30+02:00",
            "2026-03-01T14:30:00+02:00",
        ),
        ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
        ({"type": "array", "items": {"type": "string"}}, "one\r\n\r\n two\r\n", ["one", " two"]),
        ({"type": "array", "items": {"type": "integer"}}, "1\n2", [1, 2]),
        (COLORS, ["=blue", "=red"], ["blue", "red"]),
        ({"type": "array", "items": ADDRESS}, '[{"street": "A"}]', [{"street": "A"}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": 1}', {"a": 1}),
        ({}, "[1, null]", [1, None]),
        ({"type": ["integer", "string"]}, "5", 5),
        ({"type": ["integer", "string"]}, '"5"', "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "five", "five"),
        (nullable(WHOLE), "3", 3),
        ({"type": ["integer", "null"]}, "3", 3),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}, "5", 5),
        ({"type": ["integer", "string"]}, "true", "true"),
        ({"allOf": [WHOLE]}, "3", 3),
        ({"enum": ["a", "b"], "enumNames": ["A", "B"]}, "=b", "b"),
        ({"type": "string", "pattern": "^a"}, "abc", "abc"),
        ({"type": "array", "items": {"type": "boolean"}}, "true\nFalse", [True, False]),
        ({"type": "array", "items": True}, '[1, "a"]', [1, "a"]),
        ({"$ref": "#/$defs/Color"}, "=red", "red"),
        # What nobody can resolve is the server's to judge.
        ({"$ref": "#/$defs/Loop"}, "[1]", [1]),
    ],
)
def test_a_typed_value_is_sent_as_the_schema_has_it(member, typed, value):
    defined = {"Color": {"enum": ["red"]}, "Loop": {"$ref": "#/$defs/Loop"}}
    schema = {**schema_of(member, required=True), "$defs": defined}
    assert values(schema, {"arg.x": typed}) == {"x": value}


@pytest.mark.parametrize(
    ("member", "typed"),
    [
        ({**TEXT, "minLength": 3}, "ab"),
        (TEXT, "x" * 51),
        (WHOLE, "three"),
        (WHOLE, "0"),
        (WHOLE, "9"),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "two"),
        ({"type": "number", "minimum": 2.5}, "2"),
        ({"type": "boolean"}, ""),
        ({"type": "boolean"}, "maybe"),
        ({"enum": ["a"]}, "=b"),
        ({"enum": ["a"]}, "leave"),
        ({"type": "string", "format": "date"}, "2026-02-30"),
        ({"type": "string", "format": "date"}, "yesterday"),
        ({"type": "string", "format": "time"}, "25:00"),
        ({"type": "string", "format": "date-time"}, "noon"),
        ({"type": "array", "items": {"type": "integer"}}, "1\ntwo"),
        ({"type": "array", "items": {"type": "boolean"}}, "true\nmaybe"),
        (COLORS, ["=green"]),
        ({"type": "object"}, "{"),
        ({"type": "object"}, '{"a": NaN}'),
        ({"type": "object"}, "[" * 5000),
        ({"type": "object"}, "[" * 70 + "]" * 70),
        ({"type": "object"}, '"\\ud800"'),
        ({"type": "object", "properties": {}, "required": ["a"]}, "{}"),
        ({"type": ["integer", "boolean"]}, "text"),
        (TEXT, "nul\0"),
    ],
)
def test_what_does_not_fit_is_said_beside_its_field(member, typed):
    form = sent(schema_of(member, required=True), {"arg.x": typed})
    assert not form.is_valid()
    assert list(form.errors) == ["arg.x"]


@pytest.mark.parametrize(
    ("member", "meaning", "value"),
    [
        (TEXT, "leave", {}),
        (TEXT, "empty", {"x": ""}),
        (nullable(TEXT), "leave", {}),
        (nullable(TEXT), "null", {"x": None}),
        (nullable(TEXT), "empty", {"x": ""}),
        (nullable(WHOLE), "null", {"x": None}),
        (nullable(WHOLE), "leave", {}),
        (COLORS, "leave", {}),
        (COLORS, "empty", {"x": []}),
        ({"type": "array", "items": TEXT}, "empty", {"x": []}),
        (nullable(ADDRESS), "leave", {}),
        (nullable(ADDRESS), "null", {"x": None}),
    ],
)
def test_left_out_null_and_empty_are_three_things(member, meaning, value):
    assert values(schema_of(member), {"arg.x:empty": meaning}) == value


@pytest.mark.parametrize("member", [TEXT, WHOLE, COLORS, ADDRESS, {"type": "boolean"}, {}])
def test_an_optional_argument_is_left_out_unless_something_is_entered(member):
    assert values(schema_of(member), {}) == {}


@pytest.mark.parametrize("member", [nullable({"type": "boolean"}), {"enum": ["a", None]}])
def test_a_choice_may_be_null_where_the_schema_says_so(member):
    assert values(schema_of(member), {"arg.x": "null"}) == {"x": None}
    assert values(schema_of(member), {"arg.x": "leave"}) == {}


def test_a_required_text_may_be_empty_and_a_required_number_may_not():
    assert values(schema_of(TEXT, required=True), {"arg.x": ""}) == {"x": ""}
    assert not sent(schema_of(WHOLE, required=True), {"arg.x": ""}).is_valid()


def test_the_members_of_an_object_have_fields_of_their_own():
    schema = schema_of(ADDRESS)
    data = {"arg.x.street": "High Street", "arg.x.number": "7"}
    assert values(schema, data) == {"x": {"street": "High Street", "number": 7}}
    assert values(schema, {"arg.x.number": "7"}) == {"x": {"street": "", "number": 7}}
    assert values(schema, {"arg.x:empty": "empty"}) == {"x": {"street": ""}}
    assert list(sent(schema, {"arg.x.number": "seven"}).errors) == ["arg.x.number"]


def test_an_object_deeper_than_one_level_is_written_as_json():
    schema = schema_of({"type": "object", "properties": {"home": ADDRESS}})
    data = {"arg.x.home": '{"street": "A"}'}
    assert values(schema, data) == {"x": {"home": {"street": "A"}}}
    wrong = sent(schema, {"arg.x.home": '{"number": "seven"}'})
    assert "street" in str(wrong.errors)
    row = next(iter(wrong.rows()))
    assert '"street"' in row.rows[0].control.shown_schema


def test_a_file_is_sent_in_base64():
    schema = schema_of({"type": "string", "contentEncoding": "base64"}, required=True)
    upload = SimpleUploadedFile("../../etc/passwd", b"\0\xff")
    assert values(schema, {}, files={"arg.x": upload}) == {"x": "AP8="}
    assert SchemaForm(schema).is_multipart()


def test_names_with_dots_do_not_meet():
    schema = {
        "type": "object",
        "properties": {"a.b": TEXT, "a": {"type": "object", "properties": {"b": TEXT}}},
    }
    assert values(schema, {"arg.a~1b": "1", "arg.a.b": "2"}) == {"a.b": "1", "a": {"b": "2"}}


def test_defaults_are_said_and_not_sent():
    schema = schema_of({"type": "integer", "default": 7, "description": "How many."})
    row = next(iter(SchemaForm(schema).rows()))
    assert row.control.help_text == "How many. If left out: 7."
    assert values(schema, {"arg.x": ""}) == {}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        (TEXT, "a"),
        (TEXT, ""),
        (WHOLE, 3),
        ({"type": "boolean"}, False),
        (nullable(WHOLE), None),
        (nullable({"enum": ["a", "b"]}), None),
        ({"enum": ["a", 2]}, 2),
        (COLORS, ["red"]),
        (COLORS, []),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        (ADDRESS, {"street": "A", "number": 2}),
        (nullable(ADDRESS), None),
        ({}, {"deep": [1]}),
        ({}, ""),
        ({"type": ["integer", "string"]}, 5),
        ({"type": "string", "format": "date-time"}, "2026-03-01T14:30:00+00:00"),
    ],
)
def test_a_form_filled_with_values_gives_them_back(member, value):
    schema = schema_of(member)
    form = SchemaForm(schema, initial_values={"x": value})
    shown = {name: form[name].initial for name in form.fields if form[name].initial is not None}
    assert values(schema, shown) == {"x": value}


def test_arguments_can_be_written_as_json_altogether():
    schema = schema_of(WHOLE, required=True)
    form = sent(schema, {"arg-json.arguments": '{"x": 99, "y": 1}'}, is_whole=True)
    assert form.is_valid()
    assert form.values == {"x": 99, "y": 1}
    assert not sent(schema, {"arg-json.arguments": "[1]"}, is_whole=True).is_valid()
    assert not sent(schema, {"arg-json.arguments": ""}, is_whole=True).is_valid()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "anyOf": [schema_of(TEXT), schema_of(WHOLE)]},
        {"type": "object", "properties": {f"a{n}": TEXT for n in range(301)}},
    ],
)
def test_what_fields_cannot_say_is_written_as_json_altogether(schema):
    assert SchemaForm(schema).is_whole


def test_a_suggestion_that_was_taken_stands_in_its_field():
    form = sent(schema_of(TEXT), {"arg.x": "ty", "arg.x:suggested": "typed"})
    assert form.is_valid()
    assert form.values == {"x": "typed"}


def test_a_form_that_is_not_finished_complains_of_nothing():
    form = sent(schema_of(WHOLE, required=True), {"arg.x": "?"}, is_unfinished=True)
    assert not form.errors
    assert form.typed_text("x") == "?"
