"""Unusual models: inherited, with another row's key, generic, generated."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.integrations.models.building import START, client, customer, serve
from tests.integrations.models.test_list_get_cursors import pages
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Remark, SpecialOrder, Tag, Voucher, Wallet

pytestmark = pytest.mark.django_db


def test_an_inherited_model_has_the_columns_of_its_parent():
    for number in ("A", "B", "C"):
        SpecialOrder.objects.create(
            number=number, wish=f"w{number}", customer=customer(), placed_at=START
        )
    mcp_client = client(
        SpecialOrder,
        fields=["number", "wish", "customer__name"],
        tools=["list", "get", "count"],
        filter_fields=["number"],
        ordering_fields=["wish"],
    )
    many = pages(mcp_client, "list_special_orders", order_by="-wish", limit=1)
    assert [row["number"] for page in many for row in page] == ["C", "B", "A"]
    got = mcp_client.call_tool("get_special_order", {"number": "B"}).structured
    assert got == {"number": "B", "wish": "wB", "customer": {"name": "Ada"}}
    assert mcp_client.call_tool("count_special_orders", {"number": "B"}).structured == {"count": 1}
    with pytest.raises(ImproperlyConfigured, match="add 'order_ptr_id' or another unique field"):
        client(SpecialOrder, fields=["wish"])
    keyed = client(SpecialOrder, fields=["order_ptr_id", "wish"])
    many = pages(keyed, "list_special_orders", limit=2)
    assert [len(page) for page in many] == [2, 1]


def test_a_key_that_is_another_rows_is_a_key():
    wallet = Wallet.objects.create(customer=customer("Ada"), coins=3)
    mcp_client = client(
        Wallet,
        fields=["customer_id", "customer", "coins"],
        tools=["list", "get"],
        filter_fields=["customer"],
        ordering_fields=["customer_id"],
        user=person(is_superuser=True),
    )
    shown = {
        "customer_id": wallet.pk,
        "customer": {"id": wallet.pk, "label": "Ada"},
        "coins": 3,
    }
    calls: list[dict[str, Any]] = [{}, {"customer": wallet.pk}, {"order_by": "-customer_id"}]
    for arguments in calls:
        assert mcp_client.call_tool("list_wallets", arguments).structured["items"] == [shown]
    assert mcp_client.call_tool("get_wallet", {"customer_id": wallet.pk}).structured == shown
    with pytest.raises(ImproperlyConfigured, match="add 'customer_id' or another unique field"):
        client(Wallet, fields=["customer", "coins"], tools=["get"])
    assert serve(Customer, fields=["id", "wallet__coins"]).tools


def test_a_foreign_key_to_another_column_is_told_by_that_column():
    red = Tag.objects.create(word="red")
    key = str(Voucher.objects.create(tag=red, worth=2).pk)
    mcp_client = client(
        Voucher,
        fields=["id", "tag", "tag_id", "double"],
        filter_fields=["tag", "double"],
        tools=["list", "count"],
        user=person(is_superuser=True),
    )
    label = {"id": "red", "label": "red"}
    shown = [{"id": key, "tag": label, "tag_id": "red", "double": 4}]
    calls: list[dict[str, Any]] = [{}, {"tag": "red"}, {"tag__in": ["red"]}, {"double__gte": 4}]
    for arguments in calls:
        assert mcp_client.call_tool("list_vouchers", arguments).structured["items"] == shown
    grouped = mcp_client.call_tool(
        "count_vouchers", {"group_by": "tag", "sum_of": "double"}
    ).structured
    assert grouped["groups"] == [{"group": label, "count": 1, "sum": 4}]
    backwards = client(Tag, fields=["word", "vouchers__double"])
    assert backwards.call_tool("list_tags").structured["items"] == [
        {"word": "red", "vouchers": [{"double": 4}]}
    ]


def test_a_generic_relation_is_followed_from_its_end():
    tag = Tag.objects.create(word="red")
    mcp_client = client(
        Voucher,
        fields=["id", "worth", "remarks__text"],
        filter_fields=["remarks__text"],
        search_fields=["remarks__text"],
        ordering=["worth"],
    )
    counted = []
    for worth in (1, 2, 3):
        made = Voucher.objects.create(tag=tag, worth=worth)
        Remark.objects.create(about=made, text=f"t{worth}")
        with CaptureQueriesContext(connection) as captured:
            items = mcp_client.call_tool("list_vouchers").structured["items"]
        counted.append(len(captured))
        assert items[-1] == {"id": str(made.pk), "worth": worth, "remarks": [{"text": f"t{worth}"}]}
    # The first call needs another query, for the content type.
    assert counted[1:] == [3, 3]
    for arguments in ({"remarks__text": "t2"}, {"search": "T2"}):
        items = mcp_client.call_tool("list_vouchers", arguments).structured["items"]
        assert [row["worth"] for row in items] == [2]


def test_a_generic_foreign_key_leads_to_no_one_model():
    for name in ("about", "about__text"):
        with pytest.raises(ImproperlyConfigured, match="neither a column nor a relation to one"):
            client(Remark, fields=["id", name])


def test_rows_that_are_equal_but_for_their_keys_are_listed_once():
    tag = Tag.objects.create(word="red")
    for worth in (1, 1, 1, 2):
        Voucher.objects.create(tag=tag, worth=worth)
    many = pages(client(Voucher, fields=["id", "worth"]), "list_vouchers", limit=1)
    assert sorted(row["worth"] for page in many for row in page) == [1, 1, 1, 2]


@pytest.mark.parametrize("behind", ["vouchers__id", "products__id", "products__category__parent"])
def test_a_relation_named_alone_and_by_a_path_is_both(behind):
    alone = behind.partition("__")[0]
    (tool,) = client(Tag, fields=["word", alone, behind]).list_tools()
    row = tool["outputSchema"]["properties"]["items"]["items"]["properties"]
    members = row[alone]["items"]["properties"]
    assert {"id", "label", behind.split("__")[1]} == set(members)


def test_two_things_of_one_name_in_an_answer_are_refused():
    # In the tag alone, "id" is the word that the voucher's foreign key refers to.
    with pytest.raises(ImproperlyConfigured, match="fields has 'tag__id', a name that the output"):
        client(Voucher, fields=["worth", "tag", "tag__id"])
