"""The signature of a function, seen through its decorators."""

from __future__ import annotations

import functools
from inspect import Parameter, Signature
from typing import Annotated, Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.signature import (
    function_name,
    positional_names,
    read_parameters,
    return_annotation,
)


def tool(
    first, second: int, /, third: Annotated[list[Later], "text"], *, fourth: str = "4"
) -> Later: ...


class Later: ...


class Shop:
    def close(self, reason: Later) -> None: ...

    def __call__(self, reason: Later) -> Later: ...


def test_hints_are_resolved_where_the_function_was_written():
    parameters = read_parameters(tool)
    assert [(parameter.name, parameter.hint, parameter.default) for parameter in parameters] == [
        ("first", Any, Parameter.empty),
        ("second", int, Parameter.empty),
        ("third", Annotated[list[Later], "text"], Parameter.empty),
        ("fourth", str, "4"),
    ]


def test_positional_parameters_are_named_in_order():
    assert positional_names(tool) == ("first", "second")


def test_names_to_skip_may_be_any_iterable():
    names = [parameter.name for parameter in read_parameters(tool, skip=iter(["first", "fourth"]))]
    assert names == ["second", "third"]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (tool, Later),
        (Shop(), Later),
        (Shop().close, type(None)),
        (functools.partial(tool, 1), Later),
        (lambda: 1, Signature.empty),
    ],
)
def test_the_result_is_resolved_too(function, result):
    assert return_annotation(function) is result


def hidden() -> Missing: ...  # noqa: F821


def misspelt() -> functools.Nothing: ...


@pytest.mark.parametrize(
    ("function", "hint"), [(hidden, "Missing"), (misspelt, "functools.Nothing")]
)
def test_a_result_that_cannot_be_resolved_is_named(function, hint):
    with pytest.raises(ImproperlyConfigured, match=f"declares 'return' as {hint}, which cannot"):
        return_annotation(function)


def test_names_are_those_that_the_author_wrote():
    here = __name__
    assert function_name(tool) == f"{here}.tool"
    assert function_name(Shop().close) == f"{here}.Shop.close"
    assert function_name(Shop()) == f"{here}.Shop.__call__"
    assert function_name(functools.partial(functools.partial(tool))) == f"{here}.tool"
    assert function_name(len) == "builtins.len"
    assert function_name(Later) == f"{here}.Later"


def test_partial_inside_partial_binds_both():
    function = functools.partial(functools.partial(tool, 1, fourth="a"), 2)
    assert [parameter.name for parameter in read_parameters(function)] == ["third"]
