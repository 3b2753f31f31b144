"""The configuration of a client: as data, as text in its own format, and as an install link.

It contains the URLs at which the site mounts its servers.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from django.urls import NoReverseMatch, reverse
from django.utils.text import slugify

from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings, is_loopback
from mcp_django.hosts.clients import (
    ConfigEntry,
    ConnectionTarget,
    Credential,
    KnownClient,
    authorization_header,
)
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.headers import ACCEPT, JSON
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import LATEST

Config = dict[str, Any]
# The default address of runserver; other sites set BASE_URL.
LOCAL = "http://127.0.0.1:8000"


def server_paths(server: Server) -> list[str]:
    """Return the paths at which the URLconf mounts a server; empty if its URL needs arguments."""
    try:
        return [reverse(f"{server.namespace}:endpoint")]
    except NoReverseMatch:
        return []


def server_urls(server: Server) -> list[str]:
    """Return the URLs of a server: absolute ones if ``BASE_URL`` is set, else paths."""
    base = get_settings().base_url
    return [urljoin(base, path) for path in server_paths(server)]


def is_public(url: str) -> bool:
    """Return whether a vendor's cloud can connect to a URL."""
    parts = urlsplit(url)
    return parts.scheme == "https" and not is_loopback(parts.hostname)


def entry_name(server: Server) -> str:
    """Return the default name of a server in clients, from its title or else its name."""
    identity = server.identity()
    return str(slugify(identity.get("title", "")) or slugify(identity["name"]))


def build_config(host: KnownClient, targets: Sequence[ConnectionTarget]) -> Config:
    """Return the client's configuration as data, before it is serialized in the client's format."""
    if host.format == "curl":
        return {"command": render_config(host, targets)}
    if host.format == "url":
        return {"url": targets[0].url}
    servers = {target.name: _build_entry(host, target) for target in targets}
    inputs = [_input(target) for target in targets if _is_prompted(host, target)]
    return {**({"inputs": inputs} if inputs else {}), host.root: servers}


def render_config(host: KnownClient, targets: Sequence[ConnectionTarget]) -> str:
    """Return the client's configuration as text in the client's format."""
    if host.format == "curl":
        return "\n\n".join(curl_command(target, "tools/list") for target in targets)
    if host.format == "url":
        return "\n".join(target.url for target in targets)
    if host.format == "claude":
        return "\n".join(_claude_command(_build_entry(host, target), target) for target in targets)
    config = build_config(host, targets)
    if host.format == "toml":
        return "\n\n".join(
            _toml_table((host.root, name), members) for name, members in config[host.root].items()
        )
    return json.dumps(config, indent=2, ensure_ascii=False)


def _build_entry(host: KnownClient, target: ConnectionTarget) -> ConfigEntry:
    if target.is_local:
        assert host.stdio is not None
        return host.stdio(target)
    if _is_prompted(host, target):
        return host.http(target, f"Bearer ${{input:{_input(target)['id']}}}")
    return host.http(target, authorization_header(target, host.reference))


def _is_prompted(host: KnownClient, target: ConnectionTarget) -> bool:
    """Return whether the client prompts for the token and stores it in its secret storage."""
    # An empty credential: neither the token nor its variable was named.
    return host.prompts_for_token and not target.is_local and target.credential == Credential()


def _input(target: ConnectionTarget) -> Config:
    return {
        "type": "promptString",
        "id": f"{target.name}-token",
        "description": f"Access token for {target.name}",
        "password": True,
    }


def _claude_command(config_entry: ConfigEntry, target: ConnectionTarget) -> str:
    if target.is_local:
        variables = [
            f"--env {shlex.quote(f'{k}={v}')}" for k, v in config_entry.get("env", {}).items()
        ]
        # Another option has to follow --env: it takes several values, and would take the name.
        words = ["claude mcp add", *variables, "--transport stdio", shlex.quote(target.name)]
        return " ".join([*words, "--", shlex.join(target.command)])
    words = ["claude mcp add --transport http"]
    if target.credential is not None and not target.credential.token:
        # Variables are known to be expanded in .mcp.json (project scope) only.
        words.append("--scope project")
    words += [shlex.quote(target.name), shlex.quote(target.url)]
    headers = config_entry.get("headers", {}).items()
    words += [f"--header {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    return " ".join(words)


def _toml_table(path: Sequence[str], members: Mapping[str, Any]) -> str:
    """Return a TOML table, followed by its subtables. A JSON string is a valid TOML string."""
    plain = {k: v for k, v in members.items() if not isinstance(v, Mapping)}
    lines = [f"[{'.'.join(map(_toml_key, path))}]"]
    lines += [f"{_toml_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in plain.items()]
    tables = [_toml_table((*path, k), v) for k, v in members.items() if isinstance(v, Mapping)]
    return "\n\n".join(["\n".join(lines), *tables])


def _toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name, ensure_ascii=False)


def curl_command(
    target: ConnectionTarget, method: str, params: Mapping[str, Any] | None = None
) -> str:
    """Return a curl command that sends one request of revision 2026-07-28, without a session.

    If the token is in an environment variable, the shell expands it.
    """
    request_params = dict(params or {})
    headers = {
        "Content-Type": JSON,
        "Accept": ACCEPT,
        "MCP-Protocol-Version": LATEST.version,
        "Mcp-Method": method,
    }
    name_member = REQUESTS[method].name_member
    if name_member is not None:
        headers["Mcp-Name"] = request_params[name_member]
    envelope = {
        PROTOCOL_VERSION: LATEST.version,
        CLIENT_INFO: {"name": "curl", "version": "1"},
        CLIENT_CAPABILITIES: {},
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**request_params, "_meta": envelope},
    }
    lines = [f"curl -sS {shlex.quote(target.url)}"]
    authorization = authorization_header(target, "$NAME")
    if authorization is not None:
        assert target.credential is not None
        header = f"Authorization: {authorization}"
        # The shell does not expand a variable within single quotes.
        quoted = shlex.quote(header) if target.credential.token else f'"{header}"'
        lines.append(f"  -H {quoted}")
    lines += [
        *(f"  -H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()),
        f"  --data {shlex.quote(json.dumps(message))}",
    ]
    return " \\\n".join(lines)


def install_link(host: KnownClient, target: ConnectionTarget) -> str:
    """Return the install link that adds one server to a client; empty if the client has none.

    The client opens the link, and asks its user whether to add the server.
    """
    if host.slug not in ("vscode", "cursor"):
        return ""
    name, config = target.name, build_config(host, [target])
    config_entry = config.pop(host.root)[name]
    if host.slug == "vscode":
        config_entry = {"name": name, **config, **config_entry}
    entry_json = json.dumps(config_entry, separators=(",", ":"), ensure_ascii=False)
    if host.slug == "vscode":
        return f"vscode:mcp/install?{quote(entry_json, safe='')}"
    query = urlencode({"name": name, "config": base64.b64encode(entry_json.encode()).decode()})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"
