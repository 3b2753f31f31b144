"""Objects in pages of `resources/list`: each once, in the order of their URIs."""

import base64

import pytest

from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import customer, order, product
from tests.integrations.models.offering import listed, offer, resource
from tests.integrations.models.test_resources_list import paged
from tests.kit.servers import person
from tests.sites.shop.models import Category, Customer, Order, Passport, Product
from tests.spec import spec

pytestmark = pytest.mark.django_db


@spec("PAG-1", "PAG-2")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pages_are_in_the_order_of_the_uri_and_end(size):
    numbers = [f"{letter}{number}" for letter in "cab" for number in range(2)]
    for number in numbers:
        order(number)
    client = paged(size)
    pages = listed(client)
    assert [name for page in pages for name in page] == sorted(numbers)
    assert all(len(page) == size for page in pages[:-1])


def test_several_variables_order_one_after_the_other():
    made = [(email, number) for email in ("b@x", "a@x") for number in ("2", "1", "3")]
    for email, number in made:
        buyer, _ = Customer.objects.get_or_create(email=email, defaults={"name": email})
        order(f"{email}{number}", customer=buyer)
    client = paged(
        2, uri="shop://o/{customer__email}/{number}", fields=["customer__email", "number"]
    )
    names = [name for page in listed(client) for name in page]
    assert names == sorted(f"{email} {email}{number}" for email, number in made)


@pytest.mark.parametrize(
    ("model", "uri", "fields"),
    [
        (Order, "shop://o/{id}", ["id"]),
        (Product, "shop://p/{uuid}", ["uuid"]),
        (Category, "shop://c/{code}", ["code"]),
        (Passport, "shop://passports/{customer}", ["customer"]),
    ],
)
def test_every_kind_of_variable_can_be_paged(model, uri, fields):
    for number in range(12):
        buyer = customer()
        Passport.objects.create(customer=buyer, country="NL", number="1")
        order(customer=buyer)
        Category.objects.create(code=f"c{number}", title="C")
        product()
    client = paged(5, model, uri=uri, fields=fields)
    uris = [link["uri"] for link in client.list_resources()]
    assert len(uris) == len(set(uris)) == model.objects.count()
    assert all(client.read_resource(uri) for uri in uris[::5])


@spec("PAG-3")
def test_what_comes_and_goes_between_two_pages_skips_and_repeats_nothing():
    for number in ("b", "d", "f", "h"):
        order(number)
    client = paged(2)
    first = client.request("resources/list")
    Order.objects.filter(number__in=["b", "d"]).delete()
    order("a")
    order("e")
    second = client.request("resources/list", {"cursor": first["nextCursor"]})
    assert [link["name"] for link in second["resources"]] == ["e", "f"]


@spec("PAG-4")
def test_a_cursor_is_for_one_caller():
    for number in "abc":
        order(number)
    server = offer()
    server._page_size = 1
    ada, bob = (MCPClient(server=server, user=person(name)) for name in ("ada", "bob"))
    cursor = ada.request("resources/list")["nextCursor"]
    with pytest.raises(ErrorResponse) as caught:
        bob.request("resources/list", {"cursor": cursor})
    assert caught.value.code == INVALID_PARAMS


def test_a_cursor_from_before_the_uri_changed_is_refused():
    for number in "abc":
        order(number)
    server = offer()
    server._page_size = 1
    client = MCPClient(server=server)
    cursor = client.request("resources/list")["nextCursor"]
    server.unregister(Order)
    server.register(Order, resource(uri="shop://orders/{id}", fields=["id"]))
    with pytest.raises(ErrorResponse) as caught:
        client.request("resources/list", {"cursor": cursor})
    assert caught.value.code == INVALID_PARAMS


def test_a_cursor_tells_nothing_but_what_the_page_showed():
    for number in ("a", "b"):
        order(number, internal_note="hush", margin=424242, pk=98765 + ord(number))
    cursor = paged(1).request("resources/list")["nextCursor"]
    text = base64.urlsafe_b64decode(cursor.split(":")[0]).decode()
    assert text.endswith(',["shop://orders/{number}",["a"]]]')


@spec("PAG-5", "CCH-3")
def test_every_page_is_private():
    order("a")
    order("b")
    client = paged(1)
    first = client.request("resources/list")
    second = client.request("resources/list", {"cursor": first["nextCursor"]})
    assert [page["cacheScope"] for page in (first, second)] == ["private", "private"]
    assert [page["ttlMs"] for page in (first, second)] == [0, 0]


def test_models_are_listed_behind_what_is_fixed_and_each_other():
    order("A-1")
    product(slug="ball")
    server = offer()
    server.register(Product, resource(uri="shop://a-products/{slug}", fields=["slug"]))
    server.resource("shop://fixed")(lambda: "")
    uris = [link["uri"] for link in MCPClient(server=server).list_resources()]
    assert uris == ["shop://fixed", "shop://a-products/ball", "shop://orders/A-1"]
