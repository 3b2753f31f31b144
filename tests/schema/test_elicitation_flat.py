"""The subset of JSON Schema that a host shows as a form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.schema.elicitation import NotFlatError, check_flat, flat_form
from tests.components.questions.shapes import check_form
from tests.spec import spec

TITLED = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def flat(member: Any) -> Any:
    """Return the one member `x` as a form has it."""
    schema = flat_form(form(x=member))
    check_form(schema)
    return schema["properties"]["x"]


def refusal(schema: Any, *, by: Any = flat_form) -> str:
    with pytest.raises(NotFlatError) as caught:
        by(schema)
    return str(caught.value)


@spec("ASK-11")
@pytest.mark.parametrize(
    "member",
    [
        {"type": "string"},
        {"type": "string", "title": "X", "description": "What it is", "default": "x"},
        {"type": "string", "minLength": 1, "maxLength": 5},
        *[{"type": "string", "format": name} for name in ("email", "uri", "date", "date-time")],
        {"type": "integer", "minimum": 0, "maximum": 10, "default": 5},
        {"type": "number", "minimum": 0.5, "maximum": 1, "default": 0.75},
        {"type": "number", "default": 1},
        {"type": "boolean", "default": False},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"type": "string", "oneOf": TITLED, "default": "b"},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1},
        {"type": "array", "items": {"anyOf": TITLED}, "maxItems": 2, "default": ["a", "b"]},
    ],
)
def test_what_hosts_know_stays_as_it_is(member):
    assert flat(member) == member
    check_flat(form(x=member))


@spec("ASK-11")
@pytest.mark.parametrize(
    ("member", "kept"),
    [
        ({"type": "string", "pattern": "^a"}, {"type": "string"}),
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": "string", "format": "time", "examples": ["x"]}, {"type": "string"}),
        ({"type": "string", "default": None}, {"type": "string"}),
        ({"type": "string", "default": 5}, {"type": "string"}),
        ({"type": "integer", "default": True}, {"type": "integer"}),
        ({"type": "integer", "default": 1.5}, {"type": "integer"}),
        ({"type": "boolean", "default": 1}, {"type": "boolean"}),
        ({"type": "integer", "multipleOf": 3}, {"type": "integer"}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number"}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMinimum": 0.5}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 10}, {"type": "integer", "maximum": 9}),
        ({"type": "integer", "exclusiveMaximum": 9.5}, {"type": "integer", "maximum": 9}),
        (
            {"type": "integer", "exclusiveMinimum": 0, "minimum": 5},
            {"type": "integer", "minimum": 5},
        ),
        (
            {"type": "integer", "exclusiveMaximum": 9, "maximum": 20},
            {"type": "integer", "maximum": 8},
        ),
        ({"enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"oneOf": TITLED}, {"type": "string", "oneOf": TITLED}),
        (
            {"type": "string", "enum": ["a"], "minLength": 1, "format": "email"},
            {"type": "string", "enum": ["a"]},
        ),
        (
            {"type": "array", "items": {"const": "a"}, "uniqueItems": True},
            {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        ),
        (
            {"type": "array", "items": {"oneOf": TITLED}},
            {"type": "array", "items": {"anyOf": TITLED}},
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer"}),
        (
            {"anyOf": [{"type": "null"}, {"enum": ["a"]}], "default": None, "title": "X"},
            {"type": "string", "enum": ["a"], "title": "X"},
        ),
    ],
)
def test_what_hosts_do_not_know_is_left_out(member, kept):
    assert flat(member) == kept
    with pytest.raises(NotFlatError):
        check_flat(form(x=member))


@spec("ASK-11")
@pytest.mark.parametrize(
    "member",
    [
        {},
        {"type": "object"},
        {"type": "null"},
        {"type": "array"},
        {"type": ["string", "integer"]},
        {"$ref": "#/$defs/x"},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        {"anyOf": [{"type": "null"}]},
        {"type": "string", "contentEncoding": "base64"},
        True,
        False,
    ],
)
def test_what_has_no_field_is_refused_by_name(member):
    for check in (flat_form, check_flat):
        text = refusal(form(x=member), by=check)
        assert text.startswith("x is ")


@spec("ASK-11")
@pytest.mark.parametrize(
    "member",
    [
        {"enum": [1, 2]},
        {"const": 5},
        {"enum": ["a", 1]},
        {"enum": ["a", None]},
        {"enum": []},
        {"oneOf": []},
        {"oneOf": [{"const": 1, "title": "One"}]},
        {"oneOf": [{"const": "a"}]},
        {"oneOf": [{"type": "string"}]},
        {"oneOf": ["a"]},
    ],
)
def test_choices_are_text(member):
    assert refusal(form(x={"type": "string", **member})) == (
        "x is a choice whose values are not all text, or only some of them have a title"
    )


@spec("ASK-11")
@pytest.mark.parametrize(
    "items",
    [
        {},
        True,
        {"type": "string"},
        {"type": "integer", "enum": [1]},
        {"enum": []},
        {"anyOf": []},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"const": "a"}]},
        {"anyOf": [{"const": "a", "title": "A"}, {"type": "null"}]},
        {"anyOf": ["a"]},
        {"oneOf": [{"const": "a"}]},
    ],
)
def test_a_list_is_one_of_choices(items):
    text = refusal(form(x={"type": "array", "items": items}))
    assert text == "x is a list, but not of choices of text"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object", "additionalProperties": True, "properties": {}},
        {"type": "object", "additionalProperties": {"type": "string"}, "properties": {}},
    ],
)
def test_a_form_has_named_fields(schema):
    assert refusal(schema) == "a form must be an object with named fields and no others"


def test_what_may_be_null_is_not_required():
    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    schema = {**form(a=nullable, b={"type": "string"}, c=nullable), "required": ["a", "b", "z"]}
    assert flat_form(schema)["required"] == ["b"]
    assert "required" not in flat_form({**form(a=nullable), "required": ["a"]})


def test_what_was_given_is_left_as_it_was():
    schema = form(x={"type": "array", "items": {"const": "a"}, "uniqueItems": True})
    flat_form(schema)
    assert schema == form(x={"type": "array", "items": {"const": "a"}, "uniqueItems": True})


# By hand --------------------------------------------------------------------------------------


@spec("ASK-11")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object"}, 'a form must have "properties"; write {} for none'),
        ({**form(), "title": "X"}, "title is not allowed in a form; remove it"),
        (
            {**form(), "additionalProperties": False, "$defs": {}},
            "$defs, additionalProperties is not allowed in a form; remove it",
        ),
        (
            {**form(x={"type": "string"}), "required": ["x", "y"]},
            "y is required, but has no field",
        ),
        (
            form(x={"type": "string", "pattern": "a", "examples": []}),
            "x: examples, pattern is not allowed in a form; remove it",
        ),
        (form(x={"enum": ["a"]}), 'x: write "type": "string"'),
        (form(x={"oneOf": TITLED}), 'x: write "type": "string"'),
        (
            form(x={"type": "array", "items": {"type": "string", "enum": ["a"], "maxLength": 1}}),
            'x: write "items": {"type": "string", "enum": ["a"]}',
        ),
        (
            form(x={"type": "array", "items": {"oneOf": TITLED[:1]}}),
            'x: write "items": {"anyOf": [{"const": "a", "title": "A"}]}',
        ),
    ],
)
def test_what_is_written_by_hand_has_to_be_right_already(schema, text):
    assert refusal(schema, by=check_flat) == text


WORDS = st.sampled_from(["a", "b", "c"])
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "integer", "boolean", "array", "object"]),
        "title": WORDS,
        "description": WORDS,
        "default": st.none() | st.booleans() | st.integers() | WORDS | st.lists(WORDS),
        "enum": st.lists(WORDS | st.integers()),
        "enumNames": st.lists(WORDS),
        "const": WORDS | st.none(),
        "oneOf": st.lists(st.fixed_dictionaries({}, optional={"const": WORDS, "title": WORDS})),
        "minLength": st.integers(0),
        "maxItems": st.integers(0),
        "minimum": st.integers(),
        "exclusiveMinimum": st.integers(),
        "maximum": st.floats(allow_nan=False, allow_infinity=False),
        "format": st.sampled_from(["email", "date", "time", "password"]),
        "pattern": WORDS,
        "writeOnly": st.booleans(),
        "uniqueItems": st.booleans(),
        "items": st.fixed_dictionaries(
            {},
            optional={
                "type": st.just("string"),
                "enum": st.lists(WORDS),
                "anyOf": st.lists(
                    st.fixed_dictionaries({}, optional={"const": WORDS, "title": WORDS})
                ),
            },
        ),
    },
)


@spec("ASK-11")
@given(st.dictionaries(WORDS, MEMBERS | MEMBERS.map(lambda m: {"anyOf": [m, {"type": "null"}]})))
def test_whatever_is_published_is_what_the_specification_has(properties):
    schema = form(**properties)
    try:
        published = flat_form(schema)
    except NotFlatError:
        published = form()
    check_form(published)
    try:
        check_flat(schema)
    except NotFlatError:
        return
    check_form(schema)
