"""One request of 2026-07-28 as a command of curl: no session, everything in one message."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from mcp_django.management.clients.entries import authorization_of
from mcp_django.management.clients.target import Target
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import LATEST


def curl(target: Target, method: str, params: Mapping[str, Any] | None = None) -> str:
    """The command; a token in a variable is filled in by the shell."""
    given = dict(params or {})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST.version,
        "Mcp-Method": method,
    }
    named = REQUESTS[method].name_member
    if named is not None:
        headers["Mcp-Name"] = given[named]
    envelope = {
        PROTOCOL_VERSION: LATEST.version,
        CLIENT_INFO: {"name": "curl", "version": "1"},
        CLIENT_CAPABILITIES: {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**given, "_meta": envelope}}
    lines = [
        f"curl -sS {shlex.quote(target.url)}",
        *_authorization(target),
        *(f"  -H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()),
        f"  --data {shlex.quote(json.dumps(message))}",
    ]
    return " \\\n".join(lines)


def _authorization(target: Target) -> list[str]:
    value = authorization_of(target, "$NAME")
    if value is None:
        return []
    assert target.credential is not None
    header = f"Authorization: {value}"
    # Within single quotes the shell would leave the variable as it is.
    return [f"  -H {shlex.quote(header)}" if target.credential.token else f'  -H "{header}"']
