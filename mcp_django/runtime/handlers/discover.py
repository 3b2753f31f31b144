"""``server/discover``: what the server is and can (2026-07-28)."""

from __future__ import annotations

from typing import Any

from mcp_django.core.catalog import Offered, Server
from mcp_django.protocol import revisions
from mcp_django.runtime.extensions import advertised
from mcp_django.runtime.incoming import Incoming


def capabilities(server: Server, *, can_stream: bool) -> dict[str, Any]:
    """The capabilities that the server's components amount to (VER-8).

    What is advertised is what works: a kind without components answers "method not found", and
    changes are announced only where there is a stream to announce them on. Contents of resources
    within an answer are resources, too, though none is listed (TOOL-15).
    """
    found = of_components(server.offered, can_stream=can_stream)
    if extensions := advertised(server):
        found["extensions"] = extensions
    return found


def of_components(offered: Offered, *, can_stream: bool) -> dict[str, Any]:
    """Those of the capabilities that a method may need."""
    found: dict[str, Any] = {}
    changes = {"listChanged": True} if can_stream else {}
    if offered.tools:
        found["tools"] = dict(changes)
    if offered.resources or offered.templates or offered.embeds:
        readable = (*offered.resources.values(), *offered.templates.values())
        hears = can_stream and any(one.subscribe for one in readable)
        found["resources"] = {**changes, **({"subscribe": True} if hears else {})}
    if offered.prompts:
        found["prompts"] = dict(changes)
    if offered.completions:
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
