"""An action that may happen only once, which the site ensures with a row of its own (MRT-6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connections, transaction

from mcp_django import Context, MCPServer
from mcp_django.test import MCPClient
from mcp_django.testing.answers import build_answers
from tests.kit.servers import open_to_all
from tests.spec import spec

pytestmark = pytest.mark.django_db(transaction=True)


def redeeming() -> MCPServer:
    """Return a server with a tool that gives something away, once for each interaction."""
    server = open_to_all()

    @server.tool
    def redeem(ctx: Context) -> str:
        ctx.elicit("Redeem it?")
        try:
            with transaction.atomic():
                Group.objects.create(name=ctx.interaction_id)
        except IntegrityError:
            return "It was redeemed already."
        return "Redeemed."

    return server


def redemption(client: MCPClient) -> dict[str, Any]:
    """Return the request that redeems it."""
    raw = client.call_tool("redeem").raw
    given = build_answers(raw["inputRequests"], [{}])
    return {"name": "redeem", "inputResponses": given, "requestState": raw["requestState"]}


def redeem(client: MCPClient, params: dict[str, Any]) -> str:
    text: str = client.request("tools/call", params)["content"][0]["text"]
    return text


@spec("MRT-6", "MRT-7")
def test_a_retry_that_comes_three_times_redeems_once():
    client = MCPClient(server=redeeming())
    params = redemption(client)
    texts = [redeem(client, params) for _ in range(3)]
    assert texts == ["Redeemed.", *["It was redeemed already."] * 2]
    assert redeem(client, redemption(client)) == "Redeemed."
    assert Group.objects.count() == 2


@spec("MRT-6")
def test_so_it_does_when_they_come_at_once():
    server = redeeming()
    params = redemption(MCPClient(server=server))

    def once(_: int) -> str:
        try:
            return redeem(MCPClient(server=server), params)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        texts = sorted(pool.map(once, range(4)))
    assert texts == [*["It was redeemed already."] * 3, "Redeemed."]


def test_an_interaction_has_one_id_over_all_rounds_and_each_its_own():
    ids: list[str] = []
    server = open_to_all()

    @server.tool(atomic=False)
    def ask(ctx: Context) -> str:
        ids.append(ctx.interaction_id)
        ctx.elicit("A?")
        ctx.elicit("B?")
        ids.append(ctx.interaction_id)
        return "done"

    client = MCPClient(server=server)
    for _ in range(2):
        assert client.call_tool("ask", answers=[{}, {}]).text == "done"
    assert len(ids) == 8
    assert len(set(ids[:4])) == len(set(ids[4:])) == 1
    assert len(set(ids)) == 2
