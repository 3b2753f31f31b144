"""The page for a person who opens the endpoint in a browser."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe
from django.utils.text import slugify
from django.utils.translation import get_language

from mcp_django.auth.pages import hash_source
from mcp_django.auth.permissions import AllowAny, permissions
from mcp_django.core.catalog import Server
from mcp_django.protocol.headers import MCP_PROTOCOL_VERSION, Headers
from mcp_django.protocol.revisions import LATEST
from mcp_django.transports.exchange import Exchange, Reply

STYLE = Path(__file__).parent.parent / "templates" / "mcp_django" / "endpoint.css"
HEADER = "Authorization"
PLACEHOLDER = "Bearer YOUR_TOKEN"
# Backends whose tokens come from an authorization server that clients find by themselves.
SIGN_IN = {"oauth", "jwt"}


def is_wanted(headers: Headers) -> bool:
    """Whether a GET comes from a browser's address bar and not from a client."""
    return "text/html" in (headers.get("accept") or "") and MCP_PROTOCOL_VERSION not in headers


def offers_sign_in(server: Server) -> bool:
    """Whether a client gets a token by itself, once its user has signed in."""
    return bool({*server.auth} & SIGN_IN)


def render(server: Server, exchange: Exchange) -> Reply:
    """What this is and how to connect; says nothing about what is inside."""
    request = exchange.request()
    html = render_to_string(
        "mcp_django/endpoint.html", _context(server, request.build_absolute_uri(request.path))
    )
    return Reply(
        status=200,
        headers=(
            ("Content-Type", "text/html; charset=utf-8"),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", _policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
        ),
        body=html.encode(),
    )


def _context(server: Server, url: str) -> dict[str, Any]:
    identity = server.identity()
    closed = not all(isinstance(one, AllowAny) for one in permissions(server.permission))
    # Hosts use it as an identifier: of the heading, which a person knows the server by.
    name = slugify(identity.get("title", "")) or slugify(identity["name"])
    entry: dict[str, Any] = {"url": url}
    needs_token = closed and not offers_sign_in(server)
    if needs_token:
        entry["headers"] = {HEADER: PLACEHOLDER}
    return {
        "language": get_language() or "en",
        "identity": identity,
        "heading": identity.get("title") or identity["name"],
        "slug": name,
        "url": url,
        "needs_token": needs_token,
        "signs_in": closed and not needs_token,
        "revision": LATEST.version,
        "header_option": f' --header "{HEADER}: {PLACEHOLDER}"' if needs_token else "",
        "vscode": json.dumps({"servers": {name: {"type": "http", **entry}}}, indent=2),
        "cursor": json.dumps({"mcpServers": {name: entry}}, indent=2),
        "inspector": json.dumps(
            {"mcpServers": {name: {"type": "http", "protocolEra": "modern", **entry}}}, indent=2
        ),
        "style": mark_safe(_style()),  # noqa: S308 - a file of this package
    }


@cache
def _style() -> str:
    return STYLE.read_text()


@cache
def _policy() -> str:
    """A policy under which nothing runs and only our own style applies, known by its hash."""
    return (
        f"default-src 'none'; style-src {hash_source(_style())}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
