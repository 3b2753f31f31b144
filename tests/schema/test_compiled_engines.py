"""What the libraries report, in the forms that their releases have had."""

import sys
from types import SimpleNamespace

import pytest

from mcp_django.schema.compiled import compile_schema, explain_violations

SCHEMA = {
    "properties": {"a": {"$ref": "#/$defs/Text"}, "b": {"$ref": "#anchor"}},
    "$defs": {"Text": {"$anchor": "anchor", "type": "string"}},
}


@pytest.mark.parametrize(
    ("schema_path", "text"),
    [
        (["$defs", "Text", "type"], "must be a string"),
        (["properties", "a", "$ref", "type"], "must be a string"),
        (["properties", "b", "$ref", "type"], "does not fit the schema"),
        (["properties", "b", "$ref", "anyOf", 0, "type"], "does not fit the schema"),
    ],
)
def test_a_reference_in_the_path_may_have_been_followed_or_not(monkeypatch, schema_path, text):
    error = SimpleNamespace(schema_path=schema_path, instance_path=["a"], instance=1)
    library = SimpleNamespace(
        validator_for=lambda schema, **options: SimpleNamespace(iter_errors=lambda _: [error])
    )
    monkeypatch.setitem(sys.modules, "jsonschema_rs", library)
    validate = compile_schema(SCHEMA)
    assert validate is not None
    problems = explain_violations(validate({"a": 1}), SCHEMA)
    assert [str(problem) for problem in problems] == [f"a: {text} (got 1)"]
