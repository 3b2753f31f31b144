"""Which bearers an endpoint accepts, and which it rejects without a lookup."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_django.transports.exchange import MAX_UNVERIFIED_BYTES
from tests.kit.drivers import Connection, headers_for
from tests.oauth import parties, vault
from tests.oauth.vault_asking import LIST, ask, parameters
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import in_thread

# Threat 1: DNS rebinding and foreign origins ----------------------------------------------------


@spec("AUT-13")
@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_threat_01_a_foreign_origin_is_refused_before_anybody_is_authenticated(
    verb, mount, monkeypatch
):
    calls: list[Any] = []
    monkeypatch.setattr(
        "mcp_django.transports.exchange.authenticate", lambda *args: calls.append(args)
    )
    body = LIST if verb == "POST" else b""
    foreign = [
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://testserver.evil.example"}),
        (400, {"host": "evil.example"}),
        (400, {"host": "evil.example", "origin": "http://evil.example"}),
    ]
    for status, named in foreign:
        headers: dict[str, Any] = {"authorization": "Bearer unknown", **named}
        answer = await ask(mount, "/mcp", body, verb=verb, **headers)
        assert answer.status == status
        assert "www-authenticate" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert calls == []


# Threat 3: audience confusion ---------------------------------------------------------------------


@spec("AUT-9", "AUT-10")
@pytest.mark.parametrize(
    "resource",
    [
        parties.OTHER_RESOURCE,
        parties.ORIGIN,
        f"{parties.ORIGIN}/",
        f"{parties.ORIGIN}/mc",
        f"{parties.ORIGIN}/MCP",
        f"{parties.ORIGIN}/mcp//",
        f"{parties.ORIGIN}/mcp/deeper",
        f"{parties.ORIGIN}/mcp?x=1",
        f"{parties.ORIGIN}/mcp#x",
        f"{parties.ORIGIN}/x/../mcp",
        f"{parties.ORIGIN}%2fmcp",
        "http://testserver@evil.example/mcp",
        "https://testserver/mcp",
        "http://testserver:8000/mcp",
        "http://evil.example/mcp",
        "",
    ],
)
async def test_threat_03_a_token_for_something_else_is_refused(ada, resource, mount):
    answer = await ask(mount, "/mcp", LIST, authorization=await ada.bearer("mcp", resource))
    assert answer.status == 401
    assert parameters(answer)["error"] == "invalid_token"


@spec("AUT-9")
async def test_threat_03_a_token_without_an_audience_is_refused(ada, mount):
    token = await in_thread(parties.make_token, ada.user, ada.app, resource=())
    answer = await ask(mount, "/mcp", LIST, authorization=f"Bearer {token}")
    assert answer.status == 401


@spec("AUT-9", "AUT-24")
@pytest.mark.parametrize(
    "resource",
    [
        parties.RESOURCE,
        f"{parties.ORIGIN}/mcp/",
        "HTTP://TestServer/mcp",
        "http://testserver:80/mcp",
        f"{parties.ORIGIN}/%6dcp",
    ],
)
async def test_threat_03_other_spellings_of_one_address_are_one_resource(ada, resource, mount):
    bearer = await ada.bearer("mcp", resource)
    for path in ("/mcp", "/mcp/"):
        assert (await ask(mount, path, LIST, authorization=bearer)).status == 200


@spec("AUT-9")
async def test_threat_03_each_tenant_of_one_mount_is_a_resource_of_its_own(ada):
    bearer = await ada.bearer("mcp", f"{parties.ORIGIN}/north/shop/mcp")
    assert (await ask("lane", "/north/shop/mcp", LIST, authorization=bearer)).status == 200
    assert (await ask("lane", "/south/shop/mcp", LIST, authorization=bearer)).status == 401
    assert (await ask("lane", "/billing/mcp", LIST, authorization=bearer)).status == 401


async def test_the_addresses_of_http_sse_take_the_token_of_their_endpoint(ada):
    bearer = await ada.bearer()
    path = "/mcp/messages?session_id=x"
    assert (await ask("lane", path, LIST, authorization=bearer)).status == 404
    assert (await ask("raw", path, LIST, authorization=bearer)).status == 404
    assert (await ask("raw", f"/billing{path}", LIST, authorization=bearer)).status == 401


async def test_a_large_body_is_read_for_the_resource_that_the_urlconf_names(ada, settings):
    settings.ROOT_URLCONF = "tests.oauth.backend.odd_urls"
    bearer = await ada.bearer("mcp", f"{parties.ORIGIN}/odd/sse")
    large = json.dumps(LIST).encode() + b" " * 2 * MAX_UNVERIFIED_BYTES
    for presented, status in ((bearer, 200), (await ada.bearer(), 401)):
        headers = headers_for(LIST, authorization=presented, content_length=str(len(large)))
        connection = Connection(MOUNTS["lane"], "/odd/sse", large, headers, "POST")
        await connection.start()
        assert (await connection.rest()).status == status
        await connection.close()


# Threat 6: tokens where they end up in logs ------------------------------------------------------


@spec("AUT-2")
async def test_threat_06_a_token_in_the_query_is_refused_and_not_logged(ada, mount, caplog):
    token = await ada.token()
    for verb, path in (("POST", "/mcp"), ("POST", "/mcp/messages"), ("DELETE", "/mcp")):
        body = LIST if verb == "POST" else b""
        answer = await ask(mount, f"{path}?access_token={token}", body, verb=verb)
        assert answer.status == 400
        assert parameters(answer)["error"] == "invalid_request"
        assert token not in answer.body.decode() + str(answer.headers)
    assert token not in caplog.text


@spec("AUT-2")
async def test_threat_06_a_token_in_a_form_is_refused_and_not_logged(ada, mount, caplog):
    token = await ada.token()
    form = "application/x-www-form-urlencoded; charset=utf-8"
    for body in (f"access_token={token}", f"a=b&access_token={token}"):
        answer = await ask(mount, "/mcp", body.encode(), content_type=form)
        assert answer.status == 400
        assert parameters(answer)["error"] == "invalid_request"
        assert token not in answer.body.decode() + str(answer.headers)
    assert token not in caplog.text
    assert (await ask(mount, "/mcp", b"a=b", content_type=form)).status == 415


@spec("AUT-3")
async def test_a_token_over_four_kibibytes_is_refused_without_a_look(ada, mount, monkeypatch):
    looked: list[str] = []
    monkeypatch.setattr(
        "mcp_django.oauth.backend.OAuthBackend.authenticate",
        lambda self, credentials: looked.append(credentials.bearer),
    )
    for length, count in ((4096, 1), (4097, 0)):
        looked.clear()
        answer = await ask(mount, "/mcp", LIST, authorization="Bearer " + "x" * length)
        assert answer.status == 401
        assert parameters(answer)["error"] == "invalid_token"
        assert len(looked) == count


@spec("AUT-2", "AUT-3")
async def test_the_scheme_may_have_any_case_and_two_headers_are_refused(ada):
    token = await ada.token()
    for name, app in vault.MOUNTS.items():
        assert (await ask(name, "/mcp", LIST, authorization=f"bEARER {token}")).status == 200
        headers = headers_for(LIST, authorization=f"Bearer {token}")
        connection = Connection(app, "/mcp", json.dumps(LIST).encode(), headers, "POST")
        connection.scope["headers"].append((b"authorization", f"Bearer {token}".encode()))
        assert (await connection.start()).status == 400
        await connection.rest()
        await connection.close()
