"""The test client, permissions and backends, as a site writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

from mcp_django import Context, ResourceContents
from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.models import AccessToken
from mcp_django.test import CallResult, MCPClient


class OnOwnDesk(BasePermission):
    def has_permission(self, principal: Principal) -> bool:
        return principal.is_authenticated


class Tickets(BaseBackend):
    def authenticate(self, credentials: Credentials) -> Principal | None:
        assert_type(credentials.bearer, str | None)
        return None


def read(ctx: Context) -> None:
    assert_type(ctx.read_resource("x://x"), Sequence[ResourceContents])
    assert_type(ctx.upstream("acme").token(), str)
    assert_type(ctx.upstream("acme").headers(), dict[str, str])


def use(client: MCPClient, user: Any) -> None:
    assert_type(client.call_tool("a", {"n": 1}), CallResult)
    assert_type(client.call_tool("a").text, str)
    assert_type(client.list_tools(), list[dict[str, Any]])
    assert_type(client.complete("prompt", "name", "a", context={"b": "c"}), list[str])
    assert_type(AccessToken.objects.issue(user, name="x"), tuple[AccessToken, str])


async def use_later(client: MCPClient) -> None:
    assert_type(await client.acall_tool("a"), CallResult)
    async with client.listen(lists=["tools"]) as messages:
        assert_type(await anext(messages), dict[str, Any])
