"""`manage.py mcp connect`: which server, where it is, who calls, and a request that is answered."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from mcp_django.hosts.clients import CLIENTS
from mcp_django.management import lookups
from tests.kit.servers import person, token_for
from tests.management.console import attempt, fails, run, server_of


@pytest.fixture(autouse=True)
def _address(settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example", "AUTH": ["tokens"]}


def test_the_address_is_that_of_the_settings_and_the_urlconf():
    outcome = run("connect", "chatgpt", "--server", "staff")
    assert outcome.out == "https://shop.example/staff/mcp\n"
    assert "BASE_URL" not in outcome.err


def test_a_site_that_does_not_know_its_address_is_taken_to_be_local(settings):
    settings.MCP_DJANGO = {}
    outcome = run("connect", "curl")
    assert "curl -sS http://127.0.0.1:8000/mcp " in outcome.out
    assert "set MCP_DJANGO['BASE_URL'] or pass --url" in outcome.err
    assert "BASE_URL" not in run("connect", "curl", "--url", "https://x.example/mcp").err


def test_a_server_that_is_not_mounted_needs_its_address():
    server = server_of()
    assert "pass its URL with --url" in fails("connect", "cursor", "--server", server.name)
    given = ("--url", "https://x.example/mcp")
    out = run("connect", "cursor", "--server", server.name, *given).out
    assert json.loads(out)["mcpServers"][server.name] == {"url": "https://x.example/mcp"}


def test_a_site_without_a_default_server_has_to_choose(monkeypatch):
    servers = [server_of(), server_of()]
    monkeypatch.setattr(lookups, "all_servers", lambda: servers)
    url = ("--url", "https://x.example/mcp")
    first, second = sorted(server.name for server in servers)
    assert f"choose one with --server: {first}, {second}" in fails("connect", "cursor", *url)
    servers.pop()
    assert servers[0].name in run("connect", "cursor", *url).out
    servers.clear()
    assert "This site has no MCP server" in fails("connect", "cursor", *url)
    assert run("list").out == "This site has no MCP server.\n"


@pytest.mark.django_db
def test_the_user_is_named_in_the_command_that_makes_a_token():
    person()
    assert "mcp token create ada" in run("connect", "cursor", "--user", "ada").err
    assert "No user named 'adam'. Did you mean ada?" in fails("connect", "cursor", "--user", "adam")
    # A named user needs a token, even for a server that requires none.
    assert "Bearer" in run("connect", "cursor", "--server", "open", "--user", "ada").out


def test_a_client_of_revisions_that_are_not_served_is_told(settings):
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": ["2026-07-28"]}
    assert (
        "Gemini CLI is known to support 2025-06-18; this site serves 2026-07-28."
        in run("connect", "gemini-cli").err
    )
    assert "is known to support" not in run("connect", "claude-code").err
    assert "is known to support 2025-11-25;" in run("connect", "claude-code", "--stdio").err


def test_without_a_client_all_are_listed_a_line_each():
    lines = run("connect").out.splitlines()
    assert [line.split()[0] for line in lines] == list(CLIENTS)
    assert max(map(len, lines)) <= 80
    described = json.loads(run("connect", "--json").out)
    assert [client["client"] for client in described] == list(CLIENTS)
    able = {client["client"] for client in described if client["stdio"]}
    assert able == {slug for slug, host in CLIENTS.items() if host.stdio is not None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cursr"], "No client named 'cursr'. Did you mean cursor"),
        (["cursor", "--server", "stuff"], "Did you mean staff?"),
        (["cursor", "--url", "shop.example/mcp"], "'shop.example/mcp' is not an HTTP URL"),
        (["cursor", "--url", "ftp://x/mcp"], "is not an HTTP URL"),
        (["cursor", "--token-env", "A-B"], "--token-env 'A-B' is not a valid name"),
        (["claude-desktop", "--token-env", "T"], "cannot read a token from the environment"),
        (["inspector", "--token-env", "T"], "cannot read a token from the environment"),
        (
            ["curl", "--stdio"],
            "curl cannot start a server; omit --stdio, or choose one of: claude-code",
        ),
        (["chatgpt", "--stdio"], "ChatGPT cannot start a server"),
        (["cursor", "--stdio", "--token", "t"], "--token is for HTTP"),
        (["cursor", "--stdio", "--token-env", "T"], "--token-env is for HTTP"),
        (["cursor", "--stdio", "--url", "https://x/mcp"], "--url is for HTTP"),
        (["cursor", "--user", "ada", "--token", "t"], "not allowed with argument"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(arguments, words):
    assert words in fails("connect", *arguments)


def test_a_mistake_prints_nothing_else():
    assert attempt("connect", "cursr").out == ""


@pytest.mark.outside
@pytest.mark.django_db(transaction=True)
def test_the_request_of_curl_is_answered(live_server):
    _, token = token_for(person())
    line = run("connect", "curl", "--url", f"{live_server.url}/mcp").out
    assert _sent(line, MCP_TOKEN=token)["result"]["tools"]
    assert _sent(line, MCP_TOKEN="mcp_wrong")["error"]
    line = run("connect", "curl", "--url", f"{live_server.url}/open/mcp", "--server", "open").out
    assert [tool["name"] for tool in _sent(line)["result"]["tools"]] == ["echo", "echo_sync"]
    line = run("connect", "curl", "--url", f"{live_server.url}/mcp", "--token", token).out
    assert _sent(line)["result"]["tools"]


def _sent(line: str, **variables: str) -> Any:
    """Return the output of the command; without curl, send its request and return the answer."""
    if shutil.which("curl"):
        done = subprocess.run(
            ["sh", "-c", line],
            env={**os.environ, "no_proxy": "*", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return json.loads(done.stdout)
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    words = shlex.split(line.replace("\\\n", ""))
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    body = dict(pairs)["--data"].encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        response = opener.open(urllib.request.Request(words[2], body, headers))
    except urllib.error.HTTPError as exc:
        response = exc
    with response:
        return json.loads(response.read())
