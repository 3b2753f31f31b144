"""Hidden values make no difference: two shops that differ only in them give the same answers.

The test does not search for names that must not appear; it compares the answers byte for byte:
rows, their order and number, cursors, errors and schemas.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import override_settings
from hypothesis import HealthCheck, example, given, settings, strategies as st

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import MCPDjangoError
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.integrations.models.building import reader
from tests.integrations.models.worlds import World, attacks
from tests.kit.rings import examples
from tests.sites.shop.models import Customer, Order

pytestmark = pytest.mark.django_db

CANDIDATES = [
    *("id", "number", "status", "total", "placed_at", "paid_at", "note", "customer"),
    *("customer_id", "customer__name", "customer__email", "customer__passport__country"),
    *("lines__quantity", "lines__price", "lines__product__name", "lines__product__price"),
    "lines__product__tags__word",
]


class Customers(ModelTools[Customer]):
    """Those who may be known by name."""

    permission = AllowAny
    fields = ["id"]

    def get_queryset(self, ctx: Any) -> Any:
        return super().get_queryset(ctx).filter(pk__lte=2)


def accepted(option: str, name: str, fields: list[str]) -> bool:
    """Return whether a path can be declared for an option; a hidden one never can."""
    try:
        build(fields, **{option: [name]})
    except ImproperlyConfigured:
        return False
    return True


def build(fields: list[str], **options: Any) -> MCPServer:
    class Orders(ModelTools[Order]):
        permission = AllowAny

        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(margin__gte=0)

    keyed = {"id", "number"} & set(fields)
    names = ["list", "get", "count"] if keyed else ["count"]
    cls = type("Orders", (Orders,), {"fields": fields, "tools": names, "page_size": 4, **options})
    server = MCPServer("shop", permission=AllowAny)
    server.register(Order, cls)
    return server


def exposing(fields: list[str]) -> MCPServer:
    """Return a server that lets callers do everything possible with these fields."""
    options = {
        option: [name for name in fields if accepted(option, name, fields)]
        for option in ("filter_fields", "search_fields", "ordering_fields")
    }
    return build(fields, **options)


def transcript(client: MCPClient, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    lines = [json.dumps(client.list_tools())]
    for tool, arguments in calls:
        lines.append(f"{tool} {arguments} {ask(client, tool, arguments)}")
    return lines


def ask(client: MCPClient, tool: str, arguments: dict[str, Any]) -> str:
    """Return all that a caller gets, over all pages."""
    heard = []
    for _ in range(10):
        try:
            result = client.call_tool(tool, arguments, check=False)
        except MCPDjangoError as exc:
            heard.append(repr(exc))
            break
        assert "was logged" not in result.text, (tool, arguments)
        heard.append(json.dumps(result.raw, sort_keys=True))
        if result.is_error or "next_cursor" not in result.structured:
            break
        arguments = {**arguments, "cursor": result.structured["next_cursor"]}
    return " ".join(heard)


def heard_in(world: World, server: MCPServer, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    with transaction.atomic():
        world.fill()
        try:
            return transcript(reader(server), calls)
        finally:
            transaction.set_rollback(True)


# Each example takes seconds.
@pytest.mark.outside
@settings(
    max_examples=examples(8) if connection.vendor == "sqlite" else 1,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    fields=st.lists(st.sampled_from(CANDIDATES), min_size=1, max_size=7, unique=True),
    key=st.sampled_from(["id", "number", ""]),
    labelled=st.booleans(),
    seed=st.integers(0, 10**9),
)
@example(fields=["status"], key="", labelled=False, seed=1)
@example(fields=["note", "customer__name"], key="id", labelled=False, seed=2)
@example(fields=["customer", "lines__product__tags__word"], key="number", labelled=True, seed=3)
def test_what_is_hidden_makes_no_difference(fields, key, labelled, seed):
    fields = [*fields, key] if key and key not in fields else fields
    server = exposing(fields)
    shown = frozenset(fields)
    if labelled:
        server.register(Customer, Customers)
        # Callers who may view the customer see the name in the label.
        shown |= {"customer__name"} if "customer" in fields else set()
    calls = attacks(shown, Random(seed))
    with override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": 2000}):
        first, second = (
            heard_in(World(shown, seed, own), server, calls) for own in (seed + 1, seed + 2)
        )
    for line, other_line in zip(first, second, strict=True):
        assert line == other_line


def test_the_two_shops_do_differ():
    """With everything exposed in one of them, the comparison above would fail."""
    shown = frozenset({"note"})
    server = exposing(["number", "margin", "internal_note"])
    first, second = (
        heard_in(World(shown, 1, own), server, [("list_orders", {})]) for own in (2, 3)
    )
    assert first[0] == second[0]
    assert first[1] != second[1]
