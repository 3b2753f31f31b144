"""Schemas written by hand: what is refused, and how either library explains a violation."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import lazystr

from mcp_django.schema.arguments import OutputMismatch
from mcp_django.schema.compiled import JSONSchemaArguments, JSONSchemaOutput
from mcp_django.schema.vocabulary import LARGE_INTEGER
from tests.schema.samples import refusal
from tests.spec import spec

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]*$"},
        "size": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 9},
        "ratio": {"type": "number", "minimum": 0.5, "multipleOf": 0.5},
        "tone": {"enum": ["formal", "warm"]},
        "only": {"const": 1},
        "tags": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "string"}},
        "place": {"$ref": "#/$defs/Place"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "keys": {"type": "object", "propertyNames": {"maxLength": 2}, "maxProperties": 1},
        "never": False,
    },
    "required": ["name", "size"],
    "additionalProperties": False,
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "door": {"type": "integer"}},
            "patternProperties": {"^x-": {}},
            "required": ["street", "door"],
            "additionalProperties": False,
        }
    },
}
GOOD = b'{"name": "a", "size": 1}'


@spec("OUT-6")
def test_a_schema_is_published_as_it_was_written_where_clients_read_it():
    schema = {**SCHEMA, "description": lazystr("Translated"), "anyOf": [{}]}
    published = JSONSchemaArguments(schema).json_schema
    properties = {**SCHEMA["properties"], "never": {"not": {}}}
    assert published == {**schema, "description": "Translated", "properties": properties}
    assert published["properties"] is not SCHEMA["properties"]


def test_arguments_are_handed_on_as_they_came(engine):
    assert JSONSchemaArguments(SCHEMA).parse(GOOD) == {"name": "a", "size": 1}


@spec("TOOL-17")
@pytest.mark.parametrize("raw", [b"", b"null", b"{}"])
def test_absent_and_null_arguments_mean_none(engine, raw):
    assert JSONSchemaArguments({"type": "object"}).parse(raw) == {}


@spec("TOOL-8")
@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ('"name": ""', 'name: must have at least 1 character (got "")'),
        ('"name": "A"', 'name: must match the pattern ^[a-z]*$ (got "A")'),
        ('"name": 5', "name: must be a string (got 5)"),
        ('"size": 0', "size: must be greater than 0 (got 0)"),
        ('"size": 10', "size: must be at most 9 (got 10)"),
        ('"size": "x"', 'size: must be an integer or null (got "x")'),
        ('"ratio": 0', "ratio: must be at least 0.5 (got 0)"),
        ('"ratio": 0.7', "ratio: must be a multiple of 0.5 (got 0.7)"),
        ('"tone": "angry"', 'tone: must be one of "formal", "warm" (got "angry")'),
        ('"only": 2', "only: must be 1 (got 2)"),
        ('"tags": ["a", "b", "c"]', 'tags: must have at most 2 items (got ["a", "b", "c"])'),
        ('"tags": ["a", "a"]', 'tags: must not have the same item twice (got ["a", "a"])'),
        ('"tags": ["a", 2]', "tags[1]: must be a string (got 2)"),
        ('"place": {"street": "a"}', "place.door: is required"),
        (
            '"place": {"street": "a", "door": 1, "x-y": 2, "dor": 3}',
            "place: has a member that is not allowed; known: street, door",
        ),
        (
            '"either": []',
            'either: must fit {"anyOf": [{"type": "string"}, {"type": "integer"}]} (got [])',
        ),
        ('"keys": {"long": 1}', "keys: each key must have at most 2 characters"),
        (
            '"keys": {"a": 1, "b": 2}',
            'keys: must have at most 1 member (got {"a": 1, "b": 2})',
        ),
    ],
)
def test_both_libraries_explain_a_violation_in_the_same_words(engine, member, problem):
    assert (
        refusal(JSONSchemaArguments(SCHEMA), b'{"name": "a", "size": 1, ' + member.encode() + b"}")
        == problem
    )


def test_a_member_that_may_not_be_is_refused(engine):
    # One of the libraries does not report which member it was.
    text = refusal(JSONSchemaArguments(SCHEMA), b'{"name": "a", "size": 1, "never": 1}')
    assert text.removeprefix("never: ") == "is not allowed (got 1)"


@spec("TOOL-8")
def test_names_are_explained_once_each(engine):
    assert sorted(refusal(JSONSchemaArguments(SCHEMA), b'{"nam": "a", "siz": 1}').splitlines()) == [
        "name: is required",
        "size: is required",
        f'unknown argument "nam"; known: {", ".join(SCHEMA["properties"])}; did you mean "name"?',
        f'unknown argument "siz"; known: {", ".join(SCHEMA["properties"])}; did you mean "size"?',
    ]


def test_a_name_that_only_a_combination_knows_is_known(engine):
    schema = {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "string"}}}],
        "unevaluatedProperties": False,
    }
    assert JSONSchemaArguments(schema).parse(b'{"a": "x"}') == {"a": "x"}
    assert refusal(JSONSchemaArguments(schema), b'{"b": 1}') == 'unknown argument "b"; known: a'
    assert (
        refusal(JSONSchemaArguments(schema), b'{"a": "x", "b": 1}')
        == 'unknown argument "b"; known: a'
    )


def test_a_root_that_takes_nothing_is_explained(engine):
    assert refusal(JSONSchemaArguments({"type": "object", "not": {}}), b'{"a": 1}').startswith(
        'must fit {"not": {}}'
    )


def test_additional_members_are_checked_against_their_schema(engine):
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert refusal(JSONSchemaArguments(schema), b'{"a": "x"}') == 'a: must be an integer (got "x")'


def test_arguments_that_are_no_object_are_refused(engine):
    assert refusal(JSONSchemaArguments(SCHEMA), b"[]") == "the arguments must be an object (got [])"


# --- without a library


@pytest.mark.usefixtures("no_engine")
def test_without_a_library_names_are_still_checked():
    assert JSONSchemaArguments(SCHEMA).parse(b'{"name": 5, "size": "x"}') == {
        "name": 5,
        "size": "x",
    }
    assert refusal(JSONSchemaArguments(SCHEMA), b'{"siz": 1}').splitlines() == [
        "name: is required",
        "size: is required",
        f'unknown argument "siz"; known: {", ".join(SCHEMA["properties"])}; did you mean "size"?',
    ]


@pytest.mark.usefixtures("no_engine")
def test_without_a_library_open_schemas_take_any_name():
    assert JSONSchemaArguments({"type": "object"}).parse(b'{"a": 1}') == {"a": 1}
    assert JSONSchemaOutput({"type": "array"}).dump([1]) == [1]
    assert JSONSchemaOutput({"type": "object"}).dump([1]) == [1]


# --- results


@spec("OUT-1")
def test_a_result_is_checked_against_its_schema(engine):
    output = JSONSchemaOutput({"type": "array", "items": {"type": "integer"}})
    assert output.json_schema == {"type": "array", "items": LARGE_INTEGER}
    assert output.dump(n for n in (1, 2)) == [1, 2]
    with pytest.raises(OutputMismatch, match=r'\[0\]: must be an integer \(got "a"\)'):
        output.dump(["a"])


def test_a_result_that_is_no_data_does_not_fit():
    with pytest.raises(OutputMismatch, match="which cannot be converted to JSON"):
        JSONSchemaOutput({}).dump(object())


@spec("RPC-14")
def test_a_broken_schema_for_results_is_refused(engine):
    with pytest.raises(ImproperlyConfigured, match="output_schema is not valid"):
        JSONSchemaOutput({"type": "text"})
