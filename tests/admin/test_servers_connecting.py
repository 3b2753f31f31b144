"""How clients are connected: the real address, no secret, and who is told."""

from __future__ import annotations

import base64
import json
from html import unescape
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from mcp_django import MCPServer
from mcp_django.admin.servers import client_setups
from mcp_django.auth.permissions import AllowAny
from mcp_django.hosts.clients import CLIENTS
from mcp_django.models import AccessToken, Server
from tests.admin.reading import has_inline_code, text_of
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
URL = "https://shop.example/mcp"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def page():
    """The page of the shelf."""
    return f"/admin/mcp_django/server/{Server.objects.create(name='shelf').pk}/connect/"


def closed() -> MCPServer:
    """A server that knows its callers by tokens."""
    return MCPServer("inline", auth=["tokens"])


def test_every_client_is_told_the_real_address(page):
    response = superuser().get(page)
    setups = {setup.host.slug: setup for setup in response.context["recipes"]}
    assert setups.keys() == CLIENTS.keys()
    address = "http://testserver/shelf/mcp"
    for setup in setups.values():
        assert address in setup.text
        assert unescape(response.content.decode()).count(setup.text) >= 1
        assert setup.host.title in text_of(response)
    assert not has_inline_code(response)


def test_the_address_is_below_the_base_url_where_the_site_says_one(page, settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example"}
    assert superuser().get(page).context["url"] == "https://shop.example/shelf/mcp"


def test_a_server_without_an_address_is_told_apart(page, settings):
    settings.ROOT_URLCONF = "tests.admin.test_servers_connecting"
    response = superuser().get(page)
    assert response.context["recipes"] == []
    assert "no fixed URL" in text_of(response)


def test_a_server_that_says_where_it_is_is_believed(rf):
    from mcp_django.admin.servers import server_url

    assert server_url(MCPServer("away", resource_url=URL), rf.get("/")) == URL


def test_no_recipe_holds_a_secret_and_each_names_its_place():
    from tests.kit.servers import person

    _, plaintext = AccessToken.objects.issue(person(), name="laptop")
    for setup in client_setups(closed(), URL):
        assert plaintext not in setup.text + setup.link
        if setup.host.format == "url":
            continue
        placeholders = ("MCP_TOKEN", "YOUR_TOKEN", "inline-token")
        assert any(name in setup.text for name in placeholders), setup.text
        assert setup.notes


def test_an_open_server_asks_for_no_token():
    for setup in client_setups(MCPServer("inline", permission=AllowAny), URL):
        assert "uthorization" not in setup.text
        assert "TOKEN" not in setup.text


def test_a_server_with_oauth_says_that_a_browser_opens():
    setups = {
        setup.host.slug: setup for setup in client_setups(MCPServer("inline", auth=["oauth"]), URL)
    }
    assert "uthorization" not in setups["vscode"].text
    assert "The client opens a browser to sign in." in setups["vscode"].notes
    assert "MCP_TOKEN" in setups["curl"].text


def test_a_cloud_is_told_that_it_cannot_reach_a_local_address():
    setups = {
        setup.host.slug: setup for setup in client_setups(closed(), "http://127.0.0.1:8000/mcp")
    }
    assert any("public https://" in note for note in setups["chatgpt"].notes)
    setups = {setup.host.slug: setup for setup in client_setups(closed(), URL)}
    assert not any("public https://" in note for note in setups["chatgpt"].notes)


def test_a_client_of_another_revision_is_told_so(settings):
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": ["2024-11-05"]}
    setups = {setup.host.slug: setup for setup in client_setups(closed(), URL)}
    assert any("this server supports 2024-11-05" in note for note in setups["curl"].notes)


def test_links_carry_what_the_files_would_have():
    links = {setup.host.slug: setup.link for setup in client_setups(closed(), URL)}
    assert {slug for slug, link in links.items() if link} == {"vscode", "cursor"}
    config = json.loads(unquote(links["vscode"].removeprefix("vscode:mcp/install?")))
    assert (config["name"], config["type"], config["url"]) == ("inline", "http", URL)
    assert config["headers"] == {"Authorization": "Bearer ${input:inline-token}"}
    assert config["inputs"][0]["id"] == "inline-token"
    parts = urlsplit(links["cursor"])
    query = parse_qs(parts.query)
    assert (parts.scheme, parts.netloc) == ("cursor", "anysphere.cursor-deeplink")
    assert json.loads(base64.b64decode(query["config"][0])) == {
        "url": URL,
        "headers": {"Authorization": "Bearer ${env:MCP_TOKEN}"},
    }


@pytest.mark.parametrize(
    ("permissions", "status"), [((), 403), (("view_call",), 403), (("view_server",), 200)]
)
def test_who_may_see_it(permissions, status, page):
    client = staff(*permissions)
    assert client.get(page).status_code == status
    assert client.get(f"{page}more/").status_code == (404 if status == 200 else status)


def test_it_asks_for_a_login(client, page):
    assert client.get(page).status_code == 302


def test_it_leads_on_to_what_the_visitor_may_use(page):
    related = [url for url, _ in staff("view_server").get(page).context["related"]]
    assert related == []
    related = [url for url, _ in superuser().get(page).context["related"]]
    assert related[:3] == [
        "/admin/mcp_django/accesstoken/add/",
        "/admin/mcp_django/accesstoken/",
        "/admin/mcp_django/session/",
    ]


def test_it_costs_few_queries(page, django_assert_max_num_queries):
    client = superuser()
    with django_assert_max_num_queries(4):
        assert client.get(page).status_code == 200


def _urls() -> Any:
    from django.contrib import admin
    from django.urls import path

    return [path("admin/", admin.site.urls)]


urlpatterns = _urls()


@pytest.mark.skipif(not find_spec("oauth2_provider"), reason="needs django-oauth-toolkit")
def test_the_page_of_a_server_leads_to_connected_assistants(page):
    server = page.removesuffix("connect/") + "change/"
    assistants = 'href="/admin/mcp_oauth/consent/"'
    assert assistants in superuser().get(server).content.decode()
    assert assistants not in staff("view_server").get(server).content.decode()
