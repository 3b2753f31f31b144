"""Two access tokens of one user are two clients: neither acts in the session of the other."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.http_session import legacy
from tests.transports.http_session.handshakes import C, initialize, opened, request


async def two_tokens() -> tuple[str, str]:
    """Return the headers of a token with wide scopes and of a token with narrow ones."""
    ada = await sync_to_async(person)()
    wide = await sync_to_async(token_for)(ada, "mcp", "mcp:write")
    narrow = await sync_to_async(token_for)(ada)
    return f"Bearer {wide[1]}", f"Bearer {narrow[1]}"


@spec("SES-6", "AUT-1")
async def test_threat_07_a_narrow_token_borrows_no_scopes_from_an_open_stream(app):
    wide, narrow = await two_tokens()
    async with legacy.opened(app, "/mcp/sse", authorization=wide) as stream:
        await stream.ask(initialize())
        answer = await stream.post(request("ping"), authorization=narrow)
        assert answer.status == 404
        assert (await stream.ask(request("ping", id=7)))["id"] == 7


@spec("SES-6", "AUT-1")
async def test_threat_07_a_session_of_another_token_is_not_there(streaming):
    wide, narrow = await two_tokens()
    peer = await opened(streaming, "/mcp", version=C, token=wide)
    for verb in ("POST", "GET", "DELETE"):
        body = request("tools/list") if verb == "POST" else b""
        assert (await peer.send(body, verb=verb, authorization=narrow)).status == 404
    assert (await peer.result("tools/list"))["tools"]
