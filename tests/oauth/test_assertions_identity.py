"""Enterprise-managed authorization: the company's identity provider decides who may use what."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth.authentication import ENTERPRISE
from mcp_django.auth.backends.jwt import clear_key_stores
from mcp_django.auth.outbound import FetchFailed
from mcp_django.conf import get_settings
from mcp_django.models import AuthEvent, ExternalIdentity
from mcp_django.oauth.models import UsedAssertion
from tests.oauth.exchanges import call, error_of, post
from tests.oauth.parties import ORIGIN, OTHER_RESOURCE, RESOURCE, make_app, make_user
from tests.oauth.signing import jwks, key, signed

spec = pytest.mark.spec
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
COMPANY = "https://login.company.example"
SECRET = "s" * 40


def trust(site: Any, **more: Any) -> None:
    issuer = {"ISSUER": COMPANY, "JWKS": jwks("company")} | more
    site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": {"TRUSTED_ISSUERS": [issuer]}}


@pytest.fixture(autouse=True)
def _on(site):
    trust(site)


@pytest.fixture
def assistant(db):
    """A client that the company knows, with a secret."""
    return make_app(client_type="confidential", client_secret=SECRET, registration_source="manual")


@pytest.fixture
def known(user):
    """A user who is linked to the company's subject."""
    ExternalIdentity.objects.create(issuer=COMPANY, subject="u-1", user=user)
    return user


