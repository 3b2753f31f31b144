"""The fields of the caller's form: `get` and `list` show what the page of an object shows."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.admin import GenericTabularInline
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.model_admin.desk import clerk
from tests.integrations.models.building import category, customer, line, order, product
from tests.kit.servers import person
from tests.sites.shop.models import (
    Category,
    Customer,
    Order,
    OrderLine,
    Product,
    Remark,
    Tag,
    Voucher,
)

pytestmark = pytest.mark.django_db

EVERY = ["list", "get", "count", "create", "update", "delete"]


def server_of(model: Any, model_admin: Any, **options: Any) -> MCPServer:
    made = MCPServer("desk")
    own = AdminSite(name="desk")
    own.register(model, model_admin)
    made.register_admin(model, site=own, **options)
    return made


def root() -> Any:
    return person("root", is_staff=True, is_superuser=True)


def declaration(made: MCPServer, model: Any) -> Any:
    (source,) = made.declarations_of(model)
    return source


# The admin of groups and users -------------------------------------------------------------------


def test_the_admin_of_groups_shows_what_it_writes():
    group = Group.objects.create(name="clerks")
    permission = Permission.objects.get(codename="view_order")
    group.permissions.add(permission)
    mcp = MCPClient(server=server_of(Group, GroupAdmin, tools=EVERY), user=root())
    assert mcp.call_tool("list_groups").structured["items"] == [
        {"name": "clerks", "label": "clerks"}
    ]
    shown = mcp.call_tool("get_group", {"name": "clerks"}).structured
    assert shown["permissions"] == [{"id": permission.pk, "label": str(permission)}]
    preview = mcp.call_tool("update_group", {"name": "clerks", "permissions": [], "preview": True})
    assert preview.structured == {
        "preview": True,
        "changes": {"permissions": {"from": shown["permissions"], "to": []}},
    }


def test_the_admin_of_users_writes_no_superuser():
    mcp = MCPClient(server=server_of(User, UserAdmin, tools=EVERY), user=root())
    person("bob")
    for value in (True, False):
        arguments = {"username": "bob", "is_superuser": value}
        assert 'unknown argument "is_superuser"' in (
            mcp.call_tool("update_user", arguments, check=False).text
        )
    named = server_of(User, UserAdmin, tools=["update"], form_fields=["is_superuser"])
    mcp = MCPClient(server=named, user=User.objects.get(username="root"))
    assert not mcp.call_tool("update_user", {"username": "bob", "is_superuser": True}).is_error


def test_the_admin_of_users_shows_no_password_to_anybody():
    mcp = MCPClient(server=server_of(User, UserAdmin, tools=EVERY), user=root())
    listed = mcp.call_tool("list_users").structured["items"]
    shown = mcp.call_tool("get_user", {"username": "root"}).structured
    assert "password" not in listed[0]
    assert "password" not in shown
    assert {"is_superuser", "email", "groups", "user_permissions"} <= set(shown)
    assert "groups" not in listed[0]


def test_secrets_are_not_written_unless_they_are_named():
    class CustomerAdmin(admin.ModelAdmin):
        """With the password, which has a default."""

        fields = ["name", "email", "password"]

    customer("Ada")
    mcp = MCPClient(server=server_of(Customer, CustomerAdmin, tools=EVERY), user=root())
    call = {"email": Customer.objects.get().email, "password": "x"}
    refused = mcp.call_tool("update_customer", call, check=False)
    assert 'unknown argument "password"' in refused.text
    made = mcp.call_tool("create_customer", {"name": "Bob", "email": "bob@shop.test"})
    assert not made.is_error
    fields = ["name", "email", "password"]
    named = server_of(Customer, CustomerAdmin, tools=["update"], form_fields=fields)
    mcp = MCPClient(server=named, user=User.objects.get(username="root"))
    assert not mcp.call_tool("update_customer", call).is_error


def test_rows_are_filtered_by_what_only_an_object_shows():
    group = Group.objects.create(name="clerks")
    person("bob").groups.add(group)
    mcp = MCPClient(server=server_of(User, UserAdmin), user=root())
    rows = mcp.call_tool("list_users", {"groups": group.pk}).structured["items"]
    assert [row["username"] for row in rows] == ["bob"]


# What depends on the caller ----------------------------------------------------------------------


class SecretiveAdmin(admin.ModelAdmin):
    """Shows the costs to superusers, and the stock to those who may delete."""

    list_display = ["slug", "name"]
    ordering = ["cost", "slug"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of this caller."""
        fields = ["name", "price"]
        if request.user.has_perm("shop.delete_product"):
            fields.append("stock")
        if request.user.is_superuser:
            fields += ["cost", "tags"]
        return [(None, {"fields": fields})]


