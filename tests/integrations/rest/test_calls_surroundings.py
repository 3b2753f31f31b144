"""What is around a REST view: caches, middleware, decorators, transactions, versions, HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import connections
from django.test import override_settings
from django.urls import path, set_script_prefix

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.rest.calls import ACCEPT
from mcp_django.test import MCPClient
from tests.integrations.rest import odd
from tests.integrations.rest.conftest import give_address
from tests.integrations.rest.serializers import FeedbackSerializer
from tests.integrations.rest.views import CustomerCreateView
from tests.kit.drivers import message
from tests.kit.servers import post, token_for
from tests.sites.shop.models import Tag

TENANT = "tests.integrations.rest.odd.tenant_middleware"


@pytest.fixture(autouse=True)
def addresses(site, settings):
    """Set the URLconf with the odd views."""
    settings.ROOT_URLCONF = "tests.integrations.rest.odd"


def server_of(*views: Any, **options: Any) -> MCPServer:
    server = MCPServer("odd", permission=AllowAny)
    for view in views:
        server.register_api_view(view, **options)
    return server


def test_a_views_own_authentication_is_not_asked(client_of):
    server = server_of(odd.StubbornView)
    assert client_of("ada", server).call_tool("stubborn").structured == {"user": "ada", "scope": ""}
    assert client_of("", server).call_tool("stubborn").structured == {"user": "", "scope": None}


@override_settings(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None})
def test_nobody_is_nobody_in_the_sites_own_way(settings):
    def view(request):
        from rest_framework.response import Response

        return Response({"user": request.user, "auth": bool(request.auth)})

    from rest_framework.decorators import api_view

    made = api_view(["GET"])(view)
    server = server_of(made)
    server.register_api_view(CustomerCreateView, methods=["post"], name="create")
    client = MCPClient(server=server)
    give_address(settings, made)
    assert client.call_tool("view").structured == {"user": None, "auth": False}
    give_address(settings, CustomerCreateView)
    refused = client.call_tool("create", {"name": "x", "email": "x@shop.test"}, check=False)
    assert refused.text.startswith("You may not do this without signing in")


def test_the_scopes_of_the_credential_reach_the_view():
    user = get_user_model().objects.get(username="ada")
    client = MCPClient(server=server_of(odd.StubbornView), user=user, scopes=["b", "a"])
    assert client.call_tool("stubborn").structured == {"user": "ada", "scope": "a b"}


def test_a_cached_answer_is_for_the_caller_it_was_made_for(client_of, client):
    server = server_of(odd.CachedView)
    # With the headers of a tool call, so that only the caller makes a difference.
    response = client.get("/cached/", headers={"accept": ACCEPT, "accept-language": "en-us"})
    assert response.json() == {"user": ""}
    for username in ("ada", "friend", "", "ada"):
        answer = client_of(username, server).call_tool("cached").structured
        assert answer == {"user": username}


@pytest.mark.parametrize("who", ["ada", ""])
def test_a_cache_around_the_site_keeps_nothing_of_a_call(client_of, client, settings, who):
    cached = "django.middleware.cache.{}CacheMiddleware"
    settings.MIDDLEWARE = [
        cached.format("Update"),
        *settings.MIDDLEWARE,
        cached.format("FetchFrom"),
    ]
    cache.clear()
    server = server_of(odd.WhoView)
    assert client_of(who, server).call_tool("who").structured["user"] == who
    assert client.get("/who/").json()["user"] == ""
    assert client_of("friend", server).call_tool("who").structured["user"] == "friend"


def test_the_middleware_of_the_site_has_seen_the_request(client_of, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, TENANT]
    answer = client_of("ada", server_of(odd.WhoView)).call_tool("who").structured
    assert answer == {"user": "ada", "tenant": "acme"}


def test_a_session_that_a_view_begins_is_thrown_away(client_of):
    assert client_of("ada", server_of(odd.MemoryView)).call_tool("memory").structured["kept"]
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("word", "text", "is_kept"),
    [
        ("good", '{"in_transaction":true}', True),
        ("bad", "word: is bad", False),
        ("told", "word: is told", True),
        ("bug", "post_make", False),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_refused_request_writes_nothing_under_atomic_requests(
    client_of, client, word, text, is_kept
):
    server = server_of(odd.TagMaker, methods=["post"], name="post_make")
    atomic = connections["default"].settings_dict
    before, atomic["ATOMIC_REQUESTS"] = atomic["ATOMIC_REQUESTS"], True
    try:
        result = client_of("ada", server).call_tool("post_make", {"word": word}, check=False)
    finally:
        atomic["ATOMIC_REQUESTS"] = before
    assert text in result.text
    assert Tag.objects.filter(word=word).exists() is is_kept


@pytest.mark.django_db(transaction=True)
def test_a_view_may_stay_out_of_transactions(client_of):
    server = server_of(odd.FreeTagMaker, methods=["post"], name="free")
    atomic = connections["default"].settings_dict
    before, atomic["ATOMIC_REQUESTS"] = atomic["ATOMIC_REQUESTS"], True
    try:
        result = client_of("ada", server).call_tool("free", {"word": "good"})
        client_of("ada", server).call_tool("free", {"word": "bad"}, check=False)
    finally:
        atomic["ATOMIC_REQUESTS"] = before
    assert result.structured == {"in_transaction": False}
    assert Tag.objects.filter(word="bad").exists()


def test_a_decorator_around_the_view_holds(client_of):
    server = server_of(odd.guarded)
    assert client_of("ada", server).call_tool("plain").structured == {"user": "ada"}
    assert client_of("", server).call_tool("plain", check=False).is_error


def test_a_decorator_in_the_urlconf_holds(client_of):
    server = server_of(odd.WhoView, url_name="who-guarded")
    assert client_of("ada", server).call_tool("who").structured["user"] == "ada"
    assert client_of("", server).call_tool("who", check=False).is_error


def test_no_csrf_token_is_asked_for(client_of):
    server = server_of(odd.protected, methods=["post"])
    assert client_of("ada", server).call_tool("protected").structured == {"posted": True}


def test_a_site_below_a_prefix_answers_below_it(client_of):
    server = server_of(odd.AddressView)
    set_script_prefix("/below/")
    try:
        answer = client_of("", server).call_tool("address", {"word": "ä b"}).structured
    finally:
        set_script_prefix("/")
    assert answer["path"] == "/below/address/ä b/"
    assert answer["word"] == "ä b"
    assert answer["absolute"].endswith("/below/address/%C3%A4%20b/")


def test_a_view_that_looks_at_its_request_for_its_parsers_is_taken(client_of):
    server = server_of(odd.ChoosyView, methods=["post"], serializer=FeedbackSerializer)
    answer = client_of("", server).call_tool("choosy", {"text": "x", "stars": 1.0}).structured
    assert answer == {"text": "x", "stars": 1.0}


def test_what_middleware_sees_has_no_credentials(client_of, settings):
    settings.MIDDLEWARE = ["tests.integrations.rest.odd.bouncer_middleware", *settings.MIDDLEWARE]
    assert client_of("ada", server_of(odd.WhoView)).call_tool("who").structured["user"] == "ada"


def test_a_page_of_middleware_is_not_shown(client_of, settings):
    settings.MIDDLEWARE = ["tests.integrations.rest.odd.closed_middleware", *settings.MIDDLEWARE]
    result = client_of("ada", server_of(odd.WhoView)).call_tool("who", check=False)
    assert result.is_error
    assert result.text == "The site answered 503 Service Unavailable."


def test_a_stream_is_read(client_of):
    assert client_of("", server_of(odd.FileView)).call_tool("file").text == "one two"


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({"basename": "space", "version": "v2"}, "v2"),
        ({"basename": "v1:space"}, "v1"),
        ({"basename": "v2:space"}, "v2"),
    ],
)
def test_a_namespace_is_a_version(client_of, options, version):
    server = MCPServer("odd", permission=AllowAny)
    server.register_viewset(odd.SpaceViewSet, **options)
    answer = client_of("", server).call_tool("list_spaces").structured
    assert answer["version"] == version
    assert f"/{version}/tags/" in answer["url"]


def test_a_call_over_http_hands_over_no_credentials(settings):
    server = MCPServer("http", permission=AllowAny)
    server.register_api_view(odd.StubbornView)
    server.register_api_view(odd.plain)
    settings.ROOT_URLCONF = type(
        "URLs", (), {"urlpatterns": [path("mcp", server.urls), *odd.urlpatterns]}
    )
    _, token = token_for(get_user_model().objects.get(username="ada"), "read")
    body = message("tools/call", {"name": "stubborn", "arguments": {}})
    answer = post("/mcp", body, token=token).json()["result"]
    assert answer["structuredContent"] == {"user": "ada", "scope": "read"}
    anonymous = post("/mcp", body).json()["result"]
    assert anonymous["structuredContent"] == {"user": "", "scope": None}


def test_a_view_that_calls_a_view_through_us_is_refused(client_of):
    if not odd.nested_server.tools:
        odd.nested_server.register_api_view(odd.NestedView)
    answer = client_of("ada", odd.nested_server).call_tool("nested").structured
    assert "a view cannot be called from within another one" in answer["inner"]


def test_a_page_about_a_bug_is_not_shown(client_of, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.integrations.rest.odd.debugging_middleware"]
    server = server_of(odd.TagMaker, methods=["post"], name="make")
    result = client_of("ada", server).call_tool("make", {"word": "bug"}, check=False)
    assert (result.is_error, result.text) == (True, "The site answered 500 Internal Server Error.")


def test_a_session_that_middleware_begins_is_thrown_away(client_of, settings):
    settings.SESSION_SAVE_EVERY_REQUEST = True
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        "tests.integrations.rest.odd.remembering_middleware",
    ]
    client_of("ada", server_of(odd.WhoView)).call_tool("who")
    assert not Session.objects.exists()
