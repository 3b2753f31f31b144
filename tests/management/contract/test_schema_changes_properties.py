"""No change of a schema that makes a call or a result invalid is called safe."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, event, given, settings, strategies as st

from mcp_django.management.contract_schemas import Direction, Level, schema_changes
from tests.kit.rings import examples

jsonschema = pytest.importorskip("jsonschema")

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3, 1.0, 2.5, -1, "", "a", "ab", "abc"])
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SMALL = st.integers(-1, 4)
COUNT = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
        "enum": st.lists(SCALARS, min_size=1, max_size=4),
        "const": SCALARS,
        "minimum": SMALL,
        "exclusiveMinimum": st.one_of(SMALL, st.just(0.5)),
        "maximum": st.one_of(SMALL, st.just(2.5)),
        "exclusiveMaximum": SMALL,
        "multipleOf": st.sampled_from([1, 2, 4, 0.5]),
        "minLength": COUNT,
        "maxLength": COUNT,
        "pattern": st.sampled_from(["^a", "b$"]),
        "minItems": COUNT,
        "maxItems": COUNT,
        "uniqueItems": st.booleans(),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "contains": inner,
        "minContains": COUNT,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "minProperties": COUNT,
        "maxProperties": COUNT,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), inner, max_size=1),
        "additionalProperties": inner,
        "propertyNames": st.sampled_from([{"pattern": "^a"}, {"maxLength": 0}, {"enum": ["a"]}]),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two", "#"]),
    }


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    known = keywords(inner)

    @st.composite
    def schema(draw: st.DrawFn) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True))
        return {name: draw(known[name]) for name in chosen}

    return schema()


SCHEMAS = st.recursive(
    st.one_of(st.booleans(), TYPES.map(lambda name: {"type": name})), objects, max_leaves=6
)


@st.composite
def roots(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a whole schema of one argument, whose references can be resolved."""
    schema = draw(SCHEMAS)
    definitions = {"one": draw(SCHEMAS), "two": {"type": "object", "properties": {"a": schema}}}
    return {
        "type": "object",
        "properties": {"v": schema},
        "additionalProperties": False,
        "$defs": definitions,
    }


def changed(schema: Any, rng: random.Random) -> Any:
    """Return the schema with something in it taken away, added, or made wider or narrower."""
    if not isinstance(schema, dict) or not schema:
        return rng.choice([True, {"type": "string"}, schema])
    copy = dict(schema)
    name = rng.choice(sorted(copy))
    match copy[name]:
        case bool():
            copy[name] = not copy[name]
        case int() as number:
            copy[name] = max(0, number + rng.choice([-1, 1]))
        case list() as values if values and isinstance(values[0], dict | bool):
            copy[name] = [changed(values[0], rng), *values[1:]]
        case dict() as value:
            copy[name] = changed(value, rng)
        case _:
            del copy[name]
    return copy if jsonschema_accepts(copy) else schema


def jsonschema_accepts(schema: Any) -> bool:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


def values(rng: random.Random, depth: int = 2) -> Any:
    """Return any small value of the kinds that the schemas describe."""
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [values(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        names = rng.sample(["a", "b", "c", "d"], rng.randrange(4))
        return {name: values(rng, depth - 1) for name in names}
    return rng.choice([None, True, False, 0, 1, 2, 3, 4, -1, 0.5, 2.5, 1.0, "", "a", "ab", "bab"])


LEAVES = st.sampled_from(
    [True, {"type": "integer"}, {"type": "number", "minimum": 1}, {"enum": [1, "a"]}, {"const": 1}]
)
ARGUMENTS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, LEAVES, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
    },
    optional={"additionalProperties": LEAVES | st.just(False), "minProperties": COUNT},
)


def argument(rng: random.Random) -> Any:
    return {"v": values(rng)}


def members(rng: random.Random) -> Any:
    """Return an object of the kind that tools take."""
    names = rng.sample(["a", "b", "c"], rng.randrange(4))
    return {name: rng.choice([1, 1, 2, 0.5, "a"]) for name in names}


def refused(inner: Any, outer: Any, rng: random.Random, make: Callable[..., Any]) -> list[Any]:
    """Return values that are valid for the inner schema and invalid for the outer one."""
    mine = jsonschema.Draft202012Validator(inner)
    theirs = jsonschema.Draft202012Validator(outer)
    counterexamples = []
    for _ in range(40):
        value = make(rng)
        try:
            if mine.is_valid(value) and not theirs.is_valid(value):
                counterexamples.append(value)
        except RecursionError:
            assume(False)  # a reference that leads to itself means nothing
    return counterexamples


def check_not_called_safe(
    old: Any, new: Any, rng: random.Random, make: Callable[..., Any] = argument
) -> None:
    """Assert that calls and results stay valid unless a change is called breaking."""
    directions: tuple[Direction, ...] = ("input", "output")
    for direction in directions:
        levels = {level for level, _ in schema_changes(old, new, direction)}
        event(f"{direction}: {'breaking' if Level.BREAKING in levels else 'not breaking'}")
        if Level.BREAKING in levels:
            continue
        if direction == "input":
            # Clients send declared arguments only.
            assert refused({"additionalProperties": False, **old}, new, rng, make) == []
        else:
            assert refused(new, old, rng, make) == []


@settings(max_examples=examples(40))
@given(old=roots(), seed=st.integers(0, 2**32), steps=st.integers(1, 3))
def test_nothing_is_called_safe_that_is_not(old, seed, steps):
    rng = random.Random(seed)
    new = dict(old)
    for _ in range(steps):
        part = rng.choice(["properties", "$defs"])
        name = rng.choice(sorted(new[part]))
        new[part] = {**new[part], name: changed(new[part][name], rng)}
    check_not_called_safe(old, new, rng)


@settings(max_examples=examples(40))
@given(old=roots(), new=roots(), seed=st.integers(0, 2**32))
def test_nor_of_two_that_have_nothing_to_do_with_each_other(old, new, seed):
    check_not_called_safe(old, new, random.Random(seed))


@settings(max_examples=examples(30))
@given(old=ARGUMENTS, other=ARGUMENTS, seed=st.integers(0, 2**32))
def test_nor_of_the_arguments_of_tools(old, other, seed):
    rng = random.Random(seed)
    for new in (changed(old, rng), {**old, "required": other["required"]}, other):
        check_not_called_safe(old, new, rng, members)


@settings(max_examples=examples(25))
@given(schema=roots())
def test_other_words_for_the_same_values_are_not_breaking(schema):
    assert schema_changes(schema, schema, "input") == []
    described = {**schema, "description": "Other words."}
    levels = {level for level, _ in schema_changes(schema, described, "input")}
    assert levels == {Level.APPROVAL}
