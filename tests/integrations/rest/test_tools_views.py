"""What REST views answer as tools: functions, classes, generic views."""

import base64
import logging

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.schema.arguments import InvalidArguments
from tests.integrations.models.building import product
from tests.sites.shop.models import Customer, Tag


def test_a_function_view_is_called_with_the_variables_of_its_url(client_of):
    assert client_of().call_tool("greet", {"name": "Ada"}).structured == {
        "greeting": "Hello Ada",
        "by": "AnonymousUser",
    }


def test_another_url_of_the_same_view_takes_more_variables(client_of):
    result = client_of("ada").call_tool("greet", {"name": "Ada", "times": "2"})
    assert result.structured == {"greeting": "Hello AdaHello Ada", "by": "ada"}


def test_a_class_view_is_at_its_own_address(client_of):
    result = client_of().call_tool("get_add", {"a": 2, "b": 3})
    assert result.structured["sum"] == 5
    assert result.structured["path"] == "/add/2/3/"
    assert result.structured["absolute"].endswith("/add/2/3/")


def test_each_method_is_a_tool_of_its_own(client_of):
    assert client_of().call_tool("post_add", {"a": 1, "b": 1}).structured == {
        "sum": 2,
        "plus": {},
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "a: is required\nb: is required"),
        ({"a": "x", "b": 1}, "a: "),
        ({"a": 1, "b": 2, "c": 3}, 'unknown argument "c"; known: a, b'),
        ({"a": [1], "b": 2}, "a: must be an integer (got [1])"),
    ],
)
def test_arguments_that_no_url_takes_are_refused(client_of, arguments, text):
    result = client_of().call_tool("get_add", arguments, check=False)
    assert result.is_error
    assert text in result.text or (arguments.get("a") == "x" and result.text == "Not found.")


def test_a_list_is_filtered_searched_sorted_and_paged(client_of):
    client = client_of()

    def names(**arguments):
        answer = client.call_tool("list_products", arguments).structured
        return [row["slug"] for row in answer["results"]]

    assert names() == ["apple", "banana"]
    assert names(page=2) == ["cherry"]
    assert names(page_size=3) == ["apple", "banana", "cherry"]
    assert names(search="err") == ["cherry"]
    assert names(ordering=["-price"], page_size=1) == ["cherry"]
    assert names(size="l") == ["banana"]
    assert names(price_min="2.5", price_max=4) == ["apple"]
    assert names(size_in=["l"]) == ["banana"]
    assert names(word=["sweet"], is_active=True, page_size=9) == ["apple", "banana", "cherry"]
    assert names(is_active=False) == []


def test_a_page_that_is_cut_to_size_leads_to_no_next_one(client_of, settings):
    for number in range(12):
        product(f"pear {number} {'x' * 60}")
    settings.MCP_DJANGO = {"MAX_RESULT_BYTES": 1000}
    answer = client_of().call_tool("list_products", {"page_size": 10})
    assert 0 < len(answer.structured["results"]) < 10
    assert answer.structured["next"] is None
    assert "request smaller pages" in answer.text
    whole = client_of().call_tool("list_products", {"page_size": 2}).structured
    assert "page=2" in whole["next"]


def test_a_call_asks_the_database_what_a_request_does(client_of, client):
    tools = client_of()
    with CaptureQueriesContext(connection) as of_request:
        client.get("/products/?search=err&page_size=5")
    with CaptureQueriesContext(connection) as of_call:
        tools.call_tool("list_products", {"search": "err", "page_size": 5})
    assert [query["sql"] for query in of_call] == [query["sql"] for query in of_request]
    assert len(of_call) > 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"colour": "red"}, 'unknown argument "colour"'),
        ({"ordering": ["cost"]}, "ordering: must be one of"),
        ({"ordering": "cost"}, "ordering: must be an array, as in ["),
        ({"ordering": "-price"}, 'must be an array, as in ["-price"] (got "-price")'),
        ({"size": "x"}, 'size: must be one of "s", "l"'),
        ({"page": 99}, "Invalid page."),
        ({"page": 10**18}, "page: must have at most 18 digits (got 1000000000000000000)"),
        ({"released__gte": "soon"}, "released__gte: Enter a valid date"),
        ({"word": ["none"]}, "word: Select a valid choice"),
        ({"search": "\0"}, "search: "),
    ],
)
def test_a_bad_filter_is_refused_by_name(client_of, arguments, text):
    result = client_of().call_tool("list_products", arguments, check=False)
    assert result.is_error
    assert text in result.text


