"""Who sees the objects of a model, their list, their prompts and their completions."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.backends import ModelBackend

from mcp_django import Context
from mcp_django.auth.permissions import AllowAny, IsStaff
from mcp_django.exceptions import AuthenticationRequired, InsufficientScope
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import customer, holder, order
from tests.integrations.models.offering import URI, listed, offer
from tests.kit.servers import person, real_client
from tests.sites.shop.models import Order

pytestmark = pytest.mark.django_db

NOT_FOUND = "Resource not found; see resources/list and resources/templates/list."
PROMPTS = {"check": "Check {object}."}


class OddNumbers(ModelBackend):
    """A backend that lets authenticated users view the orders with an odd number."""

    def has_perm(self, user: Any, perm: str, obj: Any = None) -> bool:
        if isinstance(obj, Order) and perm == "shop.view_order":
            return bool(user.is_active and int(obj.number) % 2)
        return bool(super().has_perm(user, perm, obj))


@pytest.fixture
def _objects(settings):
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.OddNumbers"]


def guarded(*, user: Any = None, size: int | None = None, **options: Any) -> MCPClient:
    """Return a client of a server where Django's permissions decide."""
    server = offer(**{"permission": None, "prompts": PROMPTS, **options})
    server._page_size = size
    return real_client(server=server, user=user)


def is_missing(client: MCPClient, number: str) -> bool:
    uri = f"shop://orders/{number}"
    with pytest.raises(ErrorResponse) as caught:
        client.read_resource(uri)
    error = caught.value
    return (error.code, error.message, error.data) == (INVALID_PARAMS, NOT_FOUND, {"uri": uri})


def assert_sees_nothing(client: MCPClient) -> None:
    assert client.list_resource_templates() == []
    assert client.list_resources() == []
    assert client.list_prompts() == []
    assert is_missing(client, "1")
    for call in (
        lambda: client.complete(URI, "number", ""),
        lambda: client.get_prompt("check_order", {"number": "1"}),
    ):
        with pytest.raises(ErrorResponse) as caught:
            call()
        assert caught.value.code == INVALID_PARAMS


def test_viewing_needs_the_permission_of_the_model():
    order("1")
    assert_sees_nothing(guarded(user=person("bob")))
    assert_sees_nothing(guarded(user=holder("change_order", "view_customer", username="eve")))
    ada = guarded(user=holder("view_order"))
    assert ada.read_resource("shop://orders/1")
    assert len(ada.list_resources()) == len(ada.list_resource_templates()) == 1
    assert ada.complete(URI, "number", "") == ["1"]
    assert ada.get_prompt("check_order", {"number": "1"})


def test_nobody_is_asked_for_credentials():
    order("1")
    client = guarded()
    assert client.list_resources() == []
    with pytest.raises(AuthenticationRequired):
        client.read_resource("shop://orders/1")


def test_an_inactive_user_sees_nothing():
    order("1")
    user = holder("view_order")
    user.is_active = False
    assert_sees_nothing(guarded(user=user))


def test_the_permission_of_the_class_replaces_that_of_the_model():
    order("1")
    assert MCPClient(server=offer(permission=AllowAny)).read_resource("shop://orders/1")
    assert_sees_nothing(guarded(user=holder("view_order"), permission=IsStaff))
    staff = person("eve", is_staff=True)
    assert guarded(user=staff, permission=IsStaff).read_resource("shop://orders/1")


def test_the_class_may_decide_for_itself():
    def has_permission(self: Any, ctx: Context, action: str, obj: Any = None) -> bool:
        return bool(ctx.user.username == "ada")

    order("1")
    assert guarded(user=person("ada"), has_permission=has_permission).list_resources()
    assert_sees_nothing(guarded(user=person("bob"), has_permission=has_permission))


def test_a_class_that_lets_everybody_in_is_asked_about_each_object():
    def has_permission(self: Any, ctx: Context, action: str, obj: Any = None) -> bool:
        return obj is None or obj.customer.user_id == ctx.user.pk

    ada = person("ada")
    for number in "1234":
        order(number, customer=customer(user=ada if number in "13" else None))
    client = guarded(user=ada, size=1, has_permission=has_permission)
    assert listed(client) == [["1"], ["3"]]
    assert client.complete(URI, "number", "") == ["1", "3"]
    assert client.read_resource("shop://orders/3")
    assert is_missing(client, "2")
    with pytest.raises(ErrorResponse) as caught:
        client.get_prompt("check_order", {"number": "2"})
    assert caught.value.code == INVALID_PARAMS


def test_reading_and_listing_need_the_scopes():
    order("1")
    server = offer(scopes=["orders:read"])
    client = real_client(server=server, user=person(), scopes=["other"])
    with pytest.raises(InsufficientScope):
        client.read_resource("shop://orders/1")
    assert client.list_resources() == []
    assert real_client(server=server, user=person("bob"), scopes=["orders:read"]).list_resources()


@pytest.mark.usefixtures("_objects")
def test_a_backend_may_decide_about_each_object():
    for number in range(1, 8):
        order(f"{number}")
    client = guarded(user=person("bob"), size=2)
    assert listed(client) == [["1", "3"], ["5", "7"]]
    assert client.read_resource("shop://orders/3")
    assert is_missing(client, "2")
    assert is_missing(client, "9")
    assert client.complete(URI, "number", "") == ["1", "3", "5", "7"]
    assert client.get_prompt("check_order", {"number": "1"})
    words = []
    for number in ("2", "9"):
        with pytest.raises(ErrorResponse) as caught:
            client.get_prompt("check_order", {"number": number})
        words.append(caught.value.message.replace(repr(number), ""))
    assert words[0] == words[1]


@pytest.mark.usefixtures("_objects")
def test_a_cursor_does_not_name_an_object_that_is_hidden():
    for number in ("11", "12", "13"):
        order(number)
    client = guarded(user=person("bob"), size=1)
    cursor = client.request("resources/list")["nextCursor"]
    order("110")
    order("112")
    assert client.request("resources/list")["nextCursor"] == cursor


@pytest.mark.usefixtures("_objects")
def test_the_permission_of_the_model_is_enough():
    order("2")
    client = guarded(user=holder("view_order"))
    assert client.read_resource("shop://orders/2")
    assert listed(client) == [["2"]]


@pytest.mark.usefixtures("_objects")
def test_a_caller_without_credentials_has_no_objects():
    order("1")
    assert guarded().list_resources() == []


@pytest.mark.usefixtures("_objects")
def test_asking_about_each_object_ends(monkeypatch, caplog):
    monkeypatch.setattr("mcp_django.integrations.models.row_access.MAX_CHECKED_OBJECTS", 3)
    for number in ("1", "2", "4", "5"):
        order(number)
    assert listed(guarded(user=person("bob"), size=5)) == [["1"]]
    assert "limit get_queryset()" in caplog.text
