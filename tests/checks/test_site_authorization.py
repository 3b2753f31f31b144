"""The system checks of what OAuth clients need, where they report a message and where none."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from django.core.checks import run_checks
from django.http import HttpRequest

from mcp_django import MCPServer, server as server_module
from mcp_django.auth import endpoints
from mcp_django.auth.backends import BaseBackend
from mcp_django.checks import TAG, site


@pytest.fixture(autouse=True)
def _own_servers(monkeypatch, settings):
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())
    monkeypatch.setattr(endpoints, "_declared_servers", weakref.WeakValueDictionary())
    settings.ROOT_URLCONF = "mcp_django.urls"


class Foreign(BaseBackend):
    """A backend that accepts tokens of another authorization server."""

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """Return the other authorization server."""
        return ["https://issuer.example"]


def described() -> str:
    """Say something."""
    return "x"


def rule(user: Any, server: Any, client_id: str) -> bool:
    """Allow no user."""
    return False


def ids(messages: list[Any]) -> list[str]:
    assert all(message.hint for message in messages)
    return [message.id.removeprefix("mcp_django.") for message in messages]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [(["mcp"], []), ([], []), (["mcp", "nope"], ["E010"]), (["a", "b"], ["E010", "E010"])],
)
def test_a_scope_of_a_server_that_nobody_can_get_is_found(scopes, expected):
    server = MCPServer("inline", auth=["oauth"], scopes=scopes)
    messages = site.check_scopes(None)
    assert ids(messages) == expected
    assert all(message.obj is server for message in messages)


def test_a_scope_of_components_that_nobody_can_get_is_found_once(settings):
    settings.MCP_DJANGO = {"SCOPES": {"mcp": "Use", "orders:write": "Change orders"}}
    server = MCPServer("inline", auth=["oauth"])
    for name in ("one", "two"):
        server.tool(name, scopes=["order:write", "mcp"])(described)
    (message,) = site.check_scopes(None)
    assert message.id == "mcp_django.W010"
    assert "tool 'one' and 1 more need the scope 'order:write'" in message.msg
    assert "Did you mean 'orders:write'?" in str(message.hint)
    settings.MCP_DJANGO = {"SCOPES": {"mcp": "Use", "order:write": "Change orders"}}
    assert site.check_scopes(None) == []


def test_a_scope_that_covers_others_and_does_not_exist_is_found(settings):
    server = MCPServer("inline", auth=["oauth"])
    settings.MCP_DJANGO = {
        "SCOPES": {"mcp": "Use", "orders:write": "Change", "orders:read": "See"},
        "SCOPE_IMPLIES": {"orders:writ": ["orders:read"], "orders:write": ["mcp", "order:read"]},
    }
    messages = site.check_scopes(None)
    assert ids(messages) == ["W013", "W013"]
    assert "'orders:writ'" in messages[0].msg
    assert "Did you mean 'orders:read'?" in str(messages[1].hint)
    server._auth = ["tokens"]
    assert site.check_scopes(None) == []


def test_scopes_are_no_matter_where_the_site_issues_no_tokens(settings):
    kept = [MCPServer("tokens", auth=["tokens"], scopes=["nope"])]
    assert site.check_scopes(None) == []
    kept.append(MCPServer("unserved", auth=["oauth"], scopes=["nope"]))
    assert ids(site.check_scopes(None)) == ["E010"]
    settings.ROOT_URLCONF = "tests.kit.urls_of_nothing"
    assert site.check_scopes(None) == []


def test_two_servers_of_one_url_are_found():
    kept = [
        MCPServer("a", resource_url="https://h/mcp"),
        MCPServer("b", resource_url="https://h/b"),
    ]
    assert site.check_resource_urls(None) == []
    kept.append(MCPServer("c", resource_url="HTTPS://H:443/mcp/"))
    (message,) = site.check_resource_urls(None)
    assert ids([message]) == ["E011"]
    assert "'a', 'c'" in message.msg


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", []),
        (f"{__name__}.rule", []),
        (f"{__name__}.nothing", ["E012"]),
        ("nowhere.rule", ["E012"]),
        (f"{__name__}.__doc__", ["E012"]),
        (f"{__name__}.ids", ["E012"]),
        ("builtins.print", []),
        ("builtins.max", []),
    ],
)
def test_a_rule_that_is_none_is_found(settings, path, expected):
    settings.MCP_DJANGO = {"OAUTH": {"CAN_CONNECT": path}}
    assert ids(site.check_can_connect(None)) == expected


def test_issuers_that_no_client_can_find_are_told(settings):
    server = MCPServer("inline", auth=["tokens", f"{__name__}.Foreign"])
    assert site.check_metadata(None) == []
    settings.ROOT_URLCONF = "tests.kit.urls_of_nothing"
    (message,) = site.check_metadata(None)
    assert ids([message]) == ["W011"]
    assert message.obj is server


def test_issuers_are_no_matter_where_no_tokens_of_others_are_taken(settings):
    settings.ROOT_URLCONF = "tests.kit.urls_of_nothing"
    kept = [MCPServer("tokens", auth=["tokens"]), MCPServer("wrong", auth=["nowhere.Backend"])]
    assert site.check_metadata(None) == []
    assert len(kept) == 2


def test_wrong_settings_are_left_to_their_own_check(settings):
    settings.MCP_DJANGO = {"NOPE": 1}
    server = MCPServer("inline", auth=["oauth"], scopes=["nope"])
    assert ids(run_checks(tags=[TAG], include_deployment_checks=True)) == ["E002"]
    assert server.scopes == ("nope",)
