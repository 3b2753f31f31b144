"""The reasons that the site owner is shown are the ones that decide."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import override_settings

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission, HasCodename, InGroups, IsStaff
from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.exceptions import AccessRefused, AuthenticationRequired, InvalidParams
from mcp_django.execution import policy
from mcp_django.execution.policy import (
    Reason,
    authorize,
    authorize_connection,
    explain,
    explain_connection,
    is_visible,
)
from tests.kit.servers import changed_catalog


class Yes(BasePermission):
    """Allows."""


class No(BasePermission):
    """Denies."""

    def has_permission(self, principal: Principal) -> bool:
        return False


class Refuses(BasePermission):
    """Denies with a message of its own."""

    def has_permission(self, principal: Principal) -> bool:
        raise AuthenticationRequired("Sign in once more.")


class Objects(BasePermission):
    """Raises an error of the protocol."""

    def has_permission(self, principal: Principal) -> bool:
        raise InvalidParams("Not today.")


class Fails(BasePermission):
    """Raises an unexpected error."""

    def has_permission(self, principal: Principal) -> bool:
        raise RuntimeError("oops")


GUARDS = (Yes, No, Refuses, Objects, Fails)
PERMISSIONS = [None, *GUARDS, *[list(two) for two in product(GUARDS, repeat=2)]]
HELD = [None, frozenset(), frozenset({"a"}), frozenset({"a", "b"})]
NEEDED = [(), ("a",), ("a", "b")]


def named(declared: Any) -> str:
    """Return the name of a case, the same in every process."""
    guards = declared if isinstance(declared, (list, tuple)) else [declared]
    return (
        "+".join(getattr(guard, "__name__", type(guard).__name__) for guard in guards) or "nothing"
    )


@cache
def plain_tool() -> Component:
    server = MCPServer("reasons", permission=AllowAny)

    @server.tool
    def tool() -> str:
        """Do something."""
        return ""

    return server.tools["tool"]


def component_of(permission: Any, scopes: tuple[str, ...]) -> Component:
    return replace(plain_tool(), permission=permission, scopes=scopes)


def caller(scopes: frozenset[str] | None, *, is_known: bool = True, **details: Any) -> Principal:
    user = User(pk=1, username="ada") if is_known else AnonymousUser()
    return Principal(key="k", user=user, scopes=scopes, **details)


def is_admitted(principal: Principal, component: Component) -> bool:
    try:
        return authorize(principal, component)
    except (AccessRefused, InvalidParams):
        return False


@pytest.mark.parametrize("list_filter", ["permissions", "scopes"])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("permission", PERMISSIONS, ids=named)
def test_a_component_is_seen_when_there_is_no_reason_against_it(
    permission, is_known, list_filter, settings
):
    settings.MCP_DJANGO = {"LIST_FILTER": list_filter}
    for held, needed in product(HELD, NEEDED):
        principal = caller(held, is_known=is_known)
        component = component_of(permission, needed)
        reasons = explain(principal, component, use="list").reasons
        assert is_visible(principal, component) is not bool(reasons)
        of_scopes = [reason for reason in reasons if reason.kind == "scopes"]
        guarding = [reason for reason in reasons if reason.kind == "permission"]
        lacks = held is not None and not set(needed) <= held
        assert bool(of_scopes) is (lacks and list_filter == "scopes")
        use = explain(principal, component, use="call")
        assert is_admitted(principal, component) is use.allowed is not (bool(guarding) or lacks)
        assert [reason.kind for reason in use.reasons if reason.scopes] == ["scopes"] * lacks
        guards = permission if isinstance(permission, list) else [permission]
        refusing = [guard for guard in guards if guard not in (None, Yes)]
        assert [type(reason.permission) for reason in guarding] == refusing


def test_all_reasons_are_given_and_not_the_first_alone():
    component = component_of([No, IsStaff, "auth.view_group", InGroups(["Editors"])], ("a", "b"))
    principal = caller(frozenset({"a"}), is_known=False)
    with override_settings(MCP_DJANGO={"LIST_FILTER": "scopes"}):
        reasons = explain(principal, component, use="list").reasons
    kinds = [type(reason.permission) for reason in reasons if reason.permission is not None]
    assert kinds == [No, IsStaff, HasCodename, InGroups]
    assert reasons[-1].scopes == ("b",)


# What is asked, and what is not ------------------------------------------------------------------


class Counted(BasePermission):
    """Returns or raises the given answer, and counts its calls."""

    def __init__(self, answer: bool | Exception) -> None:
        self.answer, self.count = answer, 0

    def has_permission(self, principal: Principal) -> bool:
        self.count += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [False, RuntimeError("oops"), InvalidParams("Not today.")])
def test_what_comes_after_the_first_no_is_asked_only_to_explain(answer):
    yes, no, later = Counted(True), Counted(answer), Counted(False)
    component, principal = component_of([yes, no, later], ("a",)), caller(frozenset())
    assert not is_visible(principal, component)
    assert not is_admitted(principal, component)
    server = MCPServer("reasons", permission=[yes, no, later])
    with pytest.raises(Exception, match=str(answer or "may not use")):
        authorize_connection(server, principal)
    assert (yes.count, no.count, later.count) == (3, 3, 0)
    reasons = explain(principal, component, use="call").reasons
    assert [reason.permission or reason.scopes for reason in reasons] == [no, later, ("a",)]
    connection_reasons = explain_connection(server, principal).reasons
    assert [(reason.permission, reason.error) for reason in connection_reasons] == [
        (no, answer or None),
        (later, None),
    ]


@pytest.mark.parametrize("permission", [None, AllowAny], ids=named)
def test_where_nothing_is_to_be_checked_nothing_is_made(permission, monkeypatch):
    for name in ("PermissionCache", "_component_reasons", "_connection_reasons"):
        monkeypatch.delattr(policy, name)
    component, principal = component_of(None, ()), caller(frozenset(), is_known=False)
    assert is_visible(principal, component)
    assert authorize(principal, component)
    authorize_connection(MCPServer("reasons", permission=permission), principal)


# In words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permission", "of_server", "of_component"),
    [
        (IsStaff, "Credentials are needed (IsStaff).", "Credentials are needed (IsStaff)."),
        (No, "The permission No denies access.", "The permission No denies access."),
        (Refuses, "Sign in once more.", "The permission Refuses denies access."),
        (
            Fails,
            "A permission of the server failed; see the log.",
            "The permission Fails denies access.",
        ),
    ],
)
def test_a_reason_is_a_sentence(permission, of_server, of_component):
    principal = caller(None, is_known=False)
    (reason,) = explain_connection(MCPServer("reasons", permission=permission), principal).reasons
    assert reason.sentence() == of_server
    component = component_of(permission, ())
    (reason,) = explain(principal, component, use="list").reasons
    assert reason.sentence() == of_component
    disabled = Reason(kind="disabled", principal=principal, component=component)
    assert disabled.sentence() == "It is disabled in the admin."


# The server --------------------------------------------------------------------------------------


def nobody_connects(user: Any, server: Any, client_id: str) -> bool:
    """A rule of the site."""
    return client_id != "blocked"


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("guards", [(), (Yes(),), (No(),), (No(), Yes())], ids=named)
@pytest.mark.parametrize("permission", [AllowAny, IsStaff, [Yes, No]], ids=named)
@pytest.mark.parametrize("is_known", [True, False])
def test_whoever_may_not_enter_has_a_reason(is_known, permission, guards, is_enabled, settings):
    server: Any = MCPServer("reasons", permission=permission, scopes=("a", "b"))
    offered = changed_catalog(server.catalog, extra_permissions=guards, is_enabled=is_enabled)

    class Door:
        """The server with an override."""

        def __getattr__(self, name: str) -> Any:
            return offered if name == "catalog" else getattr(server, name)

    door: Any = Door()
    settings.MCP_DJANGO = {"OAUTH": {"CAN_CONNECT": f"{__name__}.nobody_connects"}}
    for held, audience, client in product(HELD, ("", "https://a.example"), ("blocked", "other")):
        principal = caller(held, is_known=is_known, audience=audience, client_id=client)
        reasons = [reason.kind for reason in explain_connection(door, principal).reasons]
        if reasons:
            with pytest.raises(AccessRefused):
                authorize_connection(door, principal)
        else:
            authorize_connection(door, principal)
        assert ("disabled" in reasons) is not is_enabled
        assert ("rule" in reasons) is bool(audience and client == "blocked")
        lacks = held is not None and held != {"a", "b"}
        assert ("scopes" in reasons) is bool(audience and lacks)
