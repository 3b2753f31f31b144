"""Who may see and use what: permissions, scopes, and the errors for callers without them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import clear_url_caches, path

from mcp_django import MCPServer, mcp
from mcp_django.auth.permissions import AllowAny, BasePermission, InGroups, IsAuthenticated, IsStaff
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InsufficientScope
from mcp_django.execution.threads import BoundedPool
from mcp_django.test import ErrorResponse, MCPClient
from mcp_django.transports import view
from mcp_django.transports.exchange import Exchange
from tests.kit.drivers import message, send
from tests.kit.servers import open_to_all, person, post, token_for
from tests.sites.example.mcp import open_server, staff
from tests.spec import spec
from tests.transports.http_session.handshakes import D, initialize, request

pytestmark = pytest.mark.django_db


def names(client: MCPClient) -> list[str]:
    return [tool["name"] for tool in client.list_tools()]


# The door -------------------------------------------------------------------------------------


@spec("AUT-1", "AUT-3")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "nonsense"])
def test_a_closed_server_asks_everybody_for_credentials(method):
    response = post("/mcp", message(method))
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="mcp"'
    with pytest.raises(AuthenticationRequired):
        MCPClient(server=mcp).request(method)


def test_a_staff_server_lets_in_staff_alone():
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


def test_a_server_may_ask_for_a_permission_of_django():
    server = MCPServer("inline", permission="auth.view_group")
    user = person()
    with pytest.raises(ConnectionRefused):
        MCPClient(server=server, user=user).discover()
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    fresh = type(user).objects.get(pk=user.pk)
    assert MCPClient(server=server, user=fresh).discover()


class OnlyAda(BasePermission):
    """Allows one user by name."""

    def has_permission(self, principal: Principal) -> bool:
        return bool(principal.user.get_username() == "ada")


class Named(BasePermission):
    """Allows a user by name; instances with equal names are equal, and so cannot be hashed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    __hash__ = None

    def has_permission(self, principal: Principal) -> bool:
        return bool(principal.user.get_username() == self.name)


@pytest.mark.parametrize(
    "permission", [OnlyAda, OnlyAda(), Named("ada"), [IsAuthenticated, OnlyAda]]
)
def test_a_rule_of_the_site_is_asked(permission):
    server = MCPServer("inline", permission=permission)
    server.tool("tool", permission=permission)(lambda: "x")
    assert names(MCPClient(server=server, user=person("ada"))) == ["tool"]
    with pytest.raises(ConnectionRefused):
        names(MCPClient(server=server, user=person("bob")))


# Components -----------------------------------------------------------------------------------


@spec("AUT-11")
@pytest.mark.usefixtures("_inline_urls")
@pytest.mark.parametrize(
    ("backends", "status"),
    [
        (["session"], 200),
        (["mcp_django.auth.backends.site_tokens.SessionBackend"], 200),
        (["session", "tokens"], 401),
        (["tokens"], 401),
    ],
)
def test_only_where_a_credential_could_help_is_one_asked_for(backends, status, settings):
    settings.MCP_DJANGO = {"AUTH": backends}
    for name in ("needs_scope", "needs_staff", "needs_approval"):
        answer = post("/inline", message("tools/call", {"name": name}))
        assert answer.status_code == status, name
        if status == 200:
            absent = post(
                "/inline", message("tools/call", {"name": name.replace("needs", "lacks")})
            )
            assert answer.content == absent.content.replace(b"lacks", b"needs")


@spec("AUT-11")
@pytest.mark.usefixtures("_inline_urls")
def test_a_tool_for_approval_checks_as_many_permissions_as_an_absent_one(settings):
    settings.MCP_DJANGO = {"AUTH": ["session"]}
    checked = []
    for name in ("needs_approval", "lacks_approval"):
        Asking.queries = 0
        post("/inline", message("tools/call", {"name": name}))
        checked.append(Asking.queries)
    assert checked == [1, 1]


@spec("AUT-11")
def test_an_anonymous_call_of_a_guarded_tool_asks_for_credentials():
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


def test_permissions_of_a_group_count_and_all_of_a_list_must_hold():
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
def test_an_inactive_superuser_may_nothing(permission):
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
def test_a_token_that_lacks_a_scope_is_told_every_one(scopes):
    user = person()
    _, plaintext = token_for(user, *scopes)
    response = post("/mcp", CALL, token=plaintext)
    assert response.status_code == 403
    challenge = response["WWW-Authenticate"]
    assert challenge.startswith("Bearer ")
    assert 'error="insufficient_scope"' in challenge
    # The scopes that the operation needs, without others that the token has.
    assert 'scope="orders:write orders:read"' in challenge
    with pytest.raises(InsufficientScope) as caught:
        MCPClient(server=mcp, user=user, scopes=scopes).call_tool("scoped_tool")
    assert caught.value.scopes == ("orders:write", "orders:read")


