"""Which functions can be read, and what is refused when they are declared."""

from __future__ import annotations

import enum
import functools
from pathlib import Path
from typing import Annotated, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field

from mcp_django.schema.signature import SignatureArguments
from tests.schema.samples import Node, page, refund, refusal

# --- kinds of functions


async def wait(seconds: int) -> str: ...


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Shop:
    def close(self, reason: str) -> str: ...

    def __call__(self, reason: str) -> str: ...


@pytest.mark.parametrize(
    "function",
    [
        Shop().close,
        Shop(),
        logged(Shop().close),
        functools.partial(Shop().close),
        functools.partial(Shop.close, Shop()),
    ],
)
def test_every_kind_of_callable_is_read(function):
    schema = SignatureArguments(function).json_schema
    assert schema["properties"] == {"reason": {"type": "string"}}


def test_an_async_function_is_read_like_any_other():
    assert SignatureArguments(wait).parse(b'{"seconds": "5"}') == {"seconds": 5}


def test_what_partial_has_bound_is_not_the_callers_to_choose():
    function = functools.partial(refund, "A1", tone="formal")
    assert list(SignatureArguments(function).json_schema["properties"]) == ["amount", "day"]


def test_skipped_parameters_are_neither_published_nor_resolved():
    def local(ctx: Unknown, number: str) -> str: ...  # noqa: F821

    arguments = SignatureArguments(local, skip={"ctx"})
    assert arguments.parse(b'{"number": "1"}') == {"number": "1"}


def positional(ctx, number: int, /, *, note: str = "") -> str:
    return f"{ctx} {number} {note}"


def test_positional_parameters_are_passed_by_position():
    arguments = SignatureArguments(positional, skip=["ctx"])
    args, kwargs = arguments.bind({"ctx": "c", **arguments.parse(b'{"number": 1}')})
    assert (args, kwargs) == (("c", 1), {"note": ""})


# --- what is refused when it is declared


def variadic(*numbers: int) -> str: ...


def keywords(**options: int) -> str: ...


@pytest.mark.parametrize(("function", "shown"), [(variadic, "*numbers"), (keywords, "**options")])
def test_open_ended_parameters_are_refused(function, shown):
    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(function)
    assert shown in str(caught.value)
    assert "Declare each one" in str(caught.value)


def test_a_hint_that_cannot_be_resolved_names_function_hint_and_way_out():
    class Local: ...

    def local(value: Local) -> str: ...

    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(local)
    for part in ("local declares 'value' as Local", "top level of the module", "TYPE_CHECKING"):
        assert part in str(caught.value)


class Opaque: ...


def opaque(fine: int, value: Opaque) -> str: ...


def test_a_type_without_json_names_the_parameter():
    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(opaque)
    assert "opaque declares 'value' as " in str(caught.value)
    assert "arbitrary_types_allowed" not in str(caught.value)
    assert ".." not in str(caught.value)


def broken_pattern(value: Annotated[str, Field(pattern="(")]) -> str: ...


def test_a_rule_that_cannot_hold_names_the_parameter():
    with pytest.raises(ImproperlyConfigured, match="broken_pattern declares 'value'"):
        SignatureArguments(broken_pattern)


class Size(enum.Enum):
    LARGE = "l"


def only_large(value: Literal[Size.LARGE]) -> str: ...


def test_a_literal_that_cannot_be_read_from_json_is_refused():
    with pytest.raises(ImproperlyConfigured, match="derive the enum from str"):
        SignatureArguments(only_large)


def reads_file(names: list[Path]) -> str: ...


def test_a_path_chosen_by_a_model_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"(?s)properties/names/items.*Django storage"):
        SignatureArguments(reads_file)


# --- dialects


def test_the_strict_dialect_lists_every_argument_as_required():
    arguments = SignatureArguments(page, strict=True)
    assert arguments.json_schema["required"] == ["size", "after", "deep"]
    assert arguments.json_schema["properties"]["size"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "Default: 10.",
    }
    assert arguments.parse(b'{"size": null, "after": null, "deep": null}')["size"] == 10


def mapping(values: dict[str, int]) -> str: ...


def test_a_signature_that_the_strict_dialect_cannot_say_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"mapping: The strict dialect cannot"):
        SignatureArguments(mapping, strict=True)


def tree(root: Node) -> str: ...


def test_a_recursive_type_keeps_its_definition_and_is_parsed():
    arguments = SignatureArguments(tree)
    assert set(arguments.json_schema) == {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
    }
    assert arguments.parse(b'{"root": {"name": "a", "parent": {"name": "b"}}}') == {
        "root": Node(name="a", parent=Node(name="b"))
    }
    assert refusal(SignatureArguments(tree), b'{"root": {"name": "a", "parent": {}}}') == (
        "root.parent.name: is required"
    )