def word(app: Any, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return an assertion of the company; claims that are ``None`` are removed."""
    payload = {
        "iss": COMPANY,
        "sub": "u-1",
        "aud": ORIGIN,
        "client_id": app.client_id,
        "resource": RESOURCE,
        "scope": "mcp mcp:write",
    } | claims
    options = {"by": "company", "typ": "oauth-id-jag+jwt"} | (header or {})
    return signed(payload, **options)


def bring(app: Any, assertion: str, **more: Any) -> Any:
    form = {
        "grant_type": GRANT,
        "assertion": assertion,
        "client_id": app.client_id,
        "client_secret": SECRET,
    } | more
    return post({name: value for name, value in form.items() if value is not None})


@spec("AUT-34")
def test_the_companys_word_is_a_token_for_five_minutes(assistant, known):
    response = bring(assistant, word(assistant))
    answer = response.json()
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    assert answer["token_type"] == "Bearer"
    assert (answer["expires_in"], answer["scope"]) == (300, "mcp mcp:write")
    assert "refresh_token" not in answer
    assert not get_refresh_token_model().objects.exists()
    assert call(answer["access_token"]).json()["result"]["content"][0]["text"] == "ada"
    assert call(answer["access_token"], path="/billing/mcp").status_code == 401


@spec("AUT-34")
@pytest.mark.parametrize("audience", [f"{ORIGIN}/", [ORIGIN]])
def test_the_audience_is_our_issuer_in_either_form(assistant, known, audience):
    assert bring(assistant, word(assistant, aud=audience)).status_code == 200


NOW = int(time.time())
BAD = {
    "01 typ": {"header": {"typ": "JWT"}},
    "01 no typ": {"header": {"typ": None}},
    "02 algorithm none": {"header": {"algorithm": "none", "secret": ""}},
    "03 unknown issuer": {"iss": "https://evil.example"},
    "04 unknown key": {"header": {"by": "stranger"}},
    "05 audience": {"aud": "https://elsewhere.example"},
    "05 audience: token endpoint": {"aud": f"{ORIGIN}/oauth/token"},
    "05 audience: also another": {"aud": [ORIGIN, "https://elsewhere.example"]},
    "06 another client": {"client_id": "somebody"},
    "06 no client": {"client_id": None},
    "07 expired": {"iat": NOW - 1000, "exp": NOW - 400},
    "08 good for too long": {"exp": NOW + 10**6},
    "08 no end": {"exp": None},
    "08 no beginning": {"iat": None},
    "09 no jti": {"jti": None},
    "09 empty jti": {"jti": ""},
    "09 jti that is no text": {"jti": 7},
    "10 no subject": {"sub": None},
    "10 unknown subject": {"sub": "u-2"},
    "10 empty subject": {"sub": ""},
    "10 subject that no database stores": {"sub": "u-1\0"},
    "11 not yet": {"nbf": NOW + 10**6},
    "12 no resource": {"resource": None},
    "13 scopes that are no text": {"scope": ["mcp"]},
    "13 scopes of somebody else": {"scope": "files calendar"},
    "14 bound to a key": {"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}},
    "15 of a tenant": {"tenant": "acme"},
}


@spec("AUT-34")
@pytest.mark.parametrize("bad", list(BAD))
def test_threat_25_an_assertion_that_does_not_hold_is_worth_nothing(assistant, known, bad):
    response = bring(assistant, word(assistant, **BAD[bad]))
    assert error_of(response) == (400, "invalid_grant")
    assert not get_access_token_model().objects.exists()
    assert not UsedAssertion.objects.exists()


def test_the_log_says_what_an_assertion_lacks(assistant, known, caplog):
    caplog.set_level("INFO", logger="mcp_django.security")
    bring(assistant, word(assistant, resource=None))
    assert "The claim resource is missing." in caplog.text


def test_threat_25_a_public_key_is_no_shared_secret(assistant, known):
    import base64
    import hmac
    from hashlib import sha256

    public = key("company").public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _, claims, _ = word(assistant).split(".")
    header = base64.urlsafe_b64encode(
        json.dumps({"alg": "HS256", "typ": "oauth-id-jag+jwt", "kid": "company"}).encode()
    ).rstrip(b"=")
    body = header + b"." + claims.encode()
    mac = base64.urlsafe_b64encode(hmac.new(pem, body, sha256).digest()).rstrip(b"=")
    response = bring(assistant, (body + b"." + mac).decode())
    assert error_of(response) == (400, "invalid_grant")


@pytest.mark.parametrize("resource", ["https://elsewhere.example/mcp", [1], [], 7, ORIGIN])
def test_threat_25_the_resource_is_a_server_of_this_site(assistant, known, resource):
    response = bring(assistant, word(assistant, resource=resource))
    assert error_of(response) == (400, "invalid_grant")


def test_threat_25_a_subject_of_another_tenant_is_somebody_else(assistant, known, site):
    trust(site, TENANT="acme")
    assert bring(assistant, word(assistant, tenant="acme")).status_code == 200
    for tenant in ("other", None, ["acme"]):
        refused = bring(assistant, word(assistant, tenant=tenant))
        assert error_of(refused) == (400, "invalid_grant")


def test_threat_25_the_request_narrows_and_never_widens(assistant, known):
    wider = bring(assistant, word(assistant), resource=OTHER_RESOURCE)
    assert error_of(wider) == (400, "invalid_target")
    both = [RESOURCE, OTHER_RESOURCE]
    narrow = bring(assistant, word(assistant, resource=both), resource=f"{RESOURCE}/", scope="mcp")
    assert narrow.json()["scope"] == "mcp"
    assert get_access_token_model().objects.get().resource == [RESOURCE]


def test_threat_25_scopes_are_those_of_all_three(assistant, known):
    answer = bring(assistant, word(assistant, scope="mcp undeclared"), scope="mcp mcp:write")
    assert answer.json()["scope"] == "mcp"
    none = bring(assistant, word(assistant, scope="mcp"), scope="orders:refund")
    assert error_of(none) == (400, "invalid_scope")
    # The assertion has no scope, so the client gets the server's required scopes.
    assert bring(assistant, word(assistant, scope=None)).json()["scope"] == "mcp"


def test_threat_25_the_client_proves_who_it_is(assistant, known):
    assertion = word(assistant)
    for secret in ("wrong", None):
        assert error_of(bring(assistant, assertion, client_secret=secret))[0] == 401
    public = make_app()
    response = bring(public, word(public), client_secret=None)
    assert error_of(response) == (401, "invalid_client")
    # A rejected assertion is not used up.
    assert bring(assistant, assertion).status_code == 200


@spec("AUT-34")
def test_threat_25_an_assertion_is_good_once(assistant, known):
    assertion = word(assistant)
    assert bring(assistant, assertion).status_code == 200
    assert error_of(bring(assistant, assertion)) == (400, "invalid_grant")
    assert get_access_token_model().objects.count() == 1
    event = AuthEvent.objects.get(kind="replay")
    assert (event.user, event.client_id) == (known, assistant.client_id)
    assert assertion not in str(event.as_dict())


def test_threat_25_an_inactive_user_gets_nothing(assistant, known):
    known.is_active = False
    known.save()
    assert error_of(bring(assistant, word(assistant))) == (400, "invalid_grant")


def test_who_may_not_connect_gets_no_token(assistant, known, settings):
    oauth = settings.MCP_DJANGO["OAUTH"] | {"CAN_CONNECT": "tests.oauth.test_token_codes.nobody"}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": oauth}
    assert error_of(bring(assistant, word(assistant))) == (400, "invalid_grant")


@pytest.mark.parametrize("verified", [True, None])
def test_an_address_links_where_the_company_owns_it(assistant, site, verified):
    ada = make_user("ada", email="Ada@Company.example")
    claims = {"email": "ada@company.example", "email_verified": verified}
    assert error_of(bring(assistant, word(assistant, **claims))) == (400, "invalid_grant")
    trust(site, EMAIL_AUTHORITATIVE=True)
    assert bring(assistant, word(assistant, **claims)).status_code == 200
    assert ExternalIdentity.objects.get(issuer=COMPANY, subject="u-1").user == ada
    # From then on the subject identifies the user, no matter who has the email address.
    make_user("eve", email="new@company.example")
    again = bring(assistant, word(assistant, email="new@company.example"))
    assert call(again.json()["access_token"]).json()["result"]["content"][0]["text"] == "ada"


@pytest.mark.parametrize("case", ["unverified", "shared", "inactive", "none"])
def test_an_address_that_says_nothing_links_nobody(assistant, site, case):
    trust(site, EMAIL_AUTHORITATIVE=True)
    email = "ada@company.example"
    make_user("ada", email="" if case == "none" else email, is_active=case != "inactive")
    if case == "shared":
        make_user("eve", email=email)
    claims = {"email": "" if case == "none" else email, "email_verified": case != "unverified"}
    assert error_of(bring(assistant, word(assistant, **claims))) == (400, "invalid_grant")
    assert not ExternalIdentity.objects.exists()


def test_rsa_keys_are_taken_as_well(assistant, known, site):
    trust(site, JWKS=jwks("company", kind="RSA"))
    header = {"kind": "RSA", "algorithm": "RS256"}
    assert bring(assistant, word(assistant, header=header)).status_code == 200
    trust(site, JWKS=jwks("company", kind="RSA"), ALGORITHMS=["ES256"])
    refused = bring(assistant, word(assistant, header=header))
    assert error_of(refused) == (400, "invalid_grant")


@pytest.mark.parametrize("answers", [True, False])
def test_keys_are_fetched_where_none_are_given(assistant, known, site, monkeypatch, answers):
    urls: list[str] = []

    def fetch(url: str) -> dict[str, Any]:
        urls.append(url)
        if not answers:
            raise FetchFailed("It does not answer.")
        return jwks("company")

    monkeypatch.setattr("mcp_django.auth.outbound.fetch_json", fetch)
    clear_key_stores()
    where = f"{COMPANY}/keys-{answers}"
    trust(site, JWKS=None, JWKS_URL=where)
    response = bring(assistant, word(assistant))
    clear_key_stores()
    assert urls == [where]
    if answers:
        assert response.status_code == 200
    else:
        assert error_of(response) == (503, "temporarily_unavailable")
        assert int(response["Retry-After"]) > 0


@pytest.mark.parametrize(
    "issuer",
    [
        {},
        {"ISSUER": "http://company.example"},
        {"ISSUER": COMPANY, "ALGORITHMS": ["HS256"]},
        {"ISSUER": COMPANY, "ALGORITHMS": []},
        {"ISSUER": COMPANY, "JWKS": "text"},
        {"ISSUER": COMPANY, "JWSK": {}},
        {"ISSUER": COMPANY, "JWKS_URL": "ftp://company.example"},
    ],
)
def test_a_trusted_issuer_says_what_is_wrong_with_it(site, issuer):
    site.MCP_DJANGO = {"OAUTH": {"TRUSTED_ISSUERS": [issuer]}}
    with pytest.raises(ImproperlyConfigured, match="TRUSTED_ISSUERS"):
        get_settings()


@spec("AUT-34")
@pytest.mark.parametrize("is_on", [True, False])
def test_the_extension_is_advertised_only_when_it_is_on(site, user, is_on):
    from tests.oauth.parties import make_token

    token = make_token(user, make_app())
    if not is_on:
        site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": {}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    response = Client().post(
        "/mcp",
        message,
        content_type="application/json",
        headers={
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "server/discover",
            "Authorization": f"Bearer {token}",
        },
    )
    capabilities = response.json()["result"]["capabilities"]
    assert capabilities.get("extensions") == ({ENTERPRISE: {}} if is_on else None)


@spec("AUT-16", "AUT-34")
def test_the_metadata_says_what_the_token_endpoint_takes(site):
    def metadata() -> dict[str, Any]:
        return dict(Client().get("/.well-known/oauth-authorization-server").json())

    document = metadata()
    assert GRANT in document["grant_types_supported"]
    assert "private_key_jwt" in document["token_endpoint_auth_methods_supported"]
    assert "ES256" in document["token_endpoint_auth_signing_alg_values_supported"]
    profiles = document["authorization_grant_profiles_supported"]
    assert profiles == ["urn:ietf:params:oauth:grant-profile:id-jag"]
    site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": {}}
    assert set(document) - set(metadata()) == {
        "authorization_grant_profiles_supported",
        "token_endpoint_auth_signing_alg_values_supported",
    }
