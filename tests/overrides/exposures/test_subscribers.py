"""Subscribers of an exposed object are notified of a change, whichever process makes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.db import connection, transaction

from mcp_django.models import Topic as TopicRow
from mcp_django.overrides import model_signals
from mcp_django.overrides.model_signals import signal_relay
from mcp_django.overrides.state import override_version, publish_change
from mcp_django.storage.versions import TopicKey
from tests.integrations.models.building import customer, order
from tests.overrides.exposures.rows import expose
from tests.sites.shop.models import Order, Product

SUBSCRIBED = {
    "fields": ["number", "status"],
    "uri": "shop://orders/{number}",
    "subscribe": True,
}
SAVE = (
    "import django; django.setup();"
    "from tests.sites.shop.models import Order;"
    "Order.objects.get().save()"
)


def version(uri: str, server: str = "desk") -> int:
    topic = TopicKey(server, "resource", uri)
    number = TopicRow.objects.filter(pk=topic.digest).values_list("version", flat=True).first()
    return number or 0


def forget_everything() -> None:
    """Reset this process to the state of a new one."""
    signal_relay.connect_receivers([])
    signal_relay.__init__()
    override_version.__init__()


@pytest.mark.django_db(transaction=True)
def test_a_process_that_never_served_anything_tells_of_what_it_saves():
    expose(options=SUBSCRIBED)
    made = order("A1")
    forget_everything()
    before = version("shop://orders/A1")
    made.save()
    assert version("shop://orders/A1") == before + 1
    made.save()
    assert version("shop://orders/A1") == before + 2


@pytest.mark.outside
@pytest.mark.django_db(transaction=True)
def test_another_process_altogether_does():
    expose(options=SUBSCRIBED)
    order("A1")
    before = version("shop://orders/A1")
    environ = {**os.environ, "MCP_TEST_DATABASE": str(connection.settings_dict["NAME"])}
    environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    done = subprocess.run(
        [sys.executable, "-c", SAVE], env=environ, capture_output=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert version("shop://orders/A1") == before + 1


@pytest.mark.django_db(transaction=True)
def test_it_tells_after_the_commit_and_not_of_what_was_taken_back():
    expose(options=SUBSCRIBED)
    kept, lost = order("A1"), order("A2")
    forget_everything()
    before = version("shop://orders/A1"), version("shop://orders/A2")
    with transaction.atomic():
        kept.save()
        with transaction.atomic():
            lost.save()
            transaction.set_rollback(True)
        assert version("shop://orders/A1") == before[0]
    assert (version("shop://orders/A1"), version("shop://orders/A2")) == (before[0] + 1, before[1])


@pytest.mark.django_db(transaction=True)
def test_a_long_transaction_looks_at_once_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(model_signals, "MAX_WAITING", 3)
    expose(options=SUBSCRIBED)
    orders = [order(f"A{number}") for number in range(8)]
    forget_everything()
    before = [version(f"shop://orders/A{number}") for number in range(8)]
    with transaction.atomic():
        for row in orders:
            row.save()
    after = [version(f"shop://orders/A{number}") for number in range(8)]
    assert [new - old > 0 for new, old in zip(after, before, strict=True)] == [True] * 8


@pytest.mark.django_db(transaction=True)
def test_once_it_listens_it_hears_of_deletions_and_links_too():
    expose("shop.Product", options={**SUBSCRIBED, "fields": ["slug", "tags"], "uri": "p://{slug}"})
    made = Product.objects.create(
        slug="ball", name="Ball", price=1, category_id=_category(), weight=1
    )
    before = version("p://ball")
    made.delete()
    assert version("p://ball") == before + 1


def _category() -> str:
    from tests.integrations.models.building import category

    return category().pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        lambda row: type(row).objects.filter(pk=row.pk).update(is_enabled=False),
        lambda row: row.delete(),
        lambda row: (
            type(row).objects.filter(pk=row.pk).update(options={**SUBSCRIBED, "subscribe": False})
        ),
    ],
    ids=["switched off", "deleted", "not subscribed"],
)
def test_it_stops_listening_when_the_exposure_is_gone(change):
    row = expose(options=SUBSCRIBED)
    made = order("A1")
    forget_everything()
    made.save()
    before = version("shop://orders/A1")
    change(row)
    publish_change([("desk", "resources")])
    # The save that detects the change is the last one that notifies.
    made.save()
    settled = version("shop://orders/A1")
    made.save()
    assert before <= settled == version("shop://orders/A1")
    assert Order.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_what_nobody_exposes_costs_one_look_a_second(django_assert_num_queries):
    made = customer()
    forget_everything()
    # Before the process is reset, it has read once that nothing is exposed.
    made.save()
    forget_everything()
    with django_assert_num_queries(2):
        made.save()
    with django_assert_num_queries(1):
        made.save()


@pytest.mark.django_db
def test_in_the_transaction_of_a_test_saving_costs_nothing_more(
    django_assert_num_queries, django_capture_on_commit_callbacks
):
    made = customer()
    forget_everything()
    with django_capture_on_commit_callbacks() as waiting, django_assert_num_queries(1):
        made.save()
    assert waiting == []
