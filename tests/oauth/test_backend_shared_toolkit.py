"""Threat 30: a site that used the toolkit before is not affected, and its tokens open no server."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from oauth2_provider.models import get_access_token_model, get_application_model
from oauth2_provider.views.generic import ProtectedResourceView

from mcp_django.oauth import provider_settings
from tests.oauth import urls
from tests.oauth.asking import answer, ask
from tests.oauth.parties import REDIRECT, RESOURCE, SETTINGS, make_app, make_token, make_user, pkce

pytestmark = [
    pytest.mark.django_db,
    # The toolkit warns about each recommendation that such a site does not follow.
    pytest.mark.filterwarnings("ignore:.*RFC 9700:DeprecationWarning"),
]
SCOPES = {"api:read": "Read the API", "api:write": "Write the API"}
# Settings that a site may have had for years, each against today's recommendations.
LEGACY = {
    "SCOPES": SCOPES,
    "DEFAULT_SCOPES": ["api:read"],
    "PKCE_REQUIRED": False,
    "ACCESS_TOKEN_EXPIRE_SECONDS": 36_000,
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": False,
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": False,
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": False,
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": False,
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": False,
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": False,
    "REQUEST_APPROVAL_PROMPT": "auto",
    # For the tests: the toolkit's views cache their first configuration.
    "ALWAYS_RELOAD_OAUTHLIB_CORE": True,
}
SECRET = "a-secret-of-the-client"


class API(ProtectedResourceView):
    """The site's own API."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"API for {request.user}")


urlpatterns = [
    *urls.urlpatterns,
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    path("api/", API.as_view()),
]


@pytest.fixture(params=["provider_settings", "its own dictionary"], autouse=True)
def shared(request, settings):
    """The site, in either way of using this package's classes."""
    if request.param == "provider_settings":
        settings.OAUTH2_PROVIDER = provider_settings(**LEGACY)
    else:
        ours = {
            name: value
            for name, value in provider_settings().items()
            if name.endswith(("CLASS", "FETCHER", "PERMISSION_CLASSES"))
        }
        rotation = {"REFRESH_TOKEN_REUSE_PROTECTION": True, "CIMD_ENABLED": True}
        settings.OAUTH2_PROVIDER = {**LEGACY, **ours, **rotation}
    settings.ROOT_URLCONF = __name__
    return settings


def make_client(**more: Any) -> Any:
    values = {
        "registration_source": "manual",
        "client_type": "confidential",
        "client_secret": SECRET,
        "skip_authorization": True,
    }
    return make_app(**(values | more))


