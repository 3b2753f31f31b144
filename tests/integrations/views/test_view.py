"""A view as a tool, a resource and a prompt."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpRequest

from mcp_django import MCPServer
from mcp_django.exceptions import MCPError
from mcp_django.test import MCPClient
from tests.integrations.views.pages import PIXEL
from tests.kit.servers import person

pytestmark = pytest.mark.django_db


def listed(server: MCPServer, name: str) -> dict[str, Any]:
    return next(tool for tool in MCPClient(server=server).list_tools() if tool["name"] == name)


def called(server: MCPServer, url_name: str, user: Any = None, **options: Any) -> Any:
    """Return the result of a tool that is registered for one view."""
    server.register_view(url_name, name="tool", **options)
    return MCPClient(server=server, user=user).call_tool("tool", check=False)


def test_a_page_is_a_read_only_tool_with_the_variables_of_its_url(server):
    server.register_view("shop:price_list")
    tool = listed(server, "price_list")
    assert tool["description"] == "The prices of a season."
    assert tool["annotations"] == {"readOnlyHint": True}
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {"season": {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"}},
        "required": ["season"],
        "additionalProperties": False,
    }
    result = MCPClient(server=server).call_tool("price_list", {"season": "summer-26"})
    assert result.structured == {"season": "summer-26", "prices": [1, 2]}


def test_with_a_uri_it_is_a_resource_template(server):
    server.register_view("shop:price_list", uri="shop://price-list/{season}")
    client = MCPClient(server=server)
    (template,) = client.list_resource_templates()
    assert (template["uriTemplate"], template["name"]) == (
        "shop://price-list/{season}",
        "price_list",
    )
    assert client.read_resource("shop://price-list/winter") == [
        {
            "uri": "shop://price-list/winter",
            "mimeType": "application/json",
            "text": '{"season":"winter","prices":[1,2]}',
        }
    ]


@pytest.mark.parametrize("uri", ["shop://price-list/two%20words", "shop://price-list/"])
def test_a_variable_that_does_not_fit_is_no_resource(server, uri):
    server.register_view("shop:price_list", uri="shop://price-list/{season}")
    with pytest.raises(MCPError, match="Resource not found") as caught:
        MCPClient(server=server).read_resource(uri)
    assert caught.value.data == {"uri": uri}


def test_a_fixed_uri_is_a_resource_and_a_picture_a_blob(server):
    server.register_view("image", uri="shop://image")
    client = MCPClient(server=server)
    assert [resource["uri"] for resource in client.list_resources()] == ["shop://image"]
    (contents,) = client.read_resource("shop://image")
    assert contents["mimeType"] == "image/png"
    assert contents["blob"]


def test_a_query_is_part_of_a_uri(server):
    server.register_view("search", uri="shop://search{?q,page}", query={"q": str, "page": int})
    (contents,) = MCPClient(server=server).read_resource("shop://search?q=red%26blue&page=2")
    assert contents["text"] == '{"query":{"q":["red&blue"],"page":["2"]}}'


def test_a_view_writes_a_prompt(server):
    server.register_view("article", kind="prompt", readable=True)
    client = MCPClient(server=server)
    (prompt,) = client.list_prompts()
    assert prompt == {
        "name": "article",
        "description": "An article.",
        "arguments": [{"name": "slug", "required": True}],
    }
    (message,) = client.get_prompt("article", {"slug": "tea"})
    assert message == {
        "role": "user",
        "content": {"type": "text", "text": "# About tea\n\n- one\n- two"},
    }


def test_html_stays_as_it_is_unless_it_shall_be_readable(server):
    server.register_view("article", name="raw")
    server.register_view("article", name="plain", readable=True)
    client = MCPClient(server=server)
    assert "<script>" in client.call_tool("raw", {"slug": "tea"}).text
    assert client.call_tool("plain", {"slug": "tea"}).text == "# About tea\n\n- one\n- two"


@pytest.mark.parametrize(
    ("url_name", "arguments", "expected"),
    [
        (
            "number",
            {"year": "2026", "number": 7},
            {"year": ["int", "2026"], "number": ["int", "7"]},
        ),
        ("number", {"year": 2026}, {"year": ["int", "2026"]}),
        ("digits", {"digits": 42}, {"digits": ["str", "42"]}),
        (
            "digits",
            {"digits": "42", "more": "ab"},
            {"digits": ["str", "42"], "more": ["str", "ab"]},
        ),
        ("files", {"where": "a b/ü?#.txt"}, {"where": ["str", "a b/ü?#.txt"]}),
        ("files", {"where": "100%25"}, {"where": ["str", "100%25"]}),
    ],
)
def test_variables_reach_the_view_through_their_converters(server, url_name, arguments, expected):
    server.register_view(url_name)
    assert MCPClient(server=server).call_tool(url_name, arguments).structured == expected


def test_what_is_optional_in_the_urlconf_is_optional_here(server):
    server.register_view("number")
    schema = listed(server, "number")["inputSchema"]
    assert schema["required"] == ["year"]
    assert schema["properties"]["year"]["description"] == "A year of four digits."
    assert schema["properties"]["number"] == {"type": "integer", "minimum": 0}


@pytest.mark.parametrize(
    ("url_name", "arguments", "expected"),
    [
        ("number", {"year": "26"}, 'year: must match the pattern [0-9]{4} (got "26")'),
        ("number", {"year": "2026", "number": -1}, "number: must be at least 0 (got -1)"),
        ("number", {"year": "2026", "month": 1}, 'unknown argument "month"; known: year, number'),
        ("number", {}, "year: is required"),
        ("thing", {"key": "x"}, 'key: must be a UUID (got "x")'),
        ("digits", {"digits": "x"}, "no URL of the site accepts the given digits"),
        ("article", {"slug": "a/b"}, 'slug: must match the pattern ^[^/]+$ (got "a/b")'),
    ],
)
def test_wrong_variables_are_told_before_the_site_is_asked(server, url_name, arguments, expected):
    server.register_view(url_name)
    result = MCPClient(server=server).call_tool(url_name, arguments, check=False)
    assert result.is_error
    assert result.text == expected


def test_a_query_has_types(server):
    server.register_view("search", query={"q": str, "page": int, "tag": list[str], "sold": bool})
    client = MCPClient(server=server)
    sent = {"q": "&x=1", "page": 3, "tag": ["a", "b"], "sold": True}
    assert client.call_tool("search", sent).structured == {
        "query": {"q": ["&x=1"], "page": ["3"], "tag": ["a", "b"], "sold": ["true"]}
    }
    assert client.call_tool("search", {"page": "many"}, check=False).is_error
    assert client.call_tool("search", {"q": None}).structured == {"query": {}}


def test_a_picture_is_an_image_and_a_file_is_embedded(server):
    server.register_view("image")
    server.register_view("report")
    client = MCPClient(server=server)
    (block,) = client.call_tool("image").content
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    words, file = client.call_tool("report").content
    assert words["text"] == "report.pdf: application/pdf, 8 bytes."
    assert file["resource"]["mimeType"] == "application/pdf"
    assert file["resource"]["uri"] == "http://testserver/report/"


def test_a_stream_is_read_to_its_end(server):
    assert called(server, "rows").text == "0,0\n1,1\n2,4\n"


@pytest.mark.parametrize("url_name", ["endless", "endless_async"])
def test_an_endless_stream_is_read_up_to_the_limit(server, site, url_name):
    site.MCP_DJANGO = {"MAX_RESULT_BYTES": 1000}
    text = called(server, url_name).text
    assert text.startswith("and on\nand on\n")
    assert "[Cut:" in text
    assert len(text) < 1500


def test_a_file_over_the_limit_is_refused_with_the_limit(server, site):
    site.MCP_DJANGO = {"MAX_BODY_BYTES": len(PIXEL) - 1}
    result = called(server, "image")
    assert result.is_error
    assert f"larger than the allowed {len(PIXEL) - 1} bytes" in result.text


@pytest.mark.django_db(transaction=True)
async def test_an_async_view_sees_the_caller(server):
    server.register_view("who_async")
    user = await sync_to_async(person)()
    result = await MCPClient(server=server, user=user).acall_tool("who_async")
    assert result.text == "async ada"


def test_an_async_view_answers_a_synchronous_call(server):
    assert called(server, "who_async", person()).text == "async ada"


def test_what_is_conditional_is_answered_whole(server):
    server.register_view("tagged")
    client = MCPClient(server=server)
    assert [client.call_tool("tagged").text for _ in range(2)] == ["tagged", "tagged"]


def test_a_view_without_words_of_its_own_has_no_description_of_djangos(server):
    server.register_view("bare")
    server.register_view("who", description="Say who calls.")
    assert "description" not in listed(server, "bare")
    assert listed(server, "who")["description"] == "Say who calls."


def test_a_view_is_behind_the_permission_of_its_component(server):
    server.register_view("who", permission="auth.view_group")
    assert MCPClient(server=server, user=person()).list_tools() == []


def test_old_revisions_get_a_list_too(server):
    server.register_view("search", query={"q": str})
    client = MCPClient(server=server, protocol_version="2025-06-18")
    assert client.call_tool("search", {"q": "x"}).structured == {"query": {"q": ["x"]}}


def test_registering_leaves_a_request_of_the_site_alone(server, client):
    before = client.get("/article/tea/")
    called(server, "who")
    after = client.get("/article/tea/")
    assert (before.content, before.headers) == (after.content, after.headers)
    assert isinstance(after.wsgi_request, HttpRequest)


@pytest.mark.parametrize("url_name", ["branch:desk", "first:desk"])
def test_a_namespace_means_one_instance(server, url_name):
    server.register_view(url_name)
    result = MCPClient(server=server).call_tool("desk", {"number": 1})
    assert result.structured == {"number": ["int", "1"]}


def test_the_variables_of_a_uri_are_completed(server):
    server.register_view("shop:price_list", uri="shop://price-list/{season}")

    @server.completion("shop://price-list/{season}", "season")
    def seasons(value: str) -> list[str]:
        return [season for season in ("summer", "winter") if season.startswith(value)]

    client = MCPClient(server=server)
    assert client.complete("shop://price-list/{season}", "season", "w") == ["winter"]
