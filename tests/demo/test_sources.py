"""How few lines the demo needs to expose what it already has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import demo_project

SOURCE = (Path(demo_project.__file__).parent / "desk" / "mcp.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)


def test_notices_are_offered_in_fifteen_lines():
    (declaration,) = (node for node in TREE.body if isinstance(node, ast.ClassDef))
    options = [node.targets[0].id for node in declaration.body if isinstance(node, ast.Assign)]
    assert {"uri", "fields", "search_fields", "filter_fields", "tools", "subscribe"} <= {*options}
    start, end = declaration.decorator_list[0].lineno, declaration.end_lineno
    written = [line for line in SOURCE.splitlines()[start - 1 : end] if line.strip()]
    assert len(written) <= 15


@pytest.mark.parametrize(
    "verb", ["register_viewset", "register_view", "register_form", "register_admin"]
)
def test_what_the_site_has_is_offered_in_a_line(verb):
    calls = [call for call in _statements() if call.func.attr == verb]
    assert calls
    assert {call.end_lineno - call.lineno for call in calls} == {0}


def _statements() -> Iterator[ast.Call]:
    for node in TREE.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node.value
