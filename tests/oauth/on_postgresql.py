"""Two simultaneous requests, each past the checks of a single one, on a database with locks.

`test_races.py` runs this file on PostgreSQL. Both threads wait for each other right before the row
that decides between them, so they always reach it at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.models import AuthEvent, ExternalIdentity
from mcp_django.oauth import assertion_jwts
from mcp_django.oauth.models import RedeemedCode, RefreshReplay, UsedAssertion
from mcp_django.oauth.validator import Validator
from tests.oauth.exchanges import call, error_of, make_code, post, redeem, refresh, sign_in
from tests.oauth.parties import OTHER_RESOURCE, RESOURCE, make_app, make_user
from tests.oauth.test_assertions_identity import SECRET, bring, trust, word
from tests.transports.http_session.conftest import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user(transactional_db):
    return make_user()


@pytest.fixture
def app(transactional_db):
    return make_app()


def together(monkeypatch: Any, owner: Any, name: str, count: int = 2) -> None:
    """Make `count` threads wait for each other before they enter a function."""
    barrier, original = threading.Barrier(count), getattr(owner, name)

    def gated(*args: Any, **kwargs: Any) -> Any:
        barrier.wait(10)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, gated)


def statuses(count: int, ask: Callable[[int], Any]) -> list[Any]:
    return sorted(at_once(count, ask), key=lambda response: response.status_code)


def test_threat_15_of_two_redemptions_at_once_one_wins(user, app, monkeypatch):
    code, verifier = make_code(user, app)
    together(monkeypatch, Validator, "_claim")
    won, lost = statuses(2, lambda _: redeem(app, code, verifier))
    assert won.status_code == 200
    assert error_of(lost) == (400, "invalid_grant")
    assert get_access_token_model().objects.count() == 1
    assert get_refresh_token_model().objects.count() == 1
    assert RedeemedCode.objects.count() == 1
    assert call(won.json()["access_token"]).status_code == 200


@pytest.mark.parametrize("count", [2, 4])
def test_threat_16_refreshes_at_once_get_the_same_pair(user, app, monkeypatch, count):
    old = sign_in(user, app)["refresh_token"]
    together(monkeypatch, RefreshReplay, "mark_used", count)
    answers = [response.json() for response in at_once(count, lambda _: refresh(app, old))]
    assert {"error"} & {*answers[0]} == set()
    assert len({(answer["access_token"], answer["refresh_token"]) for answer in answers}) == 1
    assert get_access_token_model().objects.count() == 1
    assert get_refresh_token_model().objects.filter(revoked=None).count() == 1
    assert not AuthEvent.objects.filter(kind="reuse").exists()
    assert call(answers[0]["access_token"]).status_code == 200


def test_a_refused_refresh_hands_over_to_the_one_that_waits(user, app, monkeypatch):
    old = sign_in(user, app)["refresh_token"]
    together(monkeypatch, RefreshReplay, "mark_used")
    scopes = ["mcp", "orders:refund"]
    won, lost = statuses(2, lambda number: refresh(app, old, scope=scopes[number]))
    assert won.status_code == 200
    assert error_of(lost)[0] == 400
    assert call(won.json()["access_token"]).status_code == 200
    assert RefreshReplay.objects.count() == 1


def test_two_wishes_at_once_are_not_one_answer(user, app, monkeypatch):
    old = sign_in(user, app, resource=(RESOURCE, OTHER_RESOURCE))["refresh_token"]
    together(monkeypatch, RefreshReplay, "mark_used")
    wishes = [RESOURCE, OTHER_RESOURCE]
    won, lost = statuses(2, lambda number: refresh(app, old, resource=wishes[number]))
    assert won.status_code == 200
    assert error_of(lost) == (400, "invalid_grant")
    assert get_refresh_token_model().objects.filter(revoked=None).count() == 1


def test_threat_25_of_one_assertion_twice_at_once_one_is_taken(user, site, monkeypatch):
    trust(site)
    client = make_app(
        client_type="confidential", client_secret=SECRET, registration_source="manual"
    )
    ExternalIdentity.objects.create(
        issuer="https://login.company.example", subject="u-1", user=user
    )
    together(monkeypatch, assertion_jwts, "mark_used")
    assertion = word(client)
    won, lost = statuses(2, lambda _: bring(client, assertion))
    assert won.status_code == 200
    assert error_of(lost) == (400, "invalid_grant")
    assert UsedAssertion.objects.count() == 1
    assert get_access_token_model().objects.count() == 1


def test_odd_characters_are_refused_and_not_stored(app):
    for value in ("a\x00b", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "\u2028"):
        form = {"grant_type": "refresh_token", "refresh_token": value, "client_id": value}
        assert post(form).status_code in (400, 401)
