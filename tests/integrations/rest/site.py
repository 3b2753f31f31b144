"""The example site as a server, and what is in its shop."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from django.contrib.auth import get_user_model

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.integrations.rest import views, viewsets
from tests.sites.shop.models import Category, Customer, Ledger, Order, OrderLine, Product, Tag

ALL_ORDER_ACTIONS = [
    "list",
    "retrieve",
    "create",
    "partial_update",
    "destroy",
    "pay",
    "ship",
    "recent",
    "label",
    "notes",
    "clear_notes",
]


def rest_server() -> MCPServer:
    """Return a server with every view of the site."""
    server = MCPServer("rest", permission=AllowAny)
    server.register_viewset(viewsets.OrderViewSet, basename="order", actions=ALL_ORDER_ACTIONS)
    server.register_viewset(viewsets.CategoryViewSet)
    server.register_viewset(
        viewsets.ProductViewSet, basename="ware", actions=["create", "update", "retrieve"]
    )
    server.register_viewset(
        viewsets.MoodViewSet,
        basename="mood",
        actions=["list", "retrieve", "create"],
        serializers={"create": views.FeedbackSerializer},
    )
    server.register_viewset(viewsets.LineViewSet, basename="order-line")
    server.register_api_view(views.greet)
    server.register_api_view(views.ping, methods=["post"])
    server.register_api_view(views.AddView, methods=["get", "post"])
    server.register_api_view(views.ProductListView, name="products", methods=["get", "post"])
    server.register_api_view(views.ProductView, name="get_product")
    server.register_api_view(views.TagView, methods=["get", "put", "patch", "delete"])
    server.register_api_view(views.CustomerCreateView, methods=["post"], name="create_customer")
    server.register_api_view(views.CustomerOrdersView, url_kwargs={"customer_pk": int})
    server.register_api_view(views.LedgerView, name="ledger")
    server.register_api_view(views.RareView)
    server.register_api_view(views.FriendView)
    server.register_api_view(views.FeedbackView, methods=["post"])
    server.register_api_view(views.MultipartView, methods=["post"])
    server.register_api_view(views.CSVView, name="csv")
    server.register_api_view(views.PictureView)
    server.register_api_view(views.PathVersionView, version="v2")
    server.register_api_view(views.HeaderVersionView, version="1.5")
    server.register_api_view(views.QueryVersionView, version="3")
    server.register_api_view(views.OddErrorsView)
    server.register_api_view(views.OutcomeView)
    server.register_api_view(views.SurroundingsView)
    return server


def fill() -> None:
    """Create the rows of the shop."""
    users = get_user_model().objects
    ada, friend = users.create_user("ada"), users.create_user("friend")
    mine = Customer.objects.create(name="Ada", email="ada@shop.test", user=ada)
    theirs = Customer.objects.create(name="Bob", email="bob@shop.test", user=friend)
    when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    first = Order.objects.create(number="A-1", customer=mine, placed_at=when, total=Decimal("9.50"))
    Order.objects.create(number="A-2", customer=mine, placed_at=when)
    Order.objects.create(number="B-1", customer=theirs, placed_at=when)
    root = Category.objects.create(code="food", title="Food")
    Category.objects.create(code="fruit", title="Fruit", parent=root)
    Category.objects.create(code="misc", title="Misc")
    sweet = Tag.objects.create(word="sweet")
    Tag.objects.create(word="sour")
    for name, price, size in (("apple", 3, "s"), ("banana", 2, "l"), ("cherry", 5, "s")):
        product = Product.objects.create(
            slug=name, name=name.title(), category=root, price=price, size=size
        )
        product.tags.add(sweet)
    OrderLine.objects.create(order=first, product=product, quantity=2)
    for index in range(5):
        Ledger.objects.create(iban=f"DE{index}", owner=f"Owner {index}")
