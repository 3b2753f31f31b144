"""The generic set over HTTP: what two callers of one endpoint see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import path

from mcp_django import Context, MCPServer, ModelTools
from tests.integrations.models.building import customer, holder, order
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.sites.shop.models import Customer, Order

pytestmark = pytest.mark.django_db


class OrderMCP(ModelTools[Order]):
    """What was bought."""

    fields = ("number", "status", "customer__name")
    filter_fields = ("status", "customer__name")
    scopes = ("orders:read",)

    def has_permission(self, ctx: Context, action: Any, obj: Order | None = None) -> bool:
        """Everybody reads."""
        return action == "view"


class CustomerMCP(ModelTools[Customer]):
    """Who bought."""

    fields = ("id", "name")


@pytest.fixture(autouse=True)
def endpoint(settings):
    server = MCPServer("shop", generic=True)
    server.register(Order, OrderMCP)
    server.register(Customer, CustomerMCP)
    settings.ROOT_URLCONF = type("URLs", (), {"urlpatterns": [path("mcp", server.urls)]})


def ask(method: str, token: str, **params: Any) -> tuple[int, dict[str, Any], Any]:
    answer = post("/mcp", message(method, params), token=token)
    return answer.status_code, json.loads(answer.content), answer


def token(user: Any, *scopes: str) -> str:
    return token_for(user, *scopes)[1]


def models(body: dict[str, Any]) -> list[str]:
    (tool,) = [
        definition
        for definition in body["result"]["tools"]
        if definition["name"] == "search_records"
    ]
    enum: list[str] = tool["inputSchema"]["properties"]["model"]["enum"]
    return enum


def test_each_caller_is_shown_his_models():
    clerk = token(holder("view_customer", username="clerk"), "orders:read")
    guest = token(person("guest"), "orders:read")
    _, seen, _ = ask("tools/list", clerk)
    assert models(seen) == ["customer", "order"]
    assert seen["result"]["cacheScope"] == "private"
    _, seen, _ = ask("tools/list", guest)
    assert models(seen) == ["order"]


def test_a_call_is_answered():
    order("A1", customer=customer("Ada"))
    order("A2", customer=customer("Bob"))
    arguments = {"model": "order", "filters": {"customer__name": "Bob"}}
    status, body, _ = ask(
        "tools/call", token(person(), "orders:read"), name="search_records", arguments=arguments
    )
    assert status == 200
    rows = body["result"]["structuredContent"]["items"]
    assert [row["number"] for row in rows] == ["A2"]


def test_a_scope_of_the_model_is_asked_for_at_the_door():
    status, _, answer = ask(
        "tools/call",
        token(person(), "other"),
        name="search_records",
        arguments={"model": "order"},
    )
    assert status == 403
    assert 'scope="orders:read"' in answer.headers["www-authenticate"]


HOSTILE = [
    "[]",
    '{"model": ["order"]}',
    '{"model": {"order": 1}}',
    '{"model": "order", "filters": {"status": {"$ne": 1}}}',
    '{"model": "order", "filters": "{}"}',
    '{"model": "order", "filters": {"internal_note__icontains": "x"}}',
    '{"model": "order", "filters": {"customer__password": "x"}}',
    '{"model": "order", "filters": {"customer__name__regex": "(a+)+$"}}',
    '{"model": "order", "filters": {"status__in": ["open"], "model": "customer"}}',
    '{"model": "order", "model": "customer"}',
    '{"model": "customer"}',
    '{"model": "order", "cursor": "AAAA"}',
    '{"model": "order", "limit": 1e999}',
    '{"model": "order", "limit": 99999999999999999999999}',
    '{"model": "order", "filters": {"status": "a\\ud800"}}',
    '{"model": "\\ud800"}',
    '{"model": "order", "filters": ' + '{"a":' * 200 + "1" + "}" * 200 + "}",
    '{"model": "order\\u0000"}',
]


def test_what_is_hostile_is_refused_in_words():
    order("A1", customer=customer("Ada", password="hunter2"))
    body = message("tools/call", {"name": "search_records", "arguments": {}})
    raw = token(person(), "orders:read")
    for arguments in HOSTILE:
        text = json.dumps(body).replace('"arguments": {}', f'"arguments": {arguments}')
        answer = json.loads(_send(text, body, raw).content)
        if "result" in answer:
            assert answer["result"]["isError"] is True, arguments
            assert "was logged" not in str(answer), arguments
        else:
            assert answer["error"]["code"] in {-32700, -32600, -32602}, arguments
        assert "hunter2" not in str(answer), arguments


def _send(text: str, body: dict[str, Any], raw: str) -> Any:
    from django.test import Client

    from tests.kit.drivers import headers_for

    headers = headers_for(body, authorization=f"Bearer {raw}")
    return Client().post("/mcp", text, content_type="application/json", headers=headers)
