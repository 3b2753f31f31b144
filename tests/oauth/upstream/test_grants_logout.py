"""The provider reports that a session ended (OpenID Connect Back-Channel Logout 1.0)."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.cache import cache
from django.test import Client

from mcp_django.auth import outbound
from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream import grants
from mcp_django.oauth.upstream.provider import LOGOUT_EVENT, Tokens
from mcp_django.protocol.headers import FORM
from tests.oauth.parties import make_user
from tests.oauth.upstream.parties import ISSUER, FakeProvider, configured, make_grant
from tests.transports import chunks

pytestmark = pytest.mark.django_db
URL = "/oauth/upstream/acme/backchannel-logout"


def send(token: str) -> Any:
    return Client(enforce_csrf_checks=True).post(URL, {"logout_token": token})


def logout(acme: FakeProvider, **claims: Any) -> str:
    return acme.signed({"events": {LOGOUT_EVENT: {}}, "jti": "1", **claims})


def statuses() -> dict[str, str]:
    return dict(UpstreamGrant.objects.values_list("session_id", "status"))


@pytest.mark.spec("AUT-31")
def test_threat_26_session_that_ends_upstream_ends_here(acme):
    make_grant(make_user(), session_id="session-1")
    make_grant(make_user("eve"), session_id="session-2", subject="eve.at.acme")
    answer = send(logout(acme))
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    assert statuses() == {"session-1": "revoked", "session-2": "live"}


def test_a_provider_that_sends_its_form_in_chunks_is_heard(acme):
    make_grant(make_user(), session_id="session-1")
    form = urlencode({"logout_token": logout(acme)}).encode()
    refused = chunks.send(URL, chunks.silent(form), content_type=FORM)
    assert (refused.status_code, refused.json()["error"]) == (411, "invalid_request")
    assert chunks.send(URL, chunks.terminated(form), content_type=FORM).status_code == 200
    assert statuses() == {"session-1": "revoked"}


@pytest.mark.parametrize("claims", [{"sid": None}, {"sub": None}])
def test_logout_names_a_subject_or_a_session(acme, claims):
    make_grant(make_user(), session_id="session-1")
    make_grant(make_user("eve"), session_id="session-2", subject="eve.at.acme")
    assert send(logout(acme, **claims)).status_code == 200
    assert statuses() == {"session-1": "revoked", "session-2": "live"}


@pytest.mark.parametrize("sid", ["s" * 300, "session-1\0", "\ud800", 7, ["session-1"], ""])
def test_a_session_whose_id_cannot_be_stored_ends_with_its_subject(acme, sid):
    user = make_user()
    claims = {"sub": "ada.at.acme", "sid": sid}
    grants.save_grant(user, "acme", Tokens(access_token="a", refresh_token="r"), claims)
    assert statuses() == {"": "live"}
    assert send(logout(acme, **claims)).status_code == 200
    assert statuses() == {"": "revoked"}


@pytest.mark.parametrize(
    "claims",
    [
        {"events": {}},
        {"events": None},
        {"nonce": "an ID token has one"},
        {"sub": None, "sid": None},
        {"sub": "", "sid": ""},
        {"sub": None, "sid": "session-1\0"},
        {"sub": "ada.at.acme\0", "sid": None},
        {"sub": None, "sid": ["session-1"]},
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"iat": int(time.time()) - 601},
        {"jti": None},
    ],
)
def test_what_is_no_logout_token_of_the_provider_ends_nothing(acme, claims):
    make_grant(make_user())
    answer = send(logout(acme, **claims))
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert statuses() == {"session-1": "live"}


def test_token_of_a_stranger_ends_nothing_and_fetches_keys_once(acme):
    make_grant(make_user())
    stranger = FakeProvider()
    for kid in ("one", "two", "three", "four"):
        token = stranger.signed({"events": {LOGOUT_EVENT: {}}, "jti": kid}, kid=kid)
        assert send(token).status_code == 400
    for nonsense in ("", "x", "x.y.z", "a" * 20_000):
        assert send(nonsense).status_code == 400
    assert statuses() == {"session-1": "live"}
    # One request for the first token, and one more for the first unknown key.
    assert acme.count("/jwks") == 2


def test_logout_token_works_once(acme):
    make_grant(make_user())
    token = logout(acme)
    assert send(token).status_code == 200
    UpstreamGrant.objects.update(status="live")
    assert send(token).status_code == 400
    assert statuses() == {"session-1": "live"}


def test_provider_without_openid_has_no_such_endpoint(acme, site):
    site.MCP_DJANGO = {"OAUTH": configured(SCOPES=["files"])}
    assert send(logout(acme)).status_code == 404


@pytest.mark.spec("AUT-31")
def test_threat_26_logout_that_fails_may_be_told_again(acme, monkeypatch):
    make_grant(make_user())
    token = logout(acme)
    client = Client(raise_request_exception=False)
    with monkeypatch.context() as patch:
        patch.setattr(grants, "get_access_token_model", None)
        assert client.post(URL, {"logout_token": token}).status_code == 500
    assert statuses() == {"session-1": "live"}
    assert send(token).status_code == 200
    assert statuses() == {"session-1": "revoked"}


def test_threat_26_keys_that_others_put_into_the_cache_are_nobodys(acme):
    """Other programs may be able to write to the cache."""
    make_grant(make_user())
    stranger = FakeProvider()
    stolen = {"keys": [stranger.public_key()]}
    for what in ("keys", "metadata"):
        cache.set(f"mcp_django:upstream:{what}:{ISSUER}", stolen)
        cache.set(outbound.cache_key(f"upstream-{what}", ISSUER), stolen)
    token = stranger.signed({"events": {LOGOUT_EVENT: {}}, "jti": "1"})
    assert send(token).status_code == 400
    assert statuses() == {"session-1": "live"}
    assert send(logout(acme)).status_code == 200


def test_threat_26_cache_that_is_down_keeps_no_logout_out(acme, monkeypatch):
    make_grant(make_user())
    for name in ("get", "set", "add"):
        monkeypatch.setattr(cache, name, down)
    assert send(logout(acme)).status_code == 200
    assert statuses() == {"session-1": "revoked"}


def down(*args: Any, **kwargs: Any) -> Any:
    raise ConnectionError("The cache is down.")