def test_a_token_with_every_scope_and_a_credential_without_scopes_may():
    user = person()
    _, plaintext = token_for(user, "orders:write", "orders:read", "more")
    assert post("/mcp", CALL, token=plaintext).json()["result"]["content"]
    assert MCPClient(server=mcp, user=user).call_tool("scoped_tool").text == "scoped"


def test_a_scope_guards_an_open_server_from_nobody_in_particular():
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
def test_a_broader_scope_implies_narrower_ones(implies, granted, holds):
    client = MCPClient(server=mcp, user=person(), scopes=granted)
    with override_settings(MCP_DJANGO={"SCOPE_IMPLIES": implies}):
        if holds:
            assert client.call_tool("scoped_tool").text == "scoped"
        else:
            with pytest.raises(InsufficientScope):
                client.call_tool("scoped_tool")


def test_scopes_hide_only_where_the_setting_says_so():
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
async def test_only_readable_resources_are_acknowledged():
    server = open_to_all()
    server.resource("x://shown")(lambda: "x")
    server.resource("x://still", subscribe=False)(lambda: "x")
    server.resource("x://hidden", permission=IsAuthenticated)(lambda: "x")
    server.resource("x://rows/{n}")(lambda n: "x")
    uris = ["x://shown", "x://still", "x://hidden", "x://rows/1", "x://missing", "bad uri"]
    async with MCPClient(server=server).listen(uris=uris) as messages:
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


@inline.tool(permission=IsStaff)
def needs_staff() -> str:
    """Needs staff."""
    return "x"


@inline.tool(approval="caller")
def needs_approval() -> str:
    """Needs an approval."""
    return "x"


@inline.resource("x://secret", permission=IsStaff)
def secret() -> str:
    """For staff."""
    return "x"


class Asking(BasePermission):
    """Queries the database each time, and denies permission."""

    queries = 0

    def has_permission(self, principal: Principal) -> bool:
        type(self).queries += 1
        return Group.objects.filter(name="nowhere").exists()


@inline.tool(permission=Asking)
def needs_answer() -> str:
    """Needs an answer of the database."""
    return "x"


# Each of these guards components of every kind, whose names begin with the key.
GUARDS: dict[str, Any] = {
    "staff": IsStaff,
    "codename": "auth.view_group",
    "group": InGroups(["editors"]),
    "asking": Asking,
    "several": [IsStaff, Asking],
}
alike = MCPServer("policy-alike")
alike.tool("open_one")(lambda: "x")
for word, guard in GUARDS.items():
    alike.tool(f"{word}_one", permission=guard)(lambda: "x")
    alike.resource(f"x://{word}_one", permission=guard)(lambda: "x")
    alike.resource(f"rows://{word}_one/{{n}}", permission=guard)(lambda n: n)
    alike.prompt(f"{word}_one", permission=guard)(lambda topic: topic)
alike.completion("staff_one", "topic")(lambda value: [])

urlpatterns = [path("inline", inline.urls), path("alike", alike.urls)]


@pytest.fixture
def _inline_urls(settings):
    settings.ROOT_URLCONF = __name__
    clear_url_caches()
    yield
    clear_url_caches()


@spec("AUT-11")
@pytest.mark.usefixtures("_inline_urls")
def test_hidden_and_unknown_are_the_same_bytes():
    _, plaintext = token_for(person())
    hidden, unknown = (
        post("/inline", message("resources/read", {"uri": uri}), token=plaintext)
        for uri in ("x://secret", "x://secreu")
    )
    assert hidden.status_code == unknown.status_code == 200
    assert hidden.content == unknown.content.replace(b"x://secreu", b"x://secret")
    assert hidden.headers == unknown.headers


def _completing(ref: dict[str, str], name: str) -> dict[str, Any]:
    return message("completion/complete", {"ref": ref, "argument": {"name": name, "value": ""}})


def _subscribing(uri: str) -> dict[str, Any]:
    return request("resources/subscribe", {"uri": uri})


NAMING: dict[str, Any] = {
    "a tool": lambda name: message("tools/call", {"name": name}),
    "a resource": lambda name: message("resources/read", {"uri": f"x://{name}"}),
    "a template": lambda name: message("resources/read", {"uri": f"rows://{name}/1"}),
    "a prompt": lambda name: message("prompts/get", {"name": name}),
    "a prompt to complete": lambda name: _completing({"type": "ref/prompt", "name": name}, "topic"),
    "a template to complete": lambda name: _completing(
        {"type": "ref/resource", "uri": f"rows://{name}/{{n}}"}, "n"
    ),
    "a subscription": lambda name: _subscribing(f"x://{name}"),
    "a subscription to a row": lambda name: _subscribing(f"rows://{name}/1"),
}


@pytest.fixture
def token():
    """The token of a user to whom everything in ``GUARDS`` is hidden."""
    return token_for(person())[1]


def _session(token: str) -> dict[str, str | None]:
    """Open a session and return its headers."""
    headers = {"mcp_protocol_version": None, "mcp_method": None}
    answer = post("/alike", initialize(), token=token, **headers)
    return {
        "mcp_protocol_version": D,
        "mcp_method": None,
        "mcp_session_id": answer["Mcp-Session-Id"],
    }


