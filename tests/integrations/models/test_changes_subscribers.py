"""Which subscribers are notified of a change, and when."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import QuerySet

from mcp_django import Context
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, order
from tests.kit.servers import person
from tests.sites.shop.models import Order
from tests.spec import spec

LIST = "resources"

db = pytest.mark.django_db


@spec("SUB-10")
@pytest.mark.usefixtures("_closed")
@pytest.mark.django_db(transaction=True)
async def test_a_subscriber_hears_of_his_object_after_the_commit(subscribed):
    server = await sync_to_async(subscribed)()
    made = await sync_to_async(order)("A-1")
    client = MCPClient(server=server)

    @sync_to_async
    def save() -> None:
        with transaction.atomic():
            made.save()
            transaction.set_rollback(True)
        order("B-1")
        made.delete()

    async with client.listen(uris=["shop://orders/A-1"], lists=["resources"]) as messages:
        acknowledged = await anext(messages)
        assert acknowledged["params"]["notifications"] == {
            "resourcesListChanged": True,
            "resourceSubscriptions": ["shop://orders/A-1"],
        }
        await save()
        heard = [(await anext(messages)) for _ in range(2)]
    assert {message["method"] for message in heard} == {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
    }


@pytest.mark.usefixtures("_closed")
@pytest.mark.django_db(transaction=True)
async def test_nobody_hears_of_an_object_outside_the_gate(subscribed):
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        return Order.objects.filter(customer__user=ctx.user)

    @sync_to_async
    def make() -> Any:
        ada = person("ada")
        order("A-1", customer=customer(user=ada))
        order("B-1", customer=customer(user=person("bob")))
        return subscribed(get_queryset=get_queryset), ada

    server, ada = await make()
    uris = ["shop://orders/B-1", "shop://orders/A-1", "shop://orders/C-1"]
    async with MCPClient(server=server, user=ada).listen(uris=uris) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["notifications"] == {
        "resourceSubscriptions": ["shop://orders/A-1"]
    }


@pytest.mark.usefixtures("_closed")
@pytest.mark.django_db(transaction=True)
async def test_what_does_not_notify_cannot_be_subscribed_to(subscribed):
    server = await sync_to_async(subscribed)(subscribe=False)
    await sync_to_async(order)("A-1")
    uris = ["shop://orders/A-1"]
    async with MCPClient(server=server).listen(uris=uris, lists=["resources"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["notifications"] == {"resourcesListChanged": True}
