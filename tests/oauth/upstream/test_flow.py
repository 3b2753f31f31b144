"""From the consent to the provider and back (AUT-30, AUT-32)."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from django.views.debug import ExceptionReporter
from oauth2_provider.models import get_access_token_model, get_grant_model

from mcp_django.models import AuthEvent
from mcp_django.oauth.models import Consent, UpstreamBinding, UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream import flow
from mcp_django.oauth.upstream.grants import decrypt
from mcp_django.oauth.upstream.provider import LOGOUT_EVENT
from tests.oauth.parties import REDIRECT, RESOURCE, make_app, make_user, pkce
from tests.oauth.upstream.parties import ISSUER, asked_by, dumped, make_grant

pytestmark = pytest.mark.django_db
CALLBACK = "/oauth/upstream/acme/callback"
OURS = "http://testserver"


class Browser:
    """A user's browser, on the way from an MCP client to the provider and back."""

    def __init__(self, user: Any, app: Any) -> None:
        self.client = Client(enforce_csrf_checks=False)
        self.client.force_login(user)
        self.app = app
        self.verifier, self.challenge = pkce()

    def open(self, **changes: Any) -> Any:
        query = {
            "response_type": "code",
            "client_id": self.app.client_id,
            "redirect_uri": REDIRECT,
            "scope": "mcp",
            "state": "the-client's",
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": RESOURCE,
            **changes,
        }
        return self.client.get("/oauth/authorize", query)

    def answer(self, page: Any, decision: str = "allow") -> Any:
        signed = re.search(r'name="request" value="([^"]+)"', page.content.decode())
        assert signed is not None
        form = {"request": unescape(signed[1]), "decision": decision, "scope": ["mcp"]}
        return self.client.post("/oauth/authorize", form)

    def sent_on(self) -> dict[str, str]:
        """Approve the request, and return the parameters of the redirect to the provider."""
        answer = self.answer(self.open())
        assert answer.status_code == 302
        return asked_by(answer["Location"])

    def come_back(self, **query: str) -> Any:
        return self.client.get(f"{CALLBACK}?{urlencode(query)}")


@pytest.fixture
def browser(acme, user, app):
    return Browser(user, app)


def redirect_parameters(answer: Any) -> dict[str, str]:
    """Return the parameters of the redirect to the MCP client."""
    assert answer.status_code == 302
    assert answer["Location"].startswith(f"{REDIRECT}?")
    query = parse_qs(urlsplit(answer["Location"]).query)
    return {name: values[0] for name, values in query.items()}


@pytest.mark.spec("AUT-30", "AUT-31")
def test_user_signs_in_upstream_and_the_client_gets_a_token_of_ours(acme, browser):
    params = browser.sent_on()
    assert params["client_id"] == "our-site"
    assert params["redirect_uri"] == f"{OURS}{CALLBACK}"
    assert params["scope"] == "openid files"
    assert params["code_challenge_method"] == "S256"
    acme.nonce = params["nonce"]
    code = redirect_parameters(browser.come_back(code="upstream-code", state=params["state"]))
    assert code["state"] == "the-client's"
    assert code["iss"] == OURS
    grant = UpstreamGrant.objects.get()
    assert (grant.subject, grant.session_id) == ("ada.at.acme", "session-1")
    sent = acme.forms[0]
    assert (sent["code"], sent["redirect_uri"]) == ("upstream-code", f"{OURS}{CALLBACK}")
    assert not UpstreamTransaction.objects.exists()
    answer = Client().post(
        "/oauth/token",
        {
            "grant_type": "authorization_code",
            "code": code["code"],
            "redirect_uri": REDIRECT,
            "client_id": browser.app.client_id,
            "code_verifier": browser.verifier,
            "resource": RESOURCE,
        },
    )
    assert answer.status_code == 200
    ours = answer.json()
    assert ours["access_token"] != decrypt(grant.access_cipher)
    binding = UpstreamBinding.objects.get()
    assert binding.grant == grant
    assert binding.checksum == get_access_token_model().objects.get().token_checksum


@pytest.mark.spec("AUT-31", "AUT-32")
def test_threat_26_nothing_is_stored_before_the_user_has_consented(acme, browser):
    page = browser.open()
    assert page.status_code == 200
    assert not UpstreamTransaction.objects.exists()
    assert "mcp_django_upstream" not in browser.client.session
    denied = redirect_parameters(browser.answer(page, "deny"))
    assert denied["error"] == "access_denied"
    assert not UpstreamTransaction.objects.exists()
    assert acme.asked == []
    browser.sent_on()
    assert Consent.objects.exists()
    assert UpstreamTransaction.objects.count() == 1


