"""What viewsets answer as tools."""

import pytest

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.integrations.rest import viewsets
from tests.sites.shop.models import Order, Product

WHEN = "2026-02-03T04:05:06Z"


def test_only_lists_and_single_objects_are_offered_unless_more_is_named(client_of):
    server = MCPServer("few", permission=AllowAny)
    server.register_viewset(viewsets.OrderViewSet, basename="order")
    assert list(server.tools) == ["list_orders", "get_order"]


def test_the_serializer_of_the_action_is_used(client_of):
    client = client_of("ada")
    listed = client.call_tool("list_orders").structured
    assert listed[0] == {"number": "A-1", "status": "open"}
    assert client.call_tool("get_order", {"number": "A-1"}).structured["customer_name"] == "Ada"


def test_object_permissions_hold(client_of):
    client = client_of("ada")
    refused = client.call_tool("get_order", {"number": "B-1"}, check=False)
    assert refused.text == "You may not do this. This is somebody else's order."
    assert (
        client.call_tool("get_order", {"number": "Z"}, check=False).text
        == "No Order matches the given query."
    )
    assert client_of().call_tool("list_orders", check=False).is_error


def test_nested_values_are_written(client_of):
    product, mine = Product.objects.get(slug="apple"), Order.objects.get(number="A-1").customer
    arguments = {
        "number": "A-9",
        "customer": mine.pk,
        "placed_at": WHEN,
        "lines": [{"product": product.pk, "quantity": 4, "price": "1.25"}],
    }
    made = client_of("ada").call_tool("create_order", arguments).structured
    assert made["lines"] == [{"product": product.pk, "quantity": 4, "price": "1.25"}]
    assert Order.objects.get(number="A-9").lines.get().quantity == 4


def test_every_complaint_has_its_place(client_of):
    result = client_of("ada").call_tool(
        "create_order",
        {
            "number": "13",
            "status": "gone",
            "customer": 0,
            "placed_at": "now",
            "lines": [{"quantity": -1}, {"product": "x"}],
        },
        check=False,
    )
    assert result.is_error
    assert result.text.splitlines() == [
        'number: This number brings bad luck (got "13")',
        'status: "gone" is not a valid choice (got "gone")',
        'customer: Invalid pk "0" - object does not exist (got 0)',
        (
            "placed_at: Datetime has wrong format. Use one of these formats instead: "
            'YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z] (got "now")'
        ),
        "lines[0].product: is required",
        "lines[0].quantity: Ensure this value is greater than or equal to 0 (got -1)",
        'lines[1].product: Incorrect type. Expected pk value, received str (got "x")',
    ]


def test_unknown_and_read_only_members_are_refused_by_name(client_of):
    result = client_of("ada").call_tool(
        "create_order", {"total": 1, "lines": [{"secret": 1}]}, check=False
    )
    assert result.is_error
    assert 'unknown argument "total"' in result.text
    assert 'lines[0]: unknown member "secret"' in result.text


def test_a_change_needs_nothing_but_the_object(client_of):
    client = client_of("ada")
    client.call_tool("update_order", {"number": "A-2", "status": "shipped"})
    assert Order.objects.get(number="A-2").status == "shipped"
    renamed = client.call_tool("update_order", {"number": "A-2", "new_number": "A-3"})
    assert renamed.structured["number"] == "A-3"
    wrong = client.call_tool("update_order", {"number": "A-3", "new_number": "x" * 21}, check=False)
    assert wrong.text.startswith("new_number: Ensure this field has no more than 20 characters")


def test_a_deletion_is_a_deletion(client_of):
    client = client_of("ada")
    assert client.call_tool("delete_order", {"number": "B-1"}, check=False).is_error
    assert not client.call_tool("delete_order", {"number": "A-2"}).is_error
    assert sorted(Order.objects.values_list("number", flat=True)) == ["A-1", "B-1"]


def test_an_extra_action_takes_its_own_serializer(client_of):
    client = client_of("ada")
    paid = client.call_tool("pay_order", {"number": "A-1", "amount": "9.50", "pin": "1234"})
    assert paid.structured == {"paid": "9.50", "action": "pay"}
    assert Order.objects.get(number="A-1").status == "paid"
    poor = client.call_tool(
        "pay_order", {"number": "A-1", "amount": "0.50", "pin": "12"}, check=False
    )
    assert poor.text.splitlines() == [
        'amount: Ensure this value is greater than or equal to 1 (got "0.50")',
        "pin: Ensure this field has at least 4 characters",
    ]


def test_an_extra_action_that_reads_no_body_takes_none(client_of):
    sent = client_of("ada").call_tool("ship_order", {"number": "A-1"})
    assert sent.structured == {"sent": "A-1", "basename": "order", "detail": True}
    assert client_of("friend").call_tool("ship_order", {"number": "A-1"}, check=False).is_error


def test_extra_actions_of_every_shape(client_of):
    client = client_of("ada")
    assert "A-1" in client.call_tool("recent_orders").text
    assert client.call_tool("label_order", {"number": "A-1"}).text == "to,Ada"
    read = client.call_tool("notes_order", {"number": "A-1"}).structured
    assert read["method"] == "GET"
    assert read["url"].endswith("/orders/A-1/notes/")
    written = client.call_tool("notes_order_post", {"number": "A-1"}).structured
    assert written["method"] == "POST"
    assert not client.call_tool("clear_notes_order", {"number": "A-1"}).is_error


def test_an_action_is_not_reached_through_the_key_of_another(client_of):
    result = client_of("ada").call_tool("get_order", {"number": "recent"}, check=False)
    assert (result.is_error, result.text) == (True, "Not found.")


