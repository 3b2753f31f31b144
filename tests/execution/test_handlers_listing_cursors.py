"""The bytes of one cursor of each kind: a cursor that a client has must stay valid."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import IsAuthenticated
from mcp_django.auth.principal import key_of
from mcp_django.components.resource import ListedResource, ListedResourcePage
from mcp_django.models import Task
from mcp_django.test import MCPClient
from tests.integrations.models.building import client as shop, order
from tests.integrations.skills.shelf import fill
from tests.kit.servers import open_to_all, person
from tests.sites.shop.models import Order


@pytest.fixture(autouse=True)
def _fixed_key():
    with override_settings(SECRET_KEY="pinned", SECRET_KEY_FALLBACKS=[]):
        yield


@override_settings(MCP_DJANGO={"MAX_EVENT_BYTES": 65_536})
def test_the_cursor_of_a_list_of_components():
    server = open_to_all()
    for name in ("a", "b"):
        server.tool(name, description="x" * 40_000)(lambda: "")
    assert MCPClient(server=server).request("tools/list")["nextCursor"] == (
        "WyIzZDYxYjJjZDMxMWM1ODVmIixbImEiXV0=:4P6o-JjpZHLnDqRnOSxK-Bn-mJhY4r5WZR2oG-UTKW4"
    )


def test_the_cursors_of_resources_and_of_entries_of_templates():
    def entries(ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        numbers = [number for number in (1, 2) if after is None or number > after[0]]
        resources = [
            ListedResource(uri=f"x://a/{number}", name=str(number)) for number in numbers[:limit]
        ]
        return ListedResourcePage(
            entries=resources, after=numbers[:1] if len(numbers) > limit else None
        )

    server = open_to_all(page_size=1)
    for uri in ("x://one", "x://two"):
        server.resource(uri)(lambda: "")
    server.resource("x://a/{v}")(lambda v: v)
    server.templates["x://a/{v}"] = replace(server.templates["x://a/{v}"], entries=entries)
    client = MCPClient(server=server)
    cursors = []
    page = client.request("resources/list")
    while "nextCursor" in page:
        cursors.append(page["nextCursor"])
        page = client.request("resources/list", {"cursor": page["nextCursor"]})
    assert cursors == [
        "WyI2MThhYzc2ZmNmZTc5YWQ4IixbIiIsWyJ4Oi8vb25lIl1dXQ==:vzsqaC78v_vzLXPuYhIBJz8WZdqdRC2bQLmWp1rTG-Y",
        "WyI2MThhYzc2ZmNmZTc5YWQ4IixbIng6Ly9hL3t2fSIsbnVsbF1d:YWeAwA247WFVtK2D0nK4qSNRBqTo72VzsAdbT2YcwrQ",
        "WyI2MThhYzc2ZmNmZTc5YWQ4IixbIng6Ly9hL3t2fSIsWzFdXV0=:zU20B-f1suaQsqeuP9DJXfkB-9AAEBFL1eIXsI2zCbY",
    ]


def test_the_cursor_of_a_directory_of_a_skill(tmp_path):
    pytest.importorskip("yaml")
    server = open_to_all(page_size=1)
    server.register_skills(fill(tmp_path))
    page = MCPClient(server=server).request(
        "resources/directory/read", {"uri": "skill://fold-maps"}
    )
    assert page["nextCursor"] == (
        "WyI4ZDI1MzM2Zjk5NmYzYTI5IixbInNraWxsOi8vZm9sZC1tYXBzL1NLSUxMLm1kIl1d:_VdBRgPq4P8YscL_CrclXmLfEq9TYTFcUKTM6YRmFdE"
    )


@pytest.mark.django_db
def test_the_cursor_of_a_list_of_tasks():
    server = MCPServer("inline", permission=IsAuthenticated, page_size=1)
    server.tool("tool", task="optional")(lambda: "")
    ada, later = person(pk=7), timezone.now() + timedelta(hours=1)
    for name in ("task-1", "task-2"):
        Task.objects.create(
            task_id=name,
            server="inline",
            tool="tool",
            principal=key_of(ada),
            user=ada,
            ttl_ms=3_600_000,
            poll_ms=1_000,
            expires_at=later,
        )
    client = MCPClient(server=server, user=ada, protocol_version="2025-11-25")
    assert client.request("tasks/list")["nextCursor"] == (
        "WyI4MmQ3NWQ2ZThiZTFmZmMwIixbInRhc2stMiJdXQ==:MgyHvq7wAt72GkcU44HTuex2XuCSAfpxg6ECSm4_DME"
    )


@pytest.mark.django_db
def test_the_cursor_of_a_list_tool():
    for number in ("A", "B"):
        order(number)
    client = shop(Order, fields=["number", "total"], ordering=["-total"])
    assert client.call_tool("list_orders", {"limit": 1}).structured["next_cursor"] == (
        "WyIxNjg2NjhmMGZmNzIxOTA2IixbIjAuMDAiLCJBIl1d:l4T1OQsKm2Vxd7r0TVPN76I7pd90_c5yc3P4ESMdFl4"
    )