@pytest.mark.spec("AUT-32")
def test_threat_11_second_client_asks_for_consent_of_its_own(acme, user, browser):
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    redirect_parameters(browser.come_back(code="c", state=params["state"]))
    other = Browser(user, make_app(name="Other"))
    page = other.open()
    assert page.status_code == 200
    assert "Other" in page.content.decode()
    # The grant already exists, so the code is issued without another sign-in.
    assert "code" in redirect_parameters(other.answer(page))


@pytest.mark.spec("AUT-31")
def test_threat_26_callback_with_another_state_is_refused(acme, browser):
    browser.sent_on()
    answer = browser.come_back(code="c", state="made-up")
    assert answer.status_code == 400
    assert "Location" not in answer
    assert browser.come_back(code="c").status_code == 400
    assert acme.count("/token") == 0


@pytest.mark.spec("AUT-31")
def test_threat_26_callback_of_another_user_is_refused(acme, browser):
    params = browser.sent_on()
    stranger = Client()
    stranger.force_login(make_user("mallory"))
    query = urlencode({"code": "c", "state": params["state"]})
    assert stranger.get(f"{CALLBACK}?{query}").status_code == 400
    # The state is in the session, which another account then took over.
    session = browser.client.session
    kept = session["mcp_django_upstream"]
    browser.client.force_login(make_user("eve"))
    session = browser.client.session
    session["mcp_django_upstream"] = kept
    session.save()
    assert browser.come_back(code="c", state=params["state"]).status_code == 400
    assert Client().get(f"{CALLBACK}?{query}").status_code == 400
    assert acme.count("/token") == 0


@pytest.mark.spec("AUT-31")
def test_threat_26_callback_after_ten_minutes_is_refused(acme, browser):
    params = browser.sent_on()
    UpstreamTransaction.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert browser.come_back(code="c", state=params["state"]).status_code == 400
    assert acme.count("/token") == 0


def test_threat_26_callback_works_once(acme, browser):
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    redirect_parameters(browser.come_back(code="c", state=params["state"]))
    assert browser.come_back(code="c", state=params["state"]).status_code == 400
    assert acme.count("/token") == 1


def test_threat_26_answer_of_another_provider_is_refused(acme, browser):
    params = browser.sent_on()
    answer = browser.come_back(code="c", state=params["state"], iss="https://evil.example")
    assert answer.status_code == 400
    cache.clear()
    acme.metadata = {"authorization_response_iss_parameter_supported": True}
    params = browser.sent_on()
    assert browser.come_back(code="c", state=params["state"]).status_code == 400
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    assert "code" in redirect_parameters(
        browser.come_back(code="c", state=params["state"], iss=ISSUER)
    )
    assert acme.count("/token") == 1


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "another"}, "made for another sign-in"),
        ({"aud": "another"}, "made for another client"),
        ({"aud": ["our-site", "another"]}, "no authorized party"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"exp": 1}, "expired"),
        ({"sub": None}, "nobody"),
        ({"sub": ""}, "nobody"),
        ({"sub": "x" * 256}, "a subject that is too long"),
        ({"sub": "ada\0"}, "a subject that no database stores"),
        ({"events": {LOGOUT_EVENT: {}}}, "a logout token"),
        ({"events": {}}, "a security event"),
    ],
)
def test_id_token_that_does_not_hold_gives_no_access(acme, browser, claims, why):
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    acme.claims = claims
    refused = redirect_parameters(browser.come_back(code="c", state=params["state"]))
    assert refused["error"] == "access_denied", why
    assert not UpstreamGrant.objects.exists()
    assert not get_grant_model().objects.exists()


def test_missing_id_token_gives_no_access(acme, browser):
    params = browser.sent_on()
    acme.answer = {"id_token": None}
    assert (
        redirect_parameters(browser.come_back(code="c", state=params["state"]))["error"]
        == "access_denied"
    )


@pytest.mark.spec("AUT-31")
def test_denial_upstream_reaches_the_client(acme, browser):
    params = browser.sent_on()
    answer = browser.come_back(
        error="access_denied", error_description="<b>evil</b>", state=params["state"]
    )
    refused = redirect_parameters(answer)
    assert refused["error"] == "access_denied"
    assert refused["state"] == "the-client's"
    assert refused["iss"] == OURS
    assert "evil" not in answer["Location"]


