"""A token of this site is valid only as long as the provider's grant is (AUT-31)."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model, set_token_value

from mcp_django.models import AuthEvent
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.upstream import bindings
from mcp_django.oauth.upstream.grants import decrypt, encrypt
from tests.kit.drivers import message
from tests.kit.servers import post
from tests.oauth.parties import RESOURCE, SETTINGS, make_app, make_token, make_user
from tests.oauth.upstream.parties import configured, dumped, make_grant

pytestmark = pytest.mark.django_db(transaction=True)
PING = message("tools/call", {"name": "whoami", "arguments": {}})
PAST = timedelta(minutes=-1)


def bound_token(user: Any, app: Any) -> str:
    """Issue a token for `orders`, bound to the user's grant as the token endpoint does it."""
    plaintext = make_token(user, app)
    token = get_access_token_model().objects.latest("pk")
    bindings.bind_token(token, family=token.refresh_token.token_family)
    return plaintext


def call(token: str) -> Any:
    return post("/mcp", PING, token=token)


def aged(**changes: Any) -> None:
    UpstreamGrant.objects.update(**changes)


@pytest.fixture
def token(acme):
    user = make_user()
    make_grant(user)
    return bound_token(user, make_app())


@pytest.mark.spec("AUT-31")
def test_fresh_access_costs_no_query(acme, token, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert call(token).status_code == 200
    assert acme.asked == []


@pytest.mark.spec("AUT-31")
def test_expired_access_is_renewed_before_the_call(acme, token):
    aged(expires_at=timezone.now() + PAST)
    assert call(token).status_code == 200
    assert call(token).status_code == 200
    assert acme.count("/token") == 1
    grant = UpstreamGrant.objects.get()
    assert decrypt(grant.refresh_cipher) == acme.refresh_token
    assert grant.expires_at > timezone.now()
    assert grant.renewing_until is None


@pytest.mark.spec("AUT-31")
def test_threat_26_access_revoked_upstream_ends_our_tokens(
    acme, token, django_capture_on_commit_callbacks
):
    aged(expires_at=timezone.now() + PAST)
    acme.refusal = (400, {"error": "invalid_grant"})
    answer = call(token)
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer["WWW-Authenticate"]
    assert not get_access_token_model().objects.exists()
    assert not get_refresh_token_model().objects.filter(revoked__isnull=True).exists()
    grant = UpstreamGrant.objects.get()
    assert grant.status == UpstreamGrant.Status.REVOKED
    assert bytes(grant.access_cipher) == b""
    assert grant.refresh_cipher is None
    event = AuthEvent.objects.get(kind=AuthEvent.Kind.UPSTREAM)
    assert event.details == {
        "provider": "acme",
        "change": "ended",
        "reason": "refused upstream",
    }
    assert call(token).status_code == 401


def test_ended_access_is_announced_for_open_streams(acme, token, monkeypatch):
    from mcp_django.oauth.upstream import grants

    credentials: list[str] = []
    monkeypatch.setattr(grants, "notify_revoked", lambda *ended: credentials.extend(ended))
    family = get_refresh_token_model().objects.get().token_family
    grants.revoke_grant(UpstreamGrant.objects.get(), reason="test")
    assert f"family:{family}" in credentials


@pytest.mark.spec("AUT-31")
@pytest.mark.parametrize("status", [500, 503, 429])
def test_provider_that_fails_for_a_while_costs_nobody_a_token(acme, token, status):
    aged(expires_at=timezone.now() + PAST)
    acme.refusal = (status, {})
    answer = call(token)
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert "WWW-Authenticate" not in answer
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.LIVE
    # The next request does not query the provider again.
    assert call(token).status_code == 503
    assert acme.count("/token") == 1
    acme.refusal = None
    aged(renewing_until=timezone.now() + PAST)
    assert call(token).status_code == 200


def test_wrong_secret_of_ours_is_no_revocation(acme, token):
    aged(expires_at=timezone.now() + PAST)
    acme.refusal = (401, {"error": "invalid_client"})
    assert call(token).status_code == 503
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.LIVE


@pytest.mark.spec("AUT-31")
def test_access_is_asked_about_after_five_minutes(acme, token):
    aged(checked_at=timezone.now() - timedelta(seconds=299))
    assert call(token).status_code == 200
    assert acme.count("/introspect") == 0
    aged(checked_at=timezone.now() - timedelta(seconds=301))
    assert call(token).status_code == 200
    assert call(token).status_code == 200
    assert acme.count("/introspect") == 1
    assert acme.count("/token") == 0


def test_token_that_is_inactive_upstream_is_renewed_or_gone(acme, token):
    acme.is_active = False
    aged(checked_at=timezone.now() - timedelta(seconds=301))
    assert call(token).status_code == 200
    assert acme.count("/token") == 1
    aged(checked_at=timezone.now() - timedelta(seconds=301), refresh_cipher=encrypt("a used one"))
    assert call(token).status_code == 401


def test_access_without_a_refresh_token_ends_with_its_token(acme, token):
    aged(refresh_cipher=None, expires_at=timezone.now() + timedelta(seconds=10))
    assert call(token).status_code == 200
    aged(expires_at=timezone.now() + PAST)
    assert call(token).status_code == 401


@pytest.mark.spec("AUT-31")
def test_user_has_to_sign_in_upstream_now_and_then(acme, token, site):
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": {**configured(), "UPSTREAM_MAX_AGE": 3600}}
    aged(authorized_at=timezone.now() - timedelta(seconds=3601))
    assert call(token).status_code == 401
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.REVOKED


@pytest.mark.spec("AUT-31")
def test_token_without_access_upstream_opens_nothing_that_needs_it(acme):
    token = bound_token(make_user(), make_app())
    assert not UpstreamBinding.objects.exists()
    assert call(token).status_code == 401


def test_our_token_does_not_outlive_the_access(acme):
    user = make_user()
    ends = timezone.now() + timedelta(minutes=5)
    make_grant(user, refresh_expires_at=ends)
    bound_token(user, make_app())
    assert get_access_token_model().objects.get().expires == ends


@pytest.mark.spec("AUT-31")
def test_our_refresh_looks_upstream_first(acme, token):
    refresh = get_refresh_token_model().objects.get()
    plaintext = "the-refresh-token"
    set_token_value(refresh, plaintext)
    refresh.save()
    form = {
        "grant_type": "refresh_token",
        "refresh_token": plaintext,
        "client_id": refresh.application.client_id,
    }
    aged(expires_at=timezone.now() + PAST)
    acme.refusal = (503, {})
    answer = Client().post("/oauth/token", form)
    assert answer.status_code == 503
    assert answer.json()["error"] == "temporarily_unavailable"
    assert int(answer["Retry-After"]) > 0
    aged(renewing_until=None)
    acme.refusal = None
    answer = Client().post("/oauth/token", form)
    assert answer.status_code == 200
    assert acme.count("/token") == 2
    assert call(answer.json()["access_token"]).status_code == 200
    aged(expires_at=timezone.now() + PAST)
    acme.refusal = (400, {"error": "invalid_grant"})
    again = Client().post("/oauth/token", {**form, "refresh_token": answer.json()["refresh_token"]})
    assert again.status_code == 400
    assert again.json()["error"] == "invalid_grant"
    assert call(answer.json()["access_token"]).status_code == 401


def test_rotation_moves_the_binding(acme, token):
    refresh = get_refresh_token_model().objects.get()
    make_token(refresh.user, refresh.application, refresh=False)
    rotated = get_access_token_model().objects.latest("pk")
    bindings.bind_token(rotated, family=refresh.token_family)
    assert UpstreamBinding.objects.get().checksum == rotated.token_checksum


@pytest.mark.spec("AUT-31")
def test_tokens_of_the_provider_are_encrypted_where_they_are_kept(acme, token):
    aged(expires_at=timezone.now() + PAST)
    assert call(token).status_code == 200
    dump = dumped()
    assert "session-1" in dump
    access = decrypt(UpstreamGrant.objects.get().access_cipher)
    assert not [
        secret for secret in (access, acme.refresh_token, "our-secret", token) if secret in dump
    ]


def test_row_that_no_key_opens_is_as_good_as_revoked(acme, token, site):
    from cryptography.fernet import Fernet

    keys = [Fernet.generate_key().decode()]
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": configured(keys=keys)}
    assert call(token).status_code == 200
    aged(expires_at=timezone.now() + PAST)
    assert call(token).status_code == 401


def test_last_client_that_is_disconnected_ends_the_access_upstream(acme, token):
    refresh = get_refresh_token_model().objects.get()
    other = bound_token(refresh.user, refresh.application)
    get_refresh_token_model().revoke_family(refresh.token_family)
    bindings.release_tokens(families=[refresh.token_family])
    assert acme.count("/revoke") == 0
    assert call(other).status_code == 200
    last = UpstreamBinding.objects.get().family
    get_refresh_token_model().revoke_family(last)
    bindings.release_tokens(families=[last])
    assert [form["token"] for form in acme.forms] == ["refresh-1", "access-0"]
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.REVOKED


def test_nothing_is_looked_at_without_a_provider(site, django_assert_num_queries):
    token = make_token(make_user(), make_app())
    with django_assert_num_queries(1):
        assert call(token).status_code == 200
    with django_assert_num_queries(0):
        assert bindings.has_live_access(get_refresh_token_model()().token_family)
        bindings.renew_before_refresh("anything")
        bindings.bind_token(get_access_token_model()(resource=[RESOURCE]))
        bindings.release_tokens(checksums=["x"])


@pytest.mark.spec("AUT-31")
def test_threat_26_calls_at_once_renew_once(acme, token):
    aged(expires_at=timezone.now() + PAST)
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        assert go_on.wait(10)

    acme.on_token = hold
    answers: list[int] = []

    def ask() -> None:
        try:
            answers.append(post("/mcp", PING, token=token, client=Client()).status_code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads[0].start()
    assert began.wait(10)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * 4
    assert acme.count("/token") == 1
