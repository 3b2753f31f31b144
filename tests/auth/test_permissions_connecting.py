"""Whether a user may connect a client to a server: the server's permission and the site's rule."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission, IsStaff
from mcp_django.auth.principal import principal_for
from mcp_django.exceptions import ConnectionRefused, InsufficientScope
from mcp_django.execution.policy import authorize_connection, can_connect

ADA, BOB = User(pk=1, username="ada"), User(pk=2, username="bob", is_staff=True)
server = MCPServer("connecting")


class Failing(BasePermission):
    """Raises an error."""

    def has_permission(self, principal: Any) -> bool:
        """Raise an error."""
        raise RuntimeError("no")


def rule(user: Any, server: MCPServer, client_id: str) -> bool:
    """Ada may connect this server with one client."""
    return (user, server.name, client_id) == (ADA, "connecting", "good")


@pytest.fixture
def ruled(settings):
    settings.MCP_DJANGO = {"OAUTH": {"CAN_CONNECT": f"{__name__}.rule"}}


def test_without_a_rule_the_permission_of_the_server_decides():
    assert can_connect(ADA, server, "any")
    assert not can_connect(AnonymousUser(), server, "any")
    desk = MCPServer("desk-of-staff", permission=IsStaff)
    assert can_connect(BOB, desk, "any")
    assert not can_connect(ADA, desk, "any")
    assert can_connect(ADA, MCPServer("for-all", permission=AllowAny), "any")


def test_a_permission_that_fails_is_a_no_and_is_logged(caplog):
    assert not can_connect(ADA, MCPServer("failing", permission=Failing), "any")
    assert "'failing'" in caplog.text


@pytest.mark.usefixtures("ruled")
def test_the_rule_sees_the_user_the_server_and_the_client():
    assert can_connect(ADA, server, "good")
    assert not can_connect(ADA, server, "bad")
    assert not can_connect(BOB, server, "good")


@pytest.mark.usefixtures("ruled")
def test_the_rule_holds_for_oauth_tokens_alone():
    details: Any = {"client_id": "bad", "scopes": frozenset({"mcp"})}
    authorize_connection(server, principal_for(ADA, **details))
    with pytest.raises(ConnectionRefused):
        authorize_connection(
            server, principal_for(ADA, **details, audience="http://testserver/mcp")
        )


def test_the_rule_goes_before_the_scopes_and_the_permission_before_both(settings):
    bearer: Any = {"audience": "http://testserver/mcp", "client_id": "good", "scopes": frozenset()}
    with pytest.raises(InsufficientScope) as short:
        authorize_connection(server, principal_for(ADA, **bearer))
    assert (short.value.scopes, short.value.granted) == (("mcp",), frozenset())
    settings.MCP_DJANGO = {"OAUTH": {"CAN_CONNECT": f"{__name__}.rule"}}
    with pytest.raises(ConnectionRefused, match="with this client"):
        authorize_connection(server, principal_for(BOB, **bearer))
    desk = MCPServer("desk-of-staff", permission=IsStaff)
    with pytest.raises(ConnectionRefused, match="use this server\\."):
        authorize_connection(desk, principal_for(ADA, **bearer))


@pytest.mark.parametrize("path", ["nowhere.rule", f"{__name__}.ADA", f"{__name__}.absent"])
def test_a_rule_that_is_none_is_told(settings, path):
    settings.MCP_DJANGO = {"OAUTH": {"CAN_CONNECT": path}}
    with pytest.raises(ImproperlyConfigured, match="CAN_CONNECT"):
        can_connect(ADA, server, "any")
