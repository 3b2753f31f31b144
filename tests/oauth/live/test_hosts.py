"""Each host against a live site: from discovery to a call, and on after its token expired.

The clients send what the real hosts send, and compare what those compare (`host.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest

from mcp_django.management.doctor_hosts import HOSTS
from tests.oauth.live import documents
from tests.oauth.live.host import Connection
from tests.spec import spec

# The first test starts the site.
pytestmark = [pytest.mark.outside, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A host, and the options of one of its ways to connect."""

    host: str
    document_id: str = ""
    redirect: str = ""


WAYS = {
    "Claude, registered": Way(host="claude"),
    "Claude, by its document": Way(host="claude", document_id=documents.CLAUDE),
    "Claude, at its second address": Way(
        host="claude",
        document_id=documents.CLAUDE,
        redirect="https://claude.com/api/mcp/auth_callback",
    ),
    "Claude Code, registered": Way(host="claude-code"),
    "Claude Code, on localhost": Way(host="claude-code", document_id=documents.CLAUDE_CODE),
    "Claude Code, on 127.0.0.1": Way(
        host="claude-code",
        document_id=documents.CLAUDE_CODE,
        redirect="http://127.0.0.1:61234/callback",
    ),
    "ChatGPT, registered": Way(host="chatgpt"),
    "ChatGPT, with several methods": Way(host="chatgpt", document_id=documents.CHATGPT),
    "VS Code, in the browser": Way(host="vscode"),
    "VS Code, on a loopback port": Way(host="vscode", redirect="http://127.0.0.1:33418/"),
    "VS Code, when that port is taken": Way(host="vscode", redirect="http://127.0.0.1:51999/"),
    "Cursor, as an app": Way(host="cursor"),
    "Cursor, on a loopback port": Way(host="cursor", redirect="http://localhost:8787/callback"),
    "Cursor, on the web": Way(
        host="cursor", redirect="https://www.cursor.com/agents/mcp/oauth/callback"
    ),
    "Gemini CLI": Way(host="gemini-cli"),
    "Gemini CLI, on another port": Way(
        host="gemini-cli", redirect="http://localhost:41717/oauth/callback"
    ),
    "Copilot Studio": Way(host="copilot-studio"),
    "mcp-remote": Way(host="mcp-remote"),
    "Python SDK, by a document": Way(
        host="python-sdk", document_id=documents.SDK, redirect="http://localhost:3030/callback"
    ),
    "Python SDK, registered": Way(host="python-sdk"),
    "TypeScript SDK": Way(host="typescript-sdk"),
    "A client of 2025-03-26": Way(host="revision-2025-03-26"),
}


@pytest.fixture(params=WAYS.values(), ids=[*WAYS])
def connection(request, live, browser, http):
    """A host that knows only the address of the endpoint."""
    way = request.param
    # At a site with several servers, a client that names none gets a token for all
    # (MISSING_RESOURCE).
    return Connection(
        host=HOSTS[way.host],
        url=live.mcp,
        browser=browser,
        http=http,
        document_id=way.document_id,
        redirect=way.redirect,
    )


def text_of(answer: httpx.Response) -> str:
    """Return the text of a result, which must be one block."""
    assert answer.status_code == 200, answer.text
    (block,) = answer.json()["result"]["content"]
    return str(block["text"])


@spec("AUT-15", "AUT-16", "AUT-18", "AUT-19", "AUT-22", "AUT-25", "AUT-26", "AUT-27")
def test_threat_28_every_host_connects_calls_and_refreshes(connection, live):
    connection.discover()
    connection.register()
    connection.authorize()
    assert text_of(connection.call("whoami")) == connection.browser.username
    live.expire_access_tokens()
    assert connection.call("whoami").status_code == 401
    connection.refresh()
    assert text_of(connection.call("whoami")) == connection.browser.username


@spec("AUT-6", "AUT-23")
def test_threat_28_every_host_gets_more_when_a_tool_needs_it_and_leaves_for_good(connection):
    connection.discover()
    connection.register()
    connection.authorize()
    refused = connection.call("refund", number="7")
    assert refused.status_code == 403, refused.text
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    # A client requests the scopes that it has together with the missing ones (2026-07-28).
    connection.authorize(scope="mcp mcp:write orders:refund")
    assert text_of(connection.call("refund", number="7")) == "Refunded 7."
    connection.revoke()
    assert connection.call("whoami").status_code == 401


def test_a_prefixed_site_serves_the_hosts_that_know_paths(prefixed, browser, http):
    for slug in ("claude", "vscode", "gemini-cli"):
        connection = Connection(host=HOSTS[slug], url=prefixed.mcp, browser=browser, http=http)
        connection.discover()
        assert connection.server["issuer"] == prefixed.issuer
        connection.register()
        connection.authorize()
        assert text_of(connection.call("whoami")) == connection.browser.username


@spec("AUT-19", "AUT-20")
def test_a_client_of_2025_03_26_that_reads_nothing_guesses_the_addresses(live, browser, http):
    connection = Connection(
        host=HOSTS["revision-2025-03-26"], url=live.mcp, browser=browser, http=http
    )
    connection.server = {
        "issuer": live.issuer,
        "authorization_endpoint": f"{live.base}/authorize",
        "token_endpoint": f"{live.base}/token",
        "registration_endpoint": f"{live.base}/register",
        "scopes_supported": [],
    }
    connection.register()
    connection.authorize()
    assert text_of(connection.call("whoami")) == browser.username
    connection.refresh()
    # The client names no resource, so its token is for every server, as the consent page said.
    connection.url = f"{live.base}/billing/mcp"
    assert text_of(connection.call("invoices")) == "None."
