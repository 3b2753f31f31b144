"""Lists whose encoded pages are cached: they are as current as lists that are built anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connections
from django.http import HttpResponse
from django.urls import path, set_urlconf
from django.utils.translation import gettext_lazy, override

from mcp_django import MCPServer
from mcp_django.auth.permissions import (
    AllowAny,
    BasePermission,
    InGroups,
    IsAuthenticated,
    IsStaff,
)
from mcp_django.auth.principal import Principal
from mcp_django.execution.handlers import listing
from mcp_django.overrides.state import VersionCache, override_version
from mcp_django.protocol.content import Icon
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.storage.cache import clear_caches
from mcp_django.test import MCPClient
from mcp_django.transports import asgi_handler
from tests.kit.confirming import _clock, _database  # noqa: F401 - fixtures
from tests.kit.drivers import headers_for, message, send
from tests.kit.servers import person, through_view, token_for
from tests.overrides.site import a_second_later, decide, decide_elsewhere
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import Peer
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unpinned")]

LIST = message("tools/list")
PER_PAGE = 4


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """Return the cached pages of this test."""
    pages = listing._Pages()
    monkeypatch.setattr(listing, "_pages", pages)
    return pages


@pytest.fixture
def shop():
    """Yield a server with tools for everybody, for some, and with a text in several languages."""
    server = MCPServer("shop", auth=["tokens"], permission=AllowAny)
    server.tool("spade")(_work)
    server.tool("rake", title=gettext_lazy("Yes"))(_work)
    server.tool("edit", permission="auth.change_user")(_work)
    server.tool("team", permission=InGroups(["team"]))(_work)
    yield server
    server.overrides.reset()


def _work() -> str:
    """Work."""
    return "done"


def ask(server: MCPServer, token: str = "", cursor: str | None = None, id: Any = 1) -> Any:
    """Ask for a list in this thread, and return the whole answer."""
    body = message("tools/list", {} if cursor is None else {"cursor": cursor}, id=id)
    bearer = f"Bearer {token}" if token else None
    return json.loads(
        through_view(server, json.dumps(body), headers_for(body, authorization=bearer)).content
    )


def tools(server: MCPServer, token: str = "") -> list[str]:
    return [tool["name"] for tool in ask(server, token)["result"]["tools"]]


# What is asked ------------------------------------------------------------------------------------


@pytest.fixture
def no_threads(monkeypatch):
    """Return a function after whose call no request of the raw mount may use a thread."""

    async def fail(request: Any, serve: Any) -> Any:
        raise AssertionError(f"{request.message} took a thread.")

    return lambda: monkeypatch.setattr(asgi_handler, "_serve_in_thread", fail)


@pytest.mark.parametrize(
    "method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
)
async def test_a_list_in_use_needs_no_statement_and_no_thread(method, database, clock, no_threads):
    server = MCPServer("shelf", permission=AllowAny)
    server.tool("spade")(_work)
    server.prompt("rake")(_work)
    server.resource("shelf://one")(_work)
    server.resource("shelf://{name}")(lambda name: name)
    body = message(method)
    first = await send(server.asgi, "/", body)
    no_threads()
    with database.quiet():
        again = await send(server.asgi, "/", {**body, "id": "other"})
    assert first.json() == {**again.json(), "id": 1}
    assert again.json()["id"] == "other"


async def test_a_caller_who_is_known_takes_no_thread_either(shop, database, clock, no_threads):
    user = await in_thread(person)
    _, token = await in_thread(token_for, user)
    bearer = f"Bearer {token}"
    first = await send(shop.asgi, "/", LIST, authorization=bearer)
    no_threads()
    with database.quiet():
        again = await send(shop.asgi, "/", LIST, authorization=bearer)
    assert first.body == again.body


async def test_an_invalid_cursor_is_rejected_as_ever(shop, clock):
    await send(shop.asgi, "/", LIST)
    answer = await send(shop.asgi, "/", message("tools/list", {"cursor": "x"}))
    assert answer.json()["error"]["code"] == INVALID_PARAMS


def test_without_the_second_each_list_asks(shop, settings):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0}
    assert tools(shop) == ["rake", "spade"]
    decide_elsewhere("shop", "spade", is_enabled=False)
    assert tools(shop) == ["rake"]


def test_a_list_is_at_most_a_second_old(shop, clock):
    assert tools(shop) == ["rake", "spade"]
    decide_elsewhere("shop", "spade", is_enabled=False)
    # Its clients are not notified before that.
    assert tools(shop) == ["rake", "spade"]
    a_second_later()
    assert tools(shop) == ["rake"]


def test_who_asks_for_the_current_catalog_gets_it(shop, clock):
    # Rows are synchronized with the catalog, and commands and pages of the admin show it.
    assert tools(shop) == ["rake", "spade"]
    decide_elsewhere("shop", "spade", is_enabled=False)
    shop.refresh(is_list=True)
    assert "spade" not in shop.catalog.tools


def test_a_short_second_is_one_for_lists_too(shop, settings, monkeypatch):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0.5}
    tools(shop)
    now = override_version.checked_at
    monkeypatch.setattr("mcp_django.overrides.state.time.monotonic", lambda: now + 0.4)
    decide_elsewhere("shop", "spade", is_enabled=False)
    assert tools(shop) == ["rake", "spade"]
    monkeypatch.setattr("mcp_django.overrides.state.time.monotonic", lambda: now + 0.5)
    assert tools(shop) == ["rake"]


def test_what_this_process_changes_while_it_asks_is_asked_again(shop, clock, monkeypatch):
    query = VersionCache._query_version

    def overtaken(self: VersionCache) -> Any:
        version = query(self)
        monkeypatch.setattr(VersionCache, "_query_version", query)
        decide("shop", "spade", is_enabled=False)
        return version

    assert tools(shop) == ["rake", "spade"]
    a_second_later()
    monkeypatch.setattr(VersionCache, "_query_version", overtaken)
    tools(shop)
    assert tools(shop) == ["rake"]


# Right under change -------------------------------------------------------------------------------


class Site:
    """What may change while two clients list."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.language = "en"
        self.user = person("ada")
        self.group = Group.objects.create(name="team")
        self.permission = Permission.objects.get(codename="change_user")
        _, self.token = token_for(self.user)

    def changes(self) -> Iterator[None]:
        """Change one thing after the other, of each kind, and change it back."""
        yield
        decide("shop", "spade", is_enabled=False)
        yield
        self.user.groups.add(self.group)
        yield
        self.group.permissions.add(self.permission)
        yield
        self.server.tool("desk", permission=IsStaff)(_work)
        User.objects.filter(pk=self.user.pk).update(is_staff=True)
        clear_caches()
        yield
        User.objects.filter(pk=self.user.pk).update(is_staff=False)
        clear_caches()
        yield
        self.language = "de"
        yield
        decide("shop", "spade", is_enabled=True, title="A spade")
        yield
        self.server.tool("axe")(_work)
        yield
        self.user.groups.clear()
        yield
        decide("shop", "axe", permissions=["auth.change_user"])
        yield
        self.user.user_permissions.add(self.permission)
        yield
        self.language = "en"
        yield
        self.user.user_permissions.clear()
        yield
        User.objects.filter(pk=self.user.pk).update(is_superuser=True)
        clear_caches()
        yield
        self.server.unregister(self.server.tools["rake"])
        yield

    def list(self, token: str) -> Any:
        with override(self.language):
            return ask(self.server, token)["result"]


