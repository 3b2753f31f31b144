"""Requests for the folders that the user works in."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_django import Context
from mcp_django.components.questions import ListRoots, Root
from tests.components.questions.site import serving
from tests.spec import spec


async def folders(ctx: Context) -> list[str]:
    """Name and place of each."""
    return [f"{root.name}={root.path}" for root in await ctx.alist_roots()]


@spec("MRT-2", "ASK-2")
def test_nothing_is_said_to_ask_for_roots():
    (question,) = serving(folders).call_tool("tool").questions
    assert question == {"method": "roots/list", "params": {}}


@spec("ASK-5", "MRT-13")
@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        ([], []),
        (["file:///srv/x"], ["=/srv/x"]),
        (["file:///a%20b/%C3%A9", "file://localhost/c"], ["=/a b/é", "=/c"]),
        ([{"uri": "file:///srv", "name": "Shop", "_meta": {}}], ["Shop=/srv"]),
        ([{"uri": "file:///srv", "name": None}], ["=/srv"]),
        ([{"uri": "file:///srv", "name": 5}], ["=/srv"]),
    ],
)
def test_roots_come_in_the_clients_order(roots, expected):
    assert serving(folders).call_tool("tool", answers=[roots]).structured == expected


def test_a_sync_tool_asks_for_them_too():
    def tool(ctx: Context) -> str:
        return ", ".join(root.uri for root in ctx.list_roots())

    assert serving(tool).call_tool("tool", answers=[["file:///a"]]).text == "file:///a"


def test_a_root_is_a_value():
    (root,) = ListRoots().read_answer({"roots": [{"uri": "file:///srv", "name": "Shop"}]})
    assert root == Root("file:///srv", "Shop")
    assert root.path == Path("/srv")
