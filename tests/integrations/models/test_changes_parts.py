"""Changes of the parts that are shown with an object, and changes that send no signals."""

import pytest
from django.db import transaction
from django.db.models import F

from mcp_django.exceptions import NotRegistered
from tests.integrations.models.building import customer, line, order, product
from tests.integrations.models.offering import offer
from tests.sites.shop.models import Customer, Order, OrderLine, Passport, Product, Tag

LIST = "resources"

db = pytest.mark.django_db


@db
def test_a_part_of_an_object_changes_the_object(published, commit, subscribed):
    subscribed(fields=["number", "lines__quantity"])
    made = order("A-1")
    with commit():
        part = line(made)
    with commit():
        part.delete()
    assert published == [["shop://orders/A-1"]] * 2
    published.clear()
    line(made)
    with commit():
        made.delete()
    assert {uri for uris in published for uri in uris} == {"shop://orders/A-1", LIST}


@db
def test_parts_that_are_not_shown_change_nothing(published, commit, subscribed):
    subscribed()
    made = order("A-1")
    with commit():
        line(made)
    assert published == []


@db
def test_parts_are_looked_up_after_the_commit_and_together(
    commit, published, subscribed, django_assert_num_queries
):
    subscribed(fields=["number", "lines__quantity"])
    made, ball = order("A-1"), product()
    with commit(), transaction.atomic(), django_assert_num_queries(3):
        for _ in range(3):
            OrderLine.objects.create(order_id=made.pk, product=ball)
    assert published == [["shop://orders/A-1"]]


@db
def test_a_single_part_changes_the_object(published, commit, subscribed):
    subscribed(Customer, uri="shop://c/{email}", fields=["email", "passport__country"])
    ada = customer(email="ada@x")
    with commit():
        Passport.objects.create(customer=ada, country="NL", number="1")
    assert published == [["shop://c/ada%40x"]]


@db
def test_links_from_either_side_change_the_object(published, commit, subscribed):
    subscribed(Product, uri="shop://p/{slug}", fields=["slug", "tags__word"])
    ball, bat = product(slug="ball"), product(slug="bat")
    red, new = Tag.objects.create(word="red"), Tag.objects.create(word="new")
    for change in (
        lambda: ball.tags.add(red, new),
        lambda: ball.tags.remove(new),
        ball.tags.clear,
        lambda: ball.tags.set([new]),
    ):
        with commit():
            change()
        assert published == [["shop://p/ball"]]
        published.clear()
    for change in (
        lambda: red.products.add(ball, bat),
        red.products.clear,
        lambda: red.products.set([ball, bat]),
        lambda: red.products.remove(ball, bat),
    ):
        with commit():
            change()
        assert [sorted(uris) for uris in published] == [["shop://p/ball", "shop://p/bat"]]
        published.clear()
    with commit():
        red.products.clear()
        ball.tags.remove(red)
    assert published == [["shop://p/ball"]]


@db
def test_links_of_the_other_side_are_seen_from_there(published, commit, subscribed):
    subscribed(Tag, uri="shop://t/{word}", fields=["word", "products__slug"])
    red, ball = Tag.objects.create(word="red"), product(slug="ball")
    for change in (lambda: ball.tags.add(red), red.products.clear):
        with commit():
            change()
        assert published == [["shop://t/red"]]
        published.clear()


@db
def test_links_that_are_not_shown_change_nothing(published, commit, subscribed):
    subscribed(Product, uri="shop://p/{slug}", fields=["slug"])
    ball, red = product(slug="ball"), Tag.objects.create(word="red")
    with commit():
        ball.tags.add(red)
    assert published == []


@db
def test_bulk_updates_are_told_by_name(published, commit, subscribed, django_assert_num_queries):
    server = subscribed()
    made = [order(number) for number in ("A", "B", "C")]
    rows = Order.objects.filter(number__in=["A", "B"])
    with commit():
        rows.update(margin=F("margin") + 1)
    assert published == []
    with commit(), django_assert_num_queries(1):
        server.notify_changed(Order, rows)
    assert [sorted(uris) for uris in published] == [[LIST, "shop://orders/A", "shop://orders/B"]]
    published.clear()
    with commit(), django_assert_num_queries(0):
        server.notify_changed(Order, iter(made[1:]))
    assert published == [["shop://orders/B", "shop://orders/C", LIST]]


@db
def test_many_are_told_in_parts(published, commit, subscribed):
    server = subscribed()
    with commit():
        server.notify_changed(Order, [Order(number=f"{number}") for number in range(1200)])
    assert [len(uris) for uris in published] == [500, 500, 201]


@db
def test_a_class_that_does_not_listen_can_be_told_of(published, commit, subscribed):
    server = subscribed(subscribe=False)
    with commit():
        made = order("A-1")
    assert published == []
    with commit():
        server.notify_changed(Order, [made])
    assert published == [["shop://orders/A-1", LIST]]


def test_a_model_that_is_not_registered_cannot_be_told_of():
    with pytest.raises(NotRegistered, match="Product is not registered as resources"):
        offer().notify_changed(Product, [])
