"""OAuth tokens that the database confirmed a moment ago: their queries, and what revokes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)

from mcp_django.auth import authentication, outbound
from mcp_django.auth.authentication import caller_cache, why_not_cached
from tests.kit.confirming import Database, _clock, _database  # noqa: F401 - fixtures
from tests.kit.drivers import send
from tests.kit.servers import person, token_for
from tests.oauth import vault
from tests.oauth.exchanges import call, message_of, refresh
from tests.oauth.test_revoking_access import WAYS, SignedIn
from tests.spec import spec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]


@pytest.fixture
def signed_in(settings):
    """A user whose client has a token."""
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM_SECONDS": 1}
    return SignedIn()


def heat(signed_in: SignedIn, database: Database) -> None:
    """Use the token until it is cached, and assert that the last call queried no caller."""
    assert call(signed_in.access).status_code == 200
    assert len(caller_cache) == 1
    before = _asked_of_callers(database)
    assert call(signed_in.access).status_code == 200
    assert _asked_of_callers(database) == before


def _asked_of_callers(database: Database) -> int:
    table = get_access_token_model()._meta.db_table
    return sum(table in sql for sql in database.statements)


def test_a_token_in_use_needs_no_statement(signed_in, database, clock):
    heat(signed_in, database)
    for _ in range(3):
        clock.move(0.4)
        assert caller_cache.confirm() == 1
        before = _asked_of_callers(database)
        assert call(signed_in.access).status_code == 200
        assert _asked_of_callers(database) == before


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_token_of_this_site_is_never_sent_to_another_issuer(
    signed_in, settings, monkeypatch, seconds
):
    pytest.importorskip("jwt")
    urls: list[str] = []
    monkeypatch.setattr(outbound, "fetch_json", lambda url, **options: urls.append(url) or {})
    issuer = {"ISSUER": "https://idp.example", "URL": "https://idp.example/ask"}
    settings.MCP_DJANGO = {
        **settings.MCP_DJANGO,
        "CONFIRM_SECONDS": seconds,
        "AUTH": ["oauth", "introspection"],
        "INTROSPECTION": [{**issuer, "CLIENT_ID": "site", "CLIENT_SECRET": "x"}],
    }
    for _ in range(3):
        assert call(signed_in.access).status_code == 200
    assert urls == []
    assert call("opaque").status_code == 401
    assert urls == ["https://idp.example/ask"]


def lock_out(signed_in: SignedIn) -> None:
    """Change the client to one whose tokens may not call servers, as in the admin."""
    signed_in.app.authorization_grant_type = "implicit"
    signed_in.app.save()


def end_by_its_time(signed_in: SignedIn) -> None:
    """Let the token expire, as in the toolkit's admin."""
    token = get_access_token_model().objects.get()
    token.expires = timezone.now() - timedelta(seconds=1)
    token.save()


def end_by_expression(signed_in: SignedIn) -> None:
    """Let the token expire with an expression that the database computes."""
    token = get_access_token_model().objects.get()
    token.expires = F("expires") - timedelta(days=1)
    token.save()


CHANGES: dict[str, Callable[[SignedIn], Any]] = {
    **WAYS,
    "access token deleted": lambda signed_in: get_access_token_model().objects.all().delete(),
    "access token revoked": lambda signed_in: get_access_token_model().objects.get().revoke(),
    "refresh token revoked": lambda signed_in: get_refresh_token_model().objects.get().revoke(),
    "access token ended": end_by_its_time,
    "access token ended by the database": end_by_expression,
    "deferred access token deleted": lambda signed_in: (
        get_access_token_model().objects.only("pk").get().delete()
    ),
    "deferred refresh token deleted": lambda signed_in: (
        get_refresh_token_model().objects.only("pk").delete(),
        get_access_token_model().objects.only("pk").delete(),
    ),
    "client deleted": lambda signed_in: get_application_model().objects.all().delete(),
    "client changed": lock_out,
}


