"""The configuration of several servers; `mcp connect` and the admin show that of one."""

from __future__ import annotations

import tomllib

from mcp_django.hosts.clients import CLIENTS, ConnectionTarget, Credential
from mcp_django.hosts.configuration import build_config, render_config

JSON_CLIENTS = [slug for slug, host in CLIENTS.items() if host.format == "json"]


def test_several_servers_go_into_one_document():
    targets = [
        ConnectionTarget(name=name, url=f"https://x/{name}", credential=Credential())
        for name in "ab"
    ]
    for client in JSON_CLIENTS:
        config = build_config(CLIENTS[client], targets)
        assert {*config[CLIENTS[client].root]} == {"a", "b"}
    assert len(build_config(CLIENTS["vscode"], targets)["inputs"]) == 2
    assert {*tomllib.loads(render_config(CLIENTS["codex"], targets))["mcp_servers"]} == {"a", "b"}
    assert len(render_config(CLIENTS["claude-code"], targets).splitlines()) == 2