def basic(app: Any) -> dict[str, str]:
    pair = base64.b64encode(f"{app.client_id}:{SECRET}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def call(client: Client, token: str) -> tuple[int, int]:
    """Return the statuses of the site's own API and of the MCP endpoint."""
    own = client.get("/api/", headers={"Authorization": f"Bearer {token}"})
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    mcp = client.post(
        "/mcp", body, content_type="application/json", headers={"Authorization": f"Bearer {token}"}
    )
    return own.status_code, mcp.status_code


@pytest.mark.spec("AUT-9", "AUT-10")
def test_threat_30_a_code_without_pkce_or_audience_goes_on_to_work(client, user):
    app = make_client()
    client.force_login(user)
    query = urlencode(
        {
            "response_type": "code",
            "client_id": app.client_id,
            "redirect_uri": REDIRECT,
            "state": "s",
        }
    )
    response = client.get(f"/o/authorize/?{query}")
    assert response.status_code == 302
    answer = parse_qs(urlsplit(response.headers["Location"]).query)
    form = {"grant_type": "authorization_code", "code": answer["code"][0], "redirect_uri": REDIRECT}
    issued = client.post("/o/token/", form, headers=basic(app)).json()
    assert (issued["scope"], issued["expires_in"]) == ("api:read", 36_000)
    assert call(client, issued["access_token"]) == (200, 401)
    # Stored as before, because the site may look tokens up by their text.
    assert get_access_token_model().objects.get(token=issued["access_token"]).resource == []
    again = {"grant_type": "refresh_token", "refresh_token": issued["refresh_token"]}
    renewed = client.post("/o/token/", again, headers=basic(app)).json()
    assert call(client, renewed["access_token"]) == (200, 401)
    revoked = client.post(
        "/o/revoke_token/", {"token": renewed["access_token"]}, headers=basic(app)
    )
    assert revoked.status_code == 200
    assert call(client, renewed["access_token"]) == (403, 401)


@pytest.mark.spec("AUT-9")
@pytest.mark.parametrize("grant", ["client-credentials", "password"])
def test_threat_30_grants_that_assistants_cannot_have_go_on_to_work(client, user, grant):
    app = make_client(authorization_grant_type=grant, user=user)
    form = {"grant_type": grant.replace("-", "_"), "username": "ada", "password": "ada"}
    issued = client.post("/o/token/", {**form, "scope": "api:write"}, headers=basic(app)).json()
    assert issued["scope"] == "api:write"
    assert call(client, issued["access_token"]) == (200, 401)


@pytest.mark.spec("AUT-9", "AUT-2")
def test_threat_30_the_other_ways_of_the_toolkit_go_on_to_work(client, user):
    app = make_client(authorization_grant_type="implicit", client_type="public")
    client.force_login(user)
    query = {"response_type": "token", "client_id": app.client_id, "redirect_uri": REDIRECT}
    response = client.get(f"/o/authorize/?{urlencode(query)}")
    token = parse_qs(urlsplit(response.headers["Location"]).fragment)["access_token"][0]
    assert call(client, token) == (200, 401)
    assert client.get(f"/api/?access_token={token}").status_code == 200
    assert client.post(f"/mcp?access_token={token}", {}, "application/json").status_code == 400
    page = client.get("/o/applications/")
    assert page.status_code == 200


def test_threat_30_an_openid_provider_with_a_path_keeps_its_documents(client, shared, user):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    issuer = "http://testserver/o"
    shared.OAUTH2_PROVIDER = {
        **shared.OAUTH2_PROVIDER,
        "SCOPES": {**SCOPES, "openid": "Sign in"},
        "OIDC_ENABLED": True,
        "OIDC_RSA_PRIVATE_KEY": pem,
        "OIDC_ISS_ENDPOINT": issuer,
    }
    shared.MCP_DJANGO = {**SETTINGS, "OAUTH": {"ISSUER": issuer}}
    own = client.get("/o/.well-known/openid-configuration").json()
    assert own["issuer"] == issuer
    assert own["jwks_uri"] == "http://testserver/o/.well-known/jwks.json"
    assert own["authorization_endpoint"] == "http://testserver/o/authorize/"
    app = make_client(algorithm="RS256")
    client.force_login(user)
    query = {
        "response_type": "code",
        "client_id": app.client_id,
        "redirect_uri": REDIRECT,
        "scope": "openid api:read",
    }
    response = client.get(f"/o/authorize/?{urlencode(query)}")
    code = parse_qs(urlsplit(response.headers["Location"]).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT}
    issued = client.post("/o/token/", form, headers=basic(app)).json()
    # The toolkit itself accepts an ID token as an access token; the MCP endpoint does not.
    assert call(client, issued["id_token"])[1] == 401
    assert call(client, issued["access_token"]) == (200, 401)
    # This package's metadata is at the URL of the same issuer, with its own endpoints.
    ours = client.get("/.well-known/oauth-authorization-server/o").json()
    assert ours["issuer"] == issuer
    assert ours["token_endpoint"] == "http://testserver/oauth/token"
    named = client.get("/.well-known/oauth-protected-resource/mcp").json()
    assert named["authorization_servers"] == [issuer]


@pytest.mark.spec("AUT-28")
@pytest.mark.parametrize("source", ["dcr", "cimd"])
@pytest.mark.parametrize(
    "more", [{}, {"approval_prompt": "auto"}, {"resource": RESOURCE}, {"mcp_oauth": "1"}]
)
def test_threat_30_a_client_that_registered_itself_gets_nothing_from_the_toolkits_own_page(
    client, user, source, more
):
    # The toolkit's page names no server, and can be configured to skip the question.
    identifier = "https://client.example/metadata.json" if source == "cimd" else "dynamic"
    app = make_app(registration_source=source, skip_authorization=True, client_id=identifier)
    client.force_login(user)
    query = {
        "response_type": "code",
        "client_id": app.client_id,
        "redirect_uri": REDIRECT,
        "scope": "mcp",
        "code_challenge": pkce()[1],
        "code_challenge_method": "S256",
        **more,
    }
    response = client.get(f"/o/authorize/?{urlencode(query)}")
    assert response.status_code == 400
    assert "Location" not in response.headers
    # The page of this package asks the user.
    ours = client.get(f"/oauth/authorize?{urlencode({**query, 'resource': RESOURCE})}")
    assert ours.status_code == 200


@pytest.mark.spec("AUT-9")
def test_threat_05_the_registration_token_of_the_toolkit_opens_no_server(client, shared):
    everybody = ("oauth2_provider.dcr.AllowAllDCRPermission",)
    shared.OAUTH2_PROVIDER = {
        **shared.OAUTH2_PROVIDER,
        "DCR_ENABLED": True,
        "DCR_REGISTRATION_PERMISSION_CLASSES": everybody,
    }
    metadata = {"redirect_uris": [REDIRECT], "grant_types": ["client_credentials"]}
    answer = client.post("/o/register/", metadata, content_type="application/json").json()
    assert call(client, answer["registration_access_token"])[1] == 401
    # The secret does not work either: a client that registered itself gets no token without a user.
    form = {
        "grant_type": "client_credentials",
        "client_id": answer["client_id"],
        "client_secret": answer["client_secret"],
    }
    for address in ("/o/token/", "/oauth/token"):
        assert client.post(address, form).status_code in {400, 401}
    assert get_application_model().objects.get().registration_source == "dcr"


def test_threat_30_such_a_site_has_no_errors_and_learns_what_could_be_stricter(shared):
    messages = run_checks(tags=["mcp_oauth"])
    assert [message for message in messages if message.is_serious()] == []
    message_ids = {str(message.id) for message in messages}
    assert message_ids == {"mcp_oauth.W005"}
    assert any("PASSWORD_GRANT" in message.msg for message in messages)


@pytest.mark.spec("AUT-9")
@pytest.mark.parametrize("resource", ["http://testserver", "http://testserver/api"])
def test_threat_03_an_assistants_token_opens_no_api_below_the_address_of_a_server(
    client, user, shared, resource
):
    # The toolkit accepts a token for any URL below its audience.
    own = make_token(user, make_client(), resource=(resource,))
    assert call(client, own)[0] == 200
    assistants = make_token(user, make_app(), resource=(resource,))
    assert call(client, assistants)[0] == 403


@pytest.mark.parametrize(
    ("is_staff", "badge"),
    [
        (False, "Registered by a user of this site, not verified"),
        (True, "Approved by this site"),
    ],
)
def test_threat_13_what_any_user_registers_on_the_toolkits_pages_is_not_approved_by_the_site(
    client, user, is_staff, badge
):
    mallory = make_user("mallory", is_staff=is_staff)
    client.force_login(mallory)
    form = {
        "name": "Claude",
        "client_id": "claude",
        "client_secret": SECRET,
        "client_type": "public",
        "authorization_grant_type": "authorization-code",
        "redirect_uris": REDIRECT,
    }
    assert client.post("/o/applications/register/", form).status_code == 302
    app = get_application_model().objects.get()
    client.force_login(user)
    page = ask(client, app).content.decode()
    assert badge in page
    assert ("Allow it only if you trust client.example" in page) is not is_staff
    answer(client, ask(client, app))
    assert badge in client.get("/oauth/connections/").content.decode()
