"""The official Python client with its providers for the two extensions of authorization.

A service account with a secret or a key, and a user whose company vouches for them. Each calls a
tool, then one that needs more scopes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import httpx2
import jwt
import mcp
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client

SECONDS = 150


class Memory:
    """The client's storage of tokens, in memory."""

    tokens: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return None

    async def set_client_info(self, client: Any) -> None:
        raise AssertionError("A client of these kinds is known beforehand.")


def provider_of(target: dict[str, Any], memory: Memory) -> Any:
    """Return the provider of the client's credentials."""
    client_id = target["client_id"]
    common = {"client_id": client_id, "scope": "mcp", "issuer": target["issuer"]}
    if target["kind"] == "key":
        parameters = SignedJWTParameters(
            issuer=client_id, subject=client_id, signing_key=target["key"]
        )
        sign = parameters.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(target["url"], memory, assertion_provider=sign, **common)
    common["client_secret"] = target["secret"]
    if target["kind"] == "secret":
        return ClientCredentialsOAuthProvider(target["url"], memory, **common)

    async def word(audience: str, resource: str) -> str:
        now = int(time.time())
        claims = {
            "iss": target["company"],
            "sub": "u-1",
            "aud": audience,
            "resource": resource,
            "client_id": client_id,
            "scope": "mcp mcp:write orders:refund",
            "jti": uuid4().hex,
            "iat": now,
            "exp": now + 300,
        }
        typ = {"typ": "oauth-id-jag+jwt"}
        return jwt.encode(claims, target["key"], algorithm="RS256", headers=typ)

    return IdentityAssertionOAuthProvider(target["url"], memory, assertion_provider=word, **common)


async def journey(target: dict[str, Any]) -> dict[str, Any]:
    """Return what the client sees at one target."""
    memory, grants, paths = Memory(), [], []

    async def note(request: Any) -> None:
        paths.append(request.url.path)
        if request.url.path.startswith("/oauth/token"):
            grants.append(parse_qs(request.content.decode())["grant_type"][0])

    hooks = {"request": [note]}
    auth = provider_of(target, memory)
    async with httpx2.AsyncClient(
        auth=auth, timeout=SECONDS, trust_env=False, event_hooks=hooks
    ) as http:
        transport = streamable_http_client(target["url"], http_client=http)
        async with mcp.Client(transport, mode=target["mode"]) as client:
            seen = {"version": client.protocol_version, "first": await _text(client, "whoami")}
            seen["granted"] = memory.tokens.scope
            seen["more"] = await _text(client, "refund", number="7")
            seen["granted_more"] = memory.tokens.scope
    seen["refresh_token"] = memory.tokens.refresh_token
    pages = sum("authorize" in path or "register" in path for path in paths)
    return {**seen, "grants": sorted({*grants}), "pages": pages}


async def _text(client: Any, name: str, **arguments: str) -> str:
    (block,) = (await client.call_tool(name, arguments)).content
    return str(block.text)


async def main() -> None:
    given = json.load(sys.stdin)["targets"]
    async with asyncio.timeout(SECONDS):
        seen = {key: await journey(target) for key, target in given.items()}
    sys.stdout.write(json.dumps(seen))


asyncio.run(main())
