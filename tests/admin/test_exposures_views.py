"""A view is exposed in the admin, and previewed before."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from django.contrib.auth.models import Permission

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import ViewExposure
from mcp_django.overrides.state import override_version
from mcp_django.test import MCPClient
from tests.kit.servers import person

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/viewexposure/"
FORM: dict[str, Any] = {
    "is_enabled": "on",
    "name": "",
    "title": "Prices",
    "description": "",
    "becomes": "tool",
    "uri": "",
    "query": "",
    "is_readable": "on",
    "scopes": "",
}


def add(target: str) -> str:
    return f"{LIST}add/?server=desk&target={target}"


@pytest.fixture(autouse=True)
def server(settings, few_servers):
    """A server that is empty in code, on a site with pages."""
    settings.ROOT_URLCONF = "tests.admin.urls_of_pages"
    override_version.record_change()
    return MCPServer("desk", permission=AllowAny)


@pytest.fixture
def root(client):
    user = person("root", is_staff=True, is_superuser=True)
    client.force_login(user)
    return user


def page(response: Any) -> str:
    return response.content.decode().replace("&#x27;", "'")


def test_a_new_exposure_of_a_view_begins_switched_off(client, root):
    form = client.get(add("shop:price_list")).context["adminform"].form
    assert form["is_enabled"].value() is False


def test_urls_are_offered_but_for_those_that_open_doors(client, root):
    text = page(client.get(f"{LIST}add/"))
    assert 'value="shop:price_list"' in text
    assert 'value="who"' in text
    for closed in ("admin:index", "login", "mcp_django:endpoint", "password_change"):
        assert f'value="{closed}"' not in text
        assert "errorlist" in page(client.get(add(closed)))
        assert client.post(add(closed), FORM).status_code == 200
    assert not ViewExposure.objects.exists()


def test_a_page_becomes_a_tool(client, root, server):
    preview = page(client.post(add("shop:price_list"), {**FORM, "_preview": "1"}))
    assert "&quot;season&quot;" in preview
    assert not ViewExposure.objects.exists()
    answer = client.post(add("shop:price_list"), FORM)
    assert answer.status_code == 302, page(answer)
    caller = MCPClient(server=server, user=root)
    (tool,) = caller.list_tools()
    assert (tool["name"], tool["title"]) == ("price_list", "Prices")
    result = caller.call_tool("price_list", {"season": "winter"})
    assert result.structured == {"season": "winter", "prices": [1, 2]}


def test_it_becomes_a_resource_by_its_uri(client, root, server):
    form = {**FORM, "becomes": "resource", "uri": "shop://prices/{season}"}
    assert client.post(add("shop:price_list"), form).status_code == 302
    caller = MCPClient(server=server, user=root)
    assert "winter" in caller.read_resource("shop://prices/winter")[0]["text"]
    assert caller.list_tools() == []


def test_a_page_without_a_form_does_not_offer_to_post_one(client, root):
    assert 'value="form"' not in page(client.get(add("shop:price_list")))
    assert 'value="form"' in page(client.get(add("shop:contact")))


def test_the_form_of_a_page_becomes_a_tool_that_posts(client, root, server):
    form = {**FORM, "becomes": "form"}
    preview = page(client.post(add("shop:contact"), {**form, "_preview": "1"}))
    assert 'leaves out <code dir="ltr">photo</code>: files cannot be included in JSON' in preview
    answer = client.post(add("shop:contact"), form)
    assert answer.status_code == 302, page(answer)
    (tool,) = MCPClient(server=server, user=root).list_tools()
    assert "readOnlyHint" not in tool.get("annotations", {})


def test_parameters_of_the_address_have_types(client, root, server):
    form = {**FORM, "query": "word: text\r\nlimit: whole number\r\n"}
    assert client.post(add("search"), form).status_code == 302
    (tool,) = MCPClient(server=server, user=root).list_tools()
    assert tool["inputSchema"]["properties"]["limit"]["type"] == "integer"


@pytest.mark.parametrize(
    ("target", "change", "words"),
    [
        ("shop:price_list", {"becomes": "resource"}, "A resource needs a URI, for example shop://"),
        ("shop:price_list", {"uri": "shop://x"}, "Only a resource has a URI"),
        ("shop:price_list", {"becomes": "resource", "uri": "a://{x}"}, "no variable 'x'"),
        ("shop:price_list", {"becomes": "resource", "uri": "a://b"}, "needs 'season'"),
        ("shop:price_list", {"becomes": "form"}, "form is not one of the available choices"),
        ("shop:price_list", {"becomes": "window"}, "window"),
        ("search", {"query": "word: list"}, "write a unique name"),
        ("search", {"query": "a b: text"}, "write a unique name"),
        ("search", {"name": "with space"}, "at most 100"),
        ("groups-login", {"becomes": "form"}, "password"),
    ],
    ids=repr,
)
def test_a_mistake_is_said_and_nothing_is_kept(client, root, target, change, words):
    answer = client.post(add(target), {**FORM, **change})
    assert answer.status_code == 200
    assert words in page(answer)
    assert f"register_view({target!r})" not in page(answer)
    assert not ViewExposure.objects.exists()


@pytest.mark.skipif(not find_spec("rest_framework"), reason="REST framework is not installed")
def test_an_action_of_a_viewset_becomes_a_tool(client, root, server):
    text = page(client.get(add("group-list")))
    assert 'name="methods" value="post"' in text
    assert 'name="becomes"' not in text
    form = {"is_enabled": "on", "methods": ["get"], "name": "", "title": "", "description": ""}
    posting = {**form, "methods": ["post"], "scopes": "", "_preview": "1"}
    preview = page(client.post(add("group-list"), posting))
    assert 'leaves out <code dir="ltr">emblem</code>: files cannot be included in JSON' in preview
    answer = client.post(add("group-list"), {**form, "scopes": ""})
    assert answer.status_code == 302, page(answer)
    (tool,) = MCPClient(server=server, user=root).list_tools()
    assert tool["annotations"] == {"readOnlyHint": True}
    result = MCPClient(server=server, user=root).call_tool(tool["name"])
    assert not result.is_error, result.text


def test_a_url_that_is_gone_is_said_and_breaks_nothing(client, root, server, settings):
    client.post(add("who"), FORM)
    client.post(add("search"), FORM)
    settings.ROOT_URLCONF = "tests.admin.urls"
    text = page(client.get(LIST))
    assert "There is no URL named 'who'" in text
    row = ViewExposure.objects.get(target="who")
    assert client.get(f"{LIST}{row.pk}/change/").status_code == 200
    assert MCPClient(server=server, user=root).list_tools() == []


def test_who_may_not_add_one_gets_nowhere(client):
    user = person("eve", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["add_modelexposure", "change_component"])
    )
    client.force_login(user)
    for path in (LIST, f"{LIST}add/", add("who")):
        assert client.get(path).status_code == 403
        assert client.post(path, FORM).status_code == 403
    user.user_permissions.set(Permission.objects.filter(codename="add_viewexposure"))
    client.force_login(type(user).objects.get(pk=user.pk))
    assert client.get(LIST).status_code == 403
    assert client.post(add("who"), FORM).status_code == 302
    assert ViewExposure.objects.count() == 1


def test_what_the_row_asks_for_is_asked_of_callers(client, root, server):
    client.post(add("who"), {**FORM, "permissions": ["auth.view_group"]})
    assert [tool["name"] for tool in MCPClient(server=server, user=root).list_tools()] == ["who"]
    ada = person("ada")
    assert MCPClient(server=server, user=ada).list_tools() == []
