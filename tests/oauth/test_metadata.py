"""The metadata of the authorization server: its contents, and the URLs where it is and is not."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import clear_url_caches, include, path

from tests.oauth import urls
from tests.oauth.parties import OTHER_RESOURCE, RESOURCE, SETTINGS

ROOT = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


def urlconf(*patterns: Any) -> ModuleType:
    module = ModuleType("urlconf")
    module.urlpatterns = list(patterns)
    clear_url_caches()
    return module


def configured(settings: Any, **oauth: Any) -> None:
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": oauth}


@pytest.mark.spec("AUT-16", "AUT-20", "AUT-27", "AUT-12")
def test_the_document_of_a_site_says_all_that_clients_ask_for(client):
    response = client.get(ROOT)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "public, max-age=300"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in response.headers
    document = response.json()
    resources = document.pop("protected_resources")
    assert {RESOURCE, OTHER_RESOURCE} == set(resources)
    assert document == {
        "issuer": "http://testserver",
        "authorization_endpoint": "http://testserver/oauth/authorize",
        "token_endpoint": "http://testserver/oauth/token",
        "registration_endpoint": "http://testserver/oauth/register",
        "revocation_endpoint": "http://testserver/oauth/revoke",
        "scopes_supported": ["mcp", "mcp:write", "orders:refund", "offline_access"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [
            "none", "client_secret_basic", "client_secret_post",
        ],
        "revocation_endpoint_auth_methods_supported": [
            "none", "client_secret_basic", "client_secret_post",
        ],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }  # fmt: skip


@pytest.mark.spec("AUT-16")
def test_what_is_off_is_not_offered_and_what_is_on_is(client, settings):
    configured(settings, DCR="off", CIMD=False)
    document = client.get(ROOT).json()
    assert "registration_endpoint" not in document
    assert document["client_id_metadata_document_supported"] is False
    configured(
        settings, CLIENT_CREDENTIALS=True, TRUSTED_ISSUERS=[{"ISSUER": "https://idp.example"}]
    )
    assert client.get(ROOT).json()["grant_types_supported"] == [
        "authorization_code",
        "refresh_token",
        "client_credentials",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
    ]


@pytest.mark.spec("AUT-17", "AUT-20")
@pytest.mark.parametrize("path", ["/evil", "/mcp", "/o/", "/.well-known", "/%2e%2e"])
@pytest.mark.parametrize("form", [ROOT, OPENID])
def test_threat_19_an_address_of_another_issuer_has_no_document(client, form, path):
    response = client.get(form + path)
    assert response.status_code == 404
    assert response.json()["error"] == "not_found"
    assert response.headers["Cache-Control"] == "no-store"
    assert b"evil" not in response.content


@pytest.mark.spec("AUT-18", "AUT-17")
@pytest.mark.parametrize("address", [f"{ROOT}/o", f"{OPENID}/o", f"/o{OPENID}", f"{ROOT}/o/"])
def test_an_issuer_with_a_path_is_found_in_each_form(client, settings, address):
    configured(settings, ISSUER="https://shop.example/o")
    document = client.get(address).json()
    assert document["issuer"] == "https://shop.example/o"
    assert document["token_endpoint"] == "https://shop.example/oauth/token"
    assert document["code_challenge_methods_supported"] == ["S256"]


@pytest.mark.spec("AUT-18", "AUT-17")
@pytest.mark.parametrize(
    "address", [ROOT, OPENID, f"{ROOT}/other", f"{ROOT}/o/p", f"/other{OPENID}", f"/x/o{OPENID}"]
)
def test_threat_19_an_issuer_with_a_path_is_found_nowhere_else(client, settings, address):
    configured(settings, ISSUER="https://shop.example/o")
    assert client.get(address).status_code == 404


@pytest.mark.spec("AUT-18", "AUT-19")
@pytest.mark.parametrize("address", [ROOT, f"{ROOT}/", OPENID, f"{OPENID}/"])
def test_an_issuer_without_a_path_is_found_at_the_root(client, address):
    response = client.get(address, headers={"MCP-Protocol-Version": "2025-03-26"})
    assert response.json()["issuer"] == "http://testserver"


@pytest.mark.spec("AUT-18", "AUT-19")
@pytest.mark.parametrize("base", ["", "http://testserver", "http://testserver/"])
def test_both_documents_name_the_same_issuer_without_a_root_slash(client, settings, base):
    # The Python SDK compares the two character by character, and both with the URL it requested.
    settings.MCP_DJANGO = {**SETTINGS, "BASE_URL": base}
    for end in ("", "/"):
        issuer = client.get(f"{ROOT}{end}").json()["issuer"]
        named = client.get(f"/.well-known/oauth-protected-resource/mcp{end}").json()
        assert named["authorization_servers"] == [issuer] == ["http://testserver"]


@pytest.mark.spec("AUT-18")
def test_the_form_of_openid_carries_what_its_clients_insist_on(client):
    document = client.get(OPENID).json()
    assert document["subject_types_supported"] == ["public"]
    assert document["id_token_signing_alg_values_supported"] == ["RS256"]
    assert document["jwks_uri"] == "http://testserver/oauth/jwks"
    assert client.get("/oauth/jwks").json() == {"keys": []}
    assert "openid" not in document["scopes_supported"]
    assert client.get(ROOT).json().items() <= document.items()


def test_a_site_under_a_script_name_has_it_within_its_prefix(client, settings):
    configured(settings, ISSUER="https://shop.example/app")
    within = {"SCRIPT_NAME": "/app", "PATH_INFO": OPENID}
    document = client.get(f"/app{OPENID}", **within).json()
    assert document["issuer"] == "https://shop.example/app"
    assert document["authorization_endpoint"] == "https://shop.example/app/oauth/authorize"
    assert document["jwks_uri"] == "https://shop.example/app/oauth/jwks"
    # A proxy that forwards the root of the host leaves the path unchanged.
    handed = {"SCRIPT_NAME": "/app", "PATH_INFO": f"{ROOT}/app"}
    handed_on = client.get(f"{ROOT}/app", **handed).json()
    assert handed_on["issuer"] == "https://shop.example/app"
    assert handed_on.items() <= document.items()


@pytest.mark.spec("AUT-16")
def test_threat_19_a_host_that_a_client_made_up_is_not_believed(client, settings):
    forwarded = {
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "Forwarded": "host=evil.example",
    }
    assert client.get(ROOT, headers=forwarded).json()["issuer"] == "http://testserver"
    assert client.get(ROOT, headers={"Host": "evil.example"}).status_code == 400
    settings.MCP_DJANGO = {**SETTINGS, "BASE_URL": "https://shop.example/"}
    settings.ALLOWED_HOSTS = ["*"]
    document = client.get(ROOT, headers={"Host": "evil.example"}).json()
    assert document["issuer"] == "https://shop.example"
    assert "evil" not in str(document)


def test_a_proxy_that_the_site_trusts_is_believed(client, settings):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.USE_X_FORWARDED_HOST = True
    settings.ALLOWED_HOSTS = ["shop.example"]
    forwarded = {"X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https"}
    document = client.get(ROOT, headers=forwarded).json()
    assert document["issuer"] == "https://shop.example"
    assert document["token_endpoint"] == "https://shop.example/oauth/token"


@pytest.mark.parametrize("address", [ROOT, OPENID, "/oauth/jwks"])
def test_a_page_of_any_origin_may_ask_first(client, address):
    response = client.options(
        address,
        headers={
            "Origin": "http://localhost:6274",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "mcp-protocol-version",
        },
    )
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "MCP-Protocol-Version" in response.headers["Access-Control-Allow-Headers"]
    assert "GET" in response.headers["Access-Control-Allow-Methods"]


def test_only_reading_is_served(client):
    head = client.head(ROOT)
    assert (head.status_code, head.content) == (200, b"")
    for method in (client.post, client.put, client.delete):
        response = method(ROOT)
        assert response.status_code == 405
        assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
        assert response.json()["error"] == "invalid_request"


def test_the_document_needs_neither_a_user_nor_the_database(settings):
    # A site that requires users to sign in for every page.
    login = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, login]
    response = Client().get(ROOT)
    assert response.status_code == 200
    assert not response.cookies


def test_the_other_urls_of_the_site_are_left_alone(client, settings):
    def own(request: object, **kwargs: Any) -> HttpResponse:
        return HttpResponse("own")

    settings.ROOT_URLCONF = urlconf(
        *urls.urlpatterns,
        path("tenant/.well-known/openid-configuration", own),
        path(".well-known/openid-configuration", own),
    )
    assert client.get("/tenant/.well-known/openid-configuration").content == b"own"
    # An OpenID provider keeps its own document.
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "OIDC_ENABLED": True}
    assert client.get(OPENID).content == b"own"
    assert client.get(ROOT).json()["issuer"] == "http://testserver"


def test_the_urls_work_below_others(client, settings):
    settings.ROOT_URLCONF = urlconf(path("deep/", include(urls.urlpatterns)))
    document = client.get(f"/deep{ROOT}").json()
    assert document["token_endpoint"] == "http://testserver/deep/oauth/token"
