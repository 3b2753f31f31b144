"""Filters and orderings of the rarer kinds, and nested values in a form."""

from __future__ import annotations

from typing import Any

import django_filters
import pytest
from rest_framework import generics
from rest_framework.filters import BaseFilterBackend, OrderingFilter
from rest_framework.parsers import FormParser
from rest_framework.response import Response

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.integrations.rest.conftest import give_address
from tests.integrations.rest.serializers import OrderSerializer, ProductSerializer
from tests.sites.shop.models import Customer, Product, Tag


class RareFilter(django_filters.FilterSet):
    name = django_filters.LookupChoiceFilter(lookup_choices=["exact", "contains"])
    stock = django_filters.RangeFilter()
    released = django_filters.DateFromToRangeFilter()
    kind = django_filters.ChoiceFilter(field_name="size", choices=lambda: [("s", "Small")])
    tag = django_filters.ModelChoiceFilter(
        field_name="tags", queryset=lambda request: Tag.objects.exclude(word=request.user.username)
    )
    order = django_filters.OrderingFilter(fields=["name", "price"])

    class Meta:
        model = Product
        fields: list[str] = []


class OnlyCheap(BaseFilterBackend):
    """A filter backend that describes its parameters."""

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [{"name": "below", "in": "query", "required": True, "schema": {"type": "integer"}}]

    def filter_queryset(self, request: Any, queryset: Any, view: Any) -> Any:
        return queryset.filter(price__lt=request.query_params["below"])


class ProductsView(generics.ListAPIView):
    queryset = Product.objects.order_by("pk")
    serializer_class = ProductSerializer
    filter_backends = [django_filters.rest_framework.DjangoFilterBackend]
    filterset_class = RareFilter


def with_backends(*backends: Any, **members: Any) -> Any:
    return type("ProductsView", (ProductsView,), {"filter_backends": [*backends], **members})


def tool_of(view: Any, **options: Any) -> MCPServer:
    server = MCPServer("filters", permission=AllowAny)
    server.register_api_view(view, name="tool", **options)
    return server


def test_rare_filters_are_arguments_of_their_parts():
    schema = tool_of(ProductsView).tools["tool"].arguments.json_schema["properties"]
    assert list(schema) == [
        "name",
        "name_lookup",
        "stock_min",
        "stock_max",
        "released_after",
        "released_before",
        "kind",
        "tag",
        "order",
    ]
    assert schema["released_after"]["format"] == "date"
    assert "enum" not in schema["kind"]
    assert schema["tag"]["type"] == "string"
    assert schema["order"]["items"]["enum"] == ["name", "-name", "price", "-price"]


@pytest.mark.parametrize(
    ("arguments", "slugs"),
    [
        ({"name": "an", "name_lookup": "contains"}, ["banana"]),
        ({"stock_min": 1}, []),
        ({"stock_max": 1, "kind": "s"}, ["apple", "cherry"]),
        ({"order": ["-price"]}, ["cherry", "apple", "banana"]),
        ({"released_after": "2026-01-01"}, []),
    ],
)
def test_rare_filters_filter(client_of, settings, arguments, slugs):
    give_address(settings, ProductsView)
    result = client_of("", tool_of(ProductsView)).call_tool("tool", arguments)
    assert [product["slug"] for product in result.structured] == slugs


def test_a_backend_of_the_sites_own_says_what_it_reads(client_of, settings):
    view = with_backends(OnlyCheap)
    give_address(settings, view)
    client = client_of("", tool_of(view))
    assert client.call_tool("tool", check=False).text == "below: is required"
    products = client.call_tool("tool", {"below": 3}).structured
    assert [product["slug"] for product in products] == ["banana"]


@pytest.mark.parametrize(
    ("members", "some", "missing"),
    [
        ({"ordering_fields": "__all__"}, "-margin", "shout"),
        ({"ordering_fields": [("price", "The price")]}, "price", "name"),
        ({}, "slug", "margin"),
    ],
)
def test_the_fields_to_sort_by_are_those_of_the_view(members, some, missing):
    view = with_backends(OrderingFilter, **members)
    schema = tool_of(view).tools["tool"].arguments.json_schema["properties"]["ordering"]
    assert some in schema["items"]["enum"]
    assert missing not in schema["items"]["enum"]


class OrderFormView(generics.CreateAPIView):
    serializer_class = OrderSerializer
    parser_classes = [FormParser]

    def create(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        lines = serializer.validated_data["lines"]
        return Response([[line["product"].slug, line["quantity"]] for line in lines])


def test_nested_values_go_through_a_form(client_of, settings):
    give_address(settings, OrderFormView)
    apple, cherry = Product.objects.get(slug="apple"), Product.objects.get(slug="cherry")
    lines = [{"product": apple.pk, "quantity": 2}, {"product": cherry.pk, "quantity": 3}]
    ada = Customer.objects.get(name="Ada").pk
    when = "2026-01-01T00:00Z"
    arguments = {"number": "F-1", "customer": ada, "placed_at": when, "lines": lines}
    client = client_of("", tool_of(OrderFormView, methods=["post"]))
    result = client.call_tool("tool", arguments)
    assert result.structured == [["apple", 2], ["cherry", 3]], result.text
