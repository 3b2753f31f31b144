"""What the scopes of a token permit at an endpoint, and what a component sees of the token."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.models import AccessToken
from tests.oauth import parties, vault
from tests.oauth.vault_asking import (
    EVERY_SCOPE,
    LIST,
    METADATA,
    VAULT,
    Holder,
    ask,
    call,
    parameters,
)
from tests.spec import spec
from tests.transports.mounts import in_thread


@spec("AUT-6")
async def test_threat_21_a_missing_scope_of_the_server_names_all_of_them(ada, mount):
    answer = await ask(mount, "/vault/mcp", LIST, authorization=await ada.bearer("mcp", VAULT))
    assert answer.status == 403
    assert parameters(answer) == {
        "realm": "mcp",
        "error": "insufficient_scope",
        "error_description": "This needs the scope vault.",
        "scope": "mcp vault",
        "resource_metadata": f"{METADATA}/vault/mcp",
    }


@spec("AUT-6", "AUT-8")
@pytest.mark.parametrize("tool", ["change", "slowly"])
async def test_threat_21_a_missing_scope_of_a_tool_names_all_that_the_call_needs(ada, mount, tool):
    bearer = await ada.bearer("mcp vault orders:refund", VAULT)
    body = call(tool, name="x") if tool == "change" else call(tool)
    answer = await ask(mount, "/vault/mcp", body, authorization=bearer)
    assert answer.status == 403
    assert not answer.is_stream
    challenge = parameters(answer)
    assert challenge["error"] == "insufficient_scope"
    assert challenge["scope"] == "mcp vault mcp:write"
    assert vault.executed == []


@spec("AUT-8")
async def test_the_scopes_that_a_token_has_are_repeated_where_the_site_says_so(ada, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CHALLENGE_SCOPES": "granted"}
    bearer = await ada.bearer("mcp vault orders:refund offline_access", VAULT)
    answer = await ask("lane", "/vault/mcp", call("change", name="x"), authorization=bearer)
    assert parameters(answer)["scope"] == "mcp vault mcp:write orders:refund"


@spec("AUT-7")
async def test_threat_21_a_broader_scope_holds_for_a_narrower_one(ada, mount):
    bearer = await ada.bearer("vault mcp:write", VAULT)
    answer = await ask(mount, "/vault/mcp", call("change", name="x"), authorization=bearer)
    assert answer.status == 200
    assert vault.executed == ["x"]


@spec("AUT-11")
async def test_threat_21_a_missing_permission_is_never_a_matter_of_scopes(ada, mount):
    for scope in ("mcp vault", EVERY_SCOPE):
        bearer = await ada.bearer(scope, VAULT)
        forbidden = await ask(mount, "/vault/mcp", call("hire", name="x"), authorization=bearer)
        unknown = await ask(mount, "/vault/mcp", call("nope", name="x"), authorization=bearer)
        assert "www-authenticate" not in forbidden.headers
        assert (forbidden.status, forbidden.json()["error"]["code"]) == (
            unknown.status,
            unknown.json()["error"]["code"],
        )
        message = forbidden.json()["error"]["message"].replace("hire", "nope")
        assert message == unknown.json()["error"]["message"]
    assert vault.executed == []


@spec("AUT-11")
async def test_a_list_shows_what_needs_another_scope_and_hides_what_is_not_permitted(ada, settings):
    bearer = await ada.bearer("mcp vault", VAULT)

    async def names() -> set[str]:
        answer = await ask("lane", "/vault/mcp", LIST, authorization=bearer)
        return {tool["name"] for tool in answer.json()["result"]["tools"]}

    assert await names() == {"dump", "change", "refund", "slowly"}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "LIST_FILTER": "scopes"}
    assert await names() == {"dump"}


def plain_request(method: str, params: dict[str, Any], request_id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def session_of(mount: str, path: str, bearer: str) -> str:
    """The id of a session of 2025-03-26."""
    version = "2025-03-26"
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    answer = await ask(
        mount,
        path,
        plain_request("initialize", params, 1),
        authorization=bearer,
        mcp_protocol_version=None,
        mcp_method=None,
    )
    assert answer.status == 200, answer.body
    return answer.headers["mcp-session-id"]


@spec("AUT-6")
async def test_threat_21_a_batch_names_the_scopes_of_all_members_and_runs_none(ada, mount):
    bearer = await ada.bearer("mcp vault", VAULT)
    session = await session_of(mount, "/vault/mcp", bearer)
    batch = [
        plain_request("tools/call", {"name": "change", "arguments": {"name": "a"}}, 2),
        plain_request("tools/call", {"name": "dump", "arguments": {}}, 3),
        plain_request("tools/call", {"name": "refund", "arguments": {"name": "b"}}, 4),
        plain_request("ping", {}, 5),
    ]
    extra: dict[str, Any] = {"mcp_session_id": session, "mcp_protocol_version": None}
    answer = await ask(mount, "/vault/mcp", batch, authorization=bearer, **extra)
    assert answer.status == 403
    challenge = parameters(answer)
    assert challenge["error"] == "insufficient_scope"
    assert challenge["scope"] == "mcp vault mcp:write orders:refund"
    assert vault.executed == []
    await in_thread(lambda: vault_scope(ada, EVERY_SCOPE))
    answer = await ask(mount, "/vault/mcp", batch, authorization=bearer, **extra)
    assert answer.status == 200
    assert sorted(vault.executed) == ["a", "b"]


def vault_scope(ada: Holder, scope: str) -> None:
    """Set the scope of the user's tokens."""
    from oauth2_provider.models import get_access_token_model

    get_access_token_model().objects.filter(user=ada.user).update(scope=scope)