@spec("AUT-1", "AUT-3", "AUT-23")
@pytest.mark.parametrize("change", CHANGES)
def test_a_token_whose_access_ends_is_refused_at_once(signed_in, database, change):
    heat(signed_in, database)
    CHANGES[change](signed_in)
    assert call(signed_in.access).status_code == 401


@spec("AUT-1")
@pytest.mark.parametrize(
    "change",
    [
        lambda: get_access_token_model().objects.update(expires=timezone.now()),
        lambda: get_application_model().objects.update(authorization_grant_type="implicit"),
    ],
)
def test_what_sends_no_signal_is_noticed_within_a_second(signed_in, database, clock, change):
    heat(signed_in, database)
    change()
    clock.move(0.99)
    assert call(signed_in.access).status_code == 200
    clock.move(0.01)
    assert call(signed_in.access).status_code == 401


def test_a_token_is_not_used_beyond_its_end(signed_in, database, monkeypatch):
    heat(signed_in, database)
    ended = timezone.now() + timedelta(days=365)
    monkeypatch.setattr(authentication, "timezone", SimpleNamespace(now=lambda: ended))
    monkeypatch.setattr(get_access_token_model(), "is_expired", lambda self: True)
    assert call(signed_in.access).status_code == 401


@spec("AUT-9", "AUT-11")
def test_a_token_in_use_is_not_valid_at_another_server(signed_in, database):
    heat(signed_in, database)
    assert call(signed_in.access, path="/billing/mcp", tool="invoices").status_code == 401


@spec("AUT-9")
@pytest.mark.parametrize("mount", ["raw", "view"])
async def test_a_token_in_use_is_not_valid_at_another_address(signed_in, settings, mount):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    body = message_of("whoami", {})

    async def status(path: str = "/mcp", **headers: str) -> int:
        bearer = f"Bearer {signed_in.access}"
        answer = await send(vault.MOUNTS[mount], path, body, authorization=bearer, **headers)
        return answer.status

    for _ in range(2):
        assert await status() == 200
        assert await status(host="localhost") == 401
        assert await status(host="testserver:8000") == 401
        assert await status(x_forwarded_proto="https") == 401
        assert await status(path="/billing/mcp") == 401
        # A header that the site does not trust has no effect.
        assert await status(x_forwarded_host="localhost") == 200
    settings.USE_X_FORWARDED_HOST = True
    assert await status(x_forwarded_host="localhost") == 401
    assert await status() == 200


def test_after_a_refresh_the_new_token_is_used(signed_in, database):
    heat(signed_in, database)
    answer = refresh(signed_in.app, signed_in.refresh)
    assert answer.status_code == 200
    assert call(answer.json()["access_token"]).status_code == 200


def test_tokens_of_both_kinds_are_confirmed_together(signed_in, database):
    heat(signed_in, database)
    _, plaintext = token_for(person("bob"))
    assert call(plaintext).status_code == call(plaintext).status_code == 200
    assert call(signed_in.access).status_code == 200
    assert caller_cache.confirm() == 2


@pytest.mark.parametrize(("model", "name"), [("application", "is_usable"), ("token", "is_expired")])
def test_models_of_the_site_are_asked_each_time(signed_in, monkeypatch, model, name):
    assert why_not_cached(("tokens", "oauth")) == ""
    models = {"application": get_application_model(), "token": get_access_token_model()}
    monkeypatch.setattr(models[model], name, lambda self, *args: name == "is_usable")
    why_not_cached.cache_clear()
    assert f"has an {name}() of its own" in why_not_cached(("tokens", "oauth"))
    why_not_cached.cache_clear()


def test_when_a_token_in_use_was_used_last_is_stored(signed_in, database):
    heat(signed_in, database)
    long_ago = timezone.now() - timedelta(minutes=30)
    get_access_token_model().objects.update(updated=long_ago)
    assert caller_cache.confirm() == 1
    assert get_access_token_model().objects.get().updated > long_ago
