"""Arguments and callers that try to reach what a REST view does not give them."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import include, path, set_urlconf
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.integrations.rest.odd import AddressView
from tests.sites.shop.models import Customer, Order, OrderLine, Product


class LineSerializer(serializers.ModelSerializer):
    class Meta:
        model = OrderLine
        fields = ["id", "product", "quantity"]
        read_only_fields = ["id"]


class NestedSerializer(serializers.ModelSerializer):
    """Writes what is nested, and has what only the house may write."""

    lines = LineSerializer(many=True, required=False)

    class Meta:
        model = Order
        fields = ["number", "status", "note", "total", "lines"]
        read_only_fields = ["total"]

    def update(self, instance: Any, validated_data: Any) -> Any:
        lines = validated_data.pop("lines", None)
        for line in lines or ():
            OrderLine.objects.create(order=instance, **line)
        return super().update(instance, validated_data)


class OwnOrders(viewsets.ModelViewSet):
    """Everybody has his own; the key is any text."""

    serializer_class = NestedSerializer
    lookup_field = "number"
    lookup_value_regex = ".+"

    def get_queryset(self) -> Any:
        return Order.objects.filter(customer__user=self.request.user).order_by("number")

    @action(detail=True, methods=["post"])
    def pay(self, request: Any, number: str) -> Response:
        """Pay it."""
        Order.objects.filter(number=number).update(status="paid")
        return Response({"paid": number})


class Everybody(SimpleRateThrottle):
    """Counts each caller separately."""

    scope = "x"
    rate = "1/day"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return f"{request.user.pk}-{self.get_ident(request)}"


class CountedView(APIView):
    throttle_classes = [Everybody]

    def get(self, request: Any) -> Response:
        return Response({"user": request.user.username})


router = SimpleRouter()
router.register("own", OwnOrders, basename="own")
urlpatterns = [
    path("", include(router.urls)),
    path("counted/", CountedView.as_view(), name="counted"),
]

EVERY = ["list", "retrieve", "create", "update", "partial_update", "destroy"]


@pytest.fixture(autouse=True)
def addresses(site, settings):
    settings.ROOT_URLCONF = "tests.integrations.rest.test_inputs_hostile"


@pytest.fixture
def server():
    made = MCPServer("hostile", permission=AllowAny)
    made.register_viewset(OwnOrders, basename="own", actions=EVERY, name="order")
    return made


@pytest.mark.parametrize("number", ["B-1", "A-1/pay", "../own/B-1", "A-1?x=1", "A-1/#", "", "\0"])
def test_no_key_reaches_another_row_or_another_address(server, client_of, number):
    ada = client_of("ada", server)
    for tool in ("get_order", "update_order", "delete_order"):
        assert ada.call_tool(tool, {"number": number}, check=False).is_error
    assert not Order.objects.filter(status="paid").exists()
    assert Order.objects.count() == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"total": "0"}, 'unknown argument "total"'),
        ({"customer": 1}, 'unknown argument "customer"'),
        ({"lines": [{"product": 1, "quantity": 1, "id": 7}]}, 'lines[0]: unknown member "id"'),
        ({"lines": [{"product": 1, "order": 2}]}, 'lines[0]: unknown member "order"'),
    ],
)
def test_what_the_serializer_does_not_take_is_refused_by_name(
    server, client_of, arguments, message
):
    refused = client_of("ada", server).call_tool(
        "update_order", {"number": "A-2", **arguments}, check=False
    )
    assert refused.is_error
    assert message in refused.text


def test_a_nested_write_is_the_serializers_own(server, client_of):
    product = Product.objects.earliest("pk")
    sent = {"number": "A-2", "note": "soon", "lines": [{"product": product.pk, "quantity": 2}]}
    changed = client_of("ada", server).call_tool("update_order", sent)
    assert not changed.is_error, changed.text
    order = Order.objects.get(number="A-2")
    assert (order.note, order.lines.get().quantity) == ("soon", 2)
    # update and partial_update are one tool, which changes the fields that it gets.
    assert (
        not client_of("ada", server)
        .call_tool("update_order", {"number": "A-2", "status": "paid"})
        .is_error
    )
    order.refresh_from_db()
    assert (order.note, order.status) == ("soon", "paid")


def test_each_caller_has_his_own_rows_and_his_own_throttle(server, client_of):
    server.register_api_view(CountedView)
    for username, numbers in (("ada", ["A-1", "A-2"]), ("friend", ["B-1"])):
        client = client_of(username, server)
        orders = client.call_tool("list_orders").structured
        assert [order["number"] for order in orders] == numbers
        assert client.call_tool("counted").structured == {"user": username}
        assert client.call_tool("counted", check=False).is_error
    assert Customer.objects.count() == 2


def other_host(get_response: Any) -> Any:
    """Set another URLconf for the host."""

    def middleware(request: Any) -> Any:
        request.urlconf = "tests.integrations.rest.odd"
        return get_response(request)

    return middleware


def test_a_host_with_urls_of_its_own_is_called_at_those(client_of, settings):
    server = MCPServer("hosts", permission=AllowAny)
    server.register_api_view(AddressView, name="address")
    server.register_viewset(OwnOrders, basename="own", name="order")
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        "tests.integrations.rest.test_inputs_hostile.other_host",
    ]
    set_urlconf("tests.integrations.rest.odd")
    try:
        there = client_of("ada", server).call_tool("address", {"word": "x"}).structured
    finally:
        set_urlconf(None)
    assert there["path"] == "/address/x/"
    assert client_of("ada", server).call_tool("get_order", {"number": "A-1"}).structured
