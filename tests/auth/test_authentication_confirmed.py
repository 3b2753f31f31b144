"""Callers that the database confirmed a moment ago: their queries, and when changes end them."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction
from django.test.utils import isolate_apps
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth import authentication, limits
from mcp_django.auth.authentication import LocalCaller, caller_cache, why_not_cached
from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.permissions import InGroups, IsStaff
from mcp_django.auth.principal import principal_for
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import AccessToken, Session
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.storage import cache, revocations
from mcp_django.storage.cache import Confirmed
from mcp_django.tenants import TENANT_PACKAGES
from tests.kit.confirming import Database, _clock, _database  # noqa: F401 - fixtures
from tests.kit.drivers import headers_for, message
from tests.kit.servers import person, through_view, token_for
from tests.spec import spec
from tests.transports.http_session.handshakes import D, initialize

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

keeper = MCPServer("keeper", auth=["tokens"])


@keeper.tool(read_only=True)
def plain() -> str:
    """Return a word."""
    return "done"


@keeper.tool(read_only=True, permission="auth.change_user")
def edit() -> str:
    """Return a word to those who may change users."""
    return "done"


@keeper.tool(read_only=True, permission=InGroups(["team"]))
def team() -> str:
    """Return a word to the team."""
    return "done"


@keeper.tool(read_only=True, permission=IsStaff)
def desk() -> str:
    """Return a word to the staff."""
    return "done"


@keeper.tool
def rename(ctx: Context) -> str:
    """Store the user as the tool got it."""
    ctx.user.first_name = "Ada"
    ctx.user.save()
    return "done"


def ask(
    plaintext: str, tool: str = "plain", server: MCPServer = keeper, **changes: str | None
) -> int | str:
    """Call a tool, and return its text, or the status or code of the error."""
    body = message("tools/call", {"name": tool, "arguments": {}})
    headers = headers_for(body, authorization=f"Bearer {plaintext}", **changes)
    answer = through_view(server, json.dumps(body), {k: v for k, v in headers.items() if v})
    if answer.status_code != 200:
        return answer.status_code
    response = json.loads(answer.content)
    text: int | str = (
        response["error"]["code"]
        if "error" in response
        else response["result"]["content"][0]["text"]
    )
    return text


HIDDEN = INVALID_PARAMS


class Caller:
    """A member of the staff and the team who may change users, with a token."""

    def __init__(self) -> None:
        self.user = person("ada", is_staff=True)
        self.permission = Permission.objects.get(codename="change_user")
        self.group = Group.objects.create(name="team")
        self.group.permissions.add(self.permission)
        self.user.groups.add(self.group)
        self.token, self.plaintext = token_for(self.user)


@pytest.fixture
def caller():
    return Caller()


def heat(caller: Caller, database: Database, tool: str = "plain") -> None:
    """Call a tool until the caller is cached, and assert that the last call needs no statement."""
    assert ask(caller.plaintext, tool) == "done"
    with database.quiet():
        assert ask(caller.plaintext, tool) == "done"


def test_a_session_is_opened_without_loading_the_user(caller, database, clock):
    heat(caller, database)
    database.statements.clear()
    bearer = {"authorization": f"Bearer {caller.plaintext}"}
    headers = headers_for({}, **bearer, mcp_protocol_version=None)
    answer = through_view(keeper, json.dumps(initialize(D)), headers)
    assert answer.status_code == 200
    assert not [statement for statement in database.statements if 'FROM "auth_user"' in statement]
    assert Session.objects.get().user == caller.user


@pytest.mark.parametrize("tool", ["plain", "edit", "team", "desk"])
def test_a_caller_in_use_needs_no_statement(caller, database, clock, tool):
    heat(caller, database, tool)
    for _ in range(5):
        clock.move(0.4)
        database.statements.clear()
        assert caller_cache.confirm() == 1
        # The token with its user, permissions of the user and of groups, names of groups.
        assert len(database.statements) == 4
        with database.quiet():
            assert ask(caller.plaintext, tool) == "done"


# What is noticed at once --------------------------------------------------------------------------


def deactivate(caller: Caller) -> None:
    caller.user.is_active = False
    caller.user.save()


def expire(caller: Caller) -> None:
    caller.token.expires_at = timezone.now()
    caller.token.save()


@spec("AUT-1", "AUT-11")
@pytest.mark.parametrize(
    "change",
    [
        deactivate,
        expire,
        lambda caller: caller.user.delete(),
        lambda caller: User.objects.filter(pk=caller.user.pk).delete(),
        lambda caller: caller.token.revoke(),
        lambda caller: caller.token.delete(),
    ],
)
def test_a_caller_whose_access_ends_is_refused_at_once(caller, database, change):
    heat(caller, database)
    change(caller)
    assert ask(caller.plaintext) == 401


@spec("AUT-11")
@pytest.mark.parametrize(
    ("tool", "change"),
    [
        ("edit", lambda caller: caller.group.permissions.clear()),
        ("edit", lambda caller: caller.group.permissions.remove(caller.permission)),
        ("edit", lambda caller: caller.permission.group_set.clear()),
        ("edit", lambda caller: caller.permission.delete()),
        ("edit", lambda caller: caller.user.groups.clear()),
        ("edit", lambda caller: caller.group.user_set.remove(caller.user)),
        ("edit", lambda caller: caller.group.user_set.clear()),
        ("edit", lambda caller: caller.group.delete()),
        ("team", lambda caller: caller.user.groups.set([])),
        ("team", lambda caller: caller.group.delete()),
        ("team", lambda caller: rename_group(caller.group)),
        ("desk", lambda caller: dismiss(caller.user)),
    ],
)
def test_a_caller_who_loses_a_permission_loses_the_tool_at_once(caller, database, tool, change):
    heat(caller, database, tool)
    change(caller)
    assert ask(caller.plaintext, tool) == HIDDEN
    assert ask(caller.plaintext) == "done"


def rename_group(group: Group) -> None:
    group.name = "others"
    group.save()


def dismiss(user: User) -> None:
    user.is_staff = False
    user.save()


def test_a_caller_who_is_given_a_permission_has_the_tool_at_once(caller, database):
    caller.user.groups.clear()
    heat(caller, database)
    assert ask(caller.plaintext, "edit") == HIDDEN
    caller.user.user_permissions.add(caller.permission)
    assert ask(caller.plaintext, "edit") == "done"
    caller.permission.user_set.remove(caller.user)
    assert ask(caller.plaintext, "edit") == HIDDEN
    caller.user.is_superuser = True
    caller.user.save()
    assert ask(caller.plaintext, "edit") == ask(caller.plaintext, "team") == "done"


def test_a_change_takes_effect_with_its_commit(caller, database):
    heat(caller, database)
    with transaction.atomic():
        caller.token.revoke()
        assert ask(caller.plaintext) == 401
    assert ask(caller.plaintext) == 401


def test_a_site_that_commits_by_itself_may_change_users(caller, database):
    heat(caller, database)
    connection.set_autocommit(False)
    try:
        deactivate(caller)
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert ask(caller.plaintext) == 401


def test_a_login_changes_nothing(caller, database):
    heat(caller, database)
    caller.user.last_login = timezone.now()
    caller.user.save(update_fields=["last_login"])
    with database.quiet():
        assert ask(caller.plaintext) == "done"


# What is noticed within a second ------------------------------------------------------------------


@spec("AUT-1")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda: AccessToken.objects.update(revoked_at=timezone.now()), 401),
        (lambda: User.objects.update(is_active=False), 401),
        (lambda: User.groups.through.objects.all().delete(), HIDDEN),
    ],
)
def test_what_sends_no_signal_is_noticed_within_a_second(caller, database, clock, change, status):
    heat(caller, database, "edit")
    change()
    clock.move(0.99)
    with database.quiet():
        assert ask(caller.plaintext, "edit") == "done"
    clock.move(0.01)
    assert ask(caller.plaintext, "edit") == status


def test_a_token_is_not_used_beyond_its_end(caller, database, monkeypatch):
    ends = timezone.now() + timedelta(hours=1)
    AccessToken.objects.update(expires_at=ends)
    heat(caller, database)
    monkeypatch.setattr(authentication, "timezone", SimpleNamespace(now=lambda: ends))
    monkeypatch.setattr("mcp_django.models.tokens.timezone", SimpleNamespace(now=lambda: ends))
    assert ask(caller.plaintext) == 401


def test_a_look_up_on_its_way_does_not_bring_back_a_revoked_token(caller, monkeypatch):
    read_many = caller_cache._read_many

    def read_and_revoke(keys: Any) -> Any:
        confirmed = read_many(keys)
        caller.token.revoke()
        return confirmed

    monkeypatch.setattr(caller_cache, "_read_many", read_and_revoke)
    assert ask(caller.plaintext) == 401
    monkeypatch.undo()
    assert ask(caller.plaintext) == 401


# What is never cached -----------------------------------------------------------------------------


def test_what_was_refused_is_asked_for_again(caller):
    AccessToken.objects.update(revoked_at=timezone.now())
    assert ask(caller.plaintext) == 401
    AccessToken.objects.update(revoked_at=None)
    assert ask(caller.plaintext) == "done"


def test_a_token_bound_to_networks_is_looked_up_each_time(database):
    _, plaintext = token_for(person(), networks=["127.0.0.0/8"])
    for _ in range(2):
        database.statements.clear()
        assert ask(plaintext) == "done"
        assert database.statements


OTHER = MCPServer("keeper-other", auth=["tokens"])


@OTHER.tool(name="plain", read_only=True)
def other_plain() -> str:
    """Return a word."""
    return "done"


@spec("AUT-9")
def test_a_token_of_one_server_is_not_valid_for_another(database):
    _, plaintext = token_for(person(), servers=["keeper"])
    assert ask(plaintext) == ask(plaintext) == "done"
    assert ask(plaintext, server=OTHER) == 401


class OwnBackend(ModelBackend):
    """A backend that may decide differently from its base class."""


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("AUTHENTICATION_BACKENDS", [f"{__name__}.OwnBackend"], "AUTHENTICATION_BACKENDS"),
        (
            "MCP_DJANGO",
            {"CONFIRM_SECONDS": 1, "OAUTH": {"CAN_CONNECT": "tests.nowhere.allow"}},
            "CAN_CONNECT",
        ),
        ("MCP_DJANGO", {"CONFIRM_SECONDS": 0}, "CONFIRM_SECONDS is 0"),
    ],
)
def test_where_the_site_decides_each_request_asks(
    caller, database, settings, setting, value, reason
):
    setattr(settings, setting, value)
    assert reason in why_not_cached(("tokens",))
    assert ask(caller.plaintext) == "done"
    User.objects.update(is_active=False)
    assert ask(caller.plaintext) == 401
    assert len(caller_cache) == 0


@pytest.mark.parametrize("package", sorted(TENANT_PACKAGES))
def test_where_connections_have_tenants_nothing_is_cached(caller, settings, package):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{package}.middleware.TenantMiddleware"]
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, "TITLE": "Tenants"}
    assert why_not_cached(("tokens",)) == "the site has tenants"
    assert cache.confirm_seconds() == 0


@pytest.mark.parametrize("name", ["groups", "user_permissions"])
def test_a_user_model_with_other_relations_is_asked(monkeypatch, name):
    field = User._meta.get_field(name)
    monkeypatch.setitem(vars(field), "related_model", AccessToken)
    why_not_cached.cache_clear()
    assert f"User.{name} does not lead to" in why_not_cached(("tokens",))
    why_not_cached.cache_clear()
    # The relation's signals are not handled, and those of the other relation are.
    heard = [sender for _, _, sender in revocations._permission_receivers(User)]
    assert getattr(User, name).through not in heard
    assert Group in heard


def test_what_a_proxy_of_the_user_changes_is_noticed(caller, database, monkeypatch):
    with isolate_apps("tests.auth"):

        class Staff(User):
            class Meta:
                proxy = True
                app_label = "auth"

    monkeypatch.setattr(revocations.apps, "get_models", lambda: [User, Staff])
    revocations.connect_receivers()
    heat(caller, database)
    staff = Staff.objects.get()
    staff.is_active = False
    staff.save()
    assert ask(caller.plaintext) == 401


def test_a_database_that_a_router_chooses_for_the_request_is_asked(caller, database, monkeypatch):
    heat(caller, database)
    [key] = caller_cache._entries
    assert key.alias == "default"
    elsewhere = key._replace(alias="elsewhere")
    aliases: list[str] = []

    def confirm(keys: Any, alias: str) -> dict[Any, Any]:
        aliases.append(alias)
        return {}

    monkeypatch.setattr(get_backend("tokens"), "confirm", confirm)
    assert caller_cache.get(elsewhere) is None
    assert caller_cache.read([elsewhere, key]) == {}
    assert aliases == ["elsewhere", "default"]


def test_the_first_backend_of_each_server_decides(caller, database, monkeypatch):
    class Accepting(BaseBackend):
        def __init__(self, name: str) -> None:
            self.name = name

        def confirm(self, keys: Any, alias: str) -> dict[Any, Any]:
            principal = principal_for(caller.user, backend=self.name)
            return {key: Confirmed(principal, frozenset()) for key in keys}

    heat(caller, database)
    [key] = caller_cache._entries
    monkeypatch.setattr(authentication, "get_backend", Accepting)
    keys = [key._replace(backends=names) for names in (("one", "two"), ("two", "one"))]
    principals = caller_cache.read(keys)
    assert [principals[key].backend for key in keys] == ["one", "two"]


@pytest.mark.parametrize("name", ["has_perm", "has_perms", "get_all_permissions"])
def test_a_user_model_with_rules_of_its_own_is_asked(monkeypatch, name):
    authentication.why_not_cached.cache_clear()
    monkeypatch.setattr(User, name, lambda self, *args: True)
    assert f"User has a {name}() of its own" in why_not_cached(("tokens",))
    authentication.why_not_cached.cache_clear()


def test_other_backends_are_asked_each_time():
    assert "'session'" in why_not_cached(("tokens", "session"))
    assert why_not_cached(("tokens",)) == ""
    assert "UPSTREAM" in why_not_cached(("tokens",), "drive")


# The user -----------------------------------------------------------------------------------------


def test_a_tool_that_saves_its_user_does_not_undo_a_deactivation(caller, database):
    heat(caller, database)
    User.objects.update(is_active=False)
    # The caller is still cached, and its user is loaded now.
    assert ask(caller.plaintext, "rename") != "done"
    assert not User.objects.get().is_active
    User.objects.update(is_active=True, last_name="Lovelace")
    assert ask(caller.plaintext, "rename") == "done"
    assert User.objects.get().get_full_name() == "Ada Lovelace"


def test_a_local_process_uses_what_was_confirmed_as_well(caller, database, clock):
    local = LocalCaller(token=caller.plaintext, server="keeper")
    assert local.principal().username == "ada"
    with database.quiet():
        assert local.principal().username == "ada"
    User.objects.update(is_active=False)
    clock.move(1)
    with pytest.raises(AuthenticationRequired):
        local.principal()


def test_an_open_stream_looks_for_itself(caller, database):
    heat(caller, database, "edit")
    [cached] = caller_cache._entries.values()
    known = authentication._with_own_user(cached.confirmed.value)
    assert known is not None
    assert known.has_perm("auth.change_user")
    User.groups.through.objects.all().delete()
    refreshed = authentication.refresh_principal(known)
    assert refreshed is not None
    assert not refreshed.has_perm("auth.change_user")
    assert not refreshed.is_in_group(frozenset({"team"}))
    User.objects.update(is_active=False)
    assert authentication.refresh_principal(known) is None


def test_counters_of_bad_credentials_are_not_touched(caller, database, monkeypatch):
    heat(caller, database)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("A known caller was counted.")

    limits.accepted_credentials.clear()
    for name in ("check_attempts", "check_limit", "count_event"):
        monkeypatch.setattr(limits, name, fail)
    assert ask(caller.plaintext) == "done"
    # The next request counts for the user again, also in the queue for threads.
    headers = {"Authorization": f"Bearer {caller.plaintext}"}
    assert limits.presumed_caller(limits.Headers.from_environ(_environ(headers))) == (
        f"user:{caller.user.pk}"
    )


def _environ(headers: dict[str, str]) -> dict[str, str]:
    return {f"HTTP_{name.upper()}": value for name, value in headers.items()}


# Without a database -------------------------------------------------------------------------------


def test_without_a_database_no_old_caller_is_accepted(caller, database, clock):
    heat(caller, database)
    database.is_away = True
    clock.move(0.99)
    assert ask(caller.plaintext) == "done"
    clock.move(0.01)
    assert ask(caller.plaintext) == 503
    clock.move(5)
    assert ask(caller.plaintext) == 503
    database.is_away = False
    assert ask(caller.plaintext) == "done"


def test_a_machine_that_was_suspended_accepts_no_caller_of_before(caller, database, clock):
    heat(caller, database)
    AccessToken.objects.update(revoked_at=timezone.now())
    clock.suspend(60)
    assert ask(caller.plaintext) == 401


def test_nothing_shows_who_is_cached(caller, database):
    heat(caller, database)
    [cached] = caller_cache._entries.values()
    shown = repr(caller_cache) + repr(cached.confirmed.value) + str(cached.confirmed.value)
    assert AccessToken.objects.get().digest not in shown
    assert caller.plaintext not in shown
    assert "change_user" not in shown
