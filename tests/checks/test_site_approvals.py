"""The check that a site with approvals has a page to sign in on."""

from __future__ import annotations

import weakref

import pytest
from django.http import HttpResponse
from django.urls import path

from mcp_django import MCPServer, server as server_module
from mcp_django.checks import site

urlpatterns = [path("sign-in/", lambda request: HttpResponse(), name="sign-in")]


@pytest.fixture(autouse=True)
def _site(settings, monkeypatch):
    """Register only the servers that the test declares, on a site without authorization server."""
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())
    monkeypatch.setattr(site, "OAUTH_APP", "is.not.installed")
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def server():
    """Return a server with a tool that needs the caller's approval."""
    server = MCPServer("desk")

    @server.tool(approval="caller")
    def cancel_order() -> str:
        """Cancel an order."""
        return ""

    return server


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/accounts/login/", ["mcp_django.W016"]),
        ("no_such_name", ["mcp_django.W016"]),
        ("", ["mcp_django.W016"]),
        ("/sign-in/", []),
        ("sign-in", []),
        ("https://login.example/", []),
    ],
)
def test_a_tool_that_waits_needs_a_page_to_sign_in_at(url, expected, server, settings):
    settings.LOGIN_URL = url
    messages = site.check_sign_in_page(None)
    assert [message.id for message in messages] == expected
    assert all("cancel_order on desk" in message.msg for message in messages)


def test_a_site_where_nothing_waits_needs_none(settings):
    settings.LOGIN_URL = "/accounts/login/"
    server = MCPServer("desk")
    server.tool(name="look")(lambda: "")
    assert site.check_sign_in_page(None) == []


def test_the_authorization_server_has_an_error_of_its_own(server, settings, monkeypatch):
    settings.LOGIN_URL = "/accounts/login/"
    monkeypatch.setattr(site, "OAUTH_APP", "mcp_django")
    assert site.check_sign_in_page(None) == []
