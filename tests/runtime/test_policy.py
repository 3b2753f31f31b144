"""Who may see and use what: permissions, scopes, and the answers to those who may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import override_settings
from django.urls import clear_url_caches, path

from mcp_django import MCPServer, mcp
from mcp_django.auth.permissions import AllowAny, BasePermission, IsAuthenticated, IsStaff
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InsufficientScope
from mcp_django.test import ErrorResponse, MCPClient
from tests.drivers import message
from tests.example.mcp import open_server, staff
from tests.servers import open_to_all, person, post, token_for
from tests.spec import spec

pytestmark = pytest.mark.django_db


def names(client: MCPClient) -> list[str]:
    return [tool["name"] for tool in client.list_tools()]


# The door -------------------------------------------------------------------------------------


@spec("AUT-1", "AUT-3")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "nonsense"])
def test_a_closed_server_asks_everybody_for_credentials(method: str) -> None:
    response = post("/mcp", message(method))
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="mcp"'
    with pytest.raises(AuthenticationRequired):
        MCPClient(server=mcp).request(method)


def test_a_staff_server_lets_in_staff_alone() -> None:
    assert post("/staff/mcp", message("tools/list")).status_code == 401
    user = person()
    _, plaintext = token_for(user)
    refused = post("/staff/mcp", message("tools/list"), token=plaintext)
    assert refused.status_code == 403
    assert "WWW-Authenticate" not in refused
    with pytest.raises(ConnectionRefused):
        MCPClient(server=staff, user=user).discover()
    user.is_staff = True
    user.save()
    assert post("/staff/mcp", message("tools/list"), token=plaintext).status_code == 200
    assert names(MCPClient(server=staff, user=user)) == ["staff_tool"]


def test_a_server_may_ask_for_a_permission_of_django() -> None:
    server = MCPServer("inline", permission="auth.view_group")
    user = person()
    with pytest.raises(ConnectionRefused):
        MCPClient(server=server, user=user).discover()
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    fresh = type(user).objects.get(pk=user.pk)
    assert MCPClient(server=server, user=fresh).discover()


class OnlyAda(BasePermission):
    """One person by name."""

    def has_permission(self, principal: Principal) -> bool:
        return bool(principal.user.get_username() == "ada")


class Named(BasePermission):
    """People by name; two of one name are equal, and so cannot be hashed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]

    def has_permission(self, principal: Principal) -> bool:
        return bool(principal.user.get_username() == self.name)


@pytest.mark.parametrize(
    "permission", [OnlyAda, OnlyAda(), Named("ada"), [IsAuthenticated, OnlyAda]]
)
def test_a_rule_of_the_site_is_asked(permission: Any) -> None:
    server = MCPServer("inline", permission=permission)
    server.tool("tool", permission=permission)(lambda: "x")
    assert names(MCPClient(server=server, user=person("ada"))) == ["tool"]
    with pytest.raises(ConnectionRefused):
        names(MCPClient(server=server, user=person("bob")))


# Components -----------------------------------------------------------------------------------


@spec("AUT-11")
def test_an_anonymous_call_of_a_guarded_tool_asks_for_credentials() -> None:
    assert "members_tool" not in names(MCPClient(server=open_server))
    body = message("tools/call", {"name": "members_tool"})
    assert post("/open/mcp", body).status_code == 401
    assert post("/open/mcp", message("tools/call", {"name": "missing"})).status_code == 200
    user = person()
    _, plaintext = token_for(user)
    hidden = post("/open/mcp", body, token=plaintext)
    assert hidden.status_code == 200
    assert hidden.json()["error"]["code"] == -32602
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    assert post("/open/mcp", body, token=plaintext).json()["result"]["content"]


def test_permissions_of_a_group_count_and_all_of_a_list_must_hold() -> None:
    server = open_to_all()
    server.tool("both", permission=["auth.view_group", IsStaff])(lambda: "x")
    user = person(is_staff=True)
    assert names(MCPClient(server=server, user=user)) == []
    group = Group.objects.create(name="viewers")
    group.permissions.add(Permission.objects.get(codename="view_group"))
    user.groups.add(group)
    fresh = type(user).objects.get(pk=user.pk)
    assert names(MCPClient(server=server, user=fresh)) == ["both"]
    fresh.is_staff = False
    assert names(MCPClient(server=server, user=fresh)) == []