def test_half_a_character_is_refused(whole_site):
    # Client libraries would not send this, but JSON can express it.
    arguments = whole_site.tools["list_products"].arguments
    with pytest.raises(InvalidArguments) as caught:
        arguments.parse(b'{"search": "\\ud800"}')
    assert str(caught.value) == "search: must be text without control or broken characters"


def test_a_cursor_leads_through_all_pages(client_of):
    client, seen, cursor = client_of(), [], None
    for _ in range(3):
        page = client.call_tool("ledger", {"cursor": cursor} if cursor else {}).structured
        seen += [row["owner"] for row in page["results"]]
        cursor = (page["next"] or "").rpartition("cursor=")[2].replace("%3D", "=")
    assert seen == [f"Owner {index}" for index in range(5)]
    assert cursor == ""


def test_a_forged_cursor_is_refused(client_of):
    result = client_of().call_tool("ledger", {"cursor": "zzz"}, check=False)
    assert (result.is_error, result.text) == (True, "Invalid cursor")


def test_one_object_is_found_by_its_lookup_field(client_of):
    client = client_of()
    result = client.call_tool("get_product", {"slug": "apple"})
    assert result.structured["shout"] == "APPLE"
    for slug in ("none", "../apple", "a b", ""):
        missing = client.call_tool("get_product", {"slug": slug}, check=False)
        assert missing.is_error
        assert "ot found" in missing.text or "matches the given query" in missing.text


def test_a_generic_view_reads_changes_and_deletes(client_of):
    client = client_of()
    tag = Tag.objects.get(word="sour")
    assert client.call_tool("get_tag", {"pk": tag.pk}).structured == {"id": tag.pk, "word": "sour"}
    assert client.call_tool("update_tag", {"pk": tag.pk}).structured["word"] == "sour"
    changed = client.call_tool("update_tag", {"pk": tag.pk, "word": "salty"})
    assert changed.structured == {"id": tag.pk, "word": "salty"}
    replaced = client.call_tool("replace_tag", {"pk": tag.pk}, check=False)
    assert (replaced.is_error, replaced.text) == (True, "word: is required")
    taken = client.call_tool("replace_tag", {"pk": tag.pk, "word": "sweet"}, check=False)
    assert taken.text == 'word: tag with this word already exists (got "sweet")'
    assert client.call_tool("delete_tag", {"pk": tag.pk}).text.startswith("Done")
    assert not Tag.objects.filter(pk=tag.pk).exists()


def test_creating_needs_whom_the_view_lets_in(client_of):
    arguments = {"name": "Eve", "email": "eve@shop.test", "password": "hunter2"}
    refused = client_of().call_tool("create_customer", arguments, check=False)
    assert refused.is_error
    assert refused.text.startswith("You may not do this without signing in")
    made = client_of("ada").call_tool("create_customer", arguments)
    assert made.structured == {
        "id": Customer.objects.get(name="Eve").pk,
        "name": "Eve",
        "email": "eve@shop.test",
    }


def test_a_secret_is_not_repeated_in_a_complaint(client_of):
    result = client_of("ada").call_tool(
        "create_customer",
        {"name": "", "email": "nowhere", "password": "x" * 200},
        check=False,
    )
    assert result.text.splitlines() == [
        'name: This field may not be blank (got "")',
        'email: Enter a valid email address (got "nowhere")',
        "password: Ensure this field has no more than 100 characters",
    ]


def test_a_variable_that_only_the_url_knows_is_an_argument(client_of):
    customer = Customer.objects.get(name="Bob")
    result = client_of().call_tool("customer_orders", {"customer_pk": customer.pk})
    assert [order["number"] for order in result.structured] == ["B-1"]


