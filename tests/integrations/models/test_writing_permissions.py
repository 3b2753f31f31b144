"""Who may write what: model permissions, permissions of single objects, the row rule."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import MCPError
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import AccessToken
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, holder, order
from tests.integrations.models.writers import ORDER, PLACED, may_all, server_of, writer
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order

pytestmark = pytest.mark.django_db


def names(client: MCPClient) -> list[str]:
    return sorted(definition["name"] for definition in client.list_tools())


@pytest.mark.parametrize("deed", ["add", "change", "delete"])
def test_each_tool_is_there_for_those_who_hold_its_permission(deed):
    verb = {"add": "create", "change": "update"}.get(deed, deed)
    client = MCPClient(server=server_of(Order, fields=ORDER), user=holder(f"{deed}_order"))
    assert names(client) == [f"{verb}_order"]


def test_without_permission_a_tool_is_unknown():
    order("N1")
    client = MCPClient(server=server_of(Order, fields=ORDER), user=holder("view_order"))
    assert names(client) == ["get_order", "list_orders"]
    with pytest.raises(MCPError, match="No tool named 'delete_order'"):
        client.call_tool("delete_order", {"number": "N1"})


def test_who_may_not_view_finds_nothing_to_change():
    order("N1")
    user = holder("change_order", "delete_order")
    client = MCPClient(server=server_of(Order, fields=ORDER), user=user)
    for name, sent in (("update_order", {"status": "paid"}), ("delete_order", {})):
        hidden = client.call_tool(name, {"number": "N1", **sent}, check=False)
        missing = client.call_tool(name, {"number": "N9", **sent}, check=False)
        assert hidden.is_error
        assert hidden.text == missing.text.replace("N9", "N1")
    assert Order.objects.get().status == "open"


def test_who_may_add_and_not_view_adds_and_sees_nothing():
    client = MCPClient(server=server_of(Order, fields=ORDER), user=holder("add_order"))
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    preview = client.call_tool("create_order", {**sent, "preview": True})
    assert preview.structured == {"preview": True, "changes": {}}
    result = client.call_tool("create_order", sent)
    assert result.structured == {}
    assert result.text == "It was saved. You may not view it."
    assert Order.objects.exists()


def test_the_permission_of_the_class_is_for_viewing_and_opens_no_writing():
    from mcp_django.auth.permissions import AllowAny

    server = server_of(Order, fields=ORDER, permission=AllowAny)
    server.permission = AllowAny
    assert names(MCPClient(server=server)) == ["get_order", "list_orders"]
    with pytest.raises(AuthenticationRequired):
        MCPClient(server=server).call_tool("delete_order", {"number": "N1"})


def test_scopes_are_asked_of_writing_too():
    server = server_of(Order, fields=ORDER, scopes=["orders"])
    order("N1")
    client = MCPClient(server=server, user=may_all(Order), scopes=["other"])
    with pytest.raises(Exception, match="orders"):
        client.call_tool("delete_order", {"number": "N1"})
    assert Order.objects.exists()


class Gated:
    """A server on which customers see only their own orders and themselves."""

    def __init__(self) -> None:
        self.ada, self.bob = may_all(Order, Customer), may_all(Order, Customer, username="bob")
        self.mine = customer("Ada", user=self.ada)
        self.other = customer("Bob", user=self.bob)
        own = {
            "fields": ["id", "name"],
            "get_queryset": lambda self, ctx: Customer.objects.filter(user=ctx.user),
        }
        self.server = server_of(
            Order,
            (Customer, own),
            fields=ORDER,
            get_queryset=lambda self, ctx: Order.objects.filter(customer__user=ctx.user),
        )
        self.client = MCPClient(server=self.server, user=self.ada)

    def call(self, name: str, **sent: Any) -> Any:
        return self.client.call_tool(name, sent, check=False)


@pytest.fixture
def gated():
    return Gated()


def test_the_orders_of_others_answer_like_none(gated):
    order("B1", customer=gated.other)
    for name, sent in (
        ("update_order", {"status": "paid"}),
        ("update_order", {"status": "paid", "preview": True}),
        ("update_order", {"status": "nonsense"}),
        ("delete_order", {}),
        ("delete_order", {"preview": True}),
    ):
        hidden = gated.call(name, number="B1", **sent)
        missing = gated.call(name, number="X9", **sent)
        assert hidden.is_error
        assert hidden.text == missing.text.replace("X9", "B1")
    assert Order.objects.get().status == "open"


def test_keys_of_others_answer_like_keys_of_nobody(gated):
    order("A1", customer=gated.mine)
    for key in (gated.other.pk, 10**6):
        result = gated.call("update_order", number="A1", customer=key)
        assert result.text == f"customer: this customer does not exist (got {key})"
        made = gated.call("create_order", number="A2", customer=key, placed_at=PLACED)
        assert made.text == f"customer: this customer does not exist (got {key})"
    assert gated.call("update_order", number="A1", customer=gated.mine.pk).structured


def test_nobody_writes_an_object_out_of_his_own_sight():
    """Customers are not registered here, so the key of another customer is a valid value."""
    ada = may_all(Order)
    mine, other = customer("Ada", user=ada), customer("Bob")
    order("A1", customer=mine)
    client = writer(
        Order,
        user=ada,
        fields=ORDER,
        get_queryset=lambda self, ctx: Order.objects.filter(customer__user=ctx.user),
    )
    sent = {"number": "A1", "customer": other.pk}
    for more in ({}, {"preview": True}):
        result = client.call_tool("update_order", {**sent, **more}, check=False)
        assert result.text.startswith("Nothing was changed: you would lose access to this order")
    assert Order.objects.get().customer == mine
    new = {"number": "A2", "customer": other.pk, "placed_at": PLACED}
    assert client.call_tool("create_order", new, check=False).is_error
    assert Order.objects.count() == 1


def test_a_gate_that_joins_many_rows_still_finds_one():
    buyer = customer("Ada")
    for number in ("A1", "A2"):
        order(number, customer=buyer)
    client = writer(
        Customer,
        fields=["email", "name"],
        get_queryset=lambda self, ctx: Customer.objects.filter(orders__status="open"),
    )
    shown = client.call_tool("update_customer", {"email": buyer.email, "name": "Countess"})
    assert shown.structured["name"] == "Countess"


class OwnOrders:
    """An authentication backend that knows permissions of single objects."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        """Authenticate no user."""

    def has_perm(self, user: Any, perm: str, obj: Any = None) -> bool:
        deed = perm.removeprefix("shop.").removesuffix("_order")
        return isinstance(obj, Order) and deed in obj.internal_note.split()


def test_a_backend_allows_single_objects(settings):
    settings.AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.ModelBackend",
        f"{__name__}.OwnOrders",
    ]
    order("A1", internal_note="view change delete")
    order("A2", internal_note="view")
    order("A3")
    client = MCPClient(server=server_of(Order, fields=ORDER), user=person())
    assert {"update_order", "delete_order"} < {*names(client)}
    assert not client.call_tool("update_order", {"number": "A1", "status": "paid"}).is_error
    seen = client.call_tool("update_order", {"number": "A2", "status": "paid"}, check=False)
    assert seen.text == "You may not change this order."
    hidden = client.call_tool("update_order", {"number": "A3", "status": "paid"}, check=False)
    assert hidden.text == client.call_tool("get_order", {"number": "A3"}, check=False).text
    assert client.call_tool("delete_order", {"number": "A2"}, check=False).text == (
        "You may not delete this order."
    )
    assert not client.call_tool("delete_order", {"number": "A1"}).is_error
    refused = client.call_tool(
        "create_order",
        {"number": "A4", "customer": customer().pk, "placed_at": PLACED},
        check=False,
    )
    assert refused.text == "You may not add orders."


def test_a_class_with_rules_of_its_own_is_asked_of_the_object():
    def has_permission(self: Any, ctx: Any, action: str, obj: Any = None) -> bool:
        if action == "delete":
            return False
        return action == "view" or obj is None or obj.total < 100

    order("A1", total=5)
    order("A2", total=500)
    client = writer(Order, user=person(), fields=ORDER, has_permission=has_permission)
    assert names(client) == ["create_order", "get_order", "list_orders", "update_order"]
    assert not client.call_tool("update_order", {"number": "A1", "note": "x"}).is_error
    refused = client.call_tool("update_order", {"number": "A2", "note": "x"}, check=False)
    assert refused.text == "You may not change this order."
    sent = {"number": "A3", "customer": customer().pk, "placed_at": PLACED, "total": 100}
    for more in ({}, {"preview": True}):
        refused = client.call_tool("create_order", {**sent, **more}, check=False)
        assert refused.text == "You may not add this order."
    assert Order.objects.count() == 2


def test_a_class_may_add_to_what_django_says():
    def has_permission(self: Any, ctx: Any, action: str, obj: Any = None) -> bool:
        may: bool = super(type(self), self).has_permission(ctx, action, obj)
        return may and (obj is None or obj.status == "open")

    order("A1")
    client = writer(Order, fields=ORDER, has_permission=has_permission)
    assert not client.call_tool("update_order", {"number": "A1", "status": "paid"}).is_error
    assert client.call_tool("update_order", {"number": "A1", "note": "x"}, check=False).is_error


def test_over_http_with_a_token(client):
    from mcp_django import mcp
    from mcp_django.integrations.models.declaration import ModelTools
    from tests.kit.servers import post, token_for

    cls = type("HttpMCP", (ModelTools,), {"fields": ORDER, "tools": ["update"], "name": "purchase"})
    mcp.register(Order, cls)
    try:
        order("A1")
        _, token = token_for(may_all(Order))
        assert AccessToken.objects.count() == 1
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "update_purchase",
                "arguments": {"number": "A1", "status": "paid"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
        answer: Any = post("/mcp", body, token=token, client=client)
        assert answer.json()["result"]["structuredContent"]["status"] == "paid"
        assert Order.objects.get().status == "paid"
    finally:
        mcp.unregister(cls)