@pytest.mark.parametrize("permission", ["auth.view_group", IsStaff])
def test_an_inactive_superuser_may_nothing(permission: Any) -> None:
    server = open_to_all()
    server.tool("tool", permission=permission)(lambda: "x")
    user = person(is_superuser=True, is_staff=True)
    assert names(MCPClient(server=server, user=user)) == ["tool"]
    user.is_active = False
    assert names(MCPClient(server=server, user=user)) == []


# Scopes ---------------------------------------------------------------------------------------


CALL = message("tools/call", {"name": "scoped_tool"})


@spec("AUT-6", "AUT-8")
@pytest.mark.parametrize("scopes", [[], ["orders:read"], ["other"]])
def test_a_token_that_lacks_a_scope_is_told_every_one(scopes: list[str]) -> None:
    user = person()
    _, plaintext = token_for(user, *scopes)
    response = post("/mcp", CALL, token=plaintext)
    assert response.status_code == 403
    challenge = response["WWW-Authenticate"]
    assert challenge.startswith("Bearer ")
    assert 'error="insufficient_scope"' in challenge
    # What the operation needs, and nothing that was granted besides.
    assert 'scope="orders:write orders:read"' in challenge
    with pytest.raises(InsufficientScope) as caught:
        MCPClient(server=mcp, user=user, scopes=scopes).call_tool("scoped_tool")
    assert caught.value.scopes == ("orders:write", "orders:read")


def test_a_token_with_every_scope_and_a_credential_without_scopes_may() -> None:
    user = person()
    _, plaintext = token_for(user, "orders:write", "orders:read", "more")
    assert post("/mcp", CALL, token=plaintext).json()["result"]["content"]
    assert MCPClient(server=mcp, user=user).call_tool("scoped_tool").text == "scoped"


def test_a_scope_guards_an_open_server_from_nobody_in_particular() -> None:
    server = open_to_all()
    server.tool("tool", scopes=["s"])(lambda: "x")
    server.resource("x://x", scopes=["s"])(lambda: "x")
    server.prompt("prompt", scopes=["s"])(lambda: "x")
    client = MCPClient(server=server)
    for use in (
        lambda: client.call_tool("tool"),
        lambda: client.read_resource("x://x"),
        lambda: client.get_prompt("prompt"),
    ):
        with pytest.raises(AuthenticationRequired) as caught:
            use()
        assert caught.value.scopes == ("s",)
    assert names(client) == ["tool"]


@spec("AUT-7")
@pytest.mark.parametrize(
    ("implies", "granted", "holds"),
    [
        ({"admin": ["orders:write"], "orders:write": ["orders:read"]}, ["admin"], True),
        ({"orders:write": ["orders:read"]}, ["orders:write"], True),
        ({"orders:write": ["orders:read"]}, ["orders:read"], False),
        ({"a": ["b"], "b": ["a"]}, ["a"], False),
    ],
)
def test_a_broader_scope_implies_narrower_ones(
    implies: dict[str, list[str]], granted: list[str], holds: bool
) -> None:
    client = MCPClient(server=mcp, user=person(), scopes=granted)
    with override_settings(MCP_DJANGO={"SCOPE_IMPLIES": implies}):
        if holds:
            assert client.call_tool("scoped_tool").text == "scoped"
        else:
            with pytest.raises(InsufficientScope):
                client.call_tool("scoped_tool")


