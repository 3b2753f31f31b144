"""Classes of a model: names, options, mistakes, and unregistering them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import override

from mcp_django import MCPServer, ModelResource, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from mcp_django.schema.lint import lint
from tests.integrations.models.building import order, reader, serve, tools
from tests.sites.shop.models import Category, Customer, OpenOrder, Order, OrderLine, Product, Tag


def server() -> MCPServer:
    return MCPServer("shop", permission=AllowAny)


# Registering ----------------------------------------------------------------------------------


def test_the_decorator_gives_the_class_back():
    made = server()

    @made.register(Order)
    class Orders(ModelTools[Order]):
        fields = ["number"]

    assert isinstance(Orders, type)
    assert sorted(made.tools) == ["get_order", "list_orders"]
    assert made.declarations_of(Order)[0].__class__ is Orders


def test_a_class_is_registered_without_the_decorator_for_several_models():
    class Named(ModelTools[Any]):
        """Has a name."""

        fields = ["id"]

    made = server()
    assert made.register(Order, Named) is Named
    made.register(Customer, Named)
    assert sorted(made.tools) == ["get_customer", "get_order", "list_customers", "list_orders"]
    assert made.tools["list_orders"].description == "List orders. Has a name."


@pytest.mark.parametrize("target", [Order, "Orders"])
def test_unregistering_takes_everything_away(target):
    made = server()

    @made.register(Order)
    class Orders(ModelTools[Order]):
        fields = ["number"]

    made.unregister(Orders if target == "Orders" else target)
    assert list(made.registry) == []
    assert made.declarations_of(Order) == []
    with pytest.raises(NotRegistered):
        made.unregister(Order)
    made.register(Order, Orders)


def test_a_second_class_with_the_same_names_leaves_nothing_behind():
    made = serve(Order, fields=["number"], tools=["list"])
    before = list(made.registry)
    with pytest.raises(AlreadyRegistered, match="The tool 'list_orders' is already registered"):
        made.register(Order, tools(fields=["number"], tools=["get", "list"]))
    assert list(made.registry) == before
    assert len(made.declarations_of(Order)) == 1
    made.register(Order, tools(fields=["number"], name="parcel", plural="parcels"))
    assert sorted(made.tools) == ["list_orders", "list_parcels"]


@pytest.mark.django_db
def test_a_proxy_and_its_model_are_one():
    made = serve(OpenOrder, fields=["number"])
    assert len(made.declarations_of(Order)) == 1
    order("A1")
    assert reader(made).call_tool("list_open_orders").structured["total"] == 1


@pytest.mark.parametrize("model", [None, "shop.Order", dict, ModelTools, Order(number="x")])
def test_only_a_model_can_be_registered(model):
    with pytest.raises(ImproperlyConfigured, match="takes a concrete model class"):
        server().register(model, tools(fields=["id"]))


@pytest.mark.parametrize("cls", [dict, Order, "ModelTools", tools])
def test_only_a_class_of_ours_can_be_registered(cls):
    with pytest.raises(ImproperlyConfigured, match="takes a subclass of ModelTools"):
        server().register(Order, cls)


# Names and words ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (Order, {}, ["list_orders", "get_order", "count_orders"]),
        (OrderLine, {}, ["list_order_lines", "get_order_line", "count_order_lines"]),
        (Category, {}, ["list_categories", "get_category", "count_categories"]),
        (Order, {"name": "sale"}, ["list_orders", "get_sale", "count_orders"]),
        (Order, {"plural": "sales"}, ["list_sales", "get_order", "count_sales"]),
    ],
)
def test_tools_are_named_after_the_model(model, options, expected):
    key = model._meta.pk.name
    made = serve(model, fields=[key], tools=["list", "get", "count"], **options)
    assert list(made.tools) == expected


def test_a_plural_without_latin_letters_is_made_of_the_name(monkeypatch):
    monkeypatch.setattr(Order._meta, "verbose_name_plural", "заказы")
    assert list(serve(Order, fields=["id"]).tools) == ["list_orders"]


def test_names_do_not_depend_on_the_language_of_whoever_starts_the_site():
    with override("de"):
        assert list(serve(Group, fields=["id"]).tools) == ["list_groups"]


COUNT_ORDERS = "Count orders, optionally in groups; compute sums, averages, minimum and maximum."


def test_a_description_says_what_the_class_says():
    class Orders(ModelTools[Order]):
        """What was bought in the shop."""

        fields = ["number", "status"]
        tools = ["list", "get", "count"]
        search_fields = ["number"]
        filter_fields = ["status"]

    made = server()
    made.register(Order, Orders)
    assert [tool.description for tool in made.registry] == [
        "List orders. Search and filter by the arguments. What was bought in the shop.",
        "Get one order by its number. What was bought in the shop.",
        f"{COUNT_ORDERS} {Orders.__doc__}",
    ]


@pytest.mark.django_db
def test_every_schema_is_one_that_every_host_takes():
    fields = [field.name for field in Product._meta.get_fields() if field.name != "orderline"]
    plain = [
        *("id", "uuid", "slug", "name", "category", "price", "weight", "stock", "rating", "size"),
        *("is_active", "released", "sold_from", "lead_time", "address", "tags", "category__title"),
    ]
    made = serve(
        Product,
        fields=[*fields, "category__title", "tags__word"],
        filter_fields=[*plain, "tags__word"],
        ordering_fields=["price", "released"],
        search_fields=["name", "tags__word"],
        tools=["list", "get", "count"],
    )
    for tool in reader(made).list_tools():
        assert lint(tool["inputSchema"]) == []
        assert lint(tool["outputSchema"]) == []


# Mistakes -------------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "fields is missing; name the fields that callers may see, out of: id, number, status"),
    ({"fields": []}, "fields is missing"),
    ({"fields": "__all__"}, "'__all__' would expose fields added to the model later"),
    ({"fields": ["__all__"]}, "'__all__' would expose fields added to the model later"),
    ({"fields": "number"}, "write fields = ['number']"),
    ({"fields": ["numbr"]}, "Order has no field 'numbr'; did you mean 'number'?"),
    ({"fields": ["customer__nmae"]}, "Customer has no field 'nmae'; did you mean 'name'?"),
    ({"fields": ["number", "number"]}, "fields contains number more than once"),
    ({"fields": ["pk"]}, "write the name of the primary key of Order: 'id'"),
    ({"fields": ["number__upper"]}, "'number' of Order is not a relation"),
    ({"fields": ["customer_id__name"]}, "'customer_id' of Order is not a relation"),
    ({"fields": ["status", "__class__"]}, "has no field ''"),
    ({"fields": ["get_status_display"]}, "has no field 'get_status_display'"),
    ({"fields": ["customer__" + "referrer__" * 6 + "name"]}, "follows more than 5 relations"),
    ({"fields": [Order]}, "each item must be a name"),
    ({"tools": ["lst"]}, "did you mean 'list'?"),
    ({"tools": "list"}, "write tools = ['list']"),
    (
        {"tools": ["drop"]},
        "tools has 'drop'; valid names: list, get, count, create, update, delete",
    ),
    ({"page_size": 0}, "write a number from 1 to 1000"),
    ({"page_size": 5000}, "write a number from 1 to 1000"),
    ({"page_size": True}, "write a number from 1 to 1000"),
    ({"name": "My Order"}, "write lowercase letters, digits and _"),
    ({"plural": "Orders!"}, "write lowercase letters, digits and _"),
    (
        {"serach_fields": ["number"]},
        "no option named 'serach_fields'; did you mean 'search_fields'?",
    ),
    ({"filters_fields": ["number"]}, "did you mean 'filter_fields'?"),
    ({"aliases": ["get_bill"]}, "the names of generated tools cannot have aliases"),
    ({"scopes": "orders"}, "write scopes = ['orders']"),
]


@pytest.mark.parametrize(("options", "words"), MISTAKES)
def test_a_mistake_is_told_with_the_way_out(options, words):
    if options and "fields" not in options:
        options = {"fields": ["number"], **options}
    with pytest.raises(ImproperlyConfigured) as caught:
        serve(Order, **options)
    assert words in str(caught.value)
    assert "ShopMCP of shop.Order" in str(caught.value)


def test_what_the_author_adds_for_himself_is_no_mistake():
    made = serve(Order, fields=["number"], currency="EUR", helper=lambda self: None)
    assert list(made.tools) == ["list_orders"]


@pytest.mark.parametrize(
    ("base", "options", "words"),
    [
        (ModelResource, {"tools": ["list"]}, "tools is an option of ModelTools: add ModelTools"),
        (ModelResource, {"search_fields": ["word"]}, "search_fields is an option of ModelTools"),
        (ModelResource, {"write_fields": ["word"]}, "write_fields is an option of ModelTools"),
        (ModelTools, {"uri": "shop://tags/{word}"}, "uri is an option of ModelResource: add"),
        (ModelTools, {"prompts": {"a": "{object}"}}, "prompts is an option of ModelResource"),
    ],
)
def test_an_option_of_a_class_that_is_no_base_is_refused(base, options, words):
    own = {"uri": "shop://tags/{word}"} if base is ModelResource else {}
    with pytest.raises(ImproperlyConfigured) as caught:
        server().register(Tag, type("Tags", (base,), {"fields": ["word"], **own, **options}))
    assert f"Tags of shop.Tag: {words}" in str(caught.value)


def test_two_classes_of_one_name_are_told_apart():
    made = serve(Order, fields=["number"])
    other = type("Parcels", (ModelTools,), {"fields": ["number"], "permission": AllowAny})
    with pytest.raises(AlreadyRegistered) as caught:
        made.register(Order, other)
    assert str(caught.value) == (
        "The tool 'list_orders' is already registered, from ShopMCP of shop.Order, and Parcels of "
        "shop.Order declares another one. Rename one of them (in a ModelTools class, set name and "
        "plural), or unregister the first."
    )


def test_a_class_can_offer_resources_and_tools():
    made = server()

    @made.register(Tag)
    class Tags(ModelResource[Tag], ModelTools[Tag]):
        uri = "shop://tags/{word}"
        fields = ["word"]

    assert list(made.tools) == ["list_tags", "get_tag"]
    assert list(made.templates) == ["shop://tags/{word}"]
    assert made.tools["get_tag"].arguments.json_schema["required"] == ["word"]
    made.unregister(Tags)
    assert list(made.registry) == []
    assert made.registry.completions == {}