def test_addresses_in_the_answer_are_absolute(client_of):
    page = client_of().call_tool("list_categories", {"limit": 1, "offset": 1}).structured
    (category,) = page["results"]
    assert category["url"].startswith("http")
    assert category["url"].endswith("/categories/fruit/")
    assert category["parent"].endswith("/categories/food/")
    assert page["count"] == 3
    assert page["next"].endswith("/categories/?limit=1&offset=2")


def test_a_slug_stands_for_a_related_object(client_of):
    made = client_of().call_tool(
        "create_ware",
        {"slug": "fig", "name": "Fig", "category": "fruit", "price": "1.00", "tags": ["sweet"]},
    )
    assert made.structured["category"] == "fruit"
    assert made.structured["tags"] == ["sweet"]
    wrong = client_of().call_tool("update_ware", {"slug": "fig", "category": "none"}, check=False)
    assert wrong.text == 'category: Object with code=none does not exist (got "none")'


@pytest.mark.parametrize("value", ["x", None, {"name": "x"}])
def test_a_file_is_refused_with_a_sentence(client_of, value):
    result = client_of().call_tool("update_ware", {"slug": "apple", "manual": value}, check=False)
    assert result.is_error
    assert result.text == (
        "manual: is a file, which arguments cannot contain; upload it through the site itself"
    )


def test_a_plain_viewset_takes_what_a_serializer_says(client_of):
    client = client_of()
    assert client.call_tool("list_moods").text == '[{"mood":"good"}]'
    assert client.call_tool("get_mood", {"pk": "fine"}).structured == {"mood": "fine"}
    made = client.call_tool("create_mood", {"text": "hm", "stars": 2}).structured
    assert made == {"got": {"text": "hm", "stars": 2}}


def test_variables_of_a_nested_address_are_arguments(client_of):
    client = client_of()
    listed = client.call_tool("list_order_lines", {"order_number": "A-1"})
    assert listed.structured == {"order": "A-1", "action": "list"}
    line = client.call_tool("get_order_line", {"order_number": "A-1", "pk": "7"})
    assert line.structured == {"order": "A-1", "line": "7"}
    assert client.call_tool("list_order_lines", check=False).text == "order_number: is required"


def test_a_viewset_that_is_called_stays_as_it_is(client_of):
    server = MCPServer("apart", permission=AllowAny)
    # The first access makes REST framework and Python set these on the class themselves.
    viewsets.MoodViewSet.as_view({"get": "retrieve"})
    assert viewsets.MoodViewSet.__annotations__ == {}
    before = dict(vars(viewsets.MoodViewSet))
    server.register_viewset(viewsets.MoodViewSet, basename="mood", actions=["retrieve"])
    answer = client_of(server=server).call_tool("get_mood", {"pk": "5"}).structured
    assert answer == {"mood": "5"}
    assert dict(vars(viewsets.MoodViewSet)) == before


def test_numbers_go_as_they_are_and_null_is_left_out(client_of):
    client = client_of()
    client.call_tool("update_ware", {"slug": "apple", "weight": 1.5, "price": 2.25})
    apple = Product.objects.get(slug="apple")
    assert (apple.weight, str(apple.price)) == (1.5, "2.25")
    sent = {"slug": "apple", "weight": None, "name": None, "price": "3.00"}
    assert not client.call_tool("update_ware", sent).is_error
    apple.refresh_from_db()
    assert (apple.weight, apple.name, str(apple.price)) == (1.5, "Apple", "3.00")


def test_clear_empties_what_may_be_empty(client_of):
    client = client_of()
    (tool,) = [
        definition for definition in client.list_tools() if definition["name"] == "update_ware"
    ]
    properties = tool["inputSchema"]["properties"]
    assert properties["clear"]["items"]["enum"] == ["weight"]
    assert properties["weight"]["type"] == "number"
    Product.objects.filter(slug="apple").update(weight=1.5)
    assert not client.call_tool("update_ware", {"slug": "apple", "clear": ["weight"]}).is_error
    assert Product.objects.get(slug="apple").weight is None


@pytest.mark.parametrize(
    ("clear", "message"),
    [
        (["name"], 'clear: must be "weight" (got "name")'),
        ("weight", 'clear: must be an array, as in ["weight"] (got "weight")'),
        ([["weight"]], 'clear: each item must be a string, as in ["weight"]'),
        (["weight"], "weight: is in clear and also has a value; send one of them"),
    ],
)
def test_a_wrong_clear_is_told(client_of, clear, message):
    sent = {"slug": "apple", "weight": 2, "clear": clear}
    result = client_of().call_tool("update_ware", sent, check=False)
    assert result.is_error
    assert message in result.text
    assert Product.objects.get(slug="apple").weight is None


@pytest.mark.parametrize(
    "text", ["\0", "x" * 10_000, "\u202e", "💥", "a/b", "%2e%2e", "?x=1", "#", ";", "\r\nX: y"]
)
def test_no_text_leads_to_another_page(client_of, text):
    client = client_of("ada")
    for tool, name in (("get_order", "number"), ("get_product", "slug"), ("get_category", "pk")):
        result = client.call_tool(tool, {name: text}, check=False)
        assert result.is_error
        assert "fault" not in result.text
    made = client.call_tool("create_mood", {"text": text, "stars": 1})
    assert made.structured == {"got": {"text": text, "stars": 1}}


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**63, 10**30])
def test_no_number_is_too_large(client_of, number):
    result = client_of().call_tool("get_tag", {"pk": number}, check=False)
    assert result.is_error
    assert "fault" not in result.text


def test_more_parameters_than_django_takes_are_refused(client_of):
    result = client_of().call_tool("list_products", {"word": ["sweet"] * 2000}, check=False)
    assert (result.is_error, result.text) == (True, "The request was refused.")
