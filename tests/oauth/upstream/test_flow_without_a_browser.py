"""Token requests without a browser, so that the user cannot sign in at a required provider."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django.models import ExternalIdentity
from mcp_django.oauth.models import (
    ClientProfile,
    Consent,
    UpstreamBinding,
    UpstreamTransaction,
    UsedAssertion,
)
from tests.oauth.exchanges import call, error_of, post
from tests.oauth.parties import OTHER_RESOURCE, make_app
from tests.oauth.signing import jwks
from tests.oauth.test_assertions_identity import COMPANY, bring, word
from tests.oauth.test_clients_machines import SECRET, ask, make_machine
from tests.oauth.upstream.parties import configured, make_grant
from tests.oauth.upstream.test_flow import Browser, redirect_parameters

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _on(acme, site):
    trusted = {"ISSUER": COMPANY, "JWKS": jwks("company")}
    oauth = {**configured(), "CLIENT_CREDENTIALS": True, "TRUSTED_ISSUERS": [trusted]}
    site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": oauth}


def token_answer(kind: str, user: Any, **more: Any) -> Any:
    """Return the token endpoint's answer to a service account or to a company's assertion."""
    if kind == "machine":
        app = make_machine()
        ClientProfile.objects.create(client_id=app.client_id, service_user=user)
        return ask(app, **more)
    app = make_app(client_type="confidential", client_secret=SECRET, registration_source="manual")
    ExternalIdentity.objects.get_or_create(issuer=COMPANY, subject="u-1", user=user)
    return bring(app, word(app, **more))


@pytest.mark.spec("AUT-31")
@pytest.mark.parametrize("kind", ["machine", "assertion"])
def test_threat_26_without_access_upstream_there_is_no_token(kind, user):
    answer = token_answer(kind, user)
    assert error_of(answer) == (400, "invalid_target")
    assert "'acme'" in answer.json()["error_description"]
    assert not get_access_token_model().objects.exists()
    # The assertion can be used again once the user has connected the account.
    assert not UsedAssertion.objects.exists()
    assert token_answer(kind, user, resource=OTHER_RESOURCE).status_code == 200


@pytest.mark.spec("AUT-31")
@pytest.mark.parametrize("kind", ["machine", "assertion"])
def test_threat_26_with_access_the_token_stands_on_it(kind, user):
    grant = make_grant(user)
    token = token_answer(kind, user).json()["access_token"]
    assert UpstreamBinding.objects.get().grant == grant
    assert call(token).status_code == 200
    UpstreamBinding.objects.all().delete()
    assert call(token).status_code == 401


@pytest.mark.parametrize("kind", ["machine", "assertion", "code"])
def test_the_lifetime_that_is_told_is_the_one_the_token_has(kind, user):
    soon = timezone.now() + timedelta(seconds=100)
    make_grant(user, refresh_cipher=None, expires_at=soon)
    if kind == "code":
        browser = Browser(user, make_app())
        form = {
            "grant_type": "authorization_code",
            "code": redirect_parameters(browser.answer(browser.open()))["code"],
            "redirect_uri": browser.app.redirect_uris,
            "client_id": browser.app.client_id,
            "code_verifier": browser.verifier,
        }
        answer = post(form).json()
    else:
        answer = token_answer(kind, user).json()
    assert 0 < answer["expires_in"] <= 100
    assert get_access_token_model().objects.get().expires <= soon


@pytest.mark.spec("AUT-30")
@pytest.mark.parametrize("is_consented", [True, False])
def test_prompt_none_never_leads_to_the_provider(user, site, is_consented):
    site.MCP_DJANGO["OAUTH"]["REMEMBER_CONSENT"] = 3600
    app = make_app(registration_source="manual", skip_authorization=is_consented)
    browser = Browser(user, app)
    assert redirect_parameters(browser.open(prompt="none"))["error"] == "interaction_required"
    assert not UpstreamTransaction.objects.exists()
    assert not Consent.objects.exists()
    make_grant(user)
    answer = redirect_parameters(browser.open(prompt="none"))
    assert ("code" in answer) == is_consented
    assert answer.get("error") == (None if is_consented else "consent_required")
