"""Saved and deleted objects notify their subscribers."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Concat
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.storage.versions import TopicKey
from mcp_django.tenants import ThreadContext
from tests.integrations.models.building import customer, order, product
from tests.integrations.models.offering import URI, offer, resource
from tests.sites.shop.models import Order, Product

LIST = "resources"

db = pytest.mark.django_db


@db
@pytest.mark.usefixtures("subscribed")
def test_what_is_made_saved_and_deleted_is_told(published, commit, subscribed):
    subscribed()
    with commit():
        made = order("A 1")
    assert published == [["shop://orders/A%201", LIST]]
    published.clear()
    with commit():
        made.save()
    assert published == [["shop://orders/A%201"]]
    published.clear()
    with commit():
        made.delete()
    assert published == [["shop://orders/A%201", LIST]]


@db
def test_what_is_rolled_back_is_not_told(published, commit, subscribed):
    subscribed()
    with commit():
        with transaction.atomic():
            order("A-1")
            transaction.set_rollback(True)
        order("B-1")
    assert published == [["shop://orders/B-1", LIST]]


@db
def test_a_savepoint_that_is_rolled_back_takes_nothing_else_along(published, commit, subscribed):
    subscribed()
    with commit(), transaction.atomic():
        order("A-1")
        with transaction.atomic():
            order("B-1")
            transaction.set_rollback(True)
        order("C-1")
    assert sorted(uri for uris in published for uri in uris if uri != LIST) == [
        "shop://orders/A-1",
        "shop://orders/C-1",
    ]


@db
def test_a_loop_in_a_transaction_is_one_announcement(published, commit, subscribed):
    subscribed()
    with commit(), transaction.atomic():
        buyer = customer()
        for number in range(20):
            order(f"{number}", customer=buyer)
    assert [len(uris) for uris in published] == [21]


@db
def test_nothing_is_told_of_columns_that_nobody_sees(published, commit, subscribed):
    subscribed(fields=["number", "customer"])
    made = order("A-1")
    with commit():
        made.save(update_fields=["internal_note"])
        made.save(update_fields=[])
    assert published == []
    with commit():
        made.save(update_fields=["customer_id"])
        made.save(update_fields=["internal_note", "number"])
    assert published == [["shop://orders/A-1"]] * 2


@db
def test_a_value_that_is_no_text_yet_is_told_as_the_column_has_it(published, commit, subscribed):
    subscribed(uri="shop://o/{id}", fields=["id"])
    with commit():
        order("A-1", pk="0042")
    assert published == [["shop://o/42", LIST]]


@db
def test_an_object_without_a_uri_changes_the_list_alone(published, commit, subscribed):
    subscribed()
    with commit():
        made = order("..")
    assert published == [[LIST]]
    with commit() as callbacks:
        made.save()
    assert callbacks == []


@db
def test_a_class_without_a_list_tells_of_the_object_alone(published, commit, subscribed):
    subscribed(list=False)
    with commit():
        order("A-1").delete()
    assert published == [["shop://orders/A-1"]] * 2


@db
def test_the_files_of_an_object_change_with_it(published, commit, subscribed):
    subscribed(Product, uri="shop://p/{slug}", fields=["slug", "photo"], blobs=["photo"])
    made = product(slug="ball")
    with commit():
        made.save()
    assert published == [["shop://p/ball", "shop://p/ball/photo"]]


@db
def test_rows_deleted_by_a_query_or_with_another_are_told(published, commit, subscribed):
    subscribed(uri="shop://o/{customer__email}/{number}", fields=["customer__email", "number"])
    buyer = customer(email="a@x")
    order("1", customer=buyer)
    order("2", customer=buyer)
    with commit():
        Order.objects.filter(number="1").delete()
    with commit():
        buyer.delete()
    uris = ["shop://o/a%40x/1", "shop://o/a%40x/2"]
    assert published == [[uri, LIST] for uri in uris]


@db
def test_a_value_that_the_database_computes_is_looked_up(published, commit, subscribed):
    subscribed()
    made = order("A")
    made.number = Concat(F("number"), Value("-1"))
    with commit():
        made.save()
    assert published == [["shop://orders/A-1"]]


def _receivers() -> int:
    return sum(
        len(signal.receivers) for signal in (post_save, pre_delete, post_delete, m2m_changed)
    )


def test_unregistering_disconnects_every_signal():
    before = _receivers()
    options = {"fields": ["slug", "tags__word"], "uri": "shop://p/{slug}", "subscribe": True}
    server = offer(Product, **options)
    assert _receivers() > before
    server.unregister(Product)
    assert _receivers() == before


def test_a_site_that_is_debugged_accepts_the_receivers(settings):
    settings.DEBUG = True
    before = _receivers()
    options = {"fields": ["slug", "tags__word"], "uri": "shop://p/{slug}", "subscribe": True}
    offer(Product, **options).unregister(Product)
    assert _receivers() == before


def test_without_subscriptions_nothing_listens():
    before = _receivers()
    offer(subscribe=False)
    assert _receivers() == before


@db
def test_several_servers_are_told_apart(monkeypatch, commit):
    published_topics: list[TopicKey] = []
    monkeypatch.setattr(
        "mcp_django.integrations.models.changes.publish",
        lambda *topics: published_topics.extend(topics),
    )
    servers = [MCPServer(name, permission=AllowAny) for name in ("one", "two")]
    for server in servers:
        server.register(Order, resource(uri=URI, fields=["number"], subscribe=True))
    with commit():
        order("A-1")
    servers[0].unregister(Order)
    with commit():
        order("B-1")
    servers[1].unregister(Order)
    with commit():
        order("C-1")
    updates = [(topic.server, topic.uri) for topic in published_topics if topic.uri]
    assert updates == [
        ("one", "shop://orders/A-1"),
        ("two", "shop://orders/A-1"),
        ("two", "shop://orders/B-1"),
    ]


class Lost(ThreadContext):
    """Cannot determine the tenant of a thread."""

    def capture(self, request):
        raise RuntimeError("no tenant here")

    def enter(self, tenant):
        raise AssertionError("there is none to enter")


@db
def test_an_object_is_saved_where_no_tenant_can_be_told(
    published, commit, subscribed, settings, caplog
):
    subscribed()
    settings.MCP_DJANGO = {"THREAD_CONTEXT": f"{__name__}.Lost"}
    with commit():
        made = order("A 1")
    with commit():
        made.delete()
    assert published == []
    assert "Subscribers are not notified of changes" in caplog.text