def _streaming(exchange_of: Callable[..., Exchange], *args: Any) -> Exchange:
    return replace(exchange_of(*args), can_stream=True)


def _statements(captured: CaptureQueriesContext) -> list[str]:
    """Return the statements that were sent to the database, without their values."""
    return sorted(
        re.sub(r"VALUES .*|'(?:[^']|'')*'|\b\d+\b", "…", query["sql"])
        for query in captured.captured_queries
    )


@pytest.mark.usefixtures("_inline_urls")
@pytest.mark.parametrize("what", NAMING)
@pytest.mark.parametrize("word", GUARDS)
def test_hidden_and_unknown_ask_the_database_the_same(what, word, token, monkeypatch):
    # Without a stream nothing is subscribed to, so allow one here, where statements are captured.
    streaming = partial(_streaming, view.exchange_of)
    monkeypatch.setattr(view, "exchange_of", streaming)
    headers = _session(token) if "subscription" in what else {}
    # This call stores the last use of the token, which happens once a minute.
    post("/alike", message("tools/call", {"name": "open_one"}), token=token)
    answers, statements = {}, {}
    for name in (f"{word}_one", f"{word}_two"):
        with CaptureQueriesContext(connection) as captured:
            answers[name] = post("/alike", NAMING[what](name), token=token, **headers)
        statements[name] = _statements(captured)
    hidden, unknown = answers.values()
    assert hidden.content.replace(b"_one", b"_two") == unknown.content
    assert (hidden.status_code, hidden.headers) == (unknown.status_code, unknown.headers)
    assert statements[f"{word}_one"] == statements[f"{word}_two"]
    # The permissions of the user's groups, the groups, and the query of a permission itself.
    assert len([query for query in statements[f"{word}_two"] if '"auth_group' in query]) == 3


@pytest.mark.usefixtures("_inline_urls")
@pytest.mark.django_db(transaction=True)
async def test_hidden_and_unknown_take_the_same_way_through_threads(monkeypatch):
    token = (await sync_to_async(lambda: token_for(person()))())[1]
    hops: list[str | None] = []
    begin = BoundedPool.begin

    def counted(self: BoundedPool, function: Any, *, key: str | None = None) -> Any:
        hops.append(key)
        return begin(self, function, key=key)

    monkeypatch.setattr(BoundedPool, "begin", counted)
    for name in ("group_one", "group_two"):
        for what in ("a tool", "a resource", "a template", "a prompt", "a prompt to complete"):
            hops.clear()
            body = NAMING[what](name)
            await send(alike.asgi, "/alike", body, authorization=f"Bearer {token}")
            assert len(hops) == 1, (name, what)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "uris", [["x://asking_one", "rows://asking_one/1"], ["x://asking_two"], []]
)
async def test_what_is_listened_for_in_vain_is_asked_for_once(uris):
    ada = await sync_to_async(person)()
    Asking.queries = 0
    async with MCPClient(server=alike, user=ada).listen(uris=uris) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["notifications"] == {}
    # A class is one permission, for all components that name it.
    assert Asking.queries == (1 if uris else 0)


@spec("AUT-5", "AUT-8")
@pytest.mark.usefixtures("_inline_urls")
def test_an_anonymous_call_that_needs_a_scope_is_asked_for_credentials_with_it():
    response = post("/inline", message("tools/call", {"name": "needs_scope"}))
    assert response.status_code == 401
    assert 'scope="s"' in response["WWW-Authenticate"]


def test_an_error_response_knows_its_code():
    with pytest.raises(ErrorResponse) as caught:
        MCPClient(server=open_server).call_tool("missing")
    assert caught.value.code == -32602


# Permissions that fail --------------------------------------------------------------------------


class Failing(BasePermission):
    """Raises an error."""

    def has_permission(self, principal: Principal) -> bool:
        raise LookupError("no such table")


class Demanding(BasePermission):
    """Denies permission with a message of its own."""

    def has_permission(self, principal: Principal) -> bool:
        raise InsufficientScope("Sign in again.", scopes=("fresh",))


def test_a_permission_that_fails_hides_its_own_component_and_no_other(caplog):
    server = open_to_all()
    server.tool("broken", permission=Failing)(lambda: "never")
    server.tool("sound")(lambda: "fine")
    client = MCPClient(server=server, user=person())
    assert names(client) == ["sound"]
    assert "The tool 'broken' is hidden because Failing failed." in caplog.text
    assert "no such table" in caplog.text
    with pytest.raises(ErrorResponse, match="No tool named 'broken'"):
        client.call_tool("broken")
    assert client.call_tool("sound").text == "fine"


def test_a_permission_may_refuse_in_its_own_words():
    server = open_to_all()
    server.tool("strict", permission=Demanding)(lambda: "never")
    client = MCPClient(server=server, user=person())
    assert names(client) == []
    with pytest.raises(InsufficientScope, match="Sign in again"):
        client.call_tool("strict")
