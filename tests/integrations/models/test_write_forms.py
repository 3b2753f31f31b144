"""Writing through a form of the site's own."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.core.files.base import ContentFile
from django.utils.translation import override

from mcp_django.test import MCPClient
from tests.integrations.models.building import category, customer, order, product
from tests.integrations.models.writers import ORDER, PLACED, may_all, server_of, tool, writer
from tests.sites.shop.models import Customer, Order, Product, Tag

pytestmark = pytest.mark.django_db


class OrderForm(forms.ModelForm):
    """Looks at several fields, and has one that the model has not."""

    reason = forms.CharField(max_length=20, required=False, help_text="For the books.")

    class Meta:
        model = Order
        fields = ["number", "status", "customer", "placed_at", "paid_at", "note"]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("status") == "paid" and data.get("paid_at") is None:
            raise forms.ValidationError({"paid_at": "Say when it was paid."})
        if data.get("note") and not data.get("reason"):
            raise forms.ValidationError("A note needs a reason.")
        return data


def test_a_form_says_what_can_be_written():
    client = writer(Order, fields=ORDER, form=OrderForm)
    create = tool(client, "create_order")["inputSchema"]
    assert list(create["properties"]) == [
        "number", "status", "customer", "placed_at", "paid_at", "note", "reason", "preview",
    ]  # fmt: skip
    assert create["properties"]["reason"] == {
        "type": "string",
        "maxLength": 20,
        "description": "For the books.",
    }
    update = tool(client, "update_order")["inputSchema"]
    assert update["properties"]["clear"]["items"]["enum"] == ["paid_at", "note", "reason"]


def test_a_form_validates_a_change_as_a_whole():
    order("N1", customer=customer(), paid_at=None)
    client = writer(Order, fields=ORDER, form=OrderForm)
    paid = {"number": "N1", "status": "paid"}
    assert (
        client.call_tool("update_order", paid, check=False).text == "paid_at: Say when it was paid"
    )
    noted = {"number": "N1", "note": "x"}
    assert client.call_tool("update_order", noted, check=False).text == "A note needs a reason"
    shown = client.call_tool("update_order", {**paid, "paid_at": PLACED}).structured
    assert shown["status"] == "paid"
    # The order stays paid, and the form gets the stored date.
    shown = client.call_tool("update_order", {**noted, "reason": "said so"}).structured
    assert (shown["status"], shown["note"]) == ("paid", "x")


def test_a_form_makes_new_objects():
    client = writer(Order, fields=ORDER, form=OrderForm)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    refused = client.call_tool("create_order", {**sent, "status": "paid"}, check=False)
    assert refused.text == "paid_at: Say when it was paid"
    assert client.call_tool("create_order", sent).structured["status"] == "open"


def test_the_keys_of_a_form_are_those_that_the_caller_sees():
    ada = may_all(Order, Customer)
    mine, other = customer("Ada", user=ada), customer("Bob")
    order("N1", customer=other)
    own = {
        "fields": ["id"],
        "get_queryset": lambda self, ctx: Customer.objects.filter(user=ctx.user),
    }
    server = server_of(Order, (Customer, own), fields=ORDER, form=OrderForm)
    client = MCPClient(server=server, user=ada)
    refused = client.call_tool("update_order", {"number": "N1", "customer": other.pk}, check=False)
    assert refused.text == f"customer: this customer does not exist (got {other.pk})"
    # An existing link stays if the call does not mention it.
    assert not client.call_tool("update_order", {"number": "N1", "status": "shipped"}).is_error
    assert Order.objects.get().customer == other
    client.call_tool("update_order", {"number": "N1", "customer": mine.pk})
    assert Order.objects.get().customer == mine


class UploadForm(forms.ModelForm):
    """Takes a file as text."""

    text = forms.CharField()

    class Meta:
        model = Product
        fields = ["name"]

    def save(self, commit: bool = True) -> Product:
        self.instance.manual = ContentFile(self.cleaned_data["text"].encode(), name="manual.txt")
        saved: Product = super().save(commit)
        return saved


def test_a_form_may_take_a_file_as_text(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    product(slug="ball")
    client = writer(Product, fields=["slug", "name"], form=UploadForm, tools=["update"])
    client.call_tool("update_product", {"slug": "ball", "text": "Throw it."})
    with Product.objects.get().manual as manual:
        assert manual.read() == b"Throw it."


class FileForm(forms.ModelForm):
    class Meta:
        model = Product
        fields = ["name", "manual"]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"form": FileForm}, "FileField cannot be filled from JSON"),
        ({"form": OrderForm}, "name a ModelForm of Product"),
        ({"form": forms.Form}, "name a ModelForm of Product"),
        ({"form": UploadForm, "write_fields": ["name"]}, "a form and write_fields"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(options, hint):
    with pytest.raises(ImproperlyConfigured, match=hint):
        server_of(Product, fields=["slug", "name"], **options)


@pytest.mark.parametrize("name", ["preview", "clear"])
def test_a_field_called_like_an_argument_is_refused(name):
    form = type("Form", (OrderForm,), {name: forms.CharField()})
    with pytest.raises(
        ImproperlyConfigured, match=f"{name!r} is a field to write and also an argument"
    ):
        server_of(Order, fields=ORDER, form=form)


def test_links_that_a_form_does_not_speak_of_stay():
    seen, hidden = Tag.objects.create(word="seen"), Tag.objects.create(word="hidden", secret="x")
    ball = product(slug="ball", category=category())
    ball.tags.set([seen, hidden])

    class Form(forms.ModelForm):
        class Meta:
            model = Product
            fields = ["name", "tags"]

    gate = {"fields": ["word"], "get_queryset": lambda self, ctx: Tag.objects.filter(secret="")}
    server = server_of(Product, (Tag, gate), fields=["slug", "name", "tags"], form=Form)
    client = MCPClient(server=server, user=may_all(Product, Tag))
    client.call_tool("update_product", {"slug": "ball", "name": "New"})
    assert set(ball.tags.all()) == {seen, hidden}
    client.call_tool("update_product", {"slug": "ball", "tags": []})
    assert set(ball.tags.all()) == {hidden}


def test_messages_are_in_the_language_of_the_request():
    client = writer(Order, fields=ORDER)
    with override("de"):
        result = client.call_tool("create_order", {"number": "x" * 30}, check=False)
    assert "höchstens 20 Zeichen" in result.text


def test_a_moment_that_was_not_sent_keeps_its_microseconds():
    moment = dt.datetime(2026, 1, 1, 10, 30, 15, 123456, tzinfo=dt.UTC)
    order("N1", customer=customer(), placed_at=moment)
    client = writer(Order, fields=ORDER, form=OrderForm)
    assert not client.call_tool("update_order", {"number": "N1", "status": "shipped"}).is_error
    assert Order.objects.get().placed_at == moment
    sent = {"number": "N1", "placed_at": "2026-01-01T10:30:15Z"}
    assert not client.call_tool("update_order", sent).is_error
    assert Order.objects.get().placed_at == moment.replace(microsecond=0)


class MinuteForm(OrderForm):
    """Shows no more than minutes, and may move the moment by itself."""

    placed_at = forms.DateTimeField(
        input_formats=["%d.%m.%Y %H:%M"], widget=forms.DateTimeInput(format="%d.%m.%Y %H:%M")
    )

    def clean_placed_at(self) -> dt.datetime:
        moment: dt.datetime = self.cleaned_data["placed_at"]
        return moment + dt.timedelta(days=1) if self.data.get("reason") == "late" else moment


def test_a_moment_that_a_form_shows_in_part_is_kept_whole_unless_the_form_moves_it():
    moment = dt.datetime(2026, 1, 1, 10, 30, 15, 123456, tzinfo=dt.UTC)
    order("N1", customer=customer(), placed_at=moment)
    client = writer(Order, fields=ORDER, form=MinuteForm)
    kept = client.call_tool("update_order", {"number": "N1", "status": "shipped"})
    assert not kept.is_error, kept.text
    assert Order.objects.get().placed_at == moment
    assert not client.call_tool("update_order", {"number": "N1", "reason": "late"}).is_error
    assert Order.objects.get().placed_at.day == 2


class SecretForm(forms.ModelForm):
    """Stores another note when one is typed, as forms of passwords do."""

    class Meta:
        model = Order
        fields = ["status", "note"]
        widgets = {"note": forms.PasswordInput}

    def clean_note(self) -> str:
        note: str = self.cleaned_data["note"]
        return f"hash of {note}" if note else self.instance.note


def test_a_password_that_was_not_sent_is_not_typed_again():
    order("N1", customer=customer(), note="hash of x")
    client = writer(Order, fields=ORDER, form=SecretForm)
    shown = client.call_tool("update_order", {"number": "N1", "status": "shipped"})
    assert not shown.is_error, shown.text
    assert Order.objects.get().note == "hash of x"
