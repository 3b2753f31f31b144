"""The MCP App of a tool: how it is declared, named and rendered, and who may read it."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import UI, MCPServer
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.protocol.errors import UI as EXTENSION
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.drivers import headers_for, message
from tests.kit.servers import open_to_all, person, through_view
from tests.spec import spec

MIME = "text/html;profile=mcp-app"
PAGES = {
    "board.html": "<!doctype html><title>{{ tool }}</title><p>{{ user.username }}"
    "{% if perms.auth.view_group %} may{% endif %} {{ server.name }}</p>",
    "files.html": "{% load static %}<!doctype html><title>x</title>"
    "<link href=\"{% static 'a.css' %}\">"
    "<p style='background:url({% static \"a.png\" %})'>/static/</p>",
    "script.html": "{% load mcp_app %}<!doctype html><title>x</title>{% mcp_app %}",
}


@pytest.fixture(autouse=True)
def _pages():
    loader = ("django.template.loaders.locmem.Loader", PAGES)
    engine = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": False,
        "OPTIONS": {"loaders": [loader]},
    }
    with override_settings(TEMPLATES=[engine]):
        yield


@pytest.fixture
def server():
    return open_to_all()


def view(server: MCPServer, ui: UI | str, **options: Any) -> None:
    """Register a tool with this MCP App."""
    server.tool("board", ui=ui, **options)(lambda: "the board")


def listed(client: MCPClient, name: str = "board") -> dict[str, Any]:
    return next(tool for tool in client.list_tools() if tool["name"] == name)


@spec("APP-1", "APP-2", "APP-5")
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-06-18"])
def test_a_template_becomes_the_view_of_its_tool(server, version):
    view(server, "board.html")
    client = MCPClient(server=server, protocol_version=version)
    assert listed(client)["_meta"] == {
        "ui": {"resourceUri": "ui://inline/board"},
        "ui/resourceUri": "ui://inline/board",
    }
    (resource,) = client.list_resources()
    assert (resource["uri"], resource["mimeType"]) == ("ui://inline/board", MIME)
    (page,) = client.read_resource("ui://inline/board")
    assert (page["uri"], page["mimeType"]) == ("ui://inline/board", MIME)
    assert page["text"] == "<!doctype html><title>board</title><p> inline</p>"
    assert client.call_tool("board").text == "the board"


@spec("APP-1", "EXT-1")
def test_the_extension_is_advertised_where_a_tool_has_a_view(server):
    client = MCPClient(server=server)
    server.tool("plain")(lambda: "x")
    assert "extensions" not in client.discover()["capabilities"]
    view(server, "board.html")
    assert client.discover()["capabilities"]["extensions"] == {EXTENSION: {}}


@spec("APP-3")
def test_what_the_view_may_do_is_said_where_it_is_listed_and_read(server):
    ui = UI(
        "board.html",
        uri="ui://shop/board",
        connect=["wss://live.example.com"],
        resources=["https://*.tiles.example.com:8443"],
        frames=["https://video.example.com"],
        base_uris=["https://www.example.com"],
        allow=["geolocation", "clipboard_write"],
        border=False,
        domain="www-example-com.oaiusercontent.com",
        cache_ttl=timedelta(minutes=1),
    )
    view(server, ui)
    client = MCPClient(server=server)
    meta = {
        "csp": {
            "connectDomains": ["wss://live.example.com"],
            "resourceDomains": ["https://*.tiles.example.com:8443"],
            "frameDomains": ["https://video.example.com"],
            "baseUriDomains": ["https://www.example.com"],
        },
        "permissions": {"geolocation": {}, "clipboardWrite": {}},
        "domain": "www-example-com.oaiusercontent.com",
        "prefersBorder": False,
    }
    (resource,) = client.list_resources()
    read = client.request("resources/read", {"uri": "ui://shop/board"})
    assert resource["_meta"] == read["contents"][0]["_meta"] == {"ui": meta}
    assert (read["ttlMs"], read["cacheScope"]) == (60_000, "private")


@pytest.mark.django_db
@spec("APP-4", "APP-6")
def test_who_may_not_see_the_tool_cannot_read_its_view(server):
    view(server, "board.html", permission=IsStaff)
    server.tool("other", ui=UI(uri="ui://inline/board", visibility=["app"]))(lambda: "x")
    guest = MCPClient(server=server, user=person("guest"))
    with pytest.raises(ErrorResponse) as hidden:
        guest.read_resource("ui://inline/board")
    with pytest.raises(ErrorResponse) as unknown:
        guest.read_resource("ui://inline/bored")
    assert hidden.value.code == unknown.value.code
    assert hidden.value.message == unknown.value.message
    assert guest.list_resources() == []
    # A link that this caller cannot read is not shown.
    assert listed(guest, "other")["_meta"] == {"ui": {"visibility": ["app"]}}
    clerk = MCPClient(server=server, user=person("clerk", is_staff=True))
    assert "clerk" in clerk.read_resource("ui://inline/board")[0]["text"]
    assert listed(clerk, "other")["_meta"]["ui"] == {
        "resourceUri": "ui://inline/board",
        "visibility": ["app"],
    }


@pytest.mark.django_db
def test_the_page_knows_its_reader_by_his_own_permissions(server):
    view(server, "board.html")
    admin = person("root", is_superuser=True)
    (page,) = MCPClient(server=server, user=admin).read_resource("ui://inline/board")
    assert page["text"].endswith("<p>root may inline</p>")


@spec("APP-3")
@override_settings(STATIC_URL="/static/", MCP_DJANGO={"BASE_URL": "https://www.example.com"})
def test_static_files_get_whole_addresses_and_their_origin_is_let_in(server):
    view(server, UI("files.html", resources=["https://cdn.example.com"]))
    client = MCPClient(server=server)
    (page,) = client.read_resource("ui://inline/board")
    assert 'href="https://www.example.com/static/a.css"' in page["text"]
    assert "url(https://www.example.com/static/a.png)" in page["text"]
    assert ">/static/<" in page["text"]
    assert page["_meta"]["ui"]["csp"]["resourceDomains"] == [
        "https://cdn.example.com",
        "https://www.example.com",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("hosts", "base_url", "scope"),
    [
        (["*"], "", "private"),
        (["*"], "https://www.example.com", "public"),
        ([".example.com"], "", "public"),
    ],
)
def test_what_loads_from_where_its_reader_says_is_kept_for_no_one_else(
    server, hosts, base_url, scope
):
    view(server, UI("files.html", cache_public=True))
    body = message("resources/read", {"uri": "ui://inline/board"})
    headers = {**headers_for(body), "host": "of-a-reader.example.com"}
    settings = {"STATIC_URL": "/static/", "MCP_DJANGO": {"BASE_URL": base_url}}
    with override_settings(ALLOWED_HOSTS=hosts, **settings):
        result = json.loads(through_view(server, json.dumps(body), headers).content)["result"]
    (origin,) = result["contents"][0]["_meta"]["ui"]["csp"]["resourceDomains"]
    assert origin == (base_url or "http://of-a-reader.example.com")
    assert result["cacheScope"] == scope


@override_settings(STATIC_URL="https://files.example.com/s/")
def test_the_origin_of_static_files_elsewhere_is_let_in(server):
    view(server, "files.html")
    (page,) = MCPClient(server=server).read_resource("ui://inline/board")
    assert page["_meta"]["ui"]["csp"] == {"resourceDomains": ["https://files.example.com"]}


@override_settings(STATIC_URL="/static/", MCP_DJANGO={"BASE_URL": ""})
def test_static_files_without_an_address_are_told_of(server, caplog):
    view(server, "files.html")
    with caplog.at_level(logging.WARNING, "mcp_django"):
        (page,) = MCPClient(server=server).read_resource("ui://inline/board")
    assert "_meta" not in page
    assert "MCP_DJANGO['BASE_URL']" in caplog.text


def test_the_bridge_is_in_the_page_and_cannot_end_its_script_early(server):
    server.tool("a-b.c", ui="script.html")(lambda: "x")
    (page,) = MCPClient(server=server).read_resource("ui://inline/a-b.c")
    assert page["text"].count("<script>") == page["text"].count("</script>") == 1
    assert 'mcp.start("a-b.c");\n</script>' in page["text"]
    assert "ui/initialize" in page["text"]


def test_a_view_goes_with_its_tool(server):
    def board() -> str:
        return "x"

    server.tool(ui="board.html")(board)
    server.unregister(board)
    assert not list(server.registry)
    server.tool(ui="board.html")(board)
    with pytest.raises(AlreadyRegistered, match="ui://inline/board"):
        server.tool("again", ui=UI("board.html", uri="ui://inline/board"))(board)


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        ({"uri": "https://example.com/"}, "ui://shop/order"),
        ({"uri": "ui://a b"}, "not a URI"),
        ({"connect": ["https://example.com/path"]}, "origins without a path"),
        ({"resources": ["https://a.example; script-src *"]}, "origins without a path"),
        ({"frames": "https://a.example"}, "frames is not a list"),
        ({"visibility": ["user"]}, "'model', 'app'"),
        ({"allow": ["usb"]}, "'camera'"),
        ({"border": "yes"}, "True or False"),
        ({"domain": "a;b"}, "host name"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(given, way_out):
    with pytest.raises(ImproperlyConfigured, match=r"^ui: ") as refused:
        UI("board.html", **given)
    assert way_out in str(refused.value)


def test_a_link_says_nothing_of_a_page(server):
    with pytest.raises(ImproperlyConfigured, match="has no options"):
        UI()
    with pytest.raises(ImproperlyConfigured, match="border: these options need a template"):
        UI(uri="ui://inline/board", border=True)
    with pytest.raises(ImproperlyConfigured, match="ui is 3"):
        view(server, 3)
