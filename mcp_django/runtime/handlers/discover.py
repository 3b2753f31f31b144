"""``server/discover``: what the server is and can (2026-07-28)."""

from __future__ import annotations

from typing import Any

from mcp_django.protocol import revisions
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.ports import Server


def capabilities(server: Server, *, can_stream: bool) -> dict[str, Any]:
    """The capabilities that the server's components amount to (VER-8).

    What is advertised is what works: a kind without components answers "method not found", and
    changes are announced only where there is a stream to announce them on.
    """
    found: dict[str, Any] = {}
    changes = {"listChanged": True} if can_stream else {}
    if server.tools:
        found["tools"] = dict(changes)
    if server.resources or server.templates:
        readable = (*server.resources.values(), *server.templates.values())
        hears = can_stream and any(one.subscribe for one in readable)
        found["resources"] = {**changes, **({"subscribe": True} if hears else {})}
    if server.prompts:
        found["prompts"] = dict(changes)
    if server.completions:
        found["completions"] = {}
    if found and can_stream:
        found["logging"] = {}
    return found


def discover(incoming: Incoming) -> dict[str, Any]:
    """The answer to a client that asks before it calls."""
    server = incoming.server
    result: dict[str, Any] = {
        "supportedVersions": revisions.advertised(
            server.protocol_versions, requested=incoming.revision.version
        ),
        "capabilities": capabilities(server, can_stream=incoming.can_stream),
        "ttlMs": 0,
        "cacheScope": "private",
    }
    if server.instructions:
        result["instructions"] = server.instructions
    return result
