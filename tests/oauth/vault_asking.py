"""Helpers that send requests to the vault, on every mount."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.kit.drivers import Answer, headers_for, message, send
from tests.oauth import parties, vault
from tests.transports.mounts import in_thread, wsgi

LIST = message("tools/list")
DISCOVER = message("server/discover")
VAULT = f"{parties.ORIGIN}/vault/mcp"
METADATA = f"{parties.ORIGIN}/.well-known/oauth-protected-resource"
EVERY_SCOPE = "mcp vault mcp:write orders:refund"
EVERY_MOUNT = ("wsgi", *vault.MOUNTS)


@dataclass
class Holder:
    """A user with a client, who is given tokens."""

    user: Any
    app: Any

    async def token(self, scope: str = "mcp", *resources: str) -> str:
        named = resources or (parties.RESOURCE,)
        make = parties.make_token
        return await in_thread(make, self.user, self.app, scope=scope, resource=named)

    async def bearer(self, scope: str = "mcp", *resources: str) -> str:
        return f"Bearer {await self.token(scope, *resources)}"


async def ask(
    mount: str, path: str, body: Any, *, verb: str = "POST", **changes: str | None
) -> Answer:
    """Send a request to the mount with this name; only JSON-RPC requests get their headers."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    if not isinstance(body, dict):
        changes = {"mcp_protocol_version": None, **changes}
    headers = headers_for(body if isinstance(body, dict) else {}, **changes)
    named: dict[str, str | None] = {
        name.replace("-", "_"): value for name, value in headers.items()
    }
    named.setdefault("mcp_protocol_version", None)
    if mount == "wsgi":
        return await in_thread(wsgi, path, raw, verb=verb, **named)
    return await send(vault.MOUNTS[mount], path, raw, verb=verb, **named)


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments})


def parameters(answer: Answer) -> dict[str, str]:
    """Return the parameters of the challenge."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return {
        name: value.strip('"')
        for name, _, value in (part.partition("=") for part in rest.split(", "))
    }