def test_lists_are_right_while_everything_changes(shop, clock, kept, monkeypatch):
    site = Site(shop)
    history: list[Any] = []
    for _ in site.changes():
        # The first list of each client may be the one that is cached.
        lists = [site.list(token) for token in ("", site.token, "", site.token)]
        with monkeypatch.context() as patch:
            patch.setattr(listing, "_pages", listing._Pages())
            fresh = [site.list(token) for token in ("", site.token)]
        assert lists == fresh * 2
        history.append(fresh)
    # A client sees each change, and no list was built more than once for it.
    assert all(before != after for before, after in pairwise(history))
    assert len(kept._pages) <= 2 * len(history)


def test_clients_of_many_threads_see_each_change(shop, clock):
    def client(seen: int) -> list[str]:
        try:
            return tools(shop)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            shop.tool(f"axe{number}")(_work)
            for names in pool.map(client, range(8)):
                assert f"axe{number}" in names


# Whose page it is ---------------------------------------------------------------------------------


def test_callers_with_the_same_access_share_a_page(shop, clock, kept):
    tokens = [token_for(person(name))[1] for name in ("ada", "bob")]
    assert [tools(shop, token) for token in tokens] == [["rake", "spade"]] * 2
    assert len(kept._pages) == 1


def test_a_cursor_is_that_of_its_caller(shop, clock, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_EVENT_BYTES": 65_536}
    for name in ("rake", "spade"):
        shop.unregister(shop.tools[name])
        shop.tool(name, description="x" * 40_000)(_work)
    tokens = [token_for(person(name))[1] for name in ("ada", "bob")]
    for _ in range(2):
        cursors = [ask(shop, token)["result"]["nextCursor"] for token in tokens]
        assert cursors[0] != cursors[1]
        for token, cursor in zip(tokens, cursors, strict=True):
            page = ask(shop, token, cursor)["result"]
            assert [tool["name"] for tool in page["tools"]] == ["spade"]
            assert "nextCursor" not in page
        assert ask(shop, tokens[0], cursors[1])["error"]["code"] == INVALID_PARAMS


def test_users_who_were_loaded_for_a_request_share_no_page(shop, kept):
    ada, bob = person("ada"), person("bob")
    ada.user_permissions.add(Permission.objects.get(codename="change_user"))
    for _ in range(2):
        for user, own in ((ada, ["edit"]), (bob, [])):
            listed = MCPClient(server=shop, user=user).list_tools()
            assert [tool["name"] for tool in listed] == [*own, "rake", "spade"]
    assert len(kept._pages) == 0


def test_a_token_lists_what_its_scopes_reach(shop, settings, clock):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, "LIST_FILTER": "scopes"}
    shop = MCPServer("scoped", auth=["tokens"], permission=AllowAny)
    shop.tool("read", scopes=["read"])(_work)
    shop.tool("write", scopes=["write"])(_work)
    user = person("ada")
    tokens = {scope: token_for(user, scope)[1] for scope in ("read", "write")}
    for _ in range(2):
        for scope, token in tokens.items():
            assert tools(shop, token) == [scope]


