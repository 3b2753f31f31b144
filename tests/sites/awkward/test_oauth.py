"""The authorization server of the awkward site: members and tokens are not in the default database.

There is a prefix, a tenant in the address, no time zones, a transaction around each request, and a
user without a name.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import Client
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.models import AuthEvent
from mcp_django.oauth.models import Consent, RedeemedCode, RefreshReplay
from mcp_django.oauth.revoking import revoke_access
from mcp_django.storage import cleanup
from tests.oauth.asking import AUTHORIZE, answer, ask, redirect_parameters
from tests.oauth.exchanges import call, error_of, post, redeem, refresh
from tests.oauth.parties import make_app, pkce
from tests.sites.awkward.models import Member
from tests.sites.awkward.router import PEOPLE

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "readings", "people"])

PATH = "/acme/api/mcp"
RESOURCE = f"{django_settings.ISSUER}{PATH}"


@pytest.fixture(autouse=True)
def _pages(settings):
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        *settings.MIDDLEWARE,
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def ada():
    return Member.objects.create(email="ada@example.com")


@pytest.fixture
def app():
    return make_app()


def approved(ada: Member, app: Any) -> dict[str, Any]:
    """Let a member approve the client on the page, and return its tokens."""
    browser = Client()
    browser.force_login(ada)
    verifier, challenge = pkce()
    page = ask(browser, app, resource=RESOURCE, code_challenge=challenge)
    assert "ada@example.com" in page.content.decode()
    given = redirect_parameters(answer(browser, page))
    assert given["iss"] == django_settings.ISSUER
    issued = redeem(app, given["code"], verifier, resource=RESOURCE)
    assert issued.status_code == 200, issued.content
    return dict(issued.json())


def counted(token: str) -> Any:
    return call(token, path=PATH, tool="count_readings")


def test_a_client_is_approved_calls_refreshes_and_is_revoked(ada, app):
    first = approved(ada, app)
    assert counted(first["access_token"]).json()["result"]["content"][0]["text"] == "0"
    kept = call(first["access_token"], path=PATH, tool="keep_reading", value=7)
    assert kept.json()["result"]["content"][0]["text"] == "kept for ada@example.com"
    second = refresh(app, first["refresh_token"]).json()
    assert counted(first["access_token"]).status_code == 401
    assert counted(second["access_token"]).status_code == 200
    # The same refresh token again within a minute gets the same answer.
    assert refresh(app, first["refresh_token"]).json()["access_token"] == second["access_token"]
    form = {"token": second["refresh_token"], "client_id": app.client_id}
    assert post(form, path="/oauth/revoke").status_code == 200
    assert counted(second["access_token"]).status_code == 401
    assert error_of(refresh(app, second["refresh_token"])) == (400, "invalid_grant")
    kinds = {*AuthEvent.objects.using(PEOPLE).values_list("kind", flat=True)}
    assert {AuthEvent.Kind.CONSENT, AuthEvent.Kind.ISSUE, AuthEvent.Kind.REVOKE} <= kinds


def test_everything_that_is_issued_is_where_the_router_wants_it(ada, app):
    first = approved(ada, app)
    refresh(app, first["refresh_token"])
    models = (get_access_token_model(), get_refresh_token_model())
    for model in (*models, Consent, RedeemedCode, RefreshReplay, AuthEvent):
        assert model._default_manager.using(PEOPLE).exists()
    RefreshReplay.objects.update(expires_at=datetime.now() - timedelta(days=1))  # noqa: DTZ005
    cleanup.delete_expired()
    assert not RefreshReplay.objects.exists()


def test_naive_times_end_a_token(ada, app):
    token = approved(ada, app)["access_token"]
    past = datetime.now() - timedelta(seconds=1)  # noqa: DTZ005 - as USE_TZ = False wants it
    assert get_access_token_model().objects.update(expires=past) == 1
    assert counted(token).status_code == 401


def test_a_deactivated_member_and_another_tenant_are_refused(ada, app):
    token = approved(ada, app)["access_token"]
    assert call(token, path="/other/api/mcp", tool="count_readings").status_code == 401
    page = ask(Client(), app, resource=RESOURCE)
    assert page.status_code == 302
    assert AUTHORIZE not in page["Location"].partition("?")[0]


def test_what_is_revoked_halfway_is_not_revoked(ada, app, monkeypatch):
    token = approved(ada, app)["access_token"]

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("mcp_django.oauth.revoking._revoke_tokens", fail)
    with pytest.raises(RuntimeError):
        revoke_access(ada, app.client_id)
    # Consent and tokens go together, in the transaction of the database that they are in.
    assert Consent.objects.filter(user=ada, client_id=app.client_id).exists()
    assert counted(token).status_code == 200
