"""Addresses that a client opens by itself and then asks whether to add the server."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, urlencode

from mcp_django.management.clients.hosts import CURSOR, VSCODE, Host
from mcp_django.management.clients.target import Target
from mcp_django.management.clients.writing import document


def link(host: Host, target: Target) -> str:
    """The address for one server, empty for a client that has none."""
    make = _LINKS.get(host.slug)
    return make(target) if make is not None else ""


def _vscode(target: Target) -> str:
    found = document(VSCODE, [target])
    inputs = {"inputs": found["inputs"]} if "inputs" in found else {}
    entry = {"name": target.name, **inputs, **found[VSCODE.root][target.name]}
    return f"vscode:mcp/install?{quote(_json(entry), safe='')}"


def _cursor(target: Target) -> str:
    entry = document(CURSOR, [target])[CURSOR.root][target.name]
    config = base64.b64encode(_json(entry).encode()).decode()
    query = urlencode({"name": target.name, "config": config})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_LINKS: dict[str, Callable[[Target], str]] = {VSCODE.slug: _vscode, CURSOR.slug: _cursor}