@pytest.mark.spec("AUT-31")
def test_provider_that_fails_is_told_to_the_client(acme, browser):
    params = browser.sent_on()
    acme.refusal = (502, {})
    refused = redirect_parameters(browser.come_back(code="c", state=params["state"]))
    assert refused["error"] == "temporarily_unavailable"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("expires_in", "temporarily_unavailable"),
        ("refresh_expires_in", None),
        ("refresh_token_expires_in", None),
    ],
)
def test_a_lifetime_that_is_not_finite_is_not_an_error_of_the_server(acme, browser, name, error):
    params = browser.sent_on()
    acme.nonce, acme.answer = params["nonce"], {name: float("inf")}
    parameters = redirect_parameters(browser.come_back(code="c", state=params["state"]))
    assert parameters.get("error") == error
    assert ("code" in parameters) is (error is None)


def test_provider_without_metadata_is_told_to_the_client(acme, browser):
    acme.metadata = {"issuer": "https://evil.example"}
    refused = redirect_parameters(browser.answer(browser.open()))
    assert refused["error"] == "temporarily_unavailable"
    assert not UpstreamTransaction.objects.exists()


def test_client_that_is_gone_when_the_user_comes_back_gets_nothing(acme, browser):
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    browser.app.redirect_uris = "https://elsewhere.example/callback"
    browser.app.save()
    answer = browser.come_back(code="c", state=params["state"])
    assert answer.status_code == 400
    assert not get_grant_model().objects.exists()


@pytest.mark.spec("AUT-31")
def test_state_verifier_and_nonce_are_stored_as_digests_or_encrypted(acme, browser):
    params = browser.sent_on()
    dump = dumped()
    assert browser.app.client_id in dump
    assert params["state"] not in dump
    assert params["nonce"] not in dump
    verifier = decrypt(UpstreamTransaction.objects.get().verifier_cipher)
    assert verifier not in dump
    acme.nonce = params["nonce"]
    browser.come_back(code="c", state=params["state"])
    assert acme.forms[0]["code_verifier"] == verifier


def test_another_account_upstream_ends_what_stood_on_the_first(acme, browser, user):
    grant = make_grant(user, subject="ada.elsewhere", status=UpstreamGrant.Status.REVOKED)
    UpstreamBinding.objects.create(grant=grant, checksum="c" * 64)
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    redirect_parameters(browser.come_back(code="c", state=params["state"]))
    assert UpstreamGrant.objects.get().subject == "ada.at.acme"
    assert not UpstreamBinding.objects.exists()


def test_security_log_tells_what_was_granted_and_no_secret(acme, browser):
    params = browser.sent_on()
    acme.nonce = params["nonce"]
    browser.come_back(code="upstream-code", state=params["state"])
    event = AuthEvent.objects.get(kind=AuthEvent.Kind.UPSTREAM)
    assert event.client_id == browser.app.client_id
    assert event.details == {
        "provider": "acme",
        "change": "granted",
        "scopes": ["openid", "files"],
    }
    logged = str(list(AuthEvent.objects.values()))
    access = decrypt(UpstreamGrant.objects.get().access_cipher)
    secrets = (params["state"], "upstream-code", access, acme.refresh_token)
    assert not [secret for secret in secrets if secret in logged]


def test_pages_of_an_unknown_provider_do_not_exist(acme, user):
    client = Client()
    client.force_login(user)
    for page in ("callback", "connect"):
        assert client.get(f"/oauth/upstream/evil/{page}").status_code == 404


def test_answers_of_the_callback_cannot_be_framed_or_kept(acme, browser):
    answer = browser.come_back(state="made-up")
    assert answer["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.spec("AUT-31")
def test_threat_23_error_reports_show_no_secret(acme, browser, rf, monkeypatch):
    params = browser.sent_on()
    transaction = UpstreamTransaction.objects.get()
    verifier = decrypt(transaction.verifier_cipher)
    acme.nonce = params["nonce"]

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(UpstreamGrant.objects, "update_or_create", fail)
    request = rf.get(CALLBACK, {"state": "s", "code": "upstream-code"})
    request.user = transaction.user
    try:
        flow.complete_authorization(request, transaction)
    except RuntimeError:
        frames = ExceptionReporter(request, *sys.exc_info()).get_traceback_frames()
    shown = str([frame["vars"] for frame in frames if "mcp_django" in frame["filename"]])
    assert "tokens" in shown
    access_tokens = [acme.refresh_token, verifier, "upstream-code"]
    assert not [token for token in access_tokens if token in shown]
