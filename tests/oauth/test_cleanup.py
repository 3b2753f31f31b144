"""Rows of the token endpoint are deleted when they can no longer be needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model

from mcp_django.oauth.models import RedeemedCode, RefreshReplay, UsedAssertion
from mcp_django.storage.cleanup import delete_expired
from tests.oauth.exchanges import call, error_of, make_code, refresh, sign_in
from tests.oauth.parties import make_app, make_token

LONG = timedelta(days=40)


@pytest.mark.django_db
def test_digests_go_when_what_they_stand_for_is_long_over():
    now = timezone.now()
    for model in (RefreshReplay, UsedAssertion):
        model.objects.create(digest="old", expires_at=now - timedelta(minutes=1), **_more(model))
        model.objects.create(digest="new", expires_at=now + timedelta(minutes=1), **_more(model))
    RedeemedCode.objects.create(digest="old")
    RedeemedCode.objects.update(redeemed_at=now - timedelta(days=2))
    RedeemedCode.objects.create(digest="new")
    delete_expired()
    for model in (RefreshReplay, UsedAssertion, RedeemedCode):
        assert [row.digest for row in model.objects.all()] == ["new"]


def _more(model: Any) -> dict[str, Any]:
    return {"client_id": "x", "answer": b""} if model is RefreshReplay else {}


def test_expired_codes_and_tokens_go(user, app):
    make_code(user, app, seconds=-5)
    make_code(user, app)
    make_token(user, app, refresh=False, seconds=-5)
    good = make_token(user, app, refresh=False)
    delete_expired()
    assert get_grant_model().objects.count() == 1
    assert call(good).status_code == 200
    assert get_access_token_model().objects.count() == 1


def test_what_can_still_be_refreshed_stays(user, app):
    answer = sign_in(user, app)
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(days=1))
    delete_expired()
    assert refresh(app, answer["refresh_token"]).status_code == 200


def test_a_replaced_refresh_token_stays_as_long_as_its_reuse_matters(user, app):
    answer = sign_in(user, app)
    new = refresh(app, answer["refresh_token"]).json()
    delete_expired()
    assert get_refresh_token_model().objects.count() == 2
    get_refresh_token_model().objects.exclude(revoked=None).update(revoked=timezone.now() - LONG)
    RefreshReplay.objects.all().delete()
    delete_expired()
    assert get_refresh_token_model().objects.count() == 1
    assert error_of(refresh(app, answer["refresh_token"])) == (400, "invalid_grant")
    assert call(new["access_token"]).status_code == 200


def test_what_nobody_refreshed_in_time_goes(user, app):
    make_token(user, app)
    get_access_token_model().objects.update(expires=timezone.now() - LONG)
    delete_expired()
    delete_expired()
    assert not get_refresh_token_model().objects.exists()
    assert not get_access_token_model().objects.exists()


def test_threat_30_what_the_sites_other_clients_leave_is_left_alone(user):
    app = make_app(registration_source="manual")
    make_token(user, app, resource=(), seconds=-LONG.total_seconds().__int__(), refresh=False)
    make_code(user, app, resource=(), seconds=-5)
    delete_expired()
    assert get_access_token_model().objects.count() == 1
    assert get_grant_model().objects.count() == 1
