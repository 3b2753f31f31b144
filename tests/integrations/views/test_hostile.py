"""Arguments that were chosen to reach something other than their view."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from mcp_django import mcp
from mcp_django.test import MCPClient
from tests.integrations.views import forms
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, person, post, real_client, token_for

pytestmark = pytest.mark.django_db


def test_a_value_cannot_make_an_address_that_belongs_to_another_view(server):
    server.register_view("catch_all")
    client = MCPClient(server=server, user=person())
    assert client.call_tool("catch_all", {"page": "about/us"}).text == "page about/us"
    result = client.call_tool("catch_all", {"page": "new/"}, check=False)
    assert (result.is_error, result.text) == (True, "Not found.")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("../who/", "page ../who/"),
        ("//other.example/", "page //other.example/"),
        ("a?b=1#c", "page a?b=1#c"),
        ("%2e%2e/who", "page %2e%2e/who"),
        ("ünï\u2028", "page ünï\u2028"),
        ("a\r\nSet-Cookie: x=1", None),
        ("a\0b", "page a\0b"),
    ],
)
def test_odd_characters_stay_in_the_value(server, page, expected):
    server.register_view("catch_all")
    result = real_client(server=server).call_tool("catch_all", {"page": page}, check=False)
    if expected is None:
        assert result.is_error
        assert "no URL of the site accepts" in result.text or result.text == "Not found."
    else:
        assert result.text == expected


@pytest.mark.parametrize(
    ("url_name", "options", "arguments"),
    [
        ("search", {"query": forms.SearchForm}, {"q": ["x"]}),
        ("search", {"query": {"q": str}}, {"q": ["x"] * 10_000}),
        ("search", {"query": {"q": str}}, {f"q{n}": "x" for n in range(3000)}),
        ("number", {}, {"year": {"$gt": ""}}),
    ],
)
def test_values_that_cannot_be_sent_are_refused_in_words(server, url_name, options, arguments):
    server.register_view(url_name, **options)
    result = real_client(server=server).call_tool(url_name, arguments, check=False)
    assert result.is_error
    assert "was logged" not in result.text
    assert len(result.text) < 5000


def test_a_large_value_is_sent_whole(server):
    server.register_view("search", query={"q": str})
    result = MCPClient(server=server).call_tool("search", {"q": "x" * 50_000})
    assert result.structured["query"]["q"] == ["x" * 50_000]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_json_list_reaches_every_revision(server, version):
    server.register_view("list")
    client = MCPClient(server=server, protocol_version=version)
    result = client.call_tool("list")
    rows = [{"n": 0}, {"n": 1}, {"n": 2}]
    assert result.text == '[{"n":0},{"n":1},{"n":2}]'
    assert result.structured == (rows if version == "2026-07-28" else {"result": rows})


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"query": {"q": str}}, "q"), ({"query": forms.SearchForm}, "q")],
)
def test_half_a_character_is_refused(options, argument):
    mcp.register_view("search", name="half", **options)
    _, token = token_for(person())
    sent = message("tools/call", {"name": "half", "arguments": {argument: "\ud800"}})
    try:
        response = post("/mcp", sent, token=token)
    finally:
        mcp.unregister(mcp.tools["half"])
    assert response.status_code in {200, 400}
    assert "logged" not in response.content.decode()


def answering(content: bytes, content_type: str, **headers: str) -> Any:
    """Return a view with a fixed response."""
    options = {"content_type": content_type, "headers": headers}
    return lambda request: HttpResponse(content, **options)


def said_over_http(settings: Any, view: Any, **options: Any) -> Any:
    """Return the result that a client over the network gets from a view."""
    server = open_to_all()
    server.register_view("page", **options)
    patterns = [path("mcp", server.urls), path("page/", view, name="page")]
    settings.ROOT_URLCONF = type("URLs", (), {"urlpatterns": patterns})
    return post("/mcp", message("tools/call", {"name": "page", "arguments": {}})).json()["result"]


@pytest.mark.parametrize(
    ("content", "content_type", "text"),
    [
        (b'{"a": "\\ud800"}', "application/json", '{"a": "\\ud800"}'),
        (b"[" * 200 + b"]" * 200, "application/json", "[" * 200 + "]" * 200),
        (b"\xef\xbb\xbf{}", "application/json", "{}"),
        (b'{"a": NaN}', "application/json", '{"a": NaN}'),
        (b"+2AA-x", "text/plain; charset=utf-7", "?x"),
        (b"x\xff", "text/plain; charset=idna", "x\ufffd"),
        (b"x", "text/plain; charset=undefined", "x"),
        (b"x", 'text/plain; charset="a\0b"', "x"),
        (b"\\q", "text/plain; charset=unicode_escape", "\\q"),
        (b"zz", "text/plain; charset=hex", "zz"),
        (b"x", "garbage;;;=", "x"),
    ],
)
def test_no_charset_and_no_json_is_too_odd(settings, content, content_type, text):
    result = said_over_http(settings, answering(content, content_type))
    assert "isError" not in result
    assert result["content"][0]["text"] == text


def test_a_stream_that_trickles_is_read_no_longer_than_a_call_may_take(settings):
    def trickle() -> Iterator[bytes]:
        yield b"begun"
        while True:
            yield b""

    settings.MCP_DJANGO = {"CALL_TIMEOUT": 0.01}
    result = said_over_http(
        settings, lambda request: StreamingHttpResponse(trickle(), content_type="text/plain")
    )
    assert result["content"][0]["text"].startswith("begun\n\n[Cut: ")


def test_a_stream_that_breaks_is_a_neutral_failure_and_is_closed(settings):
    closed = []

    class Breaking:
        def __iter__(self) -> Iterator[bytes]:
            yield b"half a secret"
            raise RuntimeError("the other half")

        def close(self) -> None:
            closed.append(True)

    result = said_over_http(settings, lambda request: StreamingHttpResponse(Breaking()))
    assert result["isError"]
    assert "half" not in str(result)
    assert closed == [True]


def test_a_redirect_to_no_address_is_said_as_it_is(settings):
    def view(request: Any) -> HttpResponse:
        return HttpResponse(status=302, headers={"Location": "http://[bad"})

    result = said_over_http(settings, view)
    assert result["content"][0]["text"] == (
        "This URL has no page: the site redirects to http://[bad. The redirect was not followed."
    )


def test_a_site_without_a_page_to_sign_in_at_redirects_all_the_same(server, site):
    site.LOGIN_URL = "no_such_name"
    server.register_view("said", method="post")
    assert MCPClient(server=server).call_tool("said").text.startswith("Done.")


@pytest.mark.parametrize(
    ("packed", "text"), [(gzip.compress(b"hello", mtime=0), "hello"), (b"not packed", "not packed")]
)
def test_a_compressed_page_is_unpacked(settings, packed, text):
    view = answering(packed, "text/plain", **{"Content-Encoding": "gzip"})
    assert said_over_http(settings, view)["content"][0]["text"] == text


def test_a_compressed_page_is_unpacked_no_further_than_a_page_may_be_long(settings):
    bomb = gzip.compress(b'"' + b" " * 10_000_000 + b'"')
    result = said_over_http(
        settings, answering(bomb, "application/json", **{"Content-Encoding": "gzip"})
    )
    assert result["isError"]
    assert "larger than the allowed 4194304 bytes" in result["content"][0]["text"]
