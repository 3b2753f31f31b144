"""Checks of the clients: what they may be redirected to, and what they were registered as."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, router

from mcp_django.conf import get_settings
from mcp_django.oauth.checks.readiness import when_ready
from mcp_django.oauth.redirects import app_problem


@when_ready
def check_app_redirects(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E011: an address of an application that no client could use."""
    return [
        Error(
            f"MCP_DJANGO['OAUTH']['APP_REDIRECTS'] lists {uri!r}: {problem}",
            hint="List private-use addresses such as 'com.example.app:/callback', each in full; "
            "https and loopback addresses need no entry.",
            id="mcp_oauth.E011",
        )
        for uri in get_settings().oauth.app_redirects
        if (problem := app_problem(uri))
    ]


@when_ready
def check_field_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E012: there is nothing to encrypt a third party's tokens with."""
    oauth = get_settings().oauth
    if not oauth.upstream or oauth.field_keys:
        return []
    return [
        Error(
            "MCP_DJANGO['OAUTH'] has UPSTREAM and no FIELD_KEYS, so there is nothing to encrypt "
            "the third party's tokens with.",
            hint="python -c 'from cryptography.fernet import Fernet; "
            "print(Fernet.generate_key().decode())' makes a key; keep it where SECRET_KEY is.",
            id="mcp_oauth.E012",
        )
    ]


@when_ready
def check_clients(
    app_configs: Any, *, databases: list[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """E013: a client registered itself for a grant in which no user is asked."""
    from oauth2_provider.models import get_application_model

    model = get_application_model()
    alias = router.db_for_read(model)
    if alias not in (databases or ()):
        return []
    sources = model.RegistrationSource
    wrong = (
        model._default_manager.using(alias)
        .filter(registration_source__in=[sources.DCR, sources.CIMD])
        .exclude(authorization_grant_type=model.GRANT_AUTHORIZATION_CODE)
    )
    try:
        found = list(wrong.values_list("client_id", "authorization_grant_type")[:5])
    except DatabaseError:
        # The tables come with the migrations, which run this check first.
        return []
    return [
        Error(
            f"The client {client_id!r} registered itself for the grant {grant!r}.",
            hint="Delete it in the admin, or mark it as registered by hand if you know it; take "
            "DCR_ENABLED out of OAUTH2_PROVIDER.",
            id="mcp_oauth.E013",
        )
        for client_id, grant in found
    ]
