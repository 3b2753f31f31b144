"""Failures of the site's views, as a caller sees them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group

from mcp_django import MCPServer
from mcp_django.exceptions import MCPError
from mcp_django.test import MCPClient
from tests.integrations.views.conftest import MIDDLEWARE
from tests.integrations.views.pages import Leak, nested_server
from tests.kit.servers import person, real_client

pytestmark = pytest.mark.django_db
OF_A_DEBUG_PAGE = (
    "hunter2",
    "Traceback",
    "settings",
    "tests.integrations",
    "urls",
    "DEBUG",
    "10.0.0.7",
)


def answer(server: MCPServer, url_name: str, user: Any = None) -> Any:
    server.register_view(url_name, name="tool")
    return real_client(server=server, user=user).call_tool("tool", check=False)


REDIRECTED = (
    "This URL has no page: the site redirects to https://other.example/path?x=1. The "
    "redirect was not followed."
)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("url_name", "expected"),
    [
        ("boom", "tool 'tool' failed because of a server error. The error was logged."),
        ("missing", "No such page."),
        ("gone", "Not found."),
        ("forbidden", "Members only."),
        ("shady", "The request was refused."),
        ("conflict", 'The site answered 409 Conflict.\n{"detail": "taken since noon"}'),
        ("elsewhere", REDIRECTED),
        ("add_price", "The site answered 405 Method Not Allowed."),
    ],
)
def test_a_failure_is_a_sentence_and_never_a_page_of_django(
    server, site, url_name, expected, *, debug
):
    site.DEBUG = debug
    result = answer(server, url_name)
    assert result.is_error
    assert result.text == expected


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("middleware", "expected"),
    [
        ("closed", "The site answered 503 Service Unavailable."),
        ("breaking", "Not found."),
    ],
)
def test_what_middleware_says_in_place_of_a_view_is_a_status(
    server, site, middleware, expected, *, debug
):
    site.DEBUG = debug
    site.MIDDLEWARE = [*MIDDLEWARE, f"tests.integrations.views.middleware.{middleware}"]
    result = answer(server, "who")
    assert (result.is_error, result.text) == (True, expected)


@pytest.mark.parametrize("url_name", ["boom", "missing", "shady", "forbidden", "gone"])
def test_no_page_of_django_is_a_resource(server, site, url_name):
    site.DEBUG = True
    server.register_view(url_name, uri="shop://page")
    with pytest.raises(MCPError) as caught:
        real_client(server=server).read_resource("shop://page")
    assert not [word for word in OF_A_DEBUG_PAGE if word in str(caught.value)]


def test_a_bug_of_a_view_is_raised_in_tests_as_it_is(server):
    server.register_view("boom")
    with pytest.raises(Leak):
        MCPClient(server=server).call_tool("boom")


def test_a_page_of_last_resort_is_an_answer(server, site):
    site.MIDDLEWARE = [*MIDDLEWARE, "tests.integrations.views.middleware.FallbackMiddleware"]
    assert answer(server, "missing").text == "a flat page"


@pytest.mark.parametrize(
    ("url_name", "expected"), [("missing", "No such page."), ("gone", "Not found.")]
)
def test_what_is_not_found_is_not_a_redirect(server, site, url_name, expected):
    site.MIDDLEWARE = ["tests.integrations.views.middleware.homeward", *MIDDLEWARE]
    result = answer(server, url_name)
    assert (result.is_error, result.text) == (True, expected)


def test_a_view_that_calls_a_view_through_us_is_refused():
    if "nested" not in nested_server.tools:
        nested_server.register_view("nested")
    result = MCPClient(server=nested_server, user=person()).call_tool("nested")
    assert result.text == (
        "inner: /nested/ is requested by a view that itself runs for a call; a view cannot be "
        "called from within another one."
    )


@pytest.mark.django_db(transaction=True)
def test_the_transaction_of_a_view_is_the_sites(server, monkeypatch):
    from django.db import connections

    server.register_view("writes_and_fails")
    client = real_client(server=server)
    assert client.call_tool("writes_and_fails", check=False).is_error
    assert Group.objects.count() == 1
    Group.objects.all().delete()
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert client.call_tool("writes_and_fails", check=False).is_error
    assert not Group.objects.exists()


def test_a_read_only_page_may_write(server):
    # A view may write when it is read, such as a counter of visitors.
    server.register_view("cookie")
    assert not MCPClient(server=server).call_tool("cookie").is_error


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [
        ("DebuggingMiddleware", "The site answered 500 Internal Server Error."),
        ("DomainMiddleware", "The site answered 409 Conflict.\nabout the password is hunter2"),
    ],
)
def test_what_middleware_says_of_an_exception_is_said_unless_it_is_about_a_bug(
    server, site, middleware, expected
):
    site.MIDDLEWARE = [*MIDDLEWARE, f"tests.integrations.views.middleware.{middleware}"]
    result = answer(server, "boom")
    assert (result.is_error, result.text) == (True, expected)
