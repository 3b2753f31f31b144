"""A server whose callers have tokens, which its tools issue and end as an administrator would."""

from __future__ import annotations

from typing import Literal

from django.contrib.auth.models import User
from django.urls import path
from django.utils import timezone

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, IsAuthenticated
from mcp_django.models import AccessToken

keys = MCPServer("keys", auth=["tokens"], permission=AllowAny)


@keys.tool
def issue(username: str) -> str:
    """Issue a token for a new user."""
    user = User.objects.create_user(username)
    return AccessToken.objects.issue(user, name="test", scopes=["mcp"])[1]


@keys.tool
def end(username: str, way: Literal["revoke", "deactivate", "update"]) -> str:
    """End the access of a user."""
    token = AccessToken.objects.select_related("user").get(user__username=username)
    if way == "revoke":
        token.revoke()
    elif way == "deactivate":
        token.user.is_active = False
        token.user.save()
    else:
        # Sends no signal.
        AccessToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    return "ended"


@keys.tool(read_only=True, permission=IsAuthenticated)
async def plain() -> str:
    """Return a word to those with a token."""
    return "done"


@keys.tool(read_only=True, permission=IsAuthenticated)
def plain_in_thread() -> str:
    """Do the same in a thread."""
    return "done"


urlpatterns = [path("mcp", keys.urls)]
