"""`manage.py mcp connect`: every client gets what it can read, and no token by accident."""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import Any

import pytest

from mcp_django.hosts.clients import CLIENTS
from mcp_django.protocol.revisions import REVISIONS
from tests.management.console import run

URL = "https://shop.example/staff/mcp"
NAME = "staff-desk"
JSON_CLIENTS = [slug for slug, host in CLIENTS.items() if host.format == "json"]


@pytest.fixture(autouse=True)
def _address(settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example", "AUTH": ["tokens"]}


def connected(client: str, *options: str) -> Any:
    """Return the configuration for the server of staff, read in the client's own format."""
    out = run("connect", client, "--server", "staff", *options).out
    return tomllib.loads(out) if client == "codex" else json.loads(out)


def command_of(*arguments: str) -> list[str]:
    return shlex.split(run("connect", *arguments).out)


def test_vscode_asks_for_the_token_itself():
    assert connected("vscode") == {
        "inputs": [
            {
                "type": "promptString",
                "id": f"{NAME}-token",
                "description": f"Access token for {NAME}",
                "password": True,
            }
        ],
        "servers": {
            NAME: {
                "type": "http",
                "url": URL,
                "headers": {"Authorization": f"Bearer ${{input:{NAME}-token}}"},
            }
        },
    }
    assert "asks for the token once" in run("connect", "vscode").err


@pytest.mark.parametrize(
    ("client", "root", "server_config"),
    [
        ("vscode", "servers", {"type": "http", "url": URL, "headers": "Bearer ${env:T}"}),
        ("cursor", "mcpServers", {"url": URL, "headers": "Bearer ${env:T}"}),
        ("gemini-cli", "mcpServers", {"httpUrl": URL, "headers": "Bearer ${T}"}),
    ],
)
def test_a_token_is_read_from_the_environment(client, root, server_config):
    headers = {"Authorization": server_config["headers"]}
    config = connected(client, "--token-env", "T")
    assert config == {root: {NAME: {**server_config, "headers": headers}}}
    assert "export T=…" in run("connect", client, "--token-env", "T").err


def test_codex_is_told_the_variable_of_the_bare_token():
    assert connected("codex") == {
        "mcp_servers": {NAME: {"url": URL, "bearer_token_env_var": "MCP_TOKEN"}}
    }
    assert connected("codex", "--token-env", "T")["mcp_servers"][NAME] == {
        "url": URL,
        "bearer_token_env_var": "T",
    }
    assert connected("codex", "--token", 'mcp_"x"')["mcp_servers"][NAME] == {
        "url": URL,
        "http_headers": {"Authorization": 'Bearer mcp_"x"'},
    }


def test_the_inspector_is_told_to_begin_without_a_handshake():
    assert connected("inspector") == {
        "mcpServers": {
            NAME: {
                "type": "http",
                "url": URL,
                "protocolEra": "modern",
                "headers": {"Authorization": "Bearer YOUR_TOKEN"},
            }
        }
    }


def test_claude_desktop_reaches_the_server_over_a_bridge():
    assert connected("claude-desktop") == {
        "mcpServers": {
            NAME: {
                "command": "npx",
                "args": [
                    *("-y", "mcp-remote", URL, "--transport", "http-only"),
                    *("--header", "Authorization:${AUTHORIZATION}"),
                ],
                "env": {"AUTHORIZATION": "Bearer YOUR_TOKEN"},
            }
        }
    }
    server_config = connected("claude-desktop", "--url", "http://10.0.0.1/mcp")["mcpServers"][NAME]
    assert "--allow-http" in server_config["args"]


def test_claude_code_gets_a_command_and_a_file():
    words = command_of("claude-code", "--server", "staff")
    assert words == [
        *("claude", "mcp", "add", "--transport", "http", "--scope", "project", NAME, URL),
        *("--header", "Authorization: Bearer ${MCP_TOKEN}"),
    ]
    words = command_of("claude-code", "--server", "staff", "--token", "mcp_x")
    assert "--scope" not in words
    assert words[-1] == "Authorization: Bearer mcp_x"
    file = json.loads(run("connect", "claude-code", "--server", "staff", "--json").out)
    assert file["mcpServers"][NAME]["headers"] == {"Authorization": "Bearer ${MCP_TOKEN}"}


@pytest.mark.parametrize("client", ["claude", "chatgpt", "copilot-studio"])
def test_a_client_in_a_cloud_is_told_the_address_and_no_token(client):
    outcome = run("connect", client, "--server", "staff")
    assert outcome.out == f"{URL}\n"
    assert "OAuth" in outcome.err
    assert "token create" not in outcome.err
    assert "public https://" not in outcome.err
    assert json.loads(run("connect", client, "--json").out) == {"url": "https://shop.example/mcp"}
    local = run("connect", client, "--url", "http://127.0.0.1:8000/mcp").err
    assert "needs a public https:// URL" in local


@pytest.mark.parametrize("client", CLIENTS)
def test_json_is_one_document_on_the_standard_output(client):
    outcome = run("connect", client, "--json")
    document = json.loads(outcome.out)
    assert outcome.out.count("\n") == 1
    if CLIENTS[client].format in ("json", "toml"):
        plain = run("connect", client).out
        assert document == (tomllib.loads(plain) if client == "codex" else json.loads(plain))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_stands_there_only_when_it_was_given(client):
    for options in ([], ["--json"]):
        outcome = run("connect", client, *options)
        assert "mcp_" not in outcome.out.replace("mcp_servers", "")
    if not CLIENTS[client].is_cloud:
        given = run("connect", client, "--token", "mcp_given")
        assert "mcp_given" in given.out
        assert "mcp_given" not in given.err
        assert "plain text" in given.err


@pytest.mark.parametrize("client", [slug for slug in CLIENTS if not CLIENTS[slug].is_cloud])
def test_an_open_server_needs_no_token(client):
    outcome = run("connect", client, "--server", "open")
    assert "Bearer" not in outcome.out
    assert "oken" not in outcome.out
    assert "https://shop.example/open/mcp" in outcome.out
    named = run("connect", client, "--server", "open", "--token", "mcp_given")
    assert "mcp_given" in named.out


@pytest.mark.parametrize("client", CLIENTS)
def test_what_to_do_then_is_said_beside_it(client):
    outcome = run("connect", client)
    for step in CLIENTS[client].next_steps:
        assert str(step) in outcome.err
    for _, path in CLIENTS[client].files:
        assert path in outcome.err
    assert not {*CLIENTS[client].revisions} - {*REVISIONS}


def test_files_are_named_for_each_system():
    for client in ("claude-desktop", "vscode", "cursor", "gemini-cli", "codex"):
        places = " ".join(str(where) for where, _ in CLIENTS[client].files)
        assert all(system in places for system in ("macOS", "Windows", "Linux"))


def test_odd_names_stay_valid():
    config = connected("codex", "--name", 'Ünï "co" de', "--token", "t\\n")
    assert config["mcp_servers"]['Ünï "co" de']["http_headers"] == {"Authorization": "Bearer t\\n"}
    words = command_of("claude-code", "--name", "two words")
    assert "two words" in words


@pytest.mark.parametrize("client", [slug for slug, host in CLIENTS.items() if host.signs_in])
def test_a_client_that_can_sign_in_needs_no_token(client, settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example", "AUTH": ["tokens", "oauth"]}
    outcome = run("connect", client, "--server", "staff")
    assert "Authorization" not in outcome.out
    assert "MCP_TOKEN" not in outcome.out
    assert "token create" not in outcome.err
    assert CLIENTS[client].is_cloud or "opens a browser to sign in" in outcome.err
    # The command suggests no option that it would reject.
    assert ("--token-env" in outcome.err) == bool(CLIENTS[client].reference)
    if not CLIENTS[client].is_cloud:
        assert "tok-en" in run("connect", client, "--server", "staff", "--token", "tok-en").out


def test_a_request_by_hand_needs_a_token_however_others_sign_in(settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example", "AUTH": ["tokens", "oauth"]}
    assert "Authorization: Bearer $MCP_TOKEN" in run("connect", "curl").out
