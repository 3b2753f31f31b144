"""A component is found by its former names, under the same rules as by its own name."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.exceptions import AlreadyRegistered
from mcp_django.models import Approval, Call
from mcp_django.storage import approval_rows
from mcp_django.test import MCPClient
from mcp_django.testing.answers import ErrorResponse
from tests.kit.servers import open_to_all, person, real_client

pytestmark = pytest.mark.django_db


def work(n: int = 1) -> int:
    """Work."""
    return n


@pytest.fixture
def shop():
    """A server whose components all have new names."""
    server = open_to_all()
    server.tool("find_orders", aliases=["orders", "order_search"], rate="3/h")(work)
    server.tool("refund", aliases=["pay_back"], permission="auth.view_group")(work)

    @server.prompt("sum_up", aliases=["summary"])
    def sum_up(topic: str) -> str:
        """Sum up."""
        return f"Sum up {topic}."

    @server.resource("shop://about", aliases=["shop://info"])
    def about() -> str:
        """About."""
        return "a shop"

    @server.resource("shop://orders/{number}", aliases=["order://{number}"])
    def order(number: int) -> str:
        """One order."""
        return f"order {number}"

    @server.completion(sum_up, "topic")
    def topics(typed: str) -> list[str]:
        return ["cheese"]

    @server.completion(order, "number")
    def numbers(typed: str) -> list[str]:
        return ["12"]

    return server


def refusal(client: MCPClient, name: str) -> tuple[Any, str]:
    """Return the code and message of the error for a tool call."""
    with pytest.raises(ErrorResponse) as caught:
        client.call_tool(name)
    return caught.value.code, str(caught.value).replace(name, "NAME")


@pytest.mark.parametrize("transport", ["memory", "http"])
def test_the_former_name_is_answered_and_not_listed(shop, transport):
    # The header Mcp-Name must match the name that was called.
    with real_client(server=shop, transport=transport) as client:
        assert [tool["name"] for tool in client.list_tools()] == ["find_orders"]
        assert [prompt["name"] for prompt in client.list_prompts()] == ["sum_up"]
        assert [resource["uri"] for resource in client.list_resources()] == ["shop://about"]
        assert len(client.list_resource_templates()) == 1
        assert client.call_tool("orders", {"n": 7}).text == "7"
        assert "cheese" in str(client.get_prompt("summary", {"topic": "cheese"}))
        assert client.read_resource("shop://info") == [
            {"uri": "shop://info", "mimeType": "text/plain", "text": "a shop"}
        ]
        (contents,) = client.read_resource("order://12")
        assert contents["text"] == "order 12"


def test_a_former_name_is_completed(shop):
    client = real_client(server=shop)
    assert client.complete("summary", "topic", "") == ["cheese"]
    assert client.complete("order://{number}", "number", "") == ["12"]


def test_the_wrapped_value_of_an_older_revision_is_the_same(shop):
    client = real_client(server=shop, protocol_version="2025-06-18")
    assert client.call_tool("orders").raw == client.call_tool("find_orders").raw


def test_what_is_hidden_is_unknown_by_every_name(shop):
    client = real_client(server=shop, user=person())
    unknown = refusal(client, "never_was")
    assert refusal(client, "refund") == refusal(client, "pay_back") == unknown


def test_a_call_by_any_name_counts_against_the_same_rate(shop):
    client = real_client(server=shop)
    for name in ("orders", "find_orders", "order_search"):
        client.call_tool(name)
    with pytest.raises(ErrorResponse, match="The limit of 3/h for tool 'find_orders' is reached"):
        client.call_tool("orders")


def test_a_yes_is_for_one_call_by_whatever_name(shop):
    shop.tool("pay", aliases=["pay_out"], approval="staff")(work)
    client = real_client(server=shop, user=person())
    for name in ("pay_out", "pay"):
        assert client.call_tool(name, {"n": 5}, check=False).is_error
    row = Approval.objects.get()
    assert row.component == "pay"
    assert approval_rows.save_decision(row, is_granted=True, by="boss", reason="")
    assert client.call_tool("pay_out", {"n": 5}).text == "5"
    for name in ("pay_out", "pay"):
        assert client.call_tool(name, {"n": 5}, check=False).is_error


@pytest.mark.usefixtures("call_log")
def test_the_log_has_the_present_name_and_says_which_was_called(shop):
    client = real_client(server=shop)
    client.call_tool("orders")
    client.call_tool("find_orders")
    client.read_resource("shop://info")
    client.read_resource("order://12")
    assert [*Call.objects.order_by("id").values_list("component", "reason")] == [
        ("find_orders", "called as orders"),
        ("find_orders", ""),
        ("shop://about", "called as shop://info"),
        ("shop://orders/{number}", "called as order://{number}"),
    ]


@pytest.mark.parametrize(
    ("name", "aliases"), [("orders", []), ("other", ["orders"]), ("other", ["find_orders"])]
)
def test_a_name_that_is_answered_to_is_taken(shop, name, aliases):
    with pytest.raises(AlreadyRegistered, match=r"'find_orders' from .* already has the name"):
        shop.tool(name, aliases=aliases)(work)
    assert name == "orders" or name not in shop.tools


def test_an_alias_may_not_be_the_name_of_another(shop):
    with pytest.raises(AlreadyRegistered):
        shop.tool("other", aliases=["refund"])(work)


def test_an_unregistered_component_gives_its_names_back(shop):
    shop.unregister(shop.tools["find_orders"])
    shop.tool("orders")(work)
    assert real_client(server=shop).call_tool("orders").text == "1"
    with pytest.raises(ErrorResponse):
        real_client(server=shop).call_tool("order_search")


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ("old", r"aliases is not a list; write aliases=\['old'\]"),
        (["tool"], "its name or is repeated"),
        (["a", "a"], "its name or is repeated"),
        (["not a name"], "not a valid tool name"),
        ([7], "write each former name as a non-empty string"),
    ],
)
def test_an_alias_that_cannot_be_is_refused(aliases, message):
    with pytest.raises(ImproperlyConfigured, match=message):
        open_to_all().tool("tool", aliases=aliases)(work)


def test_a_former_address_has_the_same_variables():
    with pytest.raises(ImproperlyConfigured, match="the same variables as the template: n"):
        open_to_all().resource("x://{n}", aliases=["y://{m}"])(work)
    with pytest.raises(ImproperlyConfigured, match="is not a URI"):
        open_to_all().resource("x://y", aliases=["no address"])(work)


def test_a_change_is_told_at_former_addresses_as_well(shop):
    assert [*shop.registry.uris_of("shop://about")] == ["shop://about", "shop://info"]
    assert [*shop.registry.uris_of("shop://orders/12")] == ["shop://orders/12", "order://12"]
    assert [*shop.registry.uris_of("shop://else")] == ["shop://else"]
