"""HTTP+SSE of 2024-11-05: one stream for all answers, and POSTs that only return 202."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import Session
from mcp_django.protocol import envelope, sse
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNAUTHORIZED,
    UNSUPPORTED_VERSION,
)
from mcp_django.transports import stream_access
from tests.kit.databases import SETTINGS, shared
from tests.kit.drivers import PATIENCE, message, send
from tests.kit.processes import serving
from tests.spec import spec
from tests.transports.http_session.handshakes import (
    INITIALIZED,
    VERSIONS,
    A,
    B,
    D,
    call,
    encoded,
    initialize,
    notification,
    request,
)
from tests.transports.http_session.legacy import PLAIN, issue, opened
from tests.transports.mounts import ask
from tests.transports.stage import gates, reached


@spec("SSE-1", "SSE-2", "SSE-3", "SSE-6", "VER-12", "VER-13")
@pytest.mark.parametrize("version", VERSIONS)
async def test_any_handshake_revision_is_served(version, app):
    async with opened(app) as stream:
        assert stream.path.startswith("/open/mcp/messages?session_id=")
        result = (await stream.ask(initialize(version)))["result"]
        assert result["protocolVersion"] == version
        assert (await stream.post(INITIALIZED)).status == 202
        echo = call("echo", text="x", id="e")
        assert (await stream.ask(echo))["result"]["content"] == [{"type": "text", "text": "x"}]
        assert await stream.ask(request("ping", id=0)) == {"jsonrpc": "2.0", "id": 0, "result": {}}
        assert (await stream.ask(request("tools/dance")))["error"]["code"] == METHOD_NOT_FOUND
        marked = b"\xef\xbb\xbf" + encoded(request("ping", [], id=1))
        assert await stream.ask(marked) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@spec("SSE-6", "VER-9")
async def test_an_enveloped_request_is_told_of_the_handshake_revisions(app):
    async with opened(app) as stream:
        for agreed in (False, True):
            for method in ("tools/list", "initialize", "server/discover", "subscriptions/listen"):
                error = (await stream.ask(message(method)))["error"]
                assert error["code"] == UNSUPPORTED_VERSION, (method, agreed)
                assert error["data"] == {"supported": VERSIONS, "requested": "2026-07-28"}
            body = message("tools/list", **{envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"})
            assert "error" in await stream.ask(body)
            if not agreed:
                assert "result" in await stream.ask(initialize(A))


@spec("SSE-6", "VER-18")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_lacking_capability_is_a_wrong_parameter(version, app):
    requests = [request("prompts/get", {"name": "toast"}, id=7)]
    requests.append(request("resources/read", {"uri": "parlor://guests/ada"}, id=8))
    async with opened(app, "/parlor/mcp/sse") as stream:
        await stream.ask(initialize(version))
        for body in (*requests, requests) if version == B else requests:
            reply = await stream.ask(body)
            for answer in reply if isinstance(reply, list) else [reply]:
                assert answer["error"]["code"] == INVALID_PARAMS
                assert "needs a client that declares elicitation" in answer["error"]["message"]


@spec("SSE-3", "SSE-5")
async def test_an_anonymous_caller_learns_how_to_come_back_with_credentials(app):
    async with opened(app) as stream:
        await stream.ask(initialize(A))
        error = (await stream.ask(call("members_tool")))["error"]
        assert error["code"] == UNAUTHORIZED
        assert "open the stream with the header 'Authorization: Bearer" in error["message"]
        assert "MCP_DJANGO" not in error["message"]


@spec("SSE-6", "BAT-1", "BAT-6")
@pytest.mark.parametrize("version", [A, B, D])
async def test_batches_belong_to_2025_03_26_here_too(version, app):
    async with opened(app) as stream:
        await stream.ask(initialize(version))
        answer = await stream.ask([request("ping", id=7)])
        if version == B:
            assert answer == [{"jsonrpc": "2.0", "id": 7, "result": {}}]
        else:
            assert answer["error"]["code"] == INVALID_REQUEST
            assert "id" not in answer


@spec("SSE-6", "HDR-19")
async def test_version_headers_are_ignored(app):
    async with opened(app) as stream:
        for header in ("2026-07-28", "nonsense", D):
            answer = await stream.post(request("ping"), mcp_protocol_version=header)
            assert answer.status == 202
            assert (await stream.said())["result"] == {}


@spec("SSE-4", "HTTP-2")
async def test_both_endpoints_validate_the_origin(app):
    evil = {"origin": "https://evil.test"}
    answer = await send(app, "/open/mcp/sse", b"", verb="GET", **PLAIN, **evil)
    assert answer.status == 403
    async with opened(app) as stream:
        assert (await stream.post(request("ping"), **evil)).status == 403
        assert (await stream.ask(request("ping")))["result"] == {}


@spec("SSE-5", "RPC-11", "ERR-3")
async def test_what_is_malformed_or_unknown_is_refused(app):
    async with opened(app) as stream:
        for broken in (b"{", b"1", b"[]", b'{"jsonrpc": "2.0"}'):
            answer = await stream.post(broken)
            assert answer.status == 400
            assert "id" not in answer.json()
        answer = await stream.post(b'{"jsonrpc": "2.0", "id": 7}')
        assert (answer.status, answer.json()["id"]) == (400, 7)
        known = stream.path
        for unknown in ("?session_id=", "?session_id=x", "", "?session_id=%ED%A0%80%00"):
            stream.path = known.partition("?")[0] + unknown
            answer = await stream.post(request("ping", id=7))
            assert (answer.status, answer.json()["id"]) == (404, 7)
            assert "id" not in (await stream.post(INITIALIZED)).json()
        stream.path = known
        assert (await stream.ask(request("ping")))["result"] == {}


@spec("SSE-5", "SSE-7", "SES-6")
async def test_another_principals_connection_looks_unknown(app):
    _, ada = await issue("ada")
    _, bob = await issue("bob")
    async with opened(app, "/mcp/sse", authorization=ada) as stream:
        assert (await stream.post(request("ping"), authorization=bob)).status == 404
        assert (await stream.post(request("ping"), authorization=None)).status == 401
        assert (await stream.ask(request("ping")))["result"] == {}


@spec("SSE-3", "SSE-5")
async def test_an_answer_goes_to_the_connection_that_was_posted_to(app):
    async with opened(app) as first, opened(app) as second:
        assert first.path != second.path
        await first.post(request("ping", id="to the first"))
        await second.post(request("ping", id="to the second"))
        assert (await first.said())["id"] == "to the first"
        assert (await second.said())["id"] == "to the second"


@spec("SSE-7", "SES-4")
async def test_its_ids_mean_nothing_to_streamable_http(app):
    async with opened(app) as stream:
        key = stream.path.partition("=")[2]
        answer = await send(app, "/open/mcp", encoded(request("ping")), **PLAIN, mcp_session_id=key)
        assert answer.status == 404
    began = await send(app, "/open/mcp", encoded(initialize(D)), **PLAIN)
    other = began.headers["mcp-session-id"]
    path = f"/open/mcp/messages?session_id={other}"
    assert (await send(app, path, encoded(request("ping")), **PLAIN)).status == 404


@spec("SSE-9", "SSE-5")
async def test_leaving_ends_the_session(app):
    async with opened(app) as stream:
        await stream.ask(initialize(A))
    assert (await stream.post(request("ping"))).status == 404


@spec("SSE-9")
async def test_leaving_cancels_what_still_runs(app, gate):
    async with opened(app, "/stage/mcp/sse") as stream:
        await stream.ask(initialize(A))
        assert (await stream.post(call("stay", gate=gate))).status == 202
        await reached(gates[gate].entered)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("SSE-10")
async def test_a_message_of_a_megabyte_is_one_line(app, settings):
    settings.MCP_DJANGO = {"MAX_RESULT_BYTES": 10_000_000, "MAX_EVENT_BYTES": None}
    text = "ü\n\r\u2028" * 200_000
    async with opened(app) as stream:
        await stream.ask(initialize(A))
        response = await stream.ask(call("echo", text=text))
        assert response["result"]["content"][0]["text"] == text


@spec("SSE-10", "HTTP-7")
async def test_the_stream_is_kept_from_proxies_and_compression(app):
    async with opened(app, accept_encoding="gzip") as stream:
        headers = stream.connection.answer.headers
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in headers


@spec("SSE-2")
@pytest.mark.parametrize("path", ["/open/mcp/sse", "/open/mcp/sse/"])
async def test_the_address_is_right_behind_a_prefix(path, app):
    async with opened(app, f"/proxy{path}", root_path="/proxy") as stream:
        assert stream.path.startswith("/proxy/open/mcp/messages?session_id=")
    # A proxy that strips its prefix leaves no trace of it, so the address is a relative one.
    async with opened(app, path) as stream:
        assert stream.path.startswith("/open/mcp/messages?session_id=")


@spec("SSE-5", "SES-6")
async def test_a_revoked_token_posts_nothing_more(app):
    token, ada = await issue("ada")
    async with opened(app, "/mcp/sse", authorization=ada) as stream:
        await stream.ask(initialize(A))
        await sync_to_async(token.revoke)()
        assert (await stream.post(request("tools/list"))).status == 401


@spec("SSE-9", "SES-6", "SES-7")
@pytest.mark.parametrize("is_initialized", [True, False])
async def test_a_revoked_token_ends_the_stream_soon(is_initialized, app, monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.05)
    token, ada = await issue("ada")
    async with opened(app, "/mcp/sse", authorization=ada) as stream:
        await stream.ask(initialize(A))
        if is_initialized:
            await stream.post(INITIALIZED)
        await sync_to_async(token.revoke)()
        with pytest.raises(EOFError):
            await stream.event()


@spec("SSE-1", "HTTP-8")
async def test_each_endpoint_has_its_verb(app):
    assert (await send(app, "/open/mcp/sse", encoded(request("ping")), **PLAIN)).status == 405
    answer = await send(app, "/open/mcp/messages?session_id=x", b"", verb="GET", **PLAIN)
    assert answer.status == 405
    answer = await send(app, "/open/mcp/sse", b"", verb="GET", **PLAIN, accept="application/json")
    assert answer.status == 406


@pytest.mark.usefixtures("_stage", "transactional_db")
async def test_wsgi_has_no_streams():
    answer = await ask("wsgi", "/open/mcp/sse", b"", verb="GET", **PLAIN)
    assert answer.status == 405
    assert not await Session.objects.aexists()


@spec("SSE-6")
async def test_without_2024_11_05_there_are_no_such_endpoints(app, settings):
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": ["2026-07-28", D]}
    assert (await send(app, "/open/mcp/sse", b"", verb="GET", **PLAIN)).status == 404


@spec("SSE-7")
@pytest.mark.outside
def test_a_message_may_be_posted_to_another_process(tmp_path):
    with shared("sqlite", tmp_path) as environ:
        options: Any = {"settings": SETTINGS, **environ}
        name = "tests.transports.http_session.asgi:application"
        with (
            serving("uvicorn", name, tmp_path, **options) as here,
            serving("uvicorn", name, tmp_path, **options) as there,
        ):
            asyncio.run(_converse(here.url, there.url))


async def _converse(here: str, there: str) -> None:
    async with (
        httpx.AsyncClient(timeout=PATIENCE * 4, trust_env=False) as http,
        http.stream("GET", f"{here}/mcp/sse", headers={"accept": "text/event-stream"}) as stream,
    ):
        events = _events(stream)
        address = urljoin("/mcp/sse", (await anext(events)).data)
        responses = []
        requests = [initialize(A, id=1), request("ping", id=2), call("who", id=3)]
        for number, body in enumerate(requests):
            url = (there, here, there)[number]
            answer = await http.post(url + address, json=body)
            assert answer.status_code == 202
            responses.append(json.loads((await anext(events)).data))
        assert [response["id"] for response in responses] == [1, 2, 3]
        # The call ran in the process of the stream, since the session lives there.
        assert responses[2]["result"]["content"]
        await http.post(there + address, json=notification("notifications/initialized"))


async def _events(stream: httpx.Response) -> AsyncIterator[Any]:
    decoder = sse.EventDecoder()
    async for part in stream.aiter_raw():
        for event in decoder.feed(part):
            yield event
