"""Every method that needs a scope responds with a 403 that names all required scopes."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.models import Subscription
from mcp_django.protocol.errors import RESOURCE_NOT_FOUND
from tests.oauth import vault
from tests.oauth.backend.test_scopes import plain_request, session_of
from tests.oauth.vault_asking import EVERY_SCOPE, VAULT, ask, parameters
from tests.spec import spec

GOLD = "vault://gold"
PLACE = {"name": "place", "value": "h"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("resources/read", {"uri": GOLD}),
    "read of a template": ("resources/read", {"uri": "vault://shelves/a"}),
    "prompt": ("prompts/get", {"name": "tidy", "arguments": {"place": "x"}}),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "tidy"}, "argument": PLACE},
    ),
    "completion of a template": (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "vault://shelves/{shelf}"},
            "argument": {"name": "shelf", "value": "a"},
        },
    ),
    "subscription": ("resources/subscribe", {"uri": GOLD}),
    "subscription of a template": ("resources/subscribe", {"uri": "vault://shelves/a"}),
}


async def tell(mount: str, body: Any, bearer: str, session: str) -> Any:
    extra: dict[str, Any] = {"mcp_session_id": session, "mcp_protocol_version": "2025-03-26"}
    extra |= {"mcp_method": None, "accept": "application/json"}
    return await ask(mount, "/vault/mcp", body, authorization=bearer, **extra)


@spec("AUT-6")
@pytest.mark.parametrize("streaming", vault.MOUNTS)
@pytest.mark.parametrize("name", CALLS)
async def test_threat_21_each_method_steps_up(ada, streaming, name):
    bearer = await ada.bearer("mcp vault", VAULT)
    session = await session_of(streaming, "/vault/mcp", bearer)
    body = plain_request(*CALLS[name], request_id=2)
    answer = await tell(streaming, body, bearer, session)
    assert answer.status == 403, answer.body
    challenge = parameters(answer)
    assert (challenge["error"], challenge["scope"]) == ("insufficient_scope", "mcp vault mcp:write")
    assert vault.executed == []
    wider = await ada.bearer(EVERY_SCOPE, VAULT)
    answer = await tell(streaming, body, wider, session)
    assert (answer.status, "result" in answer.json()) == (200, True)


@spec("AUT-6", "SUB-4")
async def test_threat_21_batch_that_is_refused_subscribes_to_nothing(ada):
    bearer = await ada.bearer("mcp vault orders:refund", VAULT)
    session = await session_of("lane", "/vault/mcp", bearer)
    batch = [
        plain_request("resources/subscribe", {"uri": "vault://nothing"}, 2),
        plain_request("tools/call", {"name": "refund", "arguments": {"name": "b"}}, 3),
        plain_request("resources/subscribe", {"uri": GOLD}, 4),
    ]
    answer = await tell("lane", batch, bearer, session)
    assert answer.status == 403
    assert parameters(answer)["scope"] == "mcp vault mcp:write"
    assert (vault.executed, await Subscription.objects.acount()) == ([], 0)
    wider = await ada.bearer(EVERY_SCOPE, VAULT)
    responses = {
        response["id"]: response for response in (await tell("lane", batch, wider, session)).json()
    }
    assert ("error" in responses[2], "result" in responses[3], responses[4]["result"]) == (
        True,
        True,
        {},
    )
    assert await Subscription.objects.acount() == 1


@spec("SUB-4", "AUT-11")
async def test_threat_21_subscription_of_a_hidden_resource_is_no_matter_of_scopes(ada):
    bearer = await ada.bearer("mcp vault", VAULT)
    session = await session_of("lane", "/vault/mcp", bearer)
    for uri in ("vault://secret", "vault://nothing"):
        body = plain_request("resources/subscribe", {"uri": uri}, 2)
        answer = await tell("lane", body, bearer, session)
        assert (answer.status, answer.json()["error"]["code"]) == (200, RESOURCE_NOT_FOUND)