def test_a_row_has_the_fields_of_the_form_of_its_caller():
    product("Ball", slug="ball", cost=3, stock=7)
    made = server_of(Product, SecretiveAdmin, tools=EVERY)

    def keys(user: Any) -> tuple[set[str], set[str]]:
        mcp = MCPClient(server=made, user=user)
        (row,) = mcp.call_tool("list_products").structured["items"]
        return set(row), set(mcp.call_tool("get_product", {"slug": "ball"}).structured)

    viewer = clerk("view_product")
    assert keys(viewer) == ({"slug", "name", "price"},) * 2
    deleter = clerk("view_product", "delete_product", username="deleter")
    assert keys(deleter) == ({"slug", "name", "price", "stock"},) * 2
    row, shown = keys(root())
    assert shown - row == {"tags"}
    assert {"cost", "stock"} <= row


@pytest.mark.parametrize(
    "arguments", [{"max_of": "cost"}, {"sum_of": "stock"}, {"group_by": "stock"}]
)
def test_what_may_be_hidden_is_not_summed_up(arguments):
    product("Ball", slug="ball", cost=3)
    mcp = MCPClient(server=server_of(Product, SecretiveAdmin, tools=EVERY), user=root())
    assert mcp.call_tool("count_products", arguments, check=False).is_error


def test_what_may_be_hidden_orders_no_page():
    made = server_of(Product, SecretiveAdmin, tools=["list"])
    assert "ordering contains 'cost', which the admin may hide from some callers" in (
        declaration(made, Product).left_out
    )
    product("Ball", slug="ball")
    product("Apple", slug="apple")
    page = MCPClient(server=made, user=root()).call_tool("list_products", {"limit": 1}).structured
    assert len(page["items"]) == 1


def test_a_preview_names_no_value_that_the_form_hides():
    class Hiding(SecretiveAdmin):
        """Changes the cost with the price."""

        def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
            """Change it."""
            obj.cost = obj.price
            super().save_model(request, obj, form, change)

    product("Ball", slug="ball", cost=3)
    made = server_of(Product, Hiding, tools=EVERY)
    call = {"slug": "ball", "price": "5.00", "preview": True}
    mcp = MCPClient(server=made, user=clerk("view_product", "change_product"))
    assert set(mcp.call_tool("update_product", call).structured["changes"]) == {"price"}
    mcp = MCPClient(server=made, user=root())
    assert set(mcp.call_tool("update_product", call).structured["changes"]) == {"price", "cost"}


def test_a_list_that_depends_on_the_caller_hides_columns():
    class Shifting(admin.ModelAdmin):
        """Shows the margin to superusers."""

        list_display = ["slug", "margin"]
        fields = ["name"]

        def get_list_display(self, request: HttpRequest) -> Any:
            """Return the columns of this caller."""
            return ["slug", "margin"] if request.user.is_superuser else ["slug"]

    product("Ball", slug="ball")
    made = server_of(Product, Shifting)
    mcp = MCPClient(server=made, user=clerk("view_product"))
    (row,) = mcp.call_tool("list_products").structured["items"]
    assert set(row) == {"id", "slug", "name"}
    mcp = MCPClient(server=made, user=root())
    assert "margin" in mcp.call_tool("list_products").structured["items"][0]


def test_filters_and_search_that_depend_on_the_caller_are_left_out():
    class Choosing(admin.ModelAdmin):
        """Offers superusers more."""

        list_display = ["slug"]
        list_filter = ["cost", "slug"]
        search_fields = ["slug", "description"]

        def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
            """Hide the cost and the text."""
            more = ["cost", "description"] if request.user.is_superuser else []
            return ["name", *more]

        def get_list_filter(self, request: HttpRequest) -> Any:
            """Hide the filter."""
            return ["cost", "slug"] if request.user.is_superuser else ["slug"]

        def get_search_fields(self, request: HttpRequest) -> Any:
            """Hide the text."""
            return ["slug", "description"] if request.user.is_superuser else ["slug"]

    product("Ball", slug="ball", cost=3, description="topsecret")
    made = server_of(Product, Choosing, tools=EVERY)
    mcp = MCPClient(server=made, user=clerk("view_product"))
    assert mcp.call_tool("list_products", {"search": "topsecret"}).structured["items"] == []
    assert mcp.call_tool("count_products", {"cost": 3}, check=False).is_error
    assert mcp.call_tool("count_products", {"slug": "ball"}).structured == {"count": 1}
    left_out = declaration(made, Product).left_out
    assert "list_filter contains 'cost', which the admin may hide from some callers" in left_out