def test_a_throttle_says_when_to_come_back(client_of):
    client = client_of("ada")
    assert client.call_tool("rare").structured == "here"
    again = client.call_tool("rare", check=False)
    assert again.is_error
    assert again.text.startswith("Too many requests: the site limits how often this can be done.")
    assert "Try again in 3" in again.text
    assert not client_of("friend").call_tool("rare").is_error


def test_a_throttle_counts_calls_and_requests_together(client_of, client):
    from django.contrib.auth import get_user_model

    client.force_login(get_user_model().objects.get(username="ada"))
    assert client_of("ada").call_tool("ping").structured == {"got": {}, "auth": "CallerToken"}
    assert client_of("ada").call_tool("ping").structured["got"] == {}
    assert client_of("ada").call_tool("ping", check=False).is_error


def test_a_custom_permission_speaks_for_itself(client_of):
    refused = client_of("ada").call_tool("friend", check=False)
    assert (refused.is_error, refused.text) == (
        True,
        "You may not do this. Only friends come in.",
    )
    assert client_of("friend").call_tool("friend").structured == {"welcome": "friend"}


@pytest.mark.parametrize(
    ("tool", "content_type"),
    [("feedback", "application/x-www-form-urlencoded"), ("multipart", "multipart/form-data")],
)
def test_a_view_that_parses_forms_gets_a_form(client_of, tool, content_type):
    arguments = {"text": 'A "b" & c ü', "stars": 3, "is_public": True, "words": ["x", "y,z"]}
    answer = client_of().call_tool(tool, arguments).structured
    assert answer.pop("content_type").startswith(content_type)
    assert answer == arguments


def test_another_renderer_gives_text_or_a_picture(client_of):
    assert client_of().call_tool("csv").text == "a,b\n1,2"
    (picture,) = client_of().call_tool("picture").content
    assert picture["mimeType"] == "image/png"
    assert base64.b64decode(picture["data"]) == b"\x89PNG"


@pytest.mark.parametrize(
    ("tool", "version", "path"),
    [
        ("path_version", "v2", "/v2/path/"),
        ("header_version", "1.5", "/header/"),
        ("query_version", "3", "/query/"),
    ],
)
def test_a_version_is_asked_for_as_the_view_expects(client_of, tool, version, path):
    assert client_of().call_tool(tool).structured == {"version": version, "path": path}


def test_a_handler_of_exceptions_keeps_its_words(client_of):
    value = client_of().call_tool("odd_errors", {"kind": "value"}, check=False)
    assert value.text == "error.kind: ValueError\nerror.text: not this"
    teapot = client_of().call_tool("odd_errors", {"kind": "other"}, check=False)
    assert teapot.is_error
    assert teapot.text == (
        "The site answered 418 I'm a Teapot. "
        '{"error": {"kind": "Teapot", "text": "Short and stout."}}'
    )


def test_every_way_to_end_has_its_words(client_of):
    def outcome(how):
        result = client_of().call_tool("outcome", {"how": how}, check=False)
        return result.is_error, result.text

    assert outcome("nothing") == (
        False,
        "Done: the site answered 204 No Content, with an empty body.",
    )
    assert outcome("html") == (False, "# Title\n\nText")
    assert outcome("conflict") == (
        True,
        'The site answered 409 Conflict. {"reason": "Somebody was faster."}',
    )
    is_error, text = outcome("redirect")
    assert is_error
    assert "/elsewhere/" in text


@pytest.mark.parametrize("debug", [True, False])
def test_a_bug_is_logged_and_said_in_neutral_words(client_of, settings, caplog, debug):
    settings.DEBUG = debug
    with caplog.at_level(logging.ERROR):
        result = client_of().call_tool("outcome", {"how": "bug"}, check=False)
    assert result.is_error
    assert "secret of the code" not in str(result.raw)
    assert "because of a server error" in result.text
    assert "ZeroDivisionError" in caplog.text


def test_the_request_has_no_credentials_and_leaves_no_session(client_of):
    assert client_of("ada").call_tool("surroundings").structured == {
        "authorization": "MCP",
        "cookies": {},
        "session": None,
        "user": "ada",
        "django_user": "ada",
        "query": {},
        "url_name": "surroundings",
    }
    assert not Session.objects.exists()
