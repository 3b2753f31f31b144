"""Unused clients are deleted, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from mcp_django.oauth.models import ClientProfile
from mcp_django.storage.cleanup import delete_expired
from tests.oauth.parties import make_app, make_token

pytestmark = pytest.mark.django_db
MONTHS = timedelta(days=91)


def aged(app: Any, age: timedelta) -> Any:
    model = get_application_model()
    model.objects.filter(pk=app.pk).update(created=timezone.now() - age)
    return app


def is_kept(app: Any) -> bool:
    delete_expired()
    return bool(get_application_model().objects.filter(pk=app.pk).exists())


@pytest.mark.spec("AUT-25")
@pytest.mark.parametrize(
    ("source", "hours", "kept"),
    [("dcr", 23, True), ("dcr", 25, False), ("cimd", 25, False), ("manual", 10_000, True)],
)
def test_threat_09_a_client_that_never_got_a_token_is_deleted(source, hours, kept):
    app = aged(make_app(registration_source=source), timedelta(hours=hours))
    assert is_kept(app) is kept


def test_a_client_with_tokens_is_kept(user):
    app = aged(make_app(), timedelta(days=2))
    make_token(user, app)
    assert is_kept(app)
    aged(app, MONTHS)
    assert is_kept(app)


def test_a_client_whose_user_is_at_the_page_is_kept(user):
    app = aged(make_app(), timedelta(days=2))
    grant = get_grant_model().objects.create(
        user=user, application=app, code="c", expires=timezone.now() + timedelta(minutes=1)
    )
    assert is_kept(app)
    grant.expires = timezone.now() - timedelta(minutes=1)
    grant.save()
    assert not is_kept(app)


def test_a_client_that_has_been_silent_for_months_is_deleted(user):
    app = aged(make_app(), MONTHS)
    make_token(user, app, seconds=-60)
    assert is_kept(app)
    then = timezone.now() - MONTHS
    get_access_token_model().objects.update(created=then, updated=then)
    get_refresh_token_model().objects.update(created=then, updated=then)
    profile = ClientProfile.objects.create(client_id=app.client_id, last_used_at=timezone.now())
    assert is_kept(app)
    profile.last_used_at = then
    profile.save()
    assert not is_kept(app)
    assert not get_access_token_model().objects.exists()


def test_a_client_that_was_used_once_is_kept_for_months():
    app = aged(make_app(), timedelta(days=30))
    ClientProfile.objects.create(
        client_id=app.client_id, last_used_at=timezone.now() - timedelta(days=29)
    )
    assert is_kept(app)


def test_unused_clients_are_swept_up_with_everything_else():
    app = aged(make_app(), timedelta(days=2))
    counts = {}
    delete_expired(counts.__setitem__)
    assert counts["clients"] == 1
    assert not get_application_model().objects.filter(pk=app.pk).exists()
