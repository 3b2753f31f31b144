"""What holds for the portable form of every schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.schema.lint import lint
from mcp_django.schema.portable import portable_input, portable_output
from mcp_django.schema.structure import walk

# Validates values against schemas; it is missing where the package is tested without extras.
jsonschema = pytest.importorskip("jsonschema")

# --- properties of all schemas

NAMES = st.sampled_from(["a", "title", "default", "const"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["x", "yy"]))
BOUNDS = st.one_of(st.integers(-2, 2), st.sampled_from([-0.5, 1.5]))


def with_optional(base: dict[str, Any], **optional: st.SearchStrategy[Any]) -> Any:
    fixed = {key: st.just(value) for key, value in base.items()}
    return st.fixed_dictionaries(fixed, optional=optional)


LEAVES = st.one_of(
    with_optional({"type": "string"}, maxLength=st.integers(0, 3), title=st.just("T")),
    with_optional({"type": "integer"}, exclusiveMinimum=BOUNDS, exclusiveMaximum=BOUNDS),
    with_optional({"type": "number"}, minimum=BOUNDS, exclusiveMinimum=BOUNDS),
    with_optional({"type": ["string", "null"]}, maxLength=st.integers(0, 3)),
    st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, SCALARS),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/D"}, {}]),
)


def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda items: {"type": "array", "prefixItems": items, "items": False}, members),
        st.builds(lambda items: {"anyOf": items}, members),
        st.builds(lambda items: {"oneOf": items}, members),
        with_optional(
            {"type": "object"},
            properties=st.dictionaries(NAMES, inner, max_size=3),
            required=st.lists(NAMES, unique=True, max_size=2),
            additionalProperties=st.one_of(st.booleans(), inner),
        ),
    )


SCHEMAS = st.recursive(LEAVES, nest, max_leaves=8)
VALUES = st.recursive(
    SCALARS, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(NAMES, v, max_size=3))
)


def rooted(member: Any, definition: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": member},
        "required": ["x"],
        "$defs": {"D": definition},
    }


@given(member=SCHEMAS, definition=SCHEMAS)
def test_a_second_run_changes_nothing_and_the_input_stays_as_it_was(member, definition):
    schema = rooted(member, definition)
    before = copy.deepcopy(schema)
    for rewrite in (portable_input, portable_output):
        once = rewrite(schema)
        assert schema == before
        assert rewrite(once) == once
        jsonschema.Draft202012Validator.check_schema(once)


@given(member=SCHEMAS, definition=LEAVES.filter(lambda schema: "$ref" not in schema))
def test_only_a_combination_of_rules_is_left_to_choke_on(member, definition):
    schema = portable_input(rooted(member, definition))
    assert not any("$ref" in part for _, part in walk(schema))
    assert [finding for finding in lint(schema) if "arrays of objects" not in finding] == []


@given(member=SCHEMAS, definition=SCHEMAS, value=VALUES)
def test_what_was_valid_stays_valid(member, definition, value):
    # A definition that refers to itself with nothing in between would keep the validator busy.
    schema = rooted(member, {"type": "object", "properties": {"a": definition}})
    if jsonschema.Draft202012Validator(schema).is_valid({"x": value}):
        jsonschema.Draft202012Validator(portable_output(schema)).validate({"x": value})