def test_a_path_that_some_callers_do_not_see_is_removed():
    class Path(admin.ModelAdmin):
        """Shows the address to superusers."""

        list_display = ["number", "customer__email"]
        fields = ["note"]

        def get_list_display(self, request: HttpRequest) -> Any:
            """Return the columns of this caller."""
            return ["number", "customer__email"] if request.user.is_superuser else ["number"]

    order("N1")
    made = server_of(Order, Path)
    mcp = MCPClient(server=made, user=clerk("view_order"))
    (row,) = mcp.call_tool("list_orders").structured["items"]
    assert set(row) == {"id", "number", "note"}
    mcp = MCPClient(server=made, user=root())
    assert "email" in mcp.call_tool("list_orders").structured["items"][0]["customer"]


def test_choices_of_the_caller_are_listed_to_the_caller_alone():
    class Own(admin.ModelAdmin):
        """Offers the words of the caller."""

        list_display = ["slug"]
        fields = ["name"]

        def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
            """Return a form with choices."""
            form = super().get_form(request, obj, **kwargs)
            name = request.user.get_username()
            form.base_fields["name"] = forms.ChoiceField(choices=[(f"of-{name}", "")])
            return form

    product("Ball", slug="ball")
    made = server_of(Product, Own, tools=EVERY)
    for name in ("alice", "bob"):
        user = clerk("view_product", "change_product", username=name)
        listed = str(MCPClient(server=made, user=user).list_tools())
        assert f"of-{name}" in listed
        assert listed.count("of-") == listed.count(f"of-{name}")


def test_a_key_that_is_a_secret_is_not_shown():
    class SessionAdmin(admin.ModelAdmin):
        """A table whose key signs in."""

        list_display = ["expire_date"]
        fields = ["expire_date"]

    with pytest.raises(ImproperlyConfigured, match="no unique column"):
        server_of(Session, SessionAdmin)


# Forms of the site -------------------------------------------------------------------------------


def test_fields_that_a_form_declares_are_shown_unless_they_mask_a_value():
    class Masked(forms.TextInput):
        """Shows something else."""

    class CustomerForm(forms.ModelForm):
        """Of every kind."""

        name = forms.CharField(max_length=50)
        email = forms.CharField(widget=Masked)

        class Meta:
            """Its model."""

            model = Customer
            fields = ("name", "email", "password", "referrer")

    class CustomerAdmin(admin.ModelAdmin):
        """With this form."""

        form = CustomerForm

    source = declaration(server_of(Customer, CustomerAdmin), Customer)
    assert list(source.exposed.paths) == ["id", "name", "referrer"]
    assert len(source.left_out) == 2


def test_a_form_that_cannot_be_built_leaves_what_the_attributes_name():
    class Broken(admin.ModelAdmin):
        """Needs what there is not."""

        list_display = ["slug"]
        fields = ["name"]

        def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
            """Fail."""
            raise LookupError("nothing here")

    source = declaration(server_of(Product, Broken), Product)
    assert list(source.exposed.paths) == ["slug", "name"]
    assert "cannot be built" in source.left_out[0]
    assert "nothing here" in source.left_out[0]


# Inlines -----------------------------------------------------------------------------------------


class LineInline(admin.TabularInline):
    """The lines of an order."""

    model = OrderLine
    fields = ["product", "quantity", "secret"]


class InlineAdmin(admin.ModelAdmin):
    """An order with its lines."""

    list_display = ["number"]
    fields = ["note"]
    inlines = [LineInline]


def test_an_object_shows_the_rows_of_its_inlines():
    bought = order("N1")
    first = line(bought)
    mcp = MCPClient(server=server_of(Order, InlineAdmin), user=root())
    shown = mcp.call_tool("get_order", {"number": "N1"}).structured
    (row,) = shown["lines"]
    assert row["quantity"] == first.quantity
    assert row["product"]["id"] == first.product_id
    assert "secret" not in row
    (listed,) = mcp.call_tool("list_orders").structured["items"]
    assert set(listed) == {"number", "note"}


def test_inlines_that_the_caller_may_not_view_are_not_shown():
    line(order("N1"))
    made = server_of(Order, InlineAdmin)
    shown = MCPClient(server=made, user=clerk("view_order")).call_tool(
        "get_order", {"number": "N1"}
    )
    assert set(shown.structured) == {"number", "note"}


