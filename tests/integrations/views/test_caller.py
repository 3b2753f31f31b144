"""The user that a view sees, and what its request says about the origin of the call."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import set_script_prefix
from django.utils import timezone, translation

from mcp_django import MCPServer, mcp
from mcp_django.test import MCPClient
from tests.integrations.views.conftest import MIDDLEWARE
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for

pytestmark = pytest.mark.django_db


def called(server: MCPServer, url_name: str, user: Any = None, **options: Any) -> Any:
    server.register_view(url_name, name="tool", **options)
    return MCPClient(server=server, user=user).call_tool("tool", check=False)


def test_login_required_sees_the_caller(server):
    assert called(server, "secret", person()).text == "ada"


def test_without_a_caller_the_way_to_the_sign_in_is_a_sentence(server):
    result = called(server, "secret")
    assert result.is_error
    assert result.text == (
        "You may not do this: the site redirects to its sign-in page, "
        "/accounts/login/?next=/secret/. The redirect was not followed."
    )


def test_middleware_that_asks_everybody_to_sign_in_sees_the_caller(server, site):
    site.MIDDLEWARE = [*MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    server.register_view("who")
    assert MCPClient(server=server, user=person()).call_tool("who").text == "ada"
    refused = MCPClient(server=server).call_tool("who", check=False)
    assert refused.is_error
    assert "/accounts/login/?next=/who/" in refused.text


def test_middleware_for_users_of_the_web_server_does_not_sign_the_caller_out(server, site):
    site.MIDDLEWARE = [*MIDDLEWARE, "django.contrib.auth.middleware.RemoteUserMiddleware"]
    assert called(server, "secret", person()).text == "ada"
    assert not Session.objects.exists()


@pytest.mark.parametrize("url_name", ["allowed", "sent-away"])
def test_permission_decorators_ask_for_the_permissions_of_the_caller(server, url_name):
    server.register_view(url_name, name="tool")
    user = person()
    refused = MCPClient(server=server, user=user).call_tool("tool", check=False)
    assert refused.is_error
    assert refused.text.startswith("You may not do this")
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    again = type(user).objects.get(pk=user.pk)
    assert MCPClient(server=server, user=again).call_tool("tool").text == "ada"


def test_a_resource_that_asks_for_a_sign_in_cannot_be_read(server):
    server.register_view("secret", uri="shop://secret")
    with pytest.raises(Exception, match="You may not do this"):
        MCPClient(server=server).read_resource("shop://secret")


def test_the_session_of_a_view_ends_with_the_call(server):
    result = called(server, "cookie")
    assert result.text == "ok"
    assert "sessionid" not in str(result.raw)
    assert "tracking" not in str(result.raw)
    assert not Session.objects.exists()


def test_a_view_that_signs_in_leaves_no_session(server):
    person()
    text = called(server, "sign_in").text
    key = text.removeprefix("signed in ")
    assert key
    assert not Session.objects.exists()
    client = Client()
    client.cookies["sessionid"] = key
    assert client.get("/who/").content == b"nobody"


def test_the_session_goes_even_when_the_view_fails_afterwards(server, site):
    site.SESSION_SAVE_EVERY_REQUEST = True
    assert called(server, "forbidden").is_error
    assert not Session.objects.exists()


def echoed(**headers: str) -> Any:
    """Return what a view sees that is called over HTTP with a token."""
    return echoed_again(token_for(person())[1], **headers)


def echoed_again(token: str, **headers: str) -> Any:
    response = post(
        "/mcp",
        message("tools/call", {"name": "echo_for_test", "arguments": {}}),
        token=token,
        **headers,
    )
    return response.json()["result"]["structuredContent"]


@pytest.fixture
def echo_tool():
    mcp.register_view("echo", name="echo_for_test")
    yield
    mcp.unregister(mcp.tools["echo_for_test"])


@pytest.mark.usefixtures("echo_tool")
def test_a_request_has_the_address_and_the_language_and_no_credentials():
    seen = echoed(accept_language="de-DE,de;q=0.9", user_agent="Mozilla", cookie="sessionid=stolen")
    assert seen["url"] == "http://testserver/echo/"
    assert seen["language"] == "de"
    assert seen["REMOTE_ADDR"] == "127.0.0.1"
    assert seen["HTTP_USER_AGENT"] == "Mozilla"
    assert seen["HTTP_AUTHORIZATION"] is None
    assert seen["cookies"] == {}
    assert seen["stamp"] == "stamped"


@pytest.mark.usefixtures("echo_tool")
def test_a_request_is_as_secure_as_the_one_that_it_came_with(site):
    site.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    site.SECURE_SSL_REDIRECT = True
    seen = echoed(x_forwarded_proto="https")
    assert (seen["is_secure"], seen["url"]) == (True, "https://testserver/echo/")


@pytest.mark.usefixtures("echo_tool")
def test_a_host_with_urls_of_its_own_is_called_by_those(site):
    site.MIDDLEWARE = ["tests.integrations.views.middleware.by_host", *MIDDLEWARE]
    _, token = token_for(person())
    sent = message("tools/call", {"name": "echo_for_test", "arguments": {"number": 7}})
    response = post("/mcp", sent, token=token, host="localhost")
    assert response.json()["result"]["structuredContent"] == {"number": ["int", "7"]}
    assert echoed_again(token)["url"] == "http://testserver/echo/"


def test_without_a_request_the_site_is_where_the_settings_say(server, site):
    site.ALLOWED_HOSTS = [".shop.example"]
    site.SECURE_SSL_REDIRECT = True
    server.register_view("echo")
    client = MCPClient(server=server)
    assert client.call_tool("echo").structured["url"] == "https://shop.example/echo/"
    site.MCP_DJANGO = {"BASE_URL": "https://www.shop.example:8443"}
    assert client.call_tool("echo").structured["url"] == "https://www.shop.example:8443/echo/"


def test_a_site_below_a_prefix_is_found_there(server):
    server.register_view("echo")
    set_script_prefix("/below/")
    try:
        seen = MCPClient(server=server).call_tool("echo").structured
    finally:
        set_script_prefix("/")
    assert (seen["path"], seen["path_info"]) == ("/below/echo/", "/echo/")


def test_a_forced_prefix_is_not_doubled(server, site):
    site.FORCE_SCRIPT_NAME = "/below"
    server.register_view("echo")
    set_script_prefix("/below/")
    try:
        seen = MCPClient(server=server).call_tool("echo").structured
    finally:
        set_script_prefix("/")
    assert (seen["path"], seen["path_info"]) == ("/below/echo/", "/echo/")


def test_a_translated_address_is_that_of_the_callers_language(server):
    server.register_view("greeting")
    client = MCPClient(server=server)
    with translation.override("de"):
        assert client.call_tool("greeting").structured["url"].endswith("/de/greeting/")
        assert client.call_tool("greeting").structured["language"] == "de"
    with translation.override("en"):
        assert client.call_tool("greeting").structured["url"].endswith("/en/greeting/")


def test_what_middleware_sets_for_the_thread_ends_with_the_call(server):
    before = timezone.get_current_timezone_name()
    server.register_view("echo")
    with translation.override("fr"):
        seen = MCPClient(server=server).call_tool("echo").structured
        assert translation.get_language() == "fr"
    assert seen["zone"] == "Asia/Tokyo"
    assert timezone.get_current_timezone_name() == before


def test_a_page_that_is_kept_in_a_cache_is_never_that_of_a_caller(server):
    server.register_view("cached")
    assert MCPClient(server=server, user=person()).call_tool("cached").text == "for ada"
    assert MCPClient(server=server, user=person("bob")).call_tool("cached").text == "for bob"
    assert Client().get("/cached/").content == b"for "


def test_a_caller_gets_no_page_that_was_kept_for_strangers(server):
    server.register_view("cached_by_cookie")
    assert Client().get("/cached-by-cookie/").content == b"for "
    ada = MCPClient(server=server, user=person())
    assert ada.call_tool("cached_by_cookie").text == "for ada"
    assert MCPClient(server=server).call_tool("cached_by_cookie").text == "for "


def test_middleware_that_is_async_only_runs(server, site):
    site.MIDDLEWARE = [*MIDDLEWARE, "tests.integrations.views.middleware.AsyncOnlyMiddleware"]
    assert called(server, "who", person()).text == "ada"
