"""`resources/list` with templates that list their resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from mcp_django import Annotations, Context, MCPServer
from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.components.resource import ListedResource, ListedResourcePage, ListEntries
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.handlers.listing import CURSOR_SIGNER
from mcp_django.protocol.cursors import Pager
from mcp_django.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all, person, real_client
from tests.spec import spec


def numbered(kind: str, rows: list[int]) -> ListEntries:
    """Return a lister of sorted rows, which may change between two pages."""

    def entries(ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        left = [row for row in rows if after is None or row > after[0]]
        kept = left[:limit]
        resources = [ListedResource(uri=f"x://{kind}/{row}", name=str(row)) for row in kept]
        return ListedResourcePage(
            entries=resources, after=[kept[-1]] if len(left) > limit else None
        )

    return entries


def listing(server: MCPServer, kind: str, entries: ListEntries, **options: Any) -> None:
    """Register a template with this lister; its function is never called here."""
    uri = f"x://{kind}/{{v}}"
    server.resource(uri, **options)(lambda v: v)
    server.templates[uri] = replace(server.templates[uri], entries=entries)


def pages(client: MCPClient) -> list[list[str]]:
    page = client.request("resources/list")
    results = [page]
    while "nextCursor" in page:
        page = client.request("resources/list", {"cursor": page["nextCursor"]})
        results.append(page)
    return [[resource["uri"] for resource in page["resources"]] for page in results]


def refused(client: MCPClient, cursor: str) -> None:
    with pytest.raises(ErrorResponse) as caught:
        client.request("resources/list", {"cursor": cursor})
    assert caught.value.code == INVALID_PARAMS


@spec("PAG-1", "PAG-2")
@pytest.mark.parametrize("size", range(1, 9))
def test_fixed_resources_come_first_and_templates_in_their_order(size):
    server = open_to_all(page_size=size)
    listing(server, "b", numbered("b", [1, 2]))
    listing(server, "a", numbered("a", [1, 2, 3]))
    listing(server, "empty", numbered("empty", []))
    server.resource("x://two")(lambda: "")
    server.resource("x://one")(lambda: "")
    all_pages = pages(MCPClient(server=server))
    everything = ["x://one", "x://two", "x://a/1", "x://a/2", "x://a/3", "x://b/1", "x://b/2"]
    assert [uri for page in all_pages for uri in page] == everything
    assert all(len(page) == size for page in all_pages[:-1])


@spec("PAG-3")
def test_rows_that_come_and_go_between_two_pages_skip_and_repeat_nothing():
    rows = [10, 20, 30, 40]
    server = open_to_all(page_size=2)
    listing(server, "a", numbered("a", rows))
    client = MCPClient(server=server)
    first = client.request("resources/list")
    rows.remove(10)
    rows.remove(20)
    rows[:0] = [5, 15]
    second = client.request("resources/list", {"cursor": first["nextCursor"]})
    assert [resource["name"] for resource in second["resources"]] == ["30", "40"]


@spec("PAG-5", "CCH-3")
def test_a_list_with_rows_is_private_on_every_page_and_for_who_sees_none():
    class Nobody(BasePermission):
        def has_permission(self, principal: Principal) -> bool:
            return False

    for options in ({}, {"permission": Nobody}):
        server = open_to_all(page_size=1)
        listing(server, "a", numbered("a", [1, 2]), **options)
        server.resource("x://one")(lambda: "")
        client = MCPClient(server=server)
        page = client.request("resources/list")
        assert (page["cacheScope"], page["ttlMs"]) == ("private", 0)
        assert [resource["uri"] for resource in page["resources"]] == ["x://one"]
        if "nextCursor" in page:
            following = client.request("resources/list", {"cursor": page["nextCursor"]})
            assert (following["cacheScope"], following["ttlMs"]) == ("private", 0)
        assert ("nextCursor" in page) is (not options)


@pytest.mark.django_db
def test_rows_need_the_scopes_that_reading_them_needs():
    server = open_to_all()
    listing(server, "a", numbered("a", [1]), scopes=["orders:read"])
    ada = person()
    assert pages(MCPClient(server=server, user=ada, scopes=[])) == [[]]
    assert pages(MCPClient(server=server, user=ada, scopes=["orders:read"])) == [["x://a/1"]]


@spec("PAG-3", "PAG-4")
def test_a_cursor_of_what_is_gone_or_strange_is_refused():
    server = open_to_all(page_size=1)
    listing(server, "a", numbered("a", [1, 2, 3]))
    client = MCPClient(server=server)
    cursor = client.request("resources/list")["nextCursor"]
    for changed in (cursor[:-1], "x" + cursor, cursor.swapcase(), "W10="):
        refused(client, changed)
    scope = "inline:resources/list:anonymous"
    for key in ([], ["x://a/{v}"], ["x://b/{v}", None], ["x://a/{v}", 5], [5, None], [[], None]):
        refused(client, Pager(scope, 1, CURSOR_SIGNER).next(key))
    server.unregister(server.templates["x://a/{v}"])
    listing(server, "b", numbered("b", [1]))
    refused(client, cursor)


@spec("RSC-1")
def test_an_entry_says_what_its_template_knows_of_it():
    entries = [
        ListedResource(uri="x://a/1", name="one"),
        ListedResource(
            uri="x://a/2",
            name="two",
            title="Two",
            description="The second.",
            mime_type="text/plain",
            size=0,
            annotations=Annotations(priority=1),
        ),
    ]
    server = open_to_all()
    listing(server, "a", lambda ctx, after, limit: ListedResourcePage(entries=entries, after=None))
    assert MCPClient(server=server).list_resources() == [
        {"uri": "x://a/1", "name": "one"},
        {
            "uri": "x://a/2",
            "name": "two",
            "title": "Two",
            "description": "The second.",
            "mimeType": "text/plain",
            "size": 0,
            "annotations": {"priority": 1},
        },
    ]


@pytest.mark.parametrize("exc", [PermissionDenied("no"), Http404("no")])
def test_rows_that_may_not_be_seen_are_not_there(exc):
    def entries(ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        raise exc

    server = open_to_all()
    listing(server, "a", entries)
    listing(server, "b", numbered("b", [1]))
    assert pages(MCPClient(server=server)) == [["x://b/1"]]


def test_a_list_that_fails_is_an_error_and_not_a_shorter_list(caplog):
    def failing(ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        raise RuntimeError("secret")

    def refusing(ctx: Context, after: list[Any] | None, limit: int) -> ListedResourcePage:
        raise InvalidParams("Not here.")

    for entries, code in ((failing, INTERNAL_ERROR), (refusing, INVALID_PARAMS)):
        server = open_to_all()
        listing(server, "a", entries)
        with pytest.raises(ErrorResponse) as caught:
            real_client(server=server).list_resources()
        assert caught.value.code == code
        assert "secret" not in caught.value.message
    assert "list 'resources/list' failed" in caplog.text
