"""The system checks of the authentication backends: when they report a message and when not."""

from __future__ import annotations

import weakref
from importlib.util import find_spec
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.test import override_settings

from mcp_django import MCPServer, server as server_module
from mcp_django.checks import TAG, site

ISSUER = {"ISSUER": "https://id.example"}
ASKED = {**ISSUER, "URL": "https://id.example/i", "CLIENT_ID": "a", "CLIENT_SECRET": "b"}


@pytest.fixture(autouse=True)
def servers(monkeypatch):
    """Reset the declared servers, so that only those of the test exist."""
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())


def ids(problems: list[Any]) -> list[str]:
    assert all(problem.hint for problem in problems)
    return [problem.id for problem in problems]


@pytest.mark.parametrize(
    ("auth", "values", "expected"),
    [
        (["tokens"], {}, 0),
        (["jwt"], {}, 1),
        (["jwt"], {"JWT": [ISSUER]}, 0),
        (["jwt"], {"JWT": [{**ISSUER, "SERVERS": ["other"]}]}, 1),
        (["jwt"], {"JWT": [{**ISSUER, "SERVERS": ["inline"]}]}, 0),
        (["jwt", "introspection"], {}, 2),
        (["introspection"], {"INTROSPECTION": [ASKED]}, 0),
        (["jwt"], {"JWT": [{**ISSUER, "USER": "nowhere.resolve"}]}, 1),
        (["jwt"], {"JWT": [{**ISSUER, "USER": "django.http.Http404"}]}, 0),
        (["jwt"], {"JWT": [{**ISSUER, "USER": "mcp_django.conf.KEYS"}]}, 1),
        (["tokens"], {"DRF": ["nowhere.Authentication"]}, 1),
        (["drf"], {"DRF": ["os.path.join"]}, 1),
        (["tokens"], {"AUDIT_CONTEXT": "nowhere.caller_context"}, 1),
        (["tokens"], {"AUDIT_CONTEXT": "contextlib.nullcontext"}, 0),
    ],
)
def test_a_backend_without_an_issuer_or_its_function_is_found(auth, values, expected):
    server = MCPServer("inline", auth=auth)
    with override_settings(MCP_DJANGO=values):
        assert ids(site.check_issuers(None)) == ["mcp_django.E013"] * expected
    assert server.auth == tuple(auth)


@pytest.mark.parametrize(
    ("auth", "values", "expected"),
    [
        (["tokens"], {"JWT": [ISSUER]}, "No server accepts the tokens of MCP_DJANGO['JWT'][0]."),
        (["jwt"], {"JWT": [ISSUER]}, ""),
        (["jwt"], {"JWT": [{**ISSUER, "SERVERS": ["inline"]}]}, ""),
        (["jwt"], {"JWT": [{**ISSUER, "SERVERS": ["inlin"]}]}, "(for 'inlin')"),
        (["jwt"], {"INTROSPECTION": [ASKED]}, "MCP_DJANGO['INTROSPECTION'][0]"),
    ],
)
def test_an_issuer_that_is_listed_for_nobody_is_found(auth, values, expected):
    server = MCPServer("inline", auth=auth)
    with override_settings(MCP_DJANGO=values):
        problems = site.check_unused_issuers(None)
    assert ids(problems) == ["mcp_django.W014"] * bool(expected)
    assert all(expected in problem.msg for problem in problems)
    assert all(
        repr(server.name) in problem.hint for problem in problems if "SERVERS" in problem.hint
    )


def test_settings_that_do_not_hold_are_left_to_their_own_check():
    server = MCPServer("inline", auth=["jwt", "drf"])
    with override_settings(MCP_DJANGO={"JWT": 5}):
        assert ids(run_checks(tags=[TAG], include_deployment_checks=True)) == ["mcp_django.E002"]
    assert server.name == "inline"


BASIC = "rest_framework.authentication.BasicAuthentication"
TOKEN = "rest_framework.authentication.TokenAuthentication"
OAUTH = "oauth2_provider.contrib.rest_framework.OAuth2Authentication"


@pytest.mark.skipif(find_spec("rest_framework") is None, reason="REST framework is missing")
@pytest.mark.parametrize(
    ("auth", "named", "expected"),
    [
        (["drf"], [BASIC], []),
        (["drf"], [BASIC, TOKEN], ["mcp_django.W012"]),
        (["tokens"], [TOKEN], []),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_tokens_that_never_end_are_found(auth, named, expected):
    server = MCPServer("inline", auth=auth)
    with override_settings(MCP_DJANGO={"DRF": named}):
        assert ids(site.check_rest_tokens(None)) == expected
    assert server.auth == tuple(auth)


@pytest.mark.skipif(find_spec("rest_framework") is None, reason="REST framework is missing")
@pytest.mark.skipif(find_spec("oauth2_provider") is None, reason="the OAuth toolkit is missing")
@pytest.mark.parametrize(("installed", "expected"), [(True, []), (False, ["mcp_django.E014"])])
def test_tokens_of_the_toolkit_need_the_app_that_reads_them(installed, expected, monkeypatch):
    server = MCPServer("inline", auth=["drf"])
    monkeypatch.setattr(apps, "is_installed", lambda name: installed)
    with override_settings(MCP_DJANGO={"DRF": [OAUTH]}):
        assert ids(site.check_rest_tokens(None)) == expected
    assert server.auth == ("drf",)
