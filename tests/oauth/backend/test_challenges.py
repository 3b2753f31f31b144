"""The challenges in responses to rejected callers (RFC 6750, RFC 9728)."""

import pytest

from tests.oauth import vault
from tests.oauth.vault_asking import DISCOVER, LIST, METADATA, ask, call, parameters
from tests.spec import spec


@spec("AUT-1", "AUT-3", "AUT-4", "AUT-5", "AUT-12", "AUT-13")
@pytest.mark.usefixtures("transactional_db")
async def test_every_request_without_a_token_is_told_where_to_get_one(mount):
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    answers = [
        await ask(mount, "/vault/mcp", body)
        for body in (LIST, DISCOVER, call("dump"), note, initialize, [LIST])
    ]
    answers.append(await ask(mount, "/vault/mcp", b"", verb="DELETE", mcp_session_id="x"))
    if mount != "wsgi":
        answers.append(await ask(mount, "/vault/mcp", b"", verb="GET", mcp_session_id="x"))
    for answer in answers:
        assert answer.status == 401
        assert parameters(answer) == {
            "realm": "mcp",
            "scope": "mcp vault",
            "resource_metadata": f"{METADATA}/vault/mcp",
        }
        assert answer.headers["cache-control"] == "no-store"
        assert {"Authorization", "Origin"} <= set(answer.headers["vary"].split(", "))
        assert answer.json()["error"] == "unauthorized"


@spec("AUT-1", "AUT-4")
@pytest.mark.usefixtures("transactional_db")
async def test_both_endpoints_of_http_sse_challenge_with_the_address_of_the_stream(mount):
    for verb, path in (("GET", "/vault/mcp/sse"), ("POST", "/vault/mcp/messages?session_id=x")):
        answer = await ask(mount, path, LIST if verb == "POST" else b"", verb=verb)
        assert answer.status == 401
        assert parameters(answer)["resource_metadata"] == f"{METADATA}/vault/mcp/sse"


@spec("AUT-4")
@pytest.mark.usefixtures("transactional_db")
async def test_the_challenge_keeps_the_spelling_of_the_address(mount):
    answer = await ask(mount, "/vault/mcp/", LIST)
    assert parameters(answer)["resource_metadata"] == f"{METADATA}/vault/mcp/"


@spec("AUT-13")
@pytest.mark.usefixtures("transactional_db")
async def test_a_browser_of_an_allowed_origin_can_read_the_challenge(mount):
    answer = await ask(mount, "/vault/mcp", LIST, origin="http://testserver")
    assert answer.status == 401
    assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]
    assert answer.headers["access-control-allow-origin"] == "http://testserver"
    assert {"Authorization", "Origin"} <= set(answer.headers["vary"].split(", "))


@spec("AUT-3", "AUT-4")
@pytest.mark.usefixtures("transactional_db")
async def test_a_token_that_does_not_hold_is_invalid_and_told_where_to_get_another(mount):
    answer = await ask(mount, "/vault/mcp", LIST, authorization="Bearer unknown")
    assert answer.status == 401
    challenge = parameters(answer)
    assert challenge["error"] == "invalid_token"
    assert (challenge["scope"], challenge["resource_metadata"]) == (
        "mcp vault",
        f"{METADATA}/vault/mcp",
    )


@spec("AUT-4")
@pytest.mark.usefixtures("transactional_db")
async def test_without_the_route_nothing_is_named_that_is_not_there(settings, mount):
    settings.ROOT_URLCONF = "tests.oauth.vault_bare"
    answer = await ask(mount, "/vault/mcp", LIST)
    assert answer.headers["www-authenticate"] == 'Bearer realm="mcp"'


@spec("AUT-4")
@pytest.mark.usefixtures("transactional_db")
async def test_a_server_without_an_issuer_names_no_metadata(monkeypatch, mount):
    monkeypatch.setattr(vault.vault, "_auth", ["tokens"])
    answer = await ask(mount, "/vault/mcp", LIST)
    assert answer.headers["www-authenticate"] == 'Bearer realm="mcp"'
    assert (await ask("wsgi", METADATA + "/vault/mcp", b"", verb="GET")).status == 404
