"""`manage.py mcp connect --stdio`: the command by which a client starts the server."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mcp_django.hosts.clients import CLIENTS
from mcp_django.protocol import envelope
from tests.kit.servers import person
from tests.management.console import run

REPOSITORY = Path(__file__).parents[2]
NAME = "staff-desk"
STDIO_CLIENTS = [slug for slug, host in CLIENTS.items() if host.stdio is not None]


@pytest.fixture
def _manage(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "argv", ["manage.py", "mcp"])
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")


COMMAND = [
    *(sys.executable, str(REPOSITORY / "manage.py"), "mcp", "stdio"),
    *("--server", "staff", "--user", "ada"),
]
ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "tests.settings"}


@pytest.mark.django_db
@pytest.mark.usefixtures("_manage")
@pytest.mark.parametrize("client", STDIO_CLIENTS)
def test_a_client_starts_the_server_from_anywhere(client):
    person()
    options = ("--server", "staff", "--stdio", "--user", "ada", "--json")
    config = json.loads(run("connect", client, *options).out)
    server_config = config[CLIENTS[client].root][NAME]
    extra = {"claude-code": {"type": "stdio"}, "vscode": {"type": "stdio"}}
    assert server_config == {
        "command": COMMAND[0],
        "args": COMMAND[1:],
        "env": ENVIRONMENT,
        **extra.get(client, {}),
        **({"protocolEra": "modern"} if client == "inspector" else {}),
    }


@pytest.mark.django_db
@pytest.mark.usefixtures("_manage")
def test_the_command_and_the_table_of_a_local_server_are_valid():
    person()
    options = ("--server", "staff", "--stdio", "--user", "ada")
    assert shlex.split(run("connect", "claude-code", *options).out) == [
        *("claude", "mcp", "add", "--env", "DJANGO_SETTINGS_MODULE=tests.settings"),
        *("--transport", "stdio", NAME, "--", *COMMAND),
    ]
    assert tomllib.loads(run("connect", "codex", *options).out) == {
        "mcp_servers": {NAME: {"command": COMMAND[0], "args": COMMAND[1:], "env": ENVIRONMENT}}
    }


def test_a_site_without_a_script_is_started_through_django(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for program in ("/usr/bin/django-admin", "/lib/django/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program, "mcp"])
        config = json.loads(run("connect", "cursor", "--server", "staff", "--stdio").out)
        server_config = config["mcpServers"][NAME]
        assert server_config["args"] == [
            *("-m", "django", "mcp", "--pythonpath", str(tmp_path)),
            *("stdio", "--server", "staff"),
        ]


@pytest.mark.outside
@pytest.mark.usefixtures("_manage")
def test_the_command_starts_a_server_that_answers():
    config = json.loads(run("connect", "cursor", "--server", "open", "--stdio", "--json").out)
    server_config = config["mcpServers"]["open"]
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {
            "_meta": {envelope.PROTOCOL_VERSION: "2026-07-28", envelope.CLIENT_CAPABILITIES: {}}
        },
    }
    done = subprocess.run(
        [server_config["command"], *server_config["args"]],
        input=json.dumps(message) + "\n",
        env={**os.environ, **server_config["env"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    (line,) = done.stdout.splitlines()
    tools = json.loads(line)["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "echo_sync"], done.stderr


def test_nobody_in_particular_is_let_into_a_closed_server():
    assert (
        "rejects anonymous calls; set the user with --user"
        in run("connect", "cursor", "--stdio").err
    )
    assert "with --user" not in run("connect", "cursor", "--stdio", "--server", "open").err