def test_the_rows_of_an_inline_are_those_of_its_queryset_and_form():
    class Narrow(LineInline):
        """Shows less to some."""

        def get_queryset(self, request: HttpRequest) -> Any:
            """Hide some."""
            return super().get_queryset(request).exclude(secret="x")

        def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
            """Hide the quantity."""
            return ["product", "quantity"] if request.user.is_superuser else ["product"]

    class NarrowAdmin(InlineAdmin):
        """With these."""

        inlines = [Narrow]

    bought = order("N1")
    line(bought, secret="")
    line(bought, secret="x")
    made = server_of(Order, NarrowAdmin)

    def rows(user: Any) -> list[dict[str, Any]]:
        shown = MCPClient(server=made, user=user).call_tool("get_order", {"number": "N1"})
        (lines,) = [value for value in shown.structured.values() if isinstance(value, list)]
        return lines

    assert [set(row) for row in rows(root())] == [{"id", "product", "quantity"}]
    clerks = clerk("view_order", "view_orderline")
    assert [set(row) for row in rows(clerks)] == [{"id", "product"}]


def test_rows_without_a_name_are_named_by_their_model():
    class ProductAdmin(admin.ModelAdmin):
        """With lines, whose reference has no way back."""

        list_display = ["slug"]
        fields = ["name"]
        inlines = [LineInline]

    sold = line(order("N1")).product
    mcp = MCPClient(server=server_of(Product, ProductAdmin), user=root())
    shown = mcp.call_tool("get_product", {"slug": sold.slug}).structured
    assert [set(row) for row in shown["order_lines"]] == [{"id", "quantity"}]


def test_many_rows_of_an_inline_are_cut():
    bought = order("N1")
    for _ in range(101):
        line(bought)
    mcp = MCPClient(server=server_of(Order, InlineAdmin), user=root())
    shown = mcp.call_tool("get_order", {"number": "N1"}).structured
    (name,) = [name for name in shown if name.endswith("_cut")]
    assert shown[name] is True
    assert len(shown[name.removesuffix("_cut")]) == 100


def test_rows_that_refer_by_no_foreign_key_are_left_out():
    class RemarkInline(GenericTabularInline):
        """Refers by a content type."""

        model = Remark

    class NotedAdmin(InlineAdmin):
        """With both."""

        inlines = [LineInline, RemarkInline]

    source = declaration(server_of(Order, NotedAdmin), Order)
    assert "inlines contains RemarkInline, which refers to its object by no foreign key" in (
        source.left_out
    )


def test_the_rows_of_an_inline_are_found_by_their_reference():
    class VoucherInline(admin.TabularInline):
        """Refers by a word."""

        model = Voucher
        fields = ["worth"]

    class TagAdmin(admin.ModelAdmin):
        """With vouchers."""

        list_display = ["word"]
        fields = ["word"]
        inlines = [VoucherInline]

    red = Tag.objects.create(word="red")
    other = Tag.objects.create(word=str(red.pk))
    Voucher.objects.create(tag=red, worth=1)
    Voucher.objects.create(tag=other, worth=99)
    mcp = MCPClient(server=server_of(Tag, TagAdmin), user=root())
    shown = mcp.call_tool("get_tag", {"word": "red"}).structured
    assert [row["worth"] for row in shown["vouchers"]] == [1]


def test_an_inline_whose_formset_chooses_rows_is_left_out():
    class Hiding(forms.BaseInlineFormSet):
        """Hides some."""

        def get_queryset(self) -> Any:
            """Hide them."""
            return super().get_queryset().exclude(secret="x")

    class HidingInline(LineInline):
        """With this."""

        formset = Hiding

    class HidingAdmin(InlineAdmin):
        """With these."""

        inlines = [HidingInline]

    line(order("N1"), secret="x")
    made = server_of(Order, HidingAdmin)
    shown = MCPClient(server=made, user=root()).call_tool("get_order", {"number": "N1"})
    assert set(shown.structured) == {"number", "note"}
    assert "inlines contains HidingInline, whose formset chooses its rows" in (
        declaration(made, Order).left_out
    )


def test_a_tree_shows_its_children_through_an_inline():
    class ChildInline(admin.TabularInline):
        """The model itself."""

        model = Category

    class TreeAdmin(admin.ModelAdmin):
        """A tree."""

        inlines = [ChildInline]

    toys = category("toys")
    category("balls", parent=toys)
    mcp = MCPClient(server=server_of(Category, TreeAdmin), user=root())
    shown = mcp.call_tool("get_category", {"code": "toys"}).structured
    assert [row["code"] for row in shown["children"]] == ["balls"]
