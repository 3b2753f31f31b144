"""Pages, cursors and cache hints of the four lists."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission, IsAuthenticated, IsStaff
from mcp_django.auth.principal import Principal
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all, person
from tests.spec import spec

LISTS = {
    "tools/list": ("tools", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}
NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture(autouse=True)
def _short_pages(settings):
    """Reduce a page to 61,440 bytes, so that it holds two of the components below."""
    settings.MCP_DJANGO = {"MAX_EVENT_BYTES": 65_536}


def fill(server: MCPServer, name: str, **options: Any) -> None:
    """Register one component of every kind."""
    options = {"description": "x" * 25_000, **options}
    server.tool(name, **options)(lambda: "x")
    server.resource(f"x://{name}", **options)(lambda: "x")
    server.resource(f"x://{name}/{{v}}", **options)(lambda v: "x")
    server.prompt(name, **options)(lambda: "x")


def fill_many(server: MCPServer, number: int, **options: Any) -> None:
    """Add this many components of every kind, of which only the first is declared."""
    fill(server, "0000", **options)
    for place in range(1, number):
        name = f"{place:04}"
        server.tools[name] = replace(server.tools["0000"], name=name)
        server.prompts[name] = replace(server.prompts["0000"], name=name)
        resource, template = server.resources["x://0000"], server.templates["x://0000/{v}"]
        server.resources[f"x://{name}"] = replace(resource, uri=f"x://{name}")
        uri = URITemplate(f"x://{name}/{{v}}")
        server.templates[uri.template] = replace(template, template=uri)


def filled(**options: Any) -> MCPServer:
    server = open_to_all(page_size=2)
    for name in NAMES:
        fill(server, name, **options)
    return server


def pages(client: MCPClient, method: str) -> list[dict[str, Any]]:
    results = [client.request(method)]
    while "nextCursor" in results[-1]:
        results.append(client.request(method, {"cursor": results[-1]["nextCursor"]}))
    return results


def keys(page: dict[str, Any], method: str) -> list[str]:
    member, key = LISTS[method]
    return [component[key] for component in page[member]]


def refused(client: MCPClient, method: str, cursor: Any) -> None:
    with pytest.raises(ErrorResponse) as caught:
        client.request(method, {"cursor": cursor})
    assert caught.value.code == INVALID_PARAMS


@spec("PAG-1", "PAG-2", "TOOL-3")
@pytest.mark.parametrize("method", LISTS)
def test_a_list_comes_in_pages_that_end(method):
    client = MCPClient(server=filled())
    all_pages = pages(client, method)
    assert [len(keys(page, method)) for page in all_pages] == [2, 2, 1]
    everything = [key for page in all_pages for key in keys(page, method)]
    assert everything == sorted(everything)
    assert len(set(everything)) == 5
    assert "nextCursor" not in all_pages[-1]
    assert pages(client, method) == all_pages


@spec("PAG-2")
def test_a_full_last_page_has_no_cursor():
    server = open_to_all(page_size=2)
    for name in ("a", "b"):
        fill(server, name)
    for method in LISTS:
        assert "nextCursor" not in MCPClient(server=server).request(method)


@override_settings(MCP_DJANGO={"PAGE_SIZE": 3})
def test_the_setting_sizes_the_pages_of_a_server_that_does_not():
    server = open_to_all()
    for name in NAMES:
        fill(server, name)
    client = MCPClient(server=server)
    assert len(client.request("resources/list")["resources"]) == 3
    assert len(client.list_resources()) == 5


class AfterNoon(BasePermission):
    """A rule of the site that may read anything."""

    def has_permission(self, principal: Principal) -> bool:
        return True


@spec("PAG-7", "PAG-1")
@override_settings(MCP_DJANGO={})
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (101, {}),
        (500, {}),
        (1000, {}),
        (101, {"permission": [IsAuthenticated]}),
        (101, {"permission": [AfterNoon]}),
    ],
)
@pytest.mark.django_db
def test_a_client_that_reads_one_page_sees_everything_but_resources(number, options):
    server = open_to_all()
    fill_many(server, number, description="Count to five.", **options)
    client = MCPClient(server=server, user=person())
    for _ in range(2):
        for method in LISTS:
            first = client.request(method)
            seen = 100 if method == "resources/list" else number
            assert len({*keys(first, method)}) == len(keys(first, method)) == seen
            assert ("nextCursor" in first) == (seen < number)


@spec("PAG-1", "PAG-2", "PAG-3")
@override_settings(MCP_DJANGO={})
@pytest.mark.parametrize("version", ["2026-07-28", "2025-03-26"])
@pytest.mark.parametrize("method", ["tools/list", "resources/templates/list", "prompts/list"])
def test_a_list_that_is_too_large_for_one_event_has_a_second_page(method, version):
    server = open_to_all()
    fill_many(server, 100, description="é" * 5200)
    client = MCPClient(server=server, protocol_version=version)
    first, second = all_pages = pages(client, method)
    assert "nextCursor" not in second
    everything = [key for page in all_pages for key in keys(page, method)]
    assert everything == sorted(everything)
    assert len(set(everything)) == len(everything) == 100
    size = len(json.dumps(first, ensure_ascii=False, separators=(",", ":")).encode())
    assert 970_000 < size < 1024 * 1024
    with override_settings(MCP_DJANGO={"MAX_EVENT_BYTES": None}):
        assert len(pages(client, method)) == 1


@override_settings(MCP_DJANGO={})
def test_one_entry_may_be_larger_than_a_page():
    server = open_to_all()
    for name in NAMES:
        server.tool(name, description="x" * (2_000_000 if name == "b" else 1))(lambda: "x")
    all_pages = pages(MCPClient(server=server), "tools/list")
    assert [keys(page, "tools/list") for page in all_pages] == [["a"], ["b"], ["c", "d", "e"]]


@spec("PAG-6", "PAG-4")
def test_null_is_no_cursor():
    client = MCPClient(server=filled())
    for absent in (None, ""):
        assert client.request("tools/list", {"cursor": absent}) == client.request("tools/list")


@spec("PAG-3", "PAG-4")
@pytest.mark.parametrize("cursor", ["x", "a:b", "W10=:sig", 5, [], "x" * 10_000, "ü", "\x00"])
def test_what_is_no_cursor_is_refused(cursor):
    refused(MCPClient(server=filled()), "tools/list", cursor)


@spec("PAG-3", "PAG-4")
def test_a_tampered_cursor_is_refused():
    client = MCPClient(server=filled())
    cursor = client.request("tools/list")["nextCursor"]
    for changed in (cursor[:-1], cursor + "x", "x" + cursor, cursor.swapcase(), cursor[::-1]):
        refused(client, "tools/list", changed)


@pytest.mark.django_db
@spec("PAG-4")
def test_a_cursor_is_good_for_one_list_of_one_caller_and_server():
    server = filled()
    client = MCPClient(server=server)
    cursors = {method: client.request(method)["nextCursor"] for method in LISTS}
    for method in LISTS:
        for other, cursor in cursors.items():
            if other != method:
                refused(client, method, cursor)
    ada, bob = (MCPClient(server=server, user=person(name)) for name in ("ada", "bob"))
    mine = ada.request("tools/list")["nextCursor"]
    refused(bob, "tools/list", mine)
    refused(client, "tools/list", mine)
    assert keys(ada.request("tools/list", {"cursor": mine}), "tools/list") == ["c", "d"]
    foreign = MCPServer("foreign", permission=AllowAny, page_size=2)
    for name in NAMES:
        fill(foreign, name)
    refused(client, "tools/list", MCPClient(server=foreign).request("tools/list")["nextCursor"])


@spec("PAG-3")
@override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["old"])
def test_a_cursor_outlives_a_rotated_key():
    client = MCPClient(server=filled())
    with override_settings(SECRET_KEY="old", SECRET_KEY_FALLBACKS=[]):
        cursor = client.request("tools/list")["nextCursor"]
    assert keys(client.request("tools/list", {"cursor": cursor}), "tools/list") == ["c", "d"]
    with override_settings(SECRET_KEY="third", SECRET_KEY_FALLBACKS=[]):
        refused(client, "tools/list", cursor)


@spec("PAG-3")
@pytest.mark.parametrize("method", LISTS)
def test_changes_between_pages_neither_skip_nor_repeat(method):
    server = filled()
    client = MCPClient(server=server)
    first = client.request(method)
    fill(server, "aa")
    server.unregister(server.tools["b"])
    server.unregister(server.resources["x://b"])
    server.unregister(server.templates["x://b/{v}"])
    server.unregister(server.prompts["b"])
    fill(server, "cc")
    second = client.request(method, {"cursor": first["nextCursor"]})
    third = client.request(method, {"cursor": second["nextCursor"]})
    rest = [key.removeprefix("x://")[:2].rstrip("/") for key in keys(second, method)]
    rest += [key.removeprefix("x://")[:2].rstrip("/") for key in keys(third, method)]
    assert rest == ["c", "cc", "d", "e"]


# Cache hints ----------------------------------------------------------------------------------


def hints(result: dict[str, Any]) -> tuple[int, str]:
    return result["ttlMs"], result["cacheScope"]


@spec("CCH-1", "CCH-3", "RSC-11")
@pytest.mark.parametrize("method", LISTS)
def test_the_lists_of_an_open_server_are_public(method):
    for page in pages(MCPClient(server=filled()), method):
        assert hints(page) == (0, "public")


@pytest.mark.django_db
@spec("CCH-3", "CCH-4", "PAG-5")
@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("options", [{"permission": IsStaff}, {"scopes": ["z"]}])
def test_one_guarded_component_makes_every_page_private(method, options):
    server = filled()
    fill(server, "z", **options)
    all_pages = pages(MCPClient(server=server, user=person()), method)
    assert len(all_pages) == 3
    assert {hints(page) for page in all_pages} == {(0, "private")}


@pytest.mark.django_db
@spec("CCH-3", "CCH-4")
@pytest.mark.parametrize(
    "permission", [IsAuthenticated, AfterNoon, [AllowAny, IsAuthenticated], "auth.view_group"]
)
def test_nothing_of_a_closed_server_is_public(permission):
    server = MCPServer("inline", permission=permission)
    fill(server, "a")
    server.resource("x://public", cache_public=True)(lambda: "x")
    client = MCPClient(server=server, user=person(is_superuser=True))
    for method in LISTS:
        assert client.request(method)["cacheScope"] == "private"
    assert client.request("resources/read", {"uri": "x://public"})["cacheScope"] == "private"
    assert client.discover()["cacheScope"] == "private"


@pytest.mark.django_db
@spec("CCH-1", "CCH-3", "CCH-4", "RSC-11")
def test_reading_carries_the_hints_of_the_resource():
    server = open_to_all()
    half = timedelta(milliseconds=1500)
    server.resource("x://plain")(lambda: "x")
    server.resource("x://kept", cache_ttl=half)(lambda: "x")
    server.resource("x://public/{v}", cache_ttl=half, cache_public=True)(lambda v: "x")
    server.resource("x://staff", cache_public=True, permission=IsStaff)(lambda: "x")
    server.resource("x://scoped", cache_public=True, scopes=["s"])(lambda: "x")
    client = MCPClient(server=server, user=person(is_staff=True))
    hints_by_uri = {
        uri: hints(client.request("resources/read", {"uri": uri}))
        for uri in ("x://plain", "x://kept", "x://public/1", "x://staff", "x://scoped")
    }
    assert hints_by_uri == {
        "x://plain": (0, "private"),
        "x://kept": (1500, "private"),
        "x://public/1": (1500, "public"),
        "x://staff": (0, "private"),
        "x://scoped": (0, "private"),
    }


@spec("CCH-1")
def test_calls_carry_no_hints():
    client = MCPClient(server=filled())
    for result in (
        client.request("tools/call", {"name": "a"}),
        client.request("prompts/get", {"name": "a"}),
    ):
        assert "ttlMs" not in result
        assert "cacheScope" not in result
