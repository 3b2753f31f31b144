"""The capabilities that clients declare, read and written as dotted names."""

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.errors import (
    KNOWN_CAPABILITIES,
    capabilities_declaration,
    check_capability_name,
    declares_capability,
)
from tests.spec import spec


@spec("ASK-1")
@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, ""),
        ({"elicitation": {}}, "elicitation"),
        ({"elicitation": {"form": {}}}, "elicitation"),
        ({"elicitation": {"url": {}}}, "elicitation.url"),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation elicitation.url"),
        ({"elicitation": {"other": {}}}, ""),
        ({"sampling": {}}, "sampling"),
        ({"sampling": {"tools": {}, "context": {}}}, "sampling sampling.tools"),
        ({"roots": {"listChanged": True}}, "roots"),
        ({"elicitation": None, "sampling": True, "roots": []}, ""),
        ({"elicitation": {"form": True, "url": None}, "sampling": {"tools": 1}}, "sampling"),
    ],
)
def test_a_declaration_is_read_as_the_specification_means_it(declared, expected):
    assert [
        name for name in KNOWN_CAPABILITIES if declares_capability(declared, name)
    ] == expected.split()


@spec("MRT-3")
@pytest.mark.parametrize(
    ("names", "required"),
    [
        ([], {}),
        (["roots"], {"roots": {}}),
        (["elicitation"], {"elicitation": {}}),
        (["elicitation.url"], {"elicitation": {"url": {}}}),
        (["sampling"], {"sampling": {}}),
        (["sampling.tools", "sampling", "sampling"], {"sampling": {"tools": {}}}),
        (["elicitation", "elicitation.url"], {"elicitation": {"form": {}, "url": {}}}),
    ],
)
def test_what_is_required_is_an_object(names, required):
    assert capabilities_declaration(names) == required
    assert capabilities_declaration(iter(names)) == required


@spec("MRT-3")
@given(st.lists(st.sampled_from(KNOWN_CAPABILITIES)))
def test_whoever_declares_what_is_required_has_it(names):
    required = capabilities_declaration(names)
    assert all(declares_capability(required, name) for name in names)


def test_other_names_are_mistakes():
    for name in KNOWN_CAPABILITIES:
        check_capability_name(name)
    for name in ("", "tools", "elicitation.form", "Roots"):
        with pytest.raises(
            ValueError, match=r"use one of 'elicitation', 'elicitation\.url', 'roots'"
        ):
            check_capability_name(name)
