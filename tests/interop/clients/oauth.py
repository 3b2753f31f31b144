"""The official Python clients (mcp 1.x and 2.x) with their own OAuth, from discovery to revocation.

Everything is done once: a call, a call that needs more scopes, one after the token expired, one
after it was revoked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import mcp
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

try:
    import httpx2 as httpx
    from mcp.shared.auth import AuthorizationCodeResult
except ImportError:
    import httpx

    AuthorizationCodeResult = None
SECONDS = 150
LONG_AGO = 1.0


class Memory:
    """The client's storage of tokens and of its registration, in memory."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client: Any) -> None:
        self.client = client


def tell(person: str, **what: Any) -> dict[str, Any]:
    body = json.dumps(what).encode()
    with urlopen(Request(person, body, {"Content-Type": "application/json"})) as answer:
        return dict(json.loads(answer.read()))


async def journey(target: dict[str, Any]) -> dict[str, Any]:
    memory, landed, grants, paths = Memory(), [], [], []

    async def open_browser(url: str) -> None:
        response = await asyncio.to_thread(tell, target["person"], authorize=url)
        landed.append(response["landed"])

    async def come_back() -> Any:
        answer = {name: values[0] for name, values in parse_qs(urlsplit(landed[-1]).query).items()}
        if AuthorizationCodeResult is None:
            return answer["code"], answer.get("state")
        return AuthorizationCodeResult(**answer)

    async def note(request: Any) -> None:
        paths.append(request.url.path)
        if request.url.path.startswith("/oauth/token"):
            grants.append(parse_qs(request.content.decode())["grant_type"][0])

    provider = OAuthClientProvider(
        target["url"],
        OAuthClientMetadata(
            client_name="Official client",
            redirect_uris=["http://localhost:3030/callback"],
            grant_types=["authorization_code", "refresh_token"],
            token_endpoint_auth_method="none",
        ),
        memory,
        redirect_handler=open_browser,
        callback_handler=come_back,
        client_metadata_url=target.get("document"),
    )
    seen: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        http = httpx.AsyncClient(
            auth=provider, timeout=SECONDS, trust_env=False, event_hooks={"request": [note]}
        )
        await stack.enter_async_context(http)
        transport = streamable_http_client(target["url"], http_client=http)
        if AuthorizationCodeResult is None:
            streams = await stack.enter_async_context(transport)
            client = await stack.enter_async_context(mcp.ClientSession(*streams[:2]))
            seen["version"] = (await client.initialize()).protocolVersion
        else:
            client = await stack.enter_async_context(mcp.Client(transport, mode=target["mode"]))
            seen["version"] = client.protocol_version
        seen["first"] = await _text(client, "whoami")
        seen["granted"] = memory.tokens.scope
        seen["more"] = await _text(client, "refund", number="7")
        seen["granted_more"] = memory.tokens.scope
        await asyncio.to_thread(tell, target["person"], expire=True)
        provider.context.token_expiry_time = LONG_AGO
        before = len(grants)
        seen["later"] = await _text(client, "whoami")
        seen["later_grants"] = grants[before:]
        await _revoke(provider, memory)
        before = len(landed)
        seen["again"] = await _text(client, "whoami")
        seen["asked_again"] = len(landed) - before
        seen["client_id"] = memory.client.client_id
        seen["registered"] = sum("register" in path for path in paths)
    return seen


async def _text(client: Any, name: str, **arguments: str) -> str:
    (block,) = (await client.call_tool(name, arguments)).content
    return str(block.text)


async def _revoke(provider: Any, memory: Memory) -> None:
    form = {"token": memory.tokens.refresh_token, "client_id": memory.client.client_id}
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
        address = str(provider.context.oauth_metadata.revocation_endpoint)
        (await http.post(address, data=form)).raise_for_status()


async def main() -> None:
    given = json.load(sys.stdin)["targets"]
    async with asyncio.timeout(SECONDS):
        seen = {key: await journey(target) for key, target in given.items()}
    sys.stdout.write(json.dumps(seen))


asyncio.run(main())
