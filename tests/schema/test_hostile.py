"""Arguments that are made to be expensive: each is refused, quickly and with a message."""

from __future__ import annotations

import json

import pytest
from django import forms

from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.compiled import JSONSchemaArguments
from mcp_django.schema.django_forms import FormArguments
from mcp_django.schema.signature import SignatureArguments
from mcp_django.schema.values import MAX_DEPTH
from tests.spec import spec


class NameForm(forms.Form):
    """One field."""

    name = forms.CharField()


def refusal(source: object, arguments: object) -> str:
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    with pytest.raises(InvalidArguments) as caught:
        source.parse(raw)
    return str(caught.value)


def nested(depth: int) -> bytes:
    return b'{"name": ' + b"[" * depth + b"]" * depth + b"}"


@spec("OUT-8", "TOOL-9")
@pytest.mark.parametrize("depth", [MAX_DEPTH, 500, 100_000])
def test_deep_nesting_is_refused_by_every_source(depth):
    for source in (FormArguments(NameForm), JSONSchemaArguments({"type": "object"})):
        assert "nested" in refusal(source, nested(depth))


def test_nesting_within_the_limit_is_read():
    assert JSONSchemaArguments({"type": "object"}).parse(nested(MAX_DEPTH - 1))


@pytest.mark.parametrize(
    "value", ["[" * 500, [[], {}] * 200, {"a": ["b"] * 3, "c": "{" * 500}], ids=type
)
def test_many_brackets_are_no_depth(value):
    raw = json.dumps({"name": value}).encode()
    assert JSONSchemaArguments({"type": "object"}).parse(raw) == {"name": value}


@pytest.mark.parametrize("raw", [b'"' + b"[" * 500 + b'"', b"[" + b"[]," * 200 + b"[]]"])
def test_arguments_of_many_brackets_that_are_no_object_are_refused(raw):
    text = refusal(JSONSchemaArguments({"type": "object"}), raw)
    assert "the arguments must be an object" in text


@spec("OUT-8")
def test_patterns_of_the_author_are_not_run_on_the_names_of_the_caller():
    pytest.importorskip("jsonschema")
    schema = {
        "type": "object",
        "properties": {
            "options": {
                "type": "object",
                "patternProperties": {"^(x+)+y$": {}},
                "additionalProperties": False,
            }
        },
    }
    text = refusal(JSONSchemaArguments(schema), {"options": {"x" * 60: 1}})
    assert text == "options: has a member that is not allowed; known: none"


def test_a_million_unknown_names_are_counted_and_not_listed():
    def echo(text: str) -> str:
        return text

    arguments = {"text": "a", **{f"k{n}": 1 for n in range(100_000)}}
    text = refusal(SignatureArguments(echo), arguments)
    assert text == "the arguments have 100000 errors; known: text"
    lines = refusal(FormArguments(NameForm), arguments).splitlines()
    assert len(lines) == 21


def test_what_a_closed_function_does_not_take_is_refused_whatever_the_schema_says():
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    text = refusal(JSONSchemaArguments(schema, closed=True), {"x": "a", "is_admin": True})
    assert text == 'unknown argument "is_admin"; known: x'
    assert JSONSchemaArguments(schema).parse(b'{"x": "a", "y": 1}') == {"x": "a", "y": 1}


def test_a_number_too_large_for_a_float_is_refused():
    assert "too large" in refusal(JSONSchemaArguments({"type": "object"}), b'{"x": 1e999}')
    assert "too large" in refusal(
        JSONSchemaArguments({"type": "object"}), b'{"x": ' + b"9" * 5000 + b"}"
    )
