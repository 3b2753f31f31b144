"""The output of `manage.py demo`: addresses, accounts, and client configurations to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

from demo_project.desk.accounts import ACCOUNTS, DESK, GUEST, IssuedToken
from mcp_django.hosts.clients import CLIENTS, ConnectionTarget, Credential
from mcp_django.hosts.configuration import curl_command, render_config

RUN = "npx @modelcontextprotocol/inspector --config inspector.json"
SIGN_IN = (
    "They open a browser when they connect: sign in as guest, or as desk for the staff server.\n"
    "Without a browser, use --header 'Authorization: Bearer …' with a token from above."
)
LONDON = {"latitude": 51.5074, "longitude": -0.1278}


def welcome_text(base_url: str, *, guest: IssuedToken, desk: IssuedToken) -> str:
    """Return the whole text for the terminal."""
    public = ConnectionTarget(name="airports", url=f"{base_url}/mcp")
    staff = ConnectionTarget(name="airports-staff", url=f"{base_url}/staff/mcp")
    targets = (public, staff)
    by_hand = replace(public, credential=Credential(token=guest.plaintext))
    params = {"name": "nearest_airports", "arguments": {**LONDON, "count": 3}}
    sections = {
        "Addresses": _addresses(base_url, public=public, staff=staff),
        "Accounts, as user and password": _accounts(),
        "Tokens, derived from this installation's secret key": _tokens(guest=guest, desk=desk),
        "Try it": curl_command(by_hand, "tools/call", params),
        "Clients": SIGN_IN,
        "Claude Code": render_config(CLIENTS["claude-code"], targets),
        "VS Code (.vscode/mcp.json)": render_config(CLIENTS["vscode"], targets),
        "Cursor (.cursor/mcp.json)": render_config(CLIENTS["cursor"], targets),
        "MCP Inspector 2 (inspector.json, then the command)": (
            f"{render_config(CLIENTS['inspector'], targets)}\n{RUN}"
        ),
        "Others": (
            "python manage.py mcp connect lists more clients.\n"
            "python manage.py mcp doctor finds out why a client cannot connect."
        ),
    }
    return "\n".join(
        f"{heading}\n{textwrap.indent(body, '  ')}\n" for heading, body in sections.items()
    )


def _addresses(base_url: str, *, public: ConnectionTarget, staff: ConnectionTarget) -> str:
    return _columns(
        ("MCP, for every account", public.url),
        ("MCP, for staff", staff.url),
        ("Admin: components, who may use them, and the call log", f"{base_url}/admin/mcp_django/"),
    )


def _accounts() -> str:
    return _columns(
        *((account.username, account.password, account.purpose) for account in ACCOUNTS)
    )


def _tokens(*, guest: IssuedToken, desk: IssuedToken) -> str:
    revoked = "(revoked; delete it in the admin to have it issued again)"
    return _columns(
        *(
            (account.username, token.plaintext, *([] if token.is_usable else [revoked]))
            for account, token in ((GUEST, guest), (DESK, desk))
        )
    )


def _columns(*rows: tuple[str, ...]) -> str:
    """Return rows of text with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=False)]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    cells: Iterator[str] = (
        cell.ljust(widths[index]) if index < len(widths) else cell for index, cell in enumerate(row)
    )
    return "  ".join(cells).rstrip()
