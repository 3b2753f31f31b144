"""What `manage.py demo` prints: addresses, accounts, and client configurations to paste."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from demo_project.desk.accounts import ACCOUNTS, DESK, GUEST, IssuedToken
from mcp_django.protocol import meta
from mcp_django.protocol.revisions import LATEST

LONDON = {"latitude": 51.5074, "longitude": -0.1278}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One MCP server as a client is told of it."""

    name: str
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def welcome(base_url: str, *, guest: IssuedToken, desk: IssuedToken) -> str:
    """The whole text, ready for the terminal."""
    public = Endpoint(name="airports", url=f"{base_url}/mcp", token=guest.plaintext)
    staff = Endpoint(name="airports-staff", url=f"{base_url}/staff/mcp", token=desk.plaintext)
    sections = {
        "Addresses": _addresses(base_url, public=public, staff=staff),
        "Accounts, as user and password": _accounts(),
        "Tokens, derived from this installation's secret key": _tokens(guest=guest, desk=desk),
        "Try it": curl(public, tool="nearest_airports", arguments={**LONDON, "count": 3}),
        "Claude Code": "\n".join(_claude_code(endpoint) for endpoint in (public, staff)),
        "VS Code (.vscode/mcp.json)": _configuration("servers", public, staff, type="http"),
        "Cursor (.cursor/mcp.json)": _configuration("mcpServers", public, staff),
        "MCP Inspector 2 (inspector.json, then the command)": _inspector(public, staff),
    }
    return "\n".join(
        f"{heading}\n{textwrap.indent(body, '  ')}\n" for heading, body in sections.items()
    )


def curl(endpoint: Endpoint, *, tool: str, arguments: Mapping[str, Any]) -> str:
    """A command that calls a tool: one request, no session, as of 2026-07-28."""
    headers = {
        **endpoint.headers,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST.version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                meta.PROTOCOL_VERSION: LATEST.version,
                meta.CLIENT_INFO: {"name": "curl", "version": "1"},
                meta.CLIENT_CAPABILITIES: {},
            },
        },
    }
    lines = [f"curl -sS {shlex.quote(endpoint.url)}"]
    lines += [f"  -H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    lines += [f"  --data {shlex.quote(json.dumps(message))}"]
    return " \\\n".join(lines)


def _addresses(base_url: str, *, public: Endpoint, staff: Endpoint) -> str:
    return _columns(
        ("MCP, for every account", public.url),
        ("MCP, for staff", staff.url),
        ("Admin", f"{base_url}/admin/"),
    )


def _accounts() -> str:
    return _columns(*((one.username, one.password, one.purpose) for one in ACCOUNTS))


def _tokens(*, guest: IssuedToken, desk: IssuedToken) -> str:
    revoked = "(revoked; delete it in the admin to have it issued again)"
    return _columns(
        *(
            (account.username, token.plaintext, *([] if token.is_usable else [revoked]))
            for account, token in ((GUEST, guest), (DESK, desk))
        )
    )


def _claude_code(endpoint: Endpoint) -> str:
    header = shlex.quote(f"Authorization: {endpoint.headers['Authorization']}")
    return f"claude mcp add --transport http {endpoint.name} {endpoint.url} --header {header}"


def _configuration(key: str, *endpoints: Endpoint, **extra: str) -> str:
    servers = {one.name: {**extra, "url": one.url, "headers": one.headers} for one in endpoints}
    return json.dumps({key: servers}, indent=2)


def _inspector(*endpoints: Endpoint) -> str:
    # Unless told otherwise the Inspector begins with a handshake, which 2026-07-28 has not.
    configuration = _configuration("mcpServers", *endpoints, type="http", protocolEra="modern")
    return f"{configuration}\nnpx @modelcontextprotocol/inspector --config inspector.json"


def _columns(*rows: tuple[str, ...]) -> str:
    """Rows of text with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=False)]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    cells: Iterator[str] = (
        cell.ljust(widths[index]) if index < len(widths) else cell for index, cell in enumerate(row)
    )
    return "  ".join(cells).rstrip()
