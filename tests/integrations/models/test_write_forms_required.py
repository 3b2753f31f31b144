"""`create_…` and the columns that a model requires and callers do not write."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.test.utils import isolate_apps

from mcp_django.checks import components as checks
from tests.integrations.models.building import customer
from tests.integrations.models.writers import ORDER, PLACED, server_of, tool, writer
from tests.sites.shop.models import Customer, Order, Product

pytestmark = pytest.mark.django_db

NEW = ["create"]
MISSING = (
    "the site requires a value that this tool does not send; only its developers can add it, and "
    "the error was logged"
)


def with_hook(**values: Any) -> dict[str, Any]:
    """Return a hook that sets these values of the new object."""

    def perform_create(self: Any, ctx: Any, form: Any) -> Any:
        for name, value in values.items():
            setattr(form.instance, name, value)
        return form.save()

    return {"perform_create": perform_create}


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (
            Customer,
            {"fields": ["id", "name", "email"], "write_fields": ["email"]},
            "create does not set 'name', which Customer requires: add it to write_fields",
        ),
        (
            Product,
            {"fields": ["slug", "name"]},
            "create does not set 'category', 'price', which Product requires: add them to",
        ),
    ],
)
def test_a_create_that_cannot_fill_a_required_column_is_refused(model, options, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        server_of(model, **options)
    assert words in str(caught.value)
    assert "set the value in perform_create, or remove 'create' from tools." in str(caught.value)


def test_a_required_file_is_refused_with_another_way_out(monkeypatch):
    monkeypatch.setattr(Product._meta.get_field("photo"), "blank", False)
    with pytest.raises(
        ImproperlyConfigured, match=r"create does not set 'photo'.*a file cannot be writ"
    ):
        server_of(Product, fields=["slug", "name", "category", "price", "photo"])


def test_what_fills_itself_is_not_asked_for(monkeypatch):
    def pre_save(self: Any, model_instance: Any, add: Any) -> str:
        model_instance.name = "made"
        return "made"

    field = Customer._meta.get_field("name")
    monkeypatch.setattr(field, "__class__", type("Own", (type(field),), {"pre_save": pre_save}))
    client = writer(Customer, fields=["email"], tools=NEW)
    made = client.call_tool("create_customer", {"email": "a@shop.test"})
    assert not made.is_error, made.text
    assert Customer.objects.get().name == "made"


def test_a_model_that_saves_itself_is_looked_at_once_it_is_saved(monkeypatch):
    save = Customer.save

    def named(self: Customer, *args: Any, **kwargs: Any) -> None:
        self.name = self.email.partition("@")[0].strip("x")
        save(self, *args, **kwargs)

    monkeypatch.setattr(Customer, "save", named)
    client = writer(Customer, fields=["email", "name"], write_fields=["email"], tools=NEW)
    made = client.call_tool("create_customer", {"email": "ada@shop.test"})
    assert made.structured == {"email": "ada@shop.test", "name": "ada"}
    refused = client.call_tool("create_customer", {"email": "xx@shop.test"}, check=False)
    assert refused.text == "name: is required"
    assert Customer.objects.count() == 1


def test_a_hook_that_leaves_a_shown_column_empty_is_told_by_name():
    options = {
        "fields": ["email", "name"],
        "write_fields": ["email"],
        "tools": NEW,
        **with_hook(name=""),
    }
    result = writer(Customer, **options).call_tool(
        "create_customer", {"email": "a@shop.test"}, check=False
    )
    assert (result.is_error, result.text) == (True, "name: is required")
    assert not Customer.objects.exists()


def test_a_hook_that_leaves_a_hidden_column_empty_is_told_without_it(caplog):
    client = writer(Customer, fields=["email"], tools=NEW, **with_hook(name=""))
    result = client.call_tool("create_customer", {"email": "a@shop.test"}, check=False)
    assert (result.is_error, result.text) == (True, MISSING)
    (record,) = [log_record for log_record in caplog.records if log_record.name == "mcp_django"]
    assert "because of 'name', which its tool neither shows nor writes (required)" in (
        record.getMessage()
    )
    assert not Customer.objects.exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["number", "placed_at", "customer"], "customer: is required"),
        (["number", "placed_at"], MISSING),
    ],
)
def test_what_the_database_misses_is_named_where_it_is_shown(fields, words):
    options = {"write_fields": ["number", "placed_at"], **with_hook()}
    client = writer(Order, fields=fields, **options)
    result = client.call_tool("create_order", {"number": "N1", "placed_at": PLACED}, check=False)
    assert (result.is_error, result.text) == (True, words)
    assert not Order.objects.exists()


def test_an_own_form_says_itself_what_a_new_object_needs():
    class Form(forms.ModelForm):
        class Meta:
            model = Customer
            fields = ["email"]

    client = writer(Customer, fields=["email"], form=Form, tools=NEW)
    assert not client.call_tool("create_customer", {"email": "a@shop.test"}).is_error


def test_what_has_a_default_or_may_be_null_or_blank_is_not_needed():
    client = writer(Order, fields=ORDER, write_fields=["number", "customer", "placed_at"])
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    assert not client.call_tool("create_order", sent).is_error


@isolate_apps("tests.sites.shop")
def test_what_saving_fills_is_not_needed():
    class Step(models.Model):
        order = models.ForeignKey(Order, models.CASCADE, related_name="+")

        class Meta:
            app_label = "shop"
            order_with_respect_to = "order"

        def __str__(self) -> str:
            return "step"

    class Gift(Order):
        whole = models.OneToOneField(Order, models.CASCADE, parent_link=True, related_name="+")

        class Meta:
            app_label = "shop"

    assert "create_step" in server_of(Step, fields=["order"], tools=NEW).tools
    written = ["number", "customer", "placed_at"]
    assert "create_gift" in server_of(Gift, fields=written, tools=NEW).tools


def test_no_argument_invites_null():
    columns = [field.name for field in Product._meta.fields]
    client = writer(Product, fields=[*columns, "tags"])
    for name in ("create_product", "update_product"):
        assert "null" not in str(tool(client, name)["inputSchema"])


# Files, and names that are not there ----------------------------------------------------------


def test_a_shown_file_is_no_unknown_argument():
    client = writer(Product, fields=["slug", "name", "category", "price", "manual"])
    for name in ("create_product", "update_product"):
        result = client.call_tool(name, {"slug": "ball", "manual": "x"}, check=False)
        assert result.text == "manual: is a file, which cannot be written here"
    hidden = client.call_tool("update_product", {"slug": "ball", "photo": "x"}, check=False)
    assert hidden.text.startswith('unknown argument "photo"')


def test_a_wrong_name_of_the_key_is_told_with_the_right_one():
    client = writer(Order, fields=ORDER)
    result = client.call_tool("update_order", {"id": 2}, check=False)
    assert result.text.startswith('unknown argument "id"')
    assert result.text.endswith("\nnumber: is required")
    named = client.call_tool("update_order", {"number": "N1", "id": 2}, check=False)
    assert "is required" not in named.text


def test_a_create_that_may_never_work_is_noted(monkeypatch):
    def clean(self: Customer) -> None:
        """Set nothing."""

    monkeypatch.setattr(Customer, "clean", clean)
    server = server_of(Customer, fields=["email"], tools=NEW)
    (note,) = [message for message in checks.check_missing_columns(None) if message.obj is server]
    assert note.id == "mcp_django.I003"
    assert "create does not set 'name', which Customer requires" in note.msg
    hooked = server_of(Customer, fields=["email"], tools=NEW, **with_hook(name="x"))
    read = server_of(Customer, fields=["email"], tools=["list"])
    noted = {message.obj for message in checks.check_missing_columns(None)}
    assert not {hooked, read} & noted
