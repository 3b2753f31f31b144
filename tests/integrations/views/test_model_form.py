"""Model forms that are registered on their own: they create an object, or change one."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.views.generic import FormView

from mcp_django.auth.permissions import AllowAny, IsAuthenticated
from mcp_django.management.inspect import source_of
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, holder, order
from tests.integrations.models.writers import PLACED, history, tool
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order, Product, Wallet

pytestmark = pytest.mark.django_db


class OrderForm(forms.ModelForm):
    """As it is taken at the counter."""

    shout = forms.BooleanField(required=False)

    class Meta:
        model = Order
        fields = ["number", "customer", "total", "note", "placed_at"]

    def clean_total(self) -> Any:
        total = self.cleaned_data["total"]
        if total > 1000:
            raise forms.ValidationError("Ask the manager.")
        return total

    def save(self, commit: bool = True) -> Order:
        if self.cleaned_data["shout"]:
            self.instance.note = self.instance.note.upper()
        saved: Order = super().save(commit)
        return saved


class ManualForm(forms.ModelForm):
    class Meta:
        model = Product
        fields = ["name", "manual"]


class CustomerForm(forms.ModelForm):
    class Meta:
        model = Customer
        fields = ["name", "email", "password"]


class WalletForm(forms.ModelForm):
    class Meta:
        model = Wallet
        fields = ["coins"]


class CallerForm(OrderForm):
    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class PlainForm(forms.Form):
    text = forms.CharField()


def new(**more: Any) -> dict[str, Any]:
    """Return the values of a new order."""
    given = {"number": "A-1", "customer": customer().pk, "total": "8.00", "placed_at": PLACED}
    return {**given, **more}


def test_a_form_creates_and_says_what(server):
    server.register_form(OrderForm)
    client = MCPClient(server=server, user=holder("add_order"))
    listed = tool(client, "create_order")
    assert listed["description"].startswith("Create one order.")
    assert listed["description"].endswith("As it is taken at the counter.")
    assert listed["inputSchema"]["required"] == ["number", "customer", "placed_at"]
    saved = client.call_tool("create_order", new(note="ring", shout=True)).structured
    row = Order.objects.get()
    assert saved == {
        "id": row.pk,
        "number": "A-1",
        "customer": {"id": row.customer.pk},
        "total": "8.00",
        "note": "RING",
        "placed_at": PLACED,
    }
    assert history() == [(1, "A-1", "Added through the MCP tool create_order.")]


def test_a_form_changes_the_object_that_a_caller_names(server):
    server.register_form(OrderForm, instance="number")
    order("A-1", note="old", internal_note="hidden", total=5)
    client = MCPClient(server=server, user=holder("change_order"))
    schema = tool(client, "update_order")["inputSchema"]
    assert schema["required"] == ["number"]
    assert {"total", "note", "shout"} < schema["properties"].keys()
    saved = client.call_tool("update_order", {"number": "A-1", "total": "6.50"}).structured
    assert (saved["number"], saved["total"], saved["note"]) == ("A-1", "6.50", "old")
    assert "internal_note" not in saved
    assert Order.objects.get().internal_note == "hidden"
    missing = client.call_tool("update_order", {"number": "A-9", "total": "6.50"}, check=False)
    assert missing.is_error


def test_what_the_form_finds_comes_back_by_field_and_nothing_is_saved(server):
    server.register_form(OrderForm)
    client = MCPClient(server=server, user=holder("add_order"))
    order("A-1")
    result = client.call_tool("create_order", new(total="2000.00"), check=False)
    assert result.is_error
    assert result.text == (
        'total: Ask the manager (got "2000.00")\n'
        'number: is already taken and must be unique (got "A-1")'
    )
    assert Order.objects.count() == 1


def test_both_can_be_tried_first(server):
    server.register_form(OrderForm)
    server.register_form(OrderForm, instance="pk", name="correct_order")
    client = MCPClient(server=server, user=holder("add_order", "change_order"))
    assert client.call_tool("create_order", new(preview=True)).structured["preview"] is True
    assert not Order.objects.exists()
    row = order("A-1", note="old")
    tried = client.call_tool("correct_order", {"id": row.pk, "note": "new", "preview": True})
    assert tried.structured["changes"] == {"note": {"from": "old", "to": "new"}}
    assert Order.objects.get().note == "old"


@pytest.mark.parametrize("codename", ["view_order", "delete_order", "change_order"])
def test_nobody_may_without_the_permission_of_the_model(server, codename):
    server.register_form(OrderForm)
    client = MCPClient(server=server, user=holder(codename))
    assert client.list_tools() == []
    assert MCPClient(server=server, user=person("bob")).list_tools() == []


def test_a_permission_that_is_given_stands_in_its_place(server):
    bob = person("bob")
    server.register_form(
        OrderForm,
        instance="number",
        queryset=lambda ctx: Order.objects.filter(customer__user=ctx.user),
        permission=IsAuthenticated,
    )
    own = customer(user=bob)
    order("A-1", customer=own)
    order("A-2", customer=customer(email="other@example.com"))
    client = MCPClient(server=server, user=bob)
    assert not client.call_tool("update_order", {"number": "A-1", "note": "x"}).is_error
    hidden = client.call_tool("update_order", {"number": "A-2", "note": "x"}, check=False)
    absent = client.call_tool("update_order", {"number": "A-9", "note": "x"}, check=False)
    assert hidden.is_error
    assert hidden.text.replace("A-2", "A-9") == absent.text
    # Nor can an order be moved out of the rows that the caller may write.
    other = Customer.objects.get(email="other@example.com").pk
    moved = client.call_tool("update_order", {"number": "A-1", "customer": other}, check=False)
    assert moved.text.startswith("Nothing was changed")
    assert Order.objects.get(number="A-1").customer == own


def test_rows_may_be_a_query(server):
    rows = Order.objects.filter(status="open")
    server.register_form(OrderForm, instance="number", queryset=rows, permission=AllowAny)
    order("A-1", status="paid")
    client = MCPClient(server=server)
    sent = {"number": "A-1", "note": "x"}
    assert client.call_tool("update_order", sent, check=False).is_error
    Order.objects.update(status="open")
    assert not client.call_tool("update_order", sent).is_error


def test_a_secret_is_written_and_not_shown(server):
    server.register_form(CustomerForm)
    client = MCPClient(server=server, user=holder("add_customer"))
    sent = {"name": "Ada", "email": "ada@example.com", "password": "lovelace"}
    saved = client.call_tool("create_customer", sent)
    assert saved.structured.keys() == {"id", "name", "email"}
    assert Customer.objects.get().password == "lovelace"


def test_a_file_keeps_and_a_key_that_is_a_relation_names(server):
    server.register_form(ManualForm, instance="pk")
    server.register_form(WalletForm, instance="pk")
    client = MCPClient(server=server, user=holder("change_product", "change_wallet"))
    assert "manual" not in tool(client, "update_manual")["inputSchema"]["properties"]
    wallet = Wallet.objects.create(customer=customer())
    client.call_tool("update_wallet", {"customer_id": wallet.pk, "coins": 3})
    wallet.refresh_from_db()
    assert wallet.coins == 3


def test_options_are_those_of_any_form(server):
    server.register_form(
        OrderForm,
        name="take_order",
        title="Take an order",
        description="For the counter.",
        scopes=["shop:write"],
        destructive=True,
        permission=AllowAny,
    )
    (component,) = server.registry
    assert (component.name, component.title, component.description) == (
        "take_order",
        "Take an order",
        "For the counter.",
    )
    assert component.scopes == ("shop:write",)
    assert component.origin == "OrderForm of shop.Order"
    assert source_of(component.callable).name == "OrderForm"
    server.unregister(component)
    assert list(server.registry) == []


class OrderView(FormView):
    form_class = OrderForm


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        (PlainForm, {}, "PlainForm is not a ModelForm with a model"),
        (forms.ModelForm, {}, "ModelForm is not a ModelForm with a model"),
        (CallerForm, {}, "CallerForm cannot be created from data and an instance alone"),
        (OrderForm, {"instance": Order}, "write the name of a unique field of Order"),
        (OrderForm, {"instance": "total"}, "'total' is not a unique column"),
        (OrderForm, {"instance": "nummer"}, "did you mean 'number'"),
        (OrderForm, {"queryset": "open"}, "pass a QuerySet of Order"),
        (OrderForm, {"form": PlainForm}, "form can only be used with a view, but OrderForm is"),
        (OrderForm, {"urlconf": "a", "query": {}}, "query, urlconf can only be used with a view"),
        (OrderView, {"instance": "pk"}, "with a model form, but OrderView is a view"),
        ("shop:order", {"queryset": 1}, "with a model form, but shop:order is a view"),
    ],
)
def test_what_is_ambiguous_is_refused(server, target, options, expected):
    with pytest.raises(ImproperlyConfigured, match=expected):
        server.register_form(target, **options)