def test_scopes_hide_only_where_the_setting_says_so() -> None:
    server = open_to_all()
    server.tool("tool", scopes=["s"])(lambda: "x")
    server.resource("x://x", scopes=["s"])(lambda: "x")
    ada = person()
    lacking = MCPClient(server=server, user=ada, scopes=[])
    holding = MCPClient(server=server, user=ada, scopes=["s"])
    assert names(lacking) == names(holding) == ["tool"]
    with override_settings(MCP_DJANGO={"LIST_FILTER": "scopes"}):
        assert names(lacking) == []
        assert lacking.list_resources() == []
        assert names(MCPClient(server=server)) == []
        assert names(holding) == names(MCPClient(server=server, user=ada)) == ["tool"]
        with pytest.raises(InsufficientScope):
            lacking.call_tool("tool")


# Subscriptions --------------------------------------------------------------------------------


@spec("SUB-8")
async def test_only_readable_resources_are_acknowledged() -> None:
    server = open_to_all()
    server.resource("x://shown")(lambda: "x")
    server.resource("x://still", subscribe=False)(lambda: "x")
    server.resource("x://hidden", permission=IsAuthenticated)(lambda: "x")
    server.resource("x://rows/{n}")(lambda n: "x")
    asked = ["x://shown", "x://still", "x://hidden", "x://rows/1", "x://missing", "bad uri"]
    async with MCPClient(server=server).listen(uris=asked) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["notifications"] == {
        "resourceSubscriptions": ["x://shown", "x://rows/1"]
    }


# The whole of it over HTTP --------------------------------------------------------------------


inline = MCPServer("policy-test", permission=AllowAny)


@inline.tool(scopes=["s"])
def needs_scope() -> str:
    """Needs a scope."""
    return "x"


@inline.resource("x://secret", permission=IsStaff)
def secret() -> str:
    """For staff."""
    return "x"


urlpatterns = [path("inline", inline.urls)]


@pytest.fixture
def _inline_urls(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    clear_url_caches()
    yield
    clear_url_caches()


@spec("AUT-11")
@pytest.mark.usefixtures("_inline_urls")
def test_hidden_and_unknown_are_the_same_bytes() -> None:
    _, plaintext = token_for(person())
    hidden, unknown = (
        post("/inline", message("resources/read", {"uri": uri}), token=plaintext)
        for uri in ("x://secret", "x://secreu")
    )
    assert hidden.status_code == unknown.status_code == 200
    assert hidden.content == unknown.content.replace(b"x://secreu", b"x://secret")
    assert hidden.headers == unknown.headers


@spec("AUT-5", "AUT-8")
@pytest.mark.usefixtures("_inline_urls")
def test_an_anonymous_call_that_needs_a_scope_is_asked_for_credentials_with_it() -> None:
    response = post("/inline", message("tools/call", {"name": "needs_scope"}))
    assert response.status_code == 401
    assert 'scope="s"' in response["WWW-Authenticate"]


def test_an_error_response_knows_its_code() -> None:
    with pytest.raises(ErrorResponse) as caught:
        MCPClient(server=open_server).call_tool("missing")
    assert caught.value.code == -32602


# Permissions that fail --------------------------------------------------------------------------


class Failing(BasePermission):
    """Asks what is not there."""

    def has_permission(self, principal: Principal) -> bool:
        raise LookupError("no such table")


class Demanding(BasePermission):
    """Refuses in words of its own."""

    def has_permission(self, principal: Principal) -> bool:
        raise InsufficientScope("Sign in again.", scopes=("fresh",))


def test_a_permission_that_fails_hides_its_own_component_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = open_to_all()
    server.tool("broken", permission=Failing)(lambda: "never")
    server.tool("sound")(lambda: "fine")
    client = MCPClient(server=server, user=person())
    assert names(client) == ["sound"]
    assert "The tool 'broken' is hidden, as Failing failed." in caplog.text
    assert "no such table" in caplog.text
    with pytest.raises(ErrorResponse, match="No tool named 'broken'"):
        client.call_tool("broken")
    assert client.call_tool("sound").text == "fine"


def test_a_permission_may_refuse_in_its_own_words() -> None:
    server = open_to_all()
    server.tool("strict", permission=Demanding)(lambda: "never")
    client = MCPClient(server=server, user=person())
    assert names(client) == []
    with pytest.raises(InsufficientScope, match="Sign in again"):
        client.call_tool("strict")