async def test_revisions_share_no_page(shop, clock, monkeypatch):
    monkeypatch.setitem(MOUNTS, "shop", shop.asgi)
    # The oldest revisions know no titles.
    for version, known in (("2025-11-25", True), ("2024-11-05", False)) * 2:
        peer = Peer("shop", "/", version=version)
        await peer.open()
        listed = (await peer.result("tools/list"))["tools"]
        assert ["title" in tool for tool in listed] == [known, False]


def test_a_server_for_members_is_private_at_once(shop, clock):
    server, token = MCPServer("open", auth=["tokens"], permission=AllowAny), token_for(person())[1]
    server.tool("spade")(_work)
    assert ask(server, token)["result"]["cacheScope"] == "public"
    server.permission = IsAuthenticated
    assert ask(server, token)["result"]["cacheScope"] == "private"


def test_a_setting_holds_for_the_next_list(settings, clock):
    server = MCPServer("drawn", permission=AllowAny)
    server.tool("spade", icons=[Icon("/spade.png")])(_work)
    for place in ("https://one.example", "https://two.example"):
        settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, "BASE_URL": place}
        [tool] = ask(server)["result"]["tools"]
        assert tool["icons"][0]["src"] == f"{place}/spade.png"


def test_a_schema_follows_the_urlconf(clock, kept):
    server = MCPServer("yard", permission=AllowAny)
    server.register_view("tool-of-the-yard", name="spade")
    for variable in ("length", "width"):
        urlconf = ModuleType(f"urls_of_{variable}")
        route = path(f"<int:{variable}>/", HttpResponse, name="tool-of-the-yard")
        urlconf.urlpatterns = [route]
        # As a middleware does for a host.
        set_urlconf(urlconf)
        try:
            for _ in range(2):
                [tool] = ask(server)["result"]["tools"]
                assert [*tool["inputSchema"]["properties"]] == [variable]
        finally:
            set_urlconf(None)
    assert len(kept._pages) == 2


class Coin(BasePermission):
    """A permission of the site, about which nothing is known."""

    is_up = True

    def has_permission(self, principal: Principal) -> bool:
        """Return which side of the coin is up."""
        return Coin.is_up


def test_a_permission_of_the_site_decides_each_time(shop, clock, kept, monkeypatch):
    shop.tool("coin", permission=Coin)(_work)
    assert tools(shop) == ["coin", "rake", "spade"]
    monkeypatch.setattr(Coin, "is_up", False)
    assert tools(shop) == ["rake", "spade"]
    assert len(kept._pages) == 0


class Tide:
    """Arguments whose schema may change at any time."""

    def __init__(self) -> None:
        self.level = 1

    @property
    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"level": {"const": self.level}}}

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return no arguments."""
        return {}


def test_a_schema_that_is_computed_is_computed_each_time(clock, kept, monkeypatch):
    server, tide = MCPServer("harbor", permission=AllowAny), Tide()
    server.tool("spade")(_work)
    object.__setattr__(server.tools["spade"], "arguments", tide)
    for tide.level in (1, 2):
        [tool] = ask(server)["result"]["tools"]
        assert tool["inputSchema"]["properties"]["level"]["const"] == tide.level
    assert len(kept._pages) == 0


# What is kept -------------------------------------------------------------------------------------


def test_pages_take_a_limited_space(clock, kept, monkeypatch, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_EVENT_BYTES": 65_536}
    server = MCPServer("long", permission=AllowAny)
    for number in range(12):
        server.tool(f"tool{number:02}", description="x" * 40_000)(_work)
    monkeypatch.setattr(listing._Pages, "MAX_BYTES", 480_000)
    cursor, names = None, []
    for _ in range(12):
        page = ask(server, cursor=cursor)["result"]
        names += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor")
    assert names == sorted(server.tools)
    assert kept._size == sum(map(listing._size, kept._pages.values())) <= 480_000
    assert 8 < len(kept._pages) < 12


def test_a_very_long_page_is_not_kept(clock, kept, monkeypatch):
    server = MCPServer("long", permission=AllowAny)
    server.tool("spade", description="x" * 3000)(_work)
    monkeypatch.setattr(listing._Pages, "MAX_BYTES", 16_000)
    assert tools(server) == tools(server) == ["spade"]
    assert len(kept._pages) == 0


async def test_a_list_that_cannot_be_encoded_is_an_error_each_time(clock, kept):
    server = MCPServer("odd", permission=AllowAny)
    server.tool("spade", description="\ud800")(_work)
    for _ in range(2):
        answer = await send(server.asgi, "/", LIST)
        assert "error" in answer.json()
    assert len(kept._pages) == 0
