"""Actions of the admin as tools."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.html import format_html

from mcp_django.test import CallResult, MCPClient
from tests.integrations.model_admin.desk import OrderAdmin, clerk, client, server
from tests.integrations.models.building import order
from tests.sites.shop.models import Order

pytestmark = pytest.mark.django_db


def run(action: str, *keys: Any, may: tuple[str, ...] = ("change_order",)) -> CallResult:
    return client(*may, actions=[action]).call_tool(
        f"{action}_orders", {"keys": list(keys)}, check=False
    )


def test_an_action_runs_on_the_chosen_rows_and_says_what_it_said():
    for number in ("A1", "A2", "A3"):
        order(number)
    answer = run("mark_paid", "A1", "A3")
    assert answer.text == "2 orders are paid."
    assert not answer.is_error
    paid = Order.objects.filter(status="paid").values_list("number", flat=True)
    assert sorted(paid) == ["A1", "A3"]


def test_an_action_is_described_by_the_admin():
    (tool,) = [
        candidate
        for candidate in client("change_order", actions=["mark_paid"]).list_tools()
        if candidate["name"] == "mark_paid_orders"
    ]
    assert tool["description"] == ("Mark selected orders as paid. An action of the site's admin.")
    assert tool["annotations"] == {"readOnlyHint": False, "destructiveHint": True}
    keys = tool["inputSchema"]["properties"]["keys"]
    assert (keys["minItems"], keys["maxItems"], keys["items"]["type"]) == (1, 100, "string")


def test_actions_are_opt_in():
    names = [tool["name"] for tool in client("change_order").list_tools()]
    assert names == ["get_order", "list_orders"]


def test_an_action_is_for_those_whom_the_admin_lets():
    made = server(actions=["mark_paid", "quiet"])
    reader = MCPClient(server=made, user=clerk("view_order"))
    assert "mark_paid_orders" not in [tool["name"] for tool in reader.list_tools()]
    assert "quiet_orders" in [tool["name"] for tool in reader.list_tools()]
    nobody = MCPClient(server=made, user=clerk(username="nobody"))
    assert nobody.list_tools() == []
    outsider = MCPClient(server=made, user=clerk("change_order", username="bob", is_staff=False))
    assert outsider.list_tools() == []


def test_a_row_that_is_hidden_or_missing_stops_the_action():
    order("A1")
    order("A2", note="hidden")
    hidden = run("mark_paid", "A1", "A2")
    assert hidden.is_error
    assert hidden.text == (
        'There are no orders with number "A2". The action was not run on the others.'
    )
    assert not Order.objects.filter(status="paid").exists()


@pytest.mark.parametrize("keys", [[], ["A1"] * 101, "A1", [["A1"]], ["a\0"]])
def test_keys_that_are_none_are_refused(keys):
    answer = client("change_order", actions=["quiet"]).call_tool(
        "quiet_orders", {"keys": keys}, check=False
    )
    assert answer.is_error
    assert answer.text.startswith("keys")


def test_a_silent_action_is_said_to_have_run():
    order("A1")
    assert run("quiet", "A1").text == "Done: quiet ran on 1 order."


def test_an_action_that_only_complains_is_an_error():
    order("A1")
    answer = run("grumble", "A1")
    assert answer.is_error
    assert answer.text == "The printer is on fire."


def test_a_file_is_an_answer():
    order("A1")
    order("A2")
    assert run("export", "A1", "A2").text == "A1\nA2"


def test_a_page_of_the_admin_undoes_what_was_done():
    order("A1")
    answer = run("ask", "A1")
    assert answer.is_error
    assert "Run it there: http://testserver/" in answer.text
    assert answer.text.endswith("Nothing was changed.")
    assert Order.objects.get().status == "open"


def test_a_redirect_is_named_and_not_followed():
    order("A1")
    answer = run("leave", "A1")
    assert not answer.is_error
    assert "/somewhere/?ids=1" in answer.text


def test_a_refusal_of_the_action_is_one():
    order("A1")
    assert run("look", "A1").is_error


def test_an_action_finds_in_the_request_what_the_admin_would_post():
    order("A1")
    order("A2")
    assert run("tell", "A1", "A2").text == "POST tell 2"


@pytest.mark.parametrize(
    ("action", "message"),
    [("delete_selected", "add 'delete' to tools"), ("mark_payed", "did you mean 'mark_paid'")],
)
def test_an_action_that_is_none_is_refused(action, message):
    with pytest.raises(ImproperlyConfigured, match=message):
        server(actions=[action])


def test_a_row_that_the_admin_does_not_open_is_missing_to_an_action():
    order("A1", note="secret")
    order("A2")
    hidden = run("mark_paid", "A2", "A1")
    assert hidden.is_error
    assert hidden.text == (
        'There are no orders with number "A1". The action was not run on the others.'
    )
    assert not Order.objects.filter(status="paid").exists()


def test_a_message_with_tags_is_said_without():
    class Marked(OrderAdmin):
        def quiet(self, request: Any, queryset: Any) -> None:
            self.message_user(request, format_html("<b>{}</b> done", "Tom & Jerry"))

    order("A1")
    answer = client("change_order", orders=Marked, actions=["quiet"]).call_tool(
        "quiet_orders", {"keys": ["A1"]}
    )
    assert answer.text == "Tom & Jerry done"
