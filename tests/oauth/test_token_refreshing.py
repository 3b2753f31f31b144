"""Refresh tokens: used once, but repeatable for a minute by a client that lost the answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.models import AuthEvent
from mcp_django.oauth.models import ClientProfile, RefreshReplay
from tests.oauth.exchanges import call, digest, error_of, refresh, sign_in
from tests.oauth.parties import OTHER_RESOURCE, RESOURCE, make_app

spec = pytest.mark.spec


def pass_window() -> None:
    """End the time in which an answer is repeated."""
    RefreshReplay.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def is_dead() -> bool:
    """Return whether no token of the only family is valid."""
    live = get_refresh_token_model().objects.filter(revoked=None)
    return not live.exists() and not get_access_token_model().objects.exists()


@spec("AUT-23")
def test_a_refresh_replaces_both_tokens(user, app):
    first = sign_in(user, app)
    second = refresh(app, first["refresh_token"])
    assert second.status_code == 200
    answer = second.json()
    assert answer["access_token"] != first["access_token"]
    assert answer["refresh_token"] != first["refresh_token"]
    assert call(answer["access_token"]).status_code == 200
    assert call(first["access_token"]).status_code == 401


@spec("AUT-23")
def test_threat_16_within_the_window_the_same_client_gets_the_same_pair(user, app):
    old = sign_in(user, app)["refresh_token"]
    first, again = refresh(app, old).json(), refresh(app, old).json()
    lifetimes = first.pop("expires_in"), again.pop("expires_in")
    assert again == first
    assert lifetimes[1] <= lifetimes[0]
    assert get_access_token_model().objects.count() == 1


def test_threat_16_another_client_gets_nothing_and_ends_nothing(user, app):
    old, other = sign_in(user, app)["refresh_token"], make_app(name="Other")
    assert error_of(refresh(other, old)) == (400, "invalid_grant")
    new = refresh(app, old).json()
    assert error_of(refresh(other, old)) == (400, "invalid_grant")
    assert error_of(refresh(other, new["refresh_token"])) == (400, "invalid_grant")
    assert call(new["access_token"]).status_code == 200


@spec("AUT-23")
def test_threat_16_after_the_window_the_family_dies(
    user, app, django_capture_on_commit_callbacks, monkeypatch
):
    credentials: list[str] = []
    monkeypatch.setattr(
        "mcp_django.oauth.revoking.notify_revoked", lambda *a: credentials.extend(a)
    )
    old = sign_in(user, app)["refresh_token"]
    new = refresh(app, old).json()
    family = get_refresh_token_model().objects.get(revoked=None).token_family
    pass_window()
    with django_capture_on_commit_callbacks(execute=True):
        assert error_of(refresh(app, old)) == (400, "invalid_grant")
    assert is_dead()
    assert call(new["access_token"]).status_code == 401
    assert error_of(refresh(app, new["refresh_token"])) == (400, "invalid_grant")
    assert credentials == [f"family:{family}"]
    # A dead family is not reported each time that its token is used.
    assert AuthEvent.objects.filter(kind="reuse", user=user, client_id=app.client_id).count() == 1


def test_threat_16_a_token_two_generations_old_ends_the_family_at_once(user, app):
    old = sign_in(user, app)["refresh_token"]
    new = refresh(app, old).json()["refresh_token"]
    assert refresh(app, new).status_code == 200
    assert error_of(refresh(app, old)) == (400, "invalid_grant")
    assert is_dead()


def test_the_answer_is_given_again_for_the_same_question_alone(user, app):
    old = sign_in(user, app, resource=(RESOURCE, OTHER_RESOURCE))["refresh_token"]
    first = refresh(app, old, resource=RESOURCE).json()
    assert error_of(refresh(app, old, resource=OTHER_RESOURCE)) == (400, "invalid_grant")
    assert (
        refresh(app, old, resource=f"{RESOURCE}/").json()["access_token"] == first["access_token"]
    )


def test_the_answer_is_kept_under_the_token_that_it_was_the_answer_to(user, app):
    old = sign_in(user, app)["refresh_token"]
    answer = refresh(app, old).json()
    row = RefreshReplay.objects.get()
    assert row.digest == digest(old)
    for secret in (old, answer["access_token"], answer["refresh_token"]):
        assert secret.encode() not in bytes(row.answer)


def test_without_a_window_a_second_use_ends_the_family(user, app, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {"REFRESH_REPLAY_SECONDS": 0}}
    old = sign_in(user, app)["refresh_token"]
    assert refresh(app, old).status_code == 200
    assert error_of(refresh(app, old)) == (400, "invalid_grant")
    assert is_dead()
    assert not RefreshReplay.objects.exists()


def test_made_up_refresh_tokens_leave_no_rows(app):
    assert error_of(refresh(app, "made-up")) == (400, "invalid_grant")
    assert error_of(refresh(app, "")) == (400, "invalid_grant")
    assert not RefreshReplay.objects.exists()


def test_a_refusal_leaves_the_refresh_token_as_it_was(user, app):
    old = sign_in(user, app)["refresh_token"]
    assert error_of(refresh(app, old, scope="mcp:write")) == (400, "invalid_scope")
    assert refresh(app, old).status_code == 200


@spec("AUT-24")
def test_threat_10_a_refresh_never_widens(user, app):
    old = sign_in(user, app)["refresh_token"]
    assert error_of(refresh(app, old, scope="mcp orders:refund")) == (400, "invalid_scope")
    assert error_of(refresh(app, old, resource=OTHER_RESOURCE)) == (400, "invalid_target")
    assert get_access_token_model().objects.get().resource == [RESOURCE]


@spec("AUT-24")
def test_threat_04_a_refresh_for_an_unknown_resource_is_refused(user, app):
    old = sign_in(user, app)["refresh_token"]
    assert error_of(refresh(app, old, resource="https://evil.example/")) == (400, "invalid_target")
    assert refresh(app, old).status_code == 200


def test_a_narrowed_access_token_leaves_the_refresh_token_its_reach(user, app):
    old = sign_in(user, app, resource=(RESOURCE, OTHER_RESOURCE))["refresh_token"]
    narrow = refresh(app, old, resource=RESOURCE).json()
    assert call(narrow["access_token"], path="/billing/mcp", tool="invoices").status_code == 401
    other = refresh(app, narrow["refresh_token"], resource=OTHER_RESOURCE).json()
    assert call(other["access_token"], path="/billing/mcp", tool="invoices").status_code == 200


@pytest.mark.parametrize("used", [False, True])
def test_threat_17_a_deactivated_user_cannot_refresh(user, app, used):
    old = sign_in(user, app)["refresh_token"]
    if used:
        refresh(app, old)
    user.is_active = False
    user.save()
    assert error_of(refresh(app, old)) == (400, "invalid_grant")
    # The token was not stolen, so a user who is active again can go on.
    user.is_active = True
    user.save()
    assert refresh(app, old).status_code == 200


def test_who_may_not_connect_any_more_cannot_refresh(user, app, settings):
    old = sign_in(user, app)["refresh_token"]
    rule = {"CAN_CONNECT": "tests.oauth.test_token_codes.nobody"}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": rule}
    assert error_of(refresh(app, old)) == (400, "invalid_grant")


def test_a_refresh_token_expires(user, app):
    old = sign_in(user, app)["refresh_token"]
    long_ago = timezone.now() - timedelta(days=31)
    get_access_token_model().objects.update(expires=long_ago)
    assert error_of(refresh(app, old)) == (400, "invalid_grant")


def test_a_client_with_a_secret_refreshes_with_it_alone(user):
    app = make_app(client_type="confidential", client_secret="s" * 40)
    from tests.oauth.exchanges import make_code, redeem

    code, verifier = make_code(user, app)
    assert error_of(redeem(app, code, verifier)) == (401, "invalid_client")
    old = redeem(app, code, verifier, client_secret="s" * 40).json()["refresh_token"]
    assert refresh(app, old, client_secret="s" * 40).status_code == 200
    # A repeated answer also requires authentication.
    assert error_of(refresh(app, old)) == (401, "invalid_client")
    assert refresh(app, old, client_secret="s" * 40).status_code == 200


def test_the_last_use_of_a_client_is_noted(user, app):
    answer = sign_in(user, app)
    first = ClientProfile.objects.get(client_id=app.client_id).last_used_at
    assert first is not None
    ClientProfile.objects.update(last_used_at=first - timedelta(minutes=2))
    refresh(app, answer["refresh_token"])
    assert ClientProfile.objects.get().last_used_at >= first
