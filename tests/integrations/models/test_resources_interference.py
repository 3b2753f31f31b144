"""Two databases that differ only in hidden values look the same through resources."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.backends import ModelBackend
from django.db import transaction
from django.db.models import QuerySet
from hypothesis import HealthCheck, given, settings, strategies as st

from mcp_django import Context, MCPError
from mcp_django.test import MCPClient
from tests.integrations.models.building import START, customer
from tests.integrations.models.offering import URI, offer
from tests.kit.rings import examples
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order

pytestmark = pytest.mark.django_db

VISIBLE = ["A-1", "A-2", "B 1", "ü", "N9"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
NUMBERS = st.lists(TEXT.filter(lambda text: text not in VISIBLE), unique=True, max_size=4)


@dataclass(frozen=True)
class Hidden:
    """The hidden values: notes, keys, and the orders of others."""

    note: str
    margin: int
    first_key: int
    others: list[str]


HIDDEN = st.builds(
    Hidden,
    note=TEXT,
    margin=st.integers(-1000, 1000),
    first_key=st.integers(1, 10**6),
    others=NUMBERS,
)


class OwnObjects(ModelBackend):
    """A backend that lets users view their own orders."""

    def has_perm(self, user: Any, perm: str, obj: Any = None) -> bool:
        return isinstance(obj, Order) and obj.customer.user_id == user.pk


def own(self: Any, ctx: Context) -> QuerySet[Order]:
    return Order.objects.filter(customer__user=ctx.user)


def fill(hidden: Hidden, mine: Customer, other: Customer) -> None:
    """Create the same visible orders; the parity of the first key decides about their order."""
    details: dict[str, Any] = {"internal_note": hidden.note, "margin": hidden.margin}
    numbers = VISIBLE if hidden.first_key % 2 else VISIBLE[::-1]
    for step, number in enumerate([*numbers, *hidden.others]):
        Order.objects.create(
            pk=hidden.first_key + step,
            number=number,
            customer=mine if number in VISIBLE else other,
            placed_at=START,
            **details,
        )


def answer(client: MCPClient, method: str, **params: Any) -> Any:
    try:
        return client.request(method, params)
    except MCPError as exc:
        return exc.code, exc.message, exc.data


def observed(client: MCPClient, probes: list[str]) -> str:
    """Return all that a caller can find out about some texts."""
    answers: list[Any] = [answer(client, "resources/list")]
    while "nextCursor" in answers[-1]:
        answers.append(answer(client, "resources/list", cursor=answers[-1]["nextCursor"]))
    variables = offer_variables()
    for text in probes:
        uri = variables.uri({"number": text}) or f"shop://orders/{len(text)}"
        answers.append(answer(client, "resources/read", uri=uri))
        answers.append(
            answer(client, "prompts/get", name="check_order", arguments={"number": text})
        )
        for typed in {text[:1], text}:
            argument = {"name": "number", "value": typed}
            ref = {"type": "ref/resource", "uri": URI}
            answers.append(answer(client, "completion/complete", ref=ref, argument=argument))
    return json.dumps(answers, sort_keys=True)


def offer_variables() -> Any:
    return offer().templates[URI].arguments


# Each example takes tenths of a second.
@pytest.mark.outside
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=HIDDEN, second=HIDDEN)
@pytest.mark.parametrize("gate", ["rows", "objects"])
def test_hidden_values_change_no_answer(gate, first, second, settings):
    options: dict[str, Any] = {"get_queryset": own}
    if gate == "objects":
        settings.AUTHENTICATION_BACKENDS = [f"{__name__}.OwnObjects"]
        options = {"permission": None}
    server = offer(prompts={"check": "Check {object}."}, **options)
    server._page_size = 2
    probes = [*VISIBLE, *first.others, *second.others, "C-1"]
    with transaction.atomic():
        ada = person("ada")
        mine, other = customer(user=ada), customer()
        client = MCPClient(server=server, user=ada)
        seen = []
        for hidden in (first, second):
            with transaction.atomic():
                fill(hidden, mine, other)
                seen.append(observed(client, probes))
                transaction.set_rollback(True)
        transaction.set_rollback(True)
    assert seen[0] == seen[1]
    assert seen[0].count('"uri": "shop://orders/A-1"') >= 2