async def test_a_token_of_the_site_s_own_knows_nothing_of_the_server_s_scopes(ada):
    _, token = await in_thread(AccessToken.objects.issue, ada.user, name="test")
    answer = await ask("lane", "/vault/mcp", LIST, authorization=f"Bearer {token}")
    assert answer.status == 200


# CAN_CONNECT --------------------------------------------------------------------------------------


def only_orders(user: Any, server: Any, client_id: str) -> bool:
    """Allow the server `orders`; each client must have an id."""
    assert client_id
    return bool(server.name == "orders")


def broken(user: Any, server: Any, client_id: str) -> bool:
    """A rule that fails."""
    raise RuntimeError("no")


@spec("AUT-11")
async def test_whoever_may_not_connect_is_refused_without_a_challenge(ada, settings, mount):
    rule = {"CAN_CONNECT": f"{__name__}.only_orders"}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": rule}
    assert (await ask(mount, "/mcp", LIST, authorization=await ada.bearer())).status == 200
    bearer = await ada.bearer("mcp", parties.OTHER_RESOURCE)
    answer = await ask(mount, "/billing/mcp", LIST, authorization=bearer)
    assert answer.status == 403
    assert answer.json()["error"] == "access_denied"
    assert "www-authenticate" not in answer.headers


async def test_a_rule_that_fails_lets_nobody_in_and_says_so(ada, settings, caplog):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {"CAN_CONNECT": f"{__name__}.broken"}}
    assert (await ask("lane", "/mcp", LIST, authorization=await ada.bearer())).status == 403
    assert "CAN_CONNECT" in caplog.text


# Threat 22: token passthrough ---------------------------------------------------------------------


@spec("AUT-10")
async def test_threat_22_a_tool_finds_no_credential_in_anything_that_it_gets(ada, mount):
    token = await ada.token(EVERY_SCOPE, VAULT)
    answer = await ask(
        mount,
        "/vault/mcp",
        call("dump"),
        authorization=f"Bearer {token}",
        cookie="sessionid=very-secret-cookie; other=hidden-cookie",
        proxy_authorization="Basic hidden-proxy",
        user_agent="Agent/1",
    )
    seen = answer.response()["result"]["structuredContent"]
    for secret in (token, "very-secret-cookie", "hidden-cookie", "hidden-proxy"):
        assert secret not in seen["text"]
    assert (seen["user"], seen["agent"]) == ("ada", "Agent/1")
    assert (seen["method"], seen["path"]) == ("POST", "/vault/mcp")
