"""The configuration of a client as the text that goes into its file or its shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_django.management.clients.curl import curl
from mcp_django.management.clients.entries import Entry, authorization_of
from mcp_django.management.clients.hosts import Host
from mcp_django.management.clients.target import Target

Document = dict[str, Any]


def document(host: Host, targets: Sequence[Target]) -> Document:
    """The configuration as the client reads it, before it is written in its format."""
    if host.format == "curl":
        return {"command": text(host, targets)}
    if host.format == "url":
        return {"url": targets[0].url}
    servers = {target.name: _entry(host, target) for target in targets}
    inputs = [_input(target) for target in targets if _is_prompted(host, target)]
    return {**({"inputs": inputs} if inputs else {}), host.root: servers}


def text(host: Host, targets: Sequence[Target]) -> str:
    """The configuration, ready to be pasted."""
    if host.format == "curl":
        return "\n\n".join(curl(target, "tools/list") for target in targets)
    if host.format == "url":
        return "\n".join(target.url for target in targets)
    if host.format == "claude":
        return "\n".join(_claude_command(_entry(host, target), target) for target in targets)
    found = document(host, targets)
    if host.format == "toml":
        return "\n\n".join(_table((host.root, name), one) for name, one in found[host.root].items())
    return json.dumps(found, indent=2, ensure_ascii=False)


def _entry(host: Host, target: Target) -> Entry:
    if target.is_local:
        assert host.stdio is not None
        return host.stdio(target)
    assert host.http is not None
    if _is_prompted(host, target):
        return host.http(target, f"Bearer ${{input:{_input(target)['id']}}}")
    return host.http(target, authorization_of(target, host.reference))


def _is_prompted(host: Host, target: Target) -> bool:
    """Whether the client itself asks for the token, and keeps it where secrets are kept."""
    credential = target.credential
    named = credential is not None and bool(credential.token or credential.variable)
    return host.prompts_for_token and not target.is_local and credential is not None and not named


def _input(target: Target) -> Document:
    return {
        "type": "promptString",
        "id": f"{target.name}-token",
        "description": f"Access token for {target.name}",
        "password": True,
    }


def _claude_command(entry: Entry, target: Target) -> str:
    if target.is_local:
        variables = [f"--env {shlex.quote(f'{k}={v}')}" for k, v in entry.get("env", {}).items()]
        # Another option has to follow --env, which would take the name for a variable.
        words = ["claude mcp add", *variables, "--transport stdio", shlex.quote(target.name)]
        return " ".join([*words, "--", shlex.join(target.command)])
    words = ["claude mcp add --transport http"]
    if target.credential is not None and not target.credential.token:
        # Only .mcp.json is known to have its variables filled in.
        words.append("--scope project")
    words += [shlex.quote(target.name), shlex.quote(target.url)]
    headers = entry.get("headers", {}).items()
    words += [f"--header {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    return " ".join(words)


def _table(path: Sequence[str], members: Mapping[str, Any]) -> str:
    """A table of TOML, its tables after it. A string of JSON is one of TOML too."""
    plain = {k: v for k, v in members.items() if not isinstance(v, Mapping)}
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in plain.items()]
    tables = [_table((*path, k), v) for k, v in members.items() if isinstance(v, Mapping)]
    return "\n\n".join(["\n".join(lines), *tables])


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name, ensure_ascii=False)
