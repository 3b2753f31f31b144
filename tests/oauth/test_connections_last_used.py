"""The page of connected assistants shows when each was last used, at little cost to a call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django.oauth.connections import connections_of
from mcp_django.oauth.models import Consent
from tests.oauth import parties
from tests.oauth.exchanges import call

pytestmark = pytest.mark.django_db


@pytest.fixture
def token(user, app):
    """A token that was issued half an hour ago and has not been used since."""
    plaintext = parties.make_token(user, app, refresh=False)
    Consent.objects.create(
        user=user, client_id=app.client_id, resource=parties.RESOURCE, scopes=["mcp"]
    )
    aged(minutes=30)
    return plaintext


def aged(minutes: float) -> Any:
    """Set the last use of the token to this many minutes ago, and return that time."""
    then = timezone.now() - timedelta(minutes=minutes)
    get_access_token_model().objects.update(created=then, updated=then)
    return then


def last_used(user: Any, rf: Any) -> Any:
    request = rf.get("/")
    request.user = user
    [connection] = connections_of(request)
    return connection["last_used"]


def test_last_used_is_the_last_call(user, token, rf):
    before = timezone.now()
    assert last_used(user, rf) < before
    assert call(token).status_code == 200
    assert last_used(user, rf) >= before


def test_a_call_that_is_refused_is_no_use(user, token, rf):
    then = aged(minutes=30)
    assert call(token, path="/billing/mcp", tool="invoices").status_code == 401
    assert last_used(user, rf) == then


@pytest.mark.spec("AUT-3")
def test_threat_29_a_call_is_noted_once_a_minute_at_most(token):
    writes = []
    for minutes in (30, 0, 0.9, 1.1):
        aged(minutes=minutes)
        with CaptureQueriesContext(connection) as queries:
            call(token)
        writes.append(sum(query["sql"].startswith("UPDATE") for query in queries))
    assert writes == [1, 0, 0, 1]


def test_the_page_shows_no_other_accounts_where_there_are_none(client, user):
    client.force_login(user)
    assert b"Accounts at other providers" not in client.get("/oauth/connections/").content
