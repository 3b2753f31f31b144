"""Authorization codes: used once, in time, by their client, and for what the user agreed to."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model
from oauthlib.common import Request

from mcp_django.models import AuthEvent
from mcp_django.oauth.validator import Validator
from tests.oauth.exchanges import call, digest, error_of, make_code, redeem, sign_in
from tests.oauth.parties import OTHER_RESOURCE, REDIRECT, RESOURCE, make_app, pkce
from tests.oauth.signing import key

spec = pytest.mark.spec
CONFIDENTIAL = {"client_type": "confidential", "client_secret": "s" * 40}


@spec("AUT-21", "AUT-24")
def test_a_code_becomes_a_pair_for_the_resource_that_was_agreed_to(user, app):
    answer = sign_in(user, app)
    assert answer["token_type"] == "Bearer"
    assert answer["scope"] == "mcp"
    token = get_access_token_model().objects.get(token_checksum=digest(answer["access_token"]))
    assert (token.user, token.resource, token.token) == (user, [RESOURCE], "")
    assert call(answer["access_token"]).status_code == 200


def test_codes_are_stored_as_digests(user, app):
    request = Request("/", "GET", headers={})
    request.client, request.user, request.scopes = app, user, ["mcp"]
    request.redirect_uri, request.resource = REDIRECT, [RESOURCE]
    request.code_challenge, request.code_challenge_method = "c" * 43, "S256"
    request.nonce, request.claims = None, None
    Validator().save_authorization_code(app.client_id, {"code": "plain-code"}, request)
    assert get_grant_model().objects.get().code == digest("plain-code")


@spec("AUT-21")
def test_threat_15_a_code_that_is_used_again_ends_what_came_of_it(user, app):
    code, verifier = make_code(user, app)
    first = redeem(app, code, verifier).json()
    assert error_of(redeem(app, code, verifier)) == (400, "invalid_grant")
    assert call(first["access_token"]).status_code == 401
    assert not get_refresh_token_model().objects.filter(revoked=None).exists()
    assert AuthEvent.objects.filter(kind="replay", client_id=app.client_id).count() == 1


@pytest.mark.parametrize("change", ["client", "redirect", "late"])
def test_threat_15_a_code_is_its_clients_at_its_address_for_a_minute(user, app, change):
    code, verifier = make_code(user, app, seconds=-1 if change == "late" else 60)
    other = make_app(name="Other")
    who = other if change == "client" else app
    where = {"redirect_uri": "https://client.example/other"} if change == "redirect" else {}
    status, error = error_of(redeem(who, code, verifier, **where))
    assert (status, error in {"invalid_grant", "invalid_request"}) == (400, True)
    assert not get_access_token_model().objects.exists()


@spec("AUT-21")
@pytest.mark.parametrize("verifier", [None, "", "short", "x" * 43])
@pytest.mark.parametrize("kind", ["public", "confidential"])
def test_threat_14_a_code_needs_its_verifier(user, app, verifier, kind):
    more: dict[str, Any] = {}
    if kind == "confidential":
        app = make_app(**CONFIDENTIAL)
        more = {"client_secret": CONFIDENTIAL["client_secret"]}
    code, right = make_code(user, app)
    assert redeem(app, code, verifier, **more).status_code == 400
    assert not get_access_token_model().objects.exists()
    # A wrong verifier does not use up the code: a client with the right one still gets a token.
    assert redeem(app, code, right, **more).status_code == 200


def test_threat_14_a_code_without_a_challenge_is_worth_nothing(user, app):
    code, _ = make_code(user, app)
    get_grant_model().objects.update(code_challenge="", code_challenge_method="")
    assert error_of(redeem(app, code, pkce()[0]))[0] == 400
    assert error_of(redeem(app, code, "", code_verifier=None))[0] == 400


def test_threat_17_a_deactivated_user_gets_nothing_for_a_code(user, app):
    code, verifier = make_code(user, app)
    user.is_active = False
    user.save()
    assert error_of(redeem(app, code, verifier)) == (400, "invalid_grant")


def nobody(user: Any, server: Any, client_id: str) -> bool:
    return False


def test_who_may_not_connect_gets_nothing_for_a_code(user, app, settings):
    code, verifier = make_code(user, app)
    rule = {"CAN_CONNECT": "tests.oauth.test_token_codes.nobody"}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": rule}
    assert error_of(redeem(app, code, verifier)) == (400, "invalid_grant")


@spec("AUT-24")
@pytest.mark.parametrize(
    "resource",
    ["https://elsewhere.example/mcp", "http://testserver/nothing", "<script>", "http://testserver"],
)
def test_threat_04_an_unknown_resource_is_refused_and_nothing_stored(user, app, resource):
    code, verifier = make_code(user, app)
    response = redeem(app, code, verifier, resource=resource)
    assert error_of(response) == (400, "invalid_target")
    assert resource.encode() not in response.content
    assert not get_access_token_model().objects.exists()


@spec("AUT-24")
def test_threat_04_a_token_is_narrowed_and_never_widened(user, app):
    both = (RESOURCE, OTHER_RESOURCE)
    code, verifier = make_code(user, app, resource=both)
    answer = redeem(app, code, verifier, resource="HTTP://TestServer:80/mcp/").json()
    assert call(answer["access_token"]).status_code == 200
    assert call(answer["access_token"], path="/billing/mcp").status_code == 401
    # The grant is unchanged (RFC 8707, section 2.2).
    assert get_refresh_token_model().objects.get().resource == list(both)
    code, verifier = make_code(user, app)
    wider = redeem(app, code, verifier, resource=OTHER_RESOURCE)
    assert error_of(wider) == (400, "invalid_target")


def test_no_token_of_a_client_that_registered_itself_is_without_an_audience(user, app):
    code, verifier = make_code(user, app, resource=())
    assert error_of(redeem(app, code, verifier)) == (400, "invalid_target")
    assert not get_access_token_model().objects.exists()


def test_what_was_bound_to_nothing_is_bound_to_no_server_later(user):
    app = make_app(registration_source="manual")
    code, verifier = make_code(user, app, resource=())
    assert error_of(redeem(app, code, verifier, resource=RESOURCE)) == (400, "invalid_target")
    # A client of the site's other APIs still works as before.
    code, verifier = make_code(user, app, resource=())
    answer = redeem(app, code, verifier)
    assert answer.status_code == 200
    assert call(answer.json()["access_token"]).status_code == 401


@spec("AUT-22")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_loopback_client_redeems_at_the_port_that_it_got(user, host):
    app = make_app(redirect_uris=f"http://{host}/callback")
    at = f"http://{host}:54321/callback"
    code, verifier = make_code(user, app, redirect_uri=at)
    assert redeem(app, code, verifier, redirect_uri=at).status_code == 200


@pytest.fixture
def openid(settings):
    """A manually registered client, at a site that is also an OpenID provider."""
    pem = key("site", "RSA").private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    settings.OAUTH2_PROVIDER = {
        **settings.OAUTH2_PROVIDER,
        "OIDC_ISS_ENDPOINT": "https://site.example/o",
        "OIDC_ENABLED": True,
        "OIDC_RSA_PRIVATE_KEY": pem.decode(),
        "SCOPES": {"openid": "Sign in", "mcp": "Use the tools of this site"},
    }
    return make_app(registration_source="manual", algorithm="RS256")


def test_threat_30_an_openid_client_of_the_site_still_gets_its_id_token(user, openid):
    code, verifier = make_code(user, openid, scope="openid", resource=())
    answer = redeem(openid, code, verifier).json()
    assert answer["id_token"].count(".") == 2


@spec("AUT-9")
def test_threat_05_an_id_token_is_no_bearer(user, openid):
    # It proves who signed in, but is not accepted as a bearer, unlike the access token.
    code, verifier = make_code(user, openid, scope="openid mcp")
    answer = redeem(openid, code, verifier).json()
    assert call(answer["access_token"]).status_code == 200
    assert call(answer["id_token"]).status_code == 401
