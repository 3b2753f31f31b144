"""The callers of the record, with the tokens by which each mount knows them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
    set_token_value,
)

from mcp_django.models import AccessToken
from mcp_django.models.tokens import TOKEN_PREFIX

MARY, STAN = 101, 102
SECRETS = {"member": "m" * 43, "staff": "s" * 43, "revoked": "r" * 43, "invalid": "i" * 43}
OAUTH_SCOPES = {"oauth-other": "other", "oauth-read": "mcp", "oauth-write": "mcp matrix:write"}
CLIENT_ID = "matrix-client"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The server that a caller uses, and the credentials and identity of the caller."""

    server: str
    token: str = ""
    username: str = ""
    user_id: int = 0
    client_id: str = ""
    scopes: frozenset[str] | None = None

    @property
    def authorization(self) -> str | None:
        """The `Authorization` header of each request, `None` without a token."""
        return f"Bearer {self.token}" if self.token else None

    @property
    def user(self) -> Any:
        """The user, `None` if there is none."""
        return User.objects.get(username=self.username) if self.username else None


def _member(name: str, **details: Any) -> Caller:
    return Caller(server="members", token=TOKEN_PREFIX + SECRETS[name], **details)


CALLERS = {
    "anonymous": Caller(server="open"),
    "member": _member("member", username="mary", user_id=MARY, client_id="token:201"),
    "staff": _member("staff", username="stan", user_id=STAN, client_id="token:202"),
    "stranger": Caller(server="members"),
    "revoked": _member("revoked"),
    "invalid": _member("invalid"),
    **{
        name: Caller(
            server="scoped",
            token=f"{name}-token",
            username="mary",
            user_id=MARY,
            client_id=CLIENT_ID,
            scopes=frozenset(scope.split()),
        )
        for name, scope in OAUTH_SCOPES.items()
    },
}


def create_callers() -> None:
    """Create the users and their tokens, with the same keys in every run."""
    mary = User.objects.create(pk=MARY, username="mary")
    stan = User.objects.create(pk=STAN, username="stan", is_staff=True)
    for number, (name, user) in enumerate(
        {"member": mary, "staff": stan, "revoked": mary}.items(), start=201
    ):
        token, _ = AccessToken.objects.issue(user, name="matrix", secret=SECRETS[name])
        AccessToken.objects.filter(pk=token.pk).update(id=number)
    AccessToken.objects.filter(pk=203).update(revoked_at=timezone.now())
    _create_oauth_tokens(mary)


def _create_oauth_tokens(user: User) -> None:
    resource = ["http://testserver/scoped/mcp"]
    app = get_application_model().objects.create(
        name="Matrix",
        client_id=CLIENT_ID,
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris="https://client.example/callback",
    )
    tokens, refreshes = [], []
    for number, (name, scope) in enumerate(OAUTH_SCOPES.items(), start=301):
        token = get_access_token_model()(
            pk=number,
            user=user,
            application=app,
            scope=scope,
            resource=resource,
            expires=timezone.now() + timedelta(hours=1),
        )
        set_token_value(token, f"{name}-token")
        tokens.append(token)
        refresh = get_refresh_token_model()(
            user=user, application=app, access_token=token, resource=resource
        )
        set_token_value(refresh, f"{name}-refresh")
        refresh.token_family = uuid.UUID(int=number)
        refreshes.append(refresh)
    get_access_token_model().objects.bulk_create(tokens)
    get_refresh_token_model().objects.bulk_create(refreshes)
