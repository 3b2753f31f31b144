"""One set of tools for many models: when it is offered, and what it shows to whom."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import AlreadyRegistered, InsufficientScope
from mcp_django.schema.lint import lint
from mcp_django.test import MCPClient
from tests.integrations.models.building import holder
from tests.integrations.models.generic_shop import READING, models, names, shop, tools
from tests.kit.servers import person
from tests.sites.shop.models import Tag

pytestmark = pytest.mark.django_db


# When it is offered --------------------------------------------------------------------------


def test_on_request_it_stands_for_the_tools_of_each_model():
    assert names(shop()) == READING
    assert names(shop(generic=False)) == ["get_order", "list_orders"]


def test_above_its_limit_it_takes_over_and_below_it_goes():
    server = shop(generic=2)
    assert names(server) == ["get_order", "list_orders"]
    server.register(Tag, tools(fields=["word"]))
    assert names(server) == READING
    server.unregister(Tag)
    assert names(server) == ["get_order", "list_orders"]


def test_without_a_request_any_number_of_models_have_their_own_tools():
    server = MCPServer("shop", permission=AllowAny)
    for number in range(9):
        server.register(Tag, tools(fields=["word"], name=f"tag_{number}", plural=f"tags_{number}"))
    assert len(names(server)) == 18
    server.generic = 8
    assert names(server) == READING
    assert len(models(MCPClient(server=server))) == 9


def test_the_choice_can_be_made_later():
    server = shop(generic=False)
    server.generic = True
    assert names(server) == READING
    assert server.generic is True
    server.generic = False
    assert names(server) == ["get_order", "list_orders"]


@pytest.mark.parametrize("wrong", [-1, "yes", 2.5, None])
def test_a_choice_that_is_none_is_refused(wrong):
    with pytest.raises(ImproperlyConfigured, match="the number of models above"):
        MCPServer("shop", generic=wrong)


def test_the_names_of_the_models_tools_are_free():
    server = shop()

    @server.tool
    def list_orders() -> str:
        """My own."""
        return "mine"

    assert names(server) == ["describe_model", "get_record", "list_orders", "search_records"]


def test_a_name_that_is_taken_is_refused_and_nothing_changes():
    server = shop(generic=2)

    @server.tool
    def search_records() -> str:
        """My own."""
        return "mine"

    before = names(server)
    with pytest.raises(AlreadyRegistered, match="search_records"):
        server.register(Tag, tools(fields=["word"]))
    assert names(server) == before
    assert server.declarations_of(Tag) == []


def test_two_models_of_one_name_are_refused():
    server = shop()
    with pytest.raises(AlreadyRegistered, match="both called 'order'"):
        server.register(Tag, tools(fields=["word"], name="order", plural="others"))
    assert models(MCPClient(server=server)) == ["order"]


def test_a_tool_that_was_unregistered_stays_away():
    server = shop(generic=2)
    server.unregister(server.tools["get_order"])
    server.register(Tag, tools(fields=["word"]))
    assert models(MCPClient(server=server), "get_record") == ["tag"]
    server.unregister(Tag)
    assert names(server) == ["list_orders"]


def test_what_no_model_allows_is_not_offered():
    server = shop(tools=["list", "count", "delete"])
    user = holder("delete_order")
    assert names(server, user) == [
        "count_records", "delete_record", "describe_model", "search_records",
    ]  # fmt: skip
    listed = {tool["name"]: tool for tool in MCPClient(server=server, user=user).list_tools()}
    assert listed["search_records"]["annotations"] == {"readOnlyHint": True}
    assert listed["delete_record"]["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
    }
    assert "delete_record" not in names(server)


def test_every_host_understands_the_schemas():
    server = shop(tools=["list", "get", "count", "create", "update", "delete"])
    for tool in server.tools.values():
        assert lint(tool.arguments.json_schema) == []
        assert tool.description


# Who sees what -------------------------------------------------------------------------------


def test_the_models_are_those_that_the_caller_may_see():
    server = shop()
    assert models(MCPClient(server=server)) == ["order"]
    assert models(MCPClient(server=server, user=holder("view_customer"))) == ["customer", "order"]


def test_a_hidden_model_answers_like_one_that_does_not_exist():
    client = MCPClient(server=shop(), user=person())
    for tool, more in (
        ("search_records", {}),
        ("get_record", {"key": "1"}),
        ("describe_model", {}),
    ):
        hidden = client.call_tool(tool, {"model": "customer", **more}, check=False)
        unknown = client.call_tool(tool, {"model": "customex", **more}, check=False)
        assert hidden.is_error
        assert hidden.text.replace("customer", "customex") == unknown.text
        assert unknown.text == 'model: must be one of order (got "customex")'


def test_a_model_can_be_seen_and_not_be_written():
    written = ["number", "status", "placed_at", "customer"]
    server = shop(tools=["list", "create"], write_fields=written)
    server.register(Tag, tools(fields=["word"], tools=["list", "create"]))
    client = MCPClient(server=server, user=holder("add_tag"))
    assert models(client) == ["order", "tag"]
    assert models(client, "create_record") == ["tag"]
    refused = client.call_tool("create_record", {"model": "order", "values": {}}, check=False)
    assert refused.text == 'model: must be one of tag (got "order")'


def test_a_scope_that_lacks_is_named():
    client = MCPClient(server=shop(scopes=["orders:read"]), user=person(), scopes=["other"])
    with pytest.raises(InsufficientScope, match="orders:read"):
        client.call_tool("search_records", {"model": "order"})


def test_nobody_in_particular_reads_the_arguments_as_nobody():
    arguments = shop().tools["search_records"].arguments
    assert arguments.json_schema["properties"]["model"]["enum"] == ["customer", "order"]
    with pytest.raises(Exception, match="must be one of order"):
        arguments.parse(b'{"model": "customer"}')
