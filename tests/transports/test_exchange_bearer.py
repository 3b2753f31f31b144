"""Bearer tokens in requests: where they may be, and when they are refused, on every mount."""

import pytest

from mcp_django.models import AccessToken
from tests.kit.drivers import Connection, headers_for, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask

LIST = message("tools/list")
DISCOVER = message("server/discover")


@spec("AUT-2")
async def test_the_scheme_may_be_written_in_any_case(mount, token):
    for scheme in ("Bearer", "bearer", "BEARER"):
        value = f"{scheme} {token.removeprefix('Bearer ')}"
        assert (await ask(mount, "/mcp", LIST, authorization=value)).status == 200


@spec("AUT-1", "AUT-3")
async def test_no_credentials_are_challenged_without_an_error(mount):
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for body in (LIST, DISCOVER, note):
        answer = await ask(mount, "/mcp", body)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="mcp"'


@spec("AUT-3")
@pytest.mark.parametrize("value", ["Bearer mcp_unknown", "Bearer other", "Basic dTpw"])
async def test_what_does_not_hold_is_an_invalid_token(value, mount, token):
    for path in ("/mcp", "/open/mcp"):
        answer = await ask(mount, path, LIST, authorization=value)
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert answer.json()["error"] == "invalid_token"


@spec("AUT-3")
@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Bearer a b"])
async def test_a_malformed_header_is_an_invalid_request(value, mount):
    answer = await ask(mount, "/mcp", LIST, authorization=value)
    assert answer.status == 400
    assert 'error="invalid_request"' in answer.headers["www-authenticate"]


@spec("AUT-3")
@pytest.mark.parametrize("after", ["\xa0", "\x85", "\xa0 ", "\x0b", "\x1f"])
async def test_what_only_looks_like_a_blank_belongs_to_the_token(after, mount, token):
    answer = await ask(mount, "/mcp", LIST, authorization=token + after)
    assert answer.status == 401
    assert answer.json()["error"] == "invalid_token"
    assert (await ask(mount, "/mcp", LIST, authorization=f"{token} \t")).status == 200


@spec("AUT-2")
async def test_a_token_in_the_query_is_refused(mount, token):
    plain = token.removeprefix("Bearer ")
    answer = await ask(mount, f"/mcp?access_token={plain}", LIST, authorization=token)
    assert answer.status == 400
    assert plain not in answer.body.decode() + str(answer.headers)


@spec("AUT-3")
async def test_two_headers_are_refused(token):
    for app in MOUNTS.values():
        headers = headers_for(LIST, authorization=token)
        connection = Connection(app, "/mcp", b"{}", headers, "POST")
        connection.scope["headers"].append((b"authorization", token.encode()))
        assert (await connection.start()).status == 400
        await connection.rest()
        await connection.close()


@spec("AUT-3")
async def test_a_revoked_token_is_refused_at_once(mount, token):
    assert (await ask(mount, "/mcp", LIST, authorization=token)).status == 200
    issued = await AccessToken.objects.select_related("user").aget()
    issued.user.is_active = False
    await issued.user.asave()
    assert (await ask(mount, "/mcp", LIST, authorization=token)).status == 401


@spec("AUT-6", "AUT-13", "HTTP-9")
async def test_a_missing_scope_is_told_before_a_stream_begins(mount, token):
    body = message("tools/call", {"name": "scoped_tool", "arguments": {}}, progressToken=1)
    answer = await ask(mount, "/mcp", body, authorization=token)
    assert answer.status == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert 'scope="orders:write orders:read"' in answer.headers["www-authenticate"]
    assert answer.json()["error"] == "insufficient_scope"


@spec("AUT-1")
async def test_a_server_for_staff_refuses_others(mount, token):
    assert (await ask(mount, "/staff/mcp", LIST, authorization=token)).status == 200
    issued = await AccessToken.objects.select_related("user").aget()
    issued.user.is_staff = False
    await issued.user.asave()
    answer = await ask(mount, "/staff/mcp", LIST, authorization=token)
    assert answer.status == 403
    assert "www-authenticate" not in answer.headers


@spec("AUT-1")
async def test_each_request_stands_for_itself(token):
    for app in MOUNTS.values():
        assert (await send(app, "/mcp", LIST, authorization=token)).status == 200
        assert (await send(app, "/mcp", LIST)).status == 401
