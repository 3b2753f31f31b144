"""What a client sees: exact lists for anybody, with reasons, and who may look."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client, override_settings

from mcp_django import Context, MCPServer
from mcp_django.admin.client_view import LISTS, ListedKind
from mcp_django.auth.permissions import AllowAny, BasePermission, IsAuthenticated
from mcp_django.auth.principal import Principal
from mcp_django.components.resource import ListedResource, ListedResourcePage
from mcp_django.models import Component, PromptText, Server
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.text_versions import PROMPTS
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import MCPClient

pytestmark = pytest.mark.django_db
# What is decided is known, and told, after the commit.
commits = pytest.mark.django_db(transaction=True)


numbers = count()


class OnlyAda(BasePermission):
    """One person by name."""

    def has_permission(self, principal: Principal) -> bool:
        return bool(principal.user.get_username() == "ada")


class Fails(BasePermission):
    """Is broken."""

    def has_permission(self, principal: Principal) -> bool:
        raise RuntimeError("secret detail")


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def server():
    """A server with something of each kind, and reasons to hide some of it."""
    # Of its own name: servers of tests that are over are found by theirs, as long as they live.
    server = MCPServer(
        f"seen-{next(numbers)}", permission=AllowAny, instructions="Be <b>brief</b>.", page_size=2
    )

    @server.tool(title="Look", read_only=True)
    def look(what: str) -> str:
        """Look at something <i>."""
        return what

    @server.tool(permission="auth.view_group")
    def groups() -> str:
        """See the groups."""
        return ""

    @server.tool(permission=OnlyAda, scopes=["write"])
    def private() -> str:
        """Be private."""
        return ""

    @server.tool(scopes=["write"], approval="staff")
    def write() -> str:
        """Write."""
        return ""

    @server.tool(needs=["elicitation"])
    def ask(ctx: Context) -> str:
        """Ask."""
        return ""

    @server.resource("seen://one")
    def one() -> str:
        """Read one."""
        return "1"

    @server.prompt
    def greet() -> str:
        """Greet."""
        return "Hello"

    return server


@pytest.fixture
def address(server):
    """The page of that server."""
    row = Server.objects.create(name=server.name)
    return f"/admin/mcp_django/server/{row.pk}/seen/"


@pytest.fixture
def root(client):
    """An administrator, signed in."""
    user = get_user_model().objects.create_superuser("root")
    client.force_login(user)
    return user


def person(name: str = "ada", **details: Any) -> Any:
    return get_user_model().objects.create_user(name, **details)


def staff(client: Client, *codenames: str) -> Any:
    """A member of staff with these permissions alone, signed in."""
    user = person("staff", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return user


def kinds(client: Client, address: str, **chosen: Any) -> dict[str, ListedKind]:
    """The lists by kind."""
    response = client.get(address, chosen)
    assert response.status_code == 200
    return {listing.kind: listing for listing in response.context["client_view"].kinds}


def hidden(client: Client, address: str, **chosen: Any) -> dict[str, str]:
    """Why each hidden component is hidden."""
    lists = kinds(client, address, **chosen).values()
    return {
        component.key: " ".join(component.reasons) for kind in lists for component in kind.hidden
    }


# What is seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("who", ["me", "anonymous", "user"])
def test_the_lists_are_those_that_such_a_client_gets(client, root, server, address, who, version):
    ada = person()
    settings = {"PROTOCOL_VERSIONS": tuple(REVISIONS)}
    with override_settings(MCP_DJANGO=settings):
        lists = kinds(client, address, who=who, user="ada", revision=version)
        user = {"me": root, "anonymous": None, "user": ada}[who]
        real = MCPClient(server=server, user=user, protocol_version=version)
        for kind, listing in (
            ("tool", real.list_tools),
            ("resource", real.list_resources),
            ("prompt", real.list_prompts),
        ):
            shown = [json.loads(component.json_text) for component in lists[kind].entries]
            assert shown == listing()
    assert lists["resource template"].entries == ()


def test_sizes_are_bytes_by_four_and_add_up(client, root, address):
    response = client.get(address, {"order": "size"})
    view = response.context["client_view"]
    tools = view.kinds[0]
    for tool in tools.entries:
        packed = json.dumps(json.loads(tool.json_text), ensure_ascii=False, separators=(",", ":"))
        assert tool.size == -(-len(packed.encode()) // 4)
    sizes = [tool.size for tool in tools.entries]
    assert sizes == sorted(sizes, reverse=True)
    assert view.instructions == 5
    assert view.size == 5 + sum(component.size for kind in view.kinds for component in kind.entries)
    assert "Sizes are estimates" in response.content.decode()


def test_each_hidden_component_has_its_reasons(client, root, address):
    person("bob")
    reasons = hidden(client, address, who="user", user="bob")
    assert reasons == {
        "groups": "The user lacks the permission auth.view_group.",
        "private": "The permission OnlyAda denies access.",
    }
    with override_settings(MCP_DJANGO={"LIST_FILTER": "scopes"}):
        reasons = hidden(client, address, who="user", user="bob", credential="token")
    assert reasons["write"] == "The token lacks the scopes: write."
    assert (
        reasons["private"]
        == "The permission OnlyAda denies access. The token lacks the scopes: write."
    )


@commits
def test_what_the_admin_hides_is_told_apart(client, root, server, address):
    person("bob")
    common = {"server": server.name, "kind": "tool"}
    Component.objects.create(**common, key="look", is_enabled=False)
    Component.objects.create(**common, key="ask", groups=["Editors", "Authors"])
    for name in ("on", "off"):
        row = PromptText(server=server.name, name=name, text="x", is_enabled=name == "on")
        PROMPTS.save(row, author=None, based_on=0)
    publish_change([(server.name, "tools")])
    reasons = hidden(client, address, who="user", user="bob")
    assert reasons["look"] == reasons["off"] == "It is disabled in the admin."
    assert reasons["ask"] == "The user is in none of the groups: Authors, Editors."
    assert "on" in [prompt.key for prompt in kinds(client, address)["prompt"].entries]


def test_a_tool_that_is_nothing_but_a_task_needs_a_client_that_follows_it(
    client, root, server, address
):
    server.tool("long", task="required")(lambda: "")
    server.tool("long_with_handle", task="required", polling_fallback=True)(lambda: "")
    needs = {tool.key: tool.needs for tool in kinds(client, address)["tool"].entries}
    assert needs["long"] == ("a client that supports tasks",)
    assert needs["long_with_handle"] == ()


def test_what_a_call_still_needs_is_said(client, root, address):
    def needs(**chosen: Any) -> dict[str, tuple[str, ...]]:
        return {tool.key: tool.needs for tool in kinds(client, address, **chosen)["tool"].entries}

    approval = "the approval of staff, for each call"
    assert needs()["write"] == (approval,)
    assert needs()["look"] == ()
    assert needs()["ask"] == ("a client with the capabilities: elicitation",)
    lacking = ("a token with the scopes: write", approval)
    assert needs(credential="token")["write"] == lacking
    assert needs(credential="token", scopes=["write"])["write"] == (approval,)
    assert needs(who="anonymous")["write"][0] == "credentials with the scopes: write"


def test_a_user_is_seen_with_his_own_permissions(client, root, address):
    ada = person()
    ada.user_permissions.add(Permission.objects.get(codename="view_group"))
    assert hidden(client, address, who="user", user="ada") == {}
    assert set(hidden(client, address)) == {"private"}
    assert set(hidden(client, address, who="anonymous")) == {"groups", "private"}


def test_rows_of_others_are_not_fetched(client, root, server, address):
    users = []

    @server.resource("seen://rows/{pk}")
    def row(pk: str) -> str:
        """A row."""
        return pk

    def entries(ctx: Context, after: Any, limit: int) -> ListedResourcePage:
        users.append(ctx.user)
        return ListedResourcePage(
            entries=[ListedResource(uri="seen://rows/1", name="secret row")], after=None
        )

    template = server.templates["seen://rows/{pk}"]
    server.unregister(template)
    server.add(replace(template, entries=entries))
    person()
    lists = kinds(client, address, who="user", user="ada")
    assert [resource.key for resource in lists["resource"].entries] == ["seen://one"]
    assert lists["resource"].rows == ("seen://rows/{pk}",)
    assert users == []
    text = client.get(address, {"who": "user", "user": "ada"}).content.decode()
    assert "seen://rows/{pk}" in text
    assert "secret row" not in text


def test_what_a_server_does_not_have_is_an_empty_list(client, root):
    server = MCPServer("bare", permission=AllowAny)
    row = Server.objects.create(name=server.name)
    lists = kinds(client, f"/admin/mcp_django/server/{row.pk}/seen/", revision="2025-06-18")
    assert [kind for kind, *_ in LISTS] == list(lists)
    assert not any(listing.entries or listing.hidden or listing.error for listing in lists.values())


def test_what_code_says_is_escaped(client, root, address):
    text = client.get(address).content.decode()
    assert "<i>." not in text
    assert "<b>brief" not in text


# The door -------------------------------------------------------------------------------------


def closed(browser: Client, server: MCPServer, **chosen: Any) -> str:
    """Why a server lets nobody in."""
    row, _made = Server.objects.get_or_create(name=server.name)
    response = browser.get(f"/admin/mcp_django/server/{row.pk}/seen/", chosen)
    sight = response.context["client_view"]
    assert sight.kinds == () or not sight.denials
    return " ".join(sight.denials)


@commits
def test_a_closed_door_says_why(client, root):
    server = MCPServer("door", permission=[IsAuthenticated, OnlyAda, "auth.view_group"])
    person("bob")
    person("gone", is_active=False)
    assert closed(client, server, who="anonymous").startswith("Credentials are needed")
    assert closed(client, server, who="user", user="bob") == (
        "The permission OnlyAda denies access. The user lacks the permission auth.view_group."
    )
    assert "not active" in closed(client, server, who="user", user="gone")
    Server.objects.filter(name="door").update(is_enabled=False, groups=["Editors"])
    publish_change([])
    reason = closed(client, server)
    assert "disabled" in reason
    assert "Editors" not in reason or "none of the groups" in reason
    broken = MCPServer("broken", permission=Fails)
    assert "see the log" in closed(client, broken)


def test_an_oauth_client_needs_the_scopes_of_the_server(client, root):
    applications = pytest.importorskip("oauth2_provider.models").get_application_model()
    applications.objects.create(
        client_id="client-7",
        name="Assistant",
        client_type="public",
        authorization_grant_type="authorization-code",
    )
    server = MCPServer("oauth", permission=AllowAny)
    chosen = {"credential": "client", "client": "client-7"}
    assert closed(client, server, **chosen) == "The token lacks the scopes: mcp."
    assert closed(client, server, **chosen, scopes=["mcp"]) == ""
    rule = f"{__name__}.nobody"
    with override_settings(MCP_DJANGO={"OAUTH": {"CAN_CONNECT": rule}}):
        assert "CAN_CONNECT" in closed(client, server, **chosen, scopes=["mcp"])
    row = Server.objects.get(name="oauth")
    page = client.get(f"/admin/mcp_django/server/{row.pk}/seen/", {**chosen, "client": "x"})
    assert "No client of this id" in page.content.decode()
    assert "client_view" not in page.context
    assert '<option value="client-7">Assistant</option>' in page.content.decode()


def nobody(user: Any, server: Any, client_id: str) -> bool:
    """A rule of the site."""
    return False


# The choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chosen",
    [
        {"who": "everybody"},
        {"who": "user"},
        {"who": "user", "user": "nobody"},
        {"who": "user", "user": "\0"},
        {"revision": "1999-01-01"},
        {"credential": "magic"},
        {"scopes": ["made-up"]},
        {"order": "random"},
    ],
)
def test_what_cannot_be_chosen_shows_nothing(client, root, address, chosen):
    response = client.get(address, chosen)
    assert response.status_code == 200
    assert "client_view" not in response.context
    assert response.context["form"].errors
    assert not LogEntry.objects.exists()


def test_the_page_is_got_and_has_nothing_below_it(client, root, address):
    assert client.get(f"{address}more/").status_code == 404


def test_looking_as_somebody_else_is_noted(client, root, address):
    person()
    for chosen in ({}, {"who": "anonymous"}, {"who": "user", "user": "root"}):
        kinds(client, address, **chosen)
    assert not LogEntry.objects.exists()
    kinds(client, address, who="user", user="ada")
    log_entry = LogEntry.objects.get()
    assert log_entry.user == root
    assert "ada" in log_entry.get_change_message()
    assert log_entry.object_repr.startswith("seen-")


# Who may --------------------------------------------------------------------------------------


def test_staff_without_a_permission_do_not_look(client, address):
    staff(client)
    assert client.get(address).status_code == 403


def test_staff_look_for_themselves_and_not_as_others(client, address):
    staff(client, "view_server")
    person()
    assert kinds(client, address, who="anonymous")
    assert set(hidden(client, address)) == {"groups", "private"}
    page = client.get(address)
    assert "Another user" not in page.content.decode()
    # Whether there is such a user or not.
    for name in ("ada", "nobody", "staff", ""):
        assert client.get(address, {"who": "user", "user": name}).status_code == 403
    assert not LogEntry.objects.exists()


def test_staff_with_the_permission_look_as_others_but_not_as_administrators(client, address):
    staff(client, "view_server", "view_as_another")
    person()
    person("root", is_superuser=True)
    assert kinds(client, address, who="user", user="ada")
    errors = [
        client.get(address, {"who": "user", "user": name}).context["form"].errors
        for name in ("root", "nobody")
    ]
    assert errors[0] == errors[1] != {}
    assert LogEntry.objects.count() == 1


def test_nobody_else_gets_in(client, address):
    assert "/login/" in client.get(address)["Location"]
    client.force_login(person())
    assert "/login/" in client.get(address)["Location"]


def test_a_thousand_components_cost_no_more_queries(client, root, django_assert_max_num_queries):
    server = MCPServer("many", permission=AllowAny)
    for number in range(1000):
        server.tool(f"tool_{number}", permission="auth.view_group")(lambda: "x")
    ada = person()
    ada.groups.add(Group.objects.create(name="Editors"))
    row = Server.objects.create(name="many")
    with django_assert_max_num_queries(16):
        response = client.get(
            f"/admin/mcp_django/server/{row.pk}/seen/", {"who": "user", "user": "ada"}
        )
    assert len(response.context["client_view"].kinds[0].hidden) == 1000


def test_long_lists_are_paged_and_searched(client, root):
    server = MCPServer("many", permission=AllowAny)
    for number in range(250):
        server.tool(f"tool_{number:03}", title=f"Number {number}")(lambda: "x")
    row = Server.objects.create(name="many")
    address = f"/admin/mcp_django/server/{row.pk}/seen/"

    def names(**query: Any) -> list[str]:
        response = client.get(address, query)
        return [tool.key for tool in response.context["client_view"].kinds[0].page_entries]

    first, last = client.get(address), client.get(address, {"p": 3})
    assert len(first.content) < 200_000
    assert names() == [f"tool_{number:03}" for number in range(100)]
    assert names(p=3) == [f"tool_{number:03}" for number in range(200, 250)]
    assert names(p=4) == []
    assert names(p="9" * 7) == names(p="x") == names()
    html = first.content.decode()
    assert 'href="?p=2">Next page</a>' in html
    assert "Previous page" not in html
    assert "Next page" not in last.content.decode()
    # The whole list is counted on each page.
    assert "Tools (250, about" in html
    expected = [f"tool_{number:03}" for number in (24, 124, 224, *range(240, 250))]
    assert sorted(names(q="NUMBER 24")) == expected
    assert "The search finds 13." in client.get(address, {"q": "number 24"}).content.decode()
    # As the page of a component links here.
    linked = client.get(address, {"kind": "tool", "key": "tool_017"})
    assert [tool.key for tool in linked.context["client_view"].kinds[0].page_entries] == [
        "tool_017"
    ]
    assert 'value="tool_017"' in linked.content.decode()
