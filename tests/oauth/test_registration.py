"""Clients that register themselves: as each host does it, and as an attacker would (RFC 7591)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model, get_grant_model

from mcp_django.models import AccessToken, AuthEvent
from mcp_django.oauth import registration, registration as view
from mcp_django.oauth.models import ClientProfile
from tests.oauth.parties import SETTINGS, make_app, make_token

pytestmark = pytest.mark.django_db
ADDRESS = "/oauth/register"
KNOWN = "mcp mcp:write orders:refund offline_access"

# Registrations of hosts, as reported or read in their sources; only the members that vary.
VSCODE = {
    "client_name": "Visual Studio Code",
    "client_uri": "https://code.visualstudio.com",
    "grant_types": [
        "authorization_code",
        "refresh_token",
        "urn:ietf:params:oauth:grant-type:device_code",
    ],
    "response_types": ["code"],
    "redirect_uris": [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
    ],
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "scope": "mcp",
}
CURSOR = {
    "client_name": "Cursor",
    "redirect_uris": [
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "http://localhost:8787/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
    ],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
CLAUDE_CODE = {
    "client_name": "Claude Code (shop)",
    "redirect_uris": ["http://localhost:54545/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "scope": "mcp offline_access claudeai",
}
CLAUDE_AI = {
    "client_name": "Claude",
    "redirect_uris": [
        "https://claude.ai/api/mcp/auth_callback",
        "https://claude.com/api/mcp/auth_callback",
    ],
    "token_endpoint_auth_method": "client_secret_post",
}
CHATGPT = {
    "client_name": "ChatGPT",
    "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "client_secret_post",
    "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "private_key_jwt"],
}
GEMINI = {
    "client_name": "Gemini CLI MCP Client",
    "redirect_uris": ["http://localhost:7777/oauth/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "code_challenge_method": ["S256"],
    "scope": "",
}
MCP_REMOTE = {
    "client_name": "MCP CLI Proxy",
    "redirect_uris": ["http://localhost:3334/oauth/callback"],
    "token_endpoint_auth_method": "none",
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
    "software_version": "0.1.0",
}
HOSTS = {
    "vscode": VSCODE,
    "cursor": CURSOR,
    "claude-code": CLAUDE_CODE,
    "claude.ai": CLAUDE_AI,
    "chatgpt": CHATGPT,
    "gemini": GEMINI,
    "mcp-remote": MCP_REMOTE,
}


def post(client: Client, metadata: object, **more: Any) -> Any:
    body = metadata if isinstance(metadata, (str, bytes)) else json.dumps(metadata)
    return client.post(more.pop("address", ADDRESS), body, content_type="application/json", **more)


def configured(settings: Any, **oauth: Any) -> None:
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": oauth}


@pytest.mark.spec("AUT-25", "AUT-22")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("address", ["/oauth/register", "/oauth/register/", "/register"])
def test_each_host_registers(client, host, address):
    metadata = HOSTS[host]
    response = post(client, metadata, address=address)
    assert response.status_code == 201
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    answer = response.json()
    app = get_application_model().objects.get(client_id=answer["client_id"])
    assert answer["redirect_uris"] == metadata["redirect_uris"] == app.redirect_uris.split()
    assert answer["client_name"] == metadata["client_name"] == app.name
    assert answer["grant_types"] == ["authorization_code", "refresh_token"]
    assert answer["response_types"] == ["code"]
    assert answer["token_endpoint_auth_method"] == metadata["token_endpoint_auth_method"]
    assert answer["client_id_issued_at"] == int(app.created.timestamp())
    assert "registration_access_token" not in answer
    assert app.registration_source == "dcr"
    assert app.authorization_grant_type == "authorization-code"
    assert (app.user, app.skip_authorization, app.algorithm) == (None, False, "")
    if metadata["token_endpoint_auth_method"] == "none":
        assert app.client_type == "public"
        assert "client_secret" not in answer
    else:
        assert app.client_type == "confidential"
        assert answer["client_secret_expires_at"] == 0
        assert app.client_secret != answer["client_secret"]
        assert check_password(answer["client_secret"], app.client_secret)
    # No token was issued that another view would accept as an access token.
    assert not get_access_token_model().objects.exists()
    event = AuthEvent.objects.get(kind="register")
    assert event.client_id == app.client_id
    assert answer.get("client_secret", "no secret") not in str(event.as_dict())


@pytest.mark.spec("AUT-25")
@pytest.mark.parametrize(
    ("uris", "requested", "expected"),
    [
        (["https://a.example/cb"], None, "web"),
        (["https://a.example/cb"], "native", "native"),
        (["https://a.example/cb", "http://localhost/cb"], None, "native"),
        (["http://localhost/cb"], "web", "native"),
        (["cursor://anysphere.cursor-mcp/oauth/callback"], None, "native"),
    ],
)
def test_the_type_of_a_client_is_what_its_addresses_make_it(client, uris, requested, expected):
    answer = post(client, {"redirect_uris": uris, "application_type": requested}).json()
    assert answer["application_type"] == expected


@pytest.mark.spec("AUT-25")
def test_what_is_left_out_has_the_defaults_of_the_standard(client):
    nothing = dict.fromkeys(
        ("client_name", "grant_types", "response_types", "token_endpoint_auth_method", "scope")
    )
    for metadata in ({}, nothing):
        answer = post(client, {**metadata, "redirect_uris": ["https://a.example/cb"]}).json()
        assert "client_name" not in answer
        assert answer["grant_types"] == ["authorization_code", "refresh_token"]
        assert answer["token_endpoint_auth_method"] == "client_secret_basic"
        assert answer["scope"] == KNOWN
        assert answer["client_secret"]


def test_a_name_is_cleaned(client):
    name = "Tru\u202estworthy\x00\r\n <b>App\u200b</b> \ud800" + "x" * 500
    answer = post(client, {"redirect_uris": ["https://a.example/cb"], "client_name": name}).json()
    assert answer["client_name"].startswith("Trustworthy <b>App</b> xxx")
    assert len(answer["client_name"]) == 120
    assert answer["client_name"].isprintable()


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("mcp", "mcp"), ("claudeai mcp:write mcp", "mcp mcp:write"), ("other", KNOWN), ("", KNOWN)],
)
def test_scopes_that_do_not_exist_are_dropped(client, requested, expected):
    answer = post(client, {"redirect_uris": ["https://a.example/cb"], "scope": requested}).json()
    assert answer["scope"] == expected


GOOD = {"redirect_uris": ["https://a.example/cb"]}


@pytest.mark.spec("AUT-25", "AUT-29", "AUT-21")
@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "{",
        "null",
        "[]",
        '"text"',
        b"\xff\xfe{}",
        "[" * 20_000,
        {**GOOD, "grant_types": ["client_credentials"]},
        {**GOOD, "grant_types": ["password"]},
        {**GOOD, "grant_types": ["implicit"], "response_types": ["token"]},
        {**GOOD, "grant_types": ["urn:ietf:params:oauth:grant-type:device_code"]},
        {**GOOD, "grant_types": ["refresh_token"]},
        {**GOOD, "grant_types": "authorization_code"},
        {**GOOD, "grant_types": [None]},
        {**GOOD, "grant_types": {"a": 1}},
        {**GOOD, "response_types": ["token"]},
        {**GOOD, "response_types": 5},
        {**GOOD, "token_endpoint_auth_method": "private_key_jwt"},
        {**GOOD, "token_endpoint_auth_method": "tls_client_auth"},
        {**GOOD, "token_endpoint_auth_method": ["none"]},
        {**GOOD, "client_name": {"a": 1}},
        {**GOOD, "client_name": 5},
        {**GOOD, "application_type": "service"},
        {**GOOD, "application_type": 5},
        {**GOOD, "scope": ["mcp"]},
    ],
)
def test_threat_09_metadata_that_reaches_further_is_refused(client, metadata):
    response = post(client, metadata)
    assert response.status_code == 400
    assert response.json()["error"] == "invalid_client_metadata"
    assert response.json()["error_description"].endswith(".")
    assert response.headers["Cache-Control"] == "no-store"
    assert not get_application_model().objects.exists()


@pytest.mark.spec("AUT-25", "AUT-22")
@pytest.mark.parametrize(
    "uris",
    [
        None,
        [],
        "https://a.example/cb",
        {"a": 1},
        [None],
        [5],
        ["http://a.example/cb"],
        ["javascript:alert(document.cookie)"],
        ["https://a.example/cb", "data:text/html,x"],
        ["https://a.example/#x"],
        ["https://u:p@a.example/"],
        ["evil://x/y"],
        ["https://a.example/cb https://evil.example/"],
        ["https://-a-/"],
        [f"https://a.example/{number}" for number in range(11)],
        [f"https://a.example/{number}" for number in range(3000)],
    ],
)
def test_threat_09_addresses_that_could_mislead_are_refused(client, uris):
    response = post(client, {"redirect_uris": uris})
    # The longest list is too long for a request body.
    assert response.status_code in {400, 413}
    assert response.json()["error"] in {"invalid_redirect_uri", "invalid_client_metadata"}
    assert not get_application_model().objects.exists()


def test_threat_09_a_large_document_is_refused(client, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    padded = {**GOOD, "client_uri": "x" * view.MAX_BYTES}
    response = post(client, padded)
    assert response.status_code == 413
    assert response.json()["error_description"] == "The body is over 32768 bytes."
    # Within this package's limit, the site's own limit does not apply.
    assert post(client, {**GOOD, "client_uri": "x" * 20_000}).status_code == 201


@pytest.mark.spec("AUT-25")
def test_threat_09_one_address_registers_twenty_clients_an_hour(client):
    for _ in range(view.PER_ADDRESS_PER_HOUR):
        assert post(client, "{}").status_code == 400
    response = post(client, GOOD)
    assert response.status_code == 429
    assert 0 < int(response.headers["Retry-After"]) <= 3600
    assert response.json()["error"] == "temporarily_unavailable"
    assert post(client, GOOD).status_code == 429
    assert AuthEvent.objects.filter(kind="rate_limit").count() == 1
    assert post(client, GOOD, REMOTE_ADDR="192.0.2.7").status_code == 201


@pytest.mark.parametrize(
    ("one_of_it", "outside"),
    [("2001:db8:7:{:x}::1", "2001:db8:8::1"), ("203.0.113.{}", "203.0.112.1")],
)
def test_threat_09_one_network_takes_a_part_of_what_the_site_registers(
    client, monkeypatch, one_of_it, outside
):
    assert 2 * view.PER_NETWORK_PER_HOUR < view.PER_SITE_PER_HOUR
    monkeypatch.setattr(view, "PER_NETWORK_PER_HOUR", 15)
    monkeypatch.setattr(view, "PER_ADDRESS_PER_HOUR", 5)
    for number in range(view.PER_NETWORK_PER_HOUR):
        address = one_of_it.format(number // view.PER_ADDRESS_PER_HOUR)
        assert post(client, "{}", REMOTE_ADDR=address).status_code == 400
    response = post(client, GOOD, REMOTE_ADDR=one_of_it.format(200))
    assert response.status_code == 429
    assert 0 < int(response.headers["Retry-After"]) <= 3600
    assert post(client, GOOD, REMOTE_ADDR=one_of_it.format(201)).status_code == 429
    assert AuthEvent.objects.filter(kind="rate_limit").count() == 1
    assert post(client, GOOD, REMOTE_ADDR=outside).status_code == 201


def _with_token(client: Any, user: Any) -> None:
    make_token(user, client, refresh=False)


def _with_refresh_token(client: Any, user: Any) -> None:
    make_token(user, client)
    get_access_token_model().objects.all().delete()


def _with_code(client: Any, user: Any) -> None:
    then = timezone.now() + timedelta(minutes=1)
    get_grant_model().objects.create(user=user, application=client, code="c", expires=then)


def _with_last_use(client: Any, user: Any) -> None:
    ClientProfile.objects.create(client_id=client.client_id, last_used_at=timezone.now())


@pytest.mark.parametrize("use", [_with_token, _with_refresh_token, _with_code, _with_last_use])
def test_clients_that_are_used_leave_room_for_others(client, user, monkeypatch, use):
    monkeypatch.setattr(view, "PER_SITE_PER_HOUR", 2)
    made = [make_app(), make_app()]
    ClientProfile.objects.create(client_id=made[1].client_id)
    assert post(client, GOOD).status_code == 429
    use(made[0], user)
    assert post(client, GOOD).status_code == 201
    assert post(client, GOOD).status_code == 429


def test_threat_09_the_site_registers_so_many_clients_an_hour(client, monkeypatch):
    monkeypatch.setattr(view, "PER_SITE_PER_HOUR", 2)
    older = make_app()
    get_application_model().objects.filter(pk=older.pk).update(
        created=timezone.now() - timedelta(hours=2)
    )
    make_app(registration_source="manual")
    assert post(client, GOOD, REMOTE_ADDR="192.0.2.1").status_code == 201
    assert post(client, GOOD, REMOTE_ADDR="192.0.2.2").status_code == 201
    assert post(client, GOOD, REMOTE_ADDR="192.0.2.3").status_code == 429
    # Behind a Unix socket no address is known: all clients share one count, which is higher.
    monkeypatch.setattr(view, "PER_SITE_PER_HOUR", 100)
    for _ in range(view.PER_ADDRESS_PER_HOUR + 1):
        assert post(client, "{}", REMOTE_ADDR="").status_code == 400


def test_a_site_may_register_nobody(client, settings):
    configured(settings, DCR="off")
    response = post(client, GOOD)
    assert response.status_code == 404
    assert response.json()["error"] == "access_denied"
    assert not get_application_model().objects.exists()


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


@pytest.mark.spec("AUT-25")
def test_a_site_may_register_those_who_have_a_token_for_it(client, settings, user):
    configured(settings, DCR="initial-token")
    response = post(client, GOOD)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="register"'
    token, plaintext = AccessToken.objects.issue(user, name="registrar", scopes=["register"])
    answer = post(client, GOOD, **bearer(plaintext))
    assert answer.status_code == 201
    app = get_application_model().objects.get(client_id=answer.json()["client_id"])
    assert app.user == user
    assert AuthEvent.objects.get(kind="register").user == user
    token.revoke()
    refused = post(client, GOOD, **bearer(plaintext))
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    assert plaintext not in refused.content.decode()


@pytest.mark.parametrize("scopes", [[], ["mcp"], ["registered"]])
def test_a_token_for_something_else_registers_nobody(client, settings, user, scopes):
    configured(settings, DCR="initial-token")
    _, plaintext = AccessToken.objects.issue(user, name="other", scopes=scopes)
    for presented in (
        plaintext,
        "",
        "unknown",
        "mcp_unknown",
        f"{plaintext} x",
        "mcp_" + "x" * 5000,
    ):
        assert post(client, GOOD, **bearer(presented)).status_code == 401
    assert post(client, GOOD, headers={"Authorization": "Basic eDp5"}).status_code == 401
    assert not get_application_model().objects.exists()


def test_a_token_registers_from_its_own_networks(client, settings, user):
    configured(settings, DCR="initial-token")
    _, plaintext = AccessToken.objects.issue(
        user, name="registrar", scopes=["register"], networks=["192.0.2.0/24"]
    )
    assert post(client, GOOD, **bearer(plaintext)).status_code == 401
    answer = post(client, GOOD, REMOTE_ADDR="192.0.2.7", **bearer(plaintext))
    assert answer.status_code == 201


def test_an_owner_who_left_registers_nobody(client, settings, user):
    configured(settings, DCR="initial-token")
    _, plaintext = AccessToken.objects.issue(user, name="registrar", scopes=["register"])
    user.is_active = False
    user.save()
    assert post(client, GOOD, **bearer(plaintext)).status_code == 401


def test_a_page_of_any_origin_may_register(settings):
    client = Client(enforce_csrf_checks=True)
    origin = {"Origin": "http://localhost:6274"}
    preflight = client.options(
        ADDRESS,
        headers={
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,mcp-protocol-version",
        },
    )
    assert preflight.status_code == 204
    assert preflight.headers["Access-Control-Allow-Origin"] == "*"
    assert "MCP-Protocol-Version" in preflight.headers["Access-Control-Allow-Headers"]
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    response = post(client, GOOD, headers=origin)
    assert response.status_code == 201
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in response.headers
    assert not response.cookies
    refused = post(client, "{", headers=origin)
    assert refused.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("address", ["/oauth/register", "/oauth/register/"])
def test_other_methods_are_told_which_one_is_served(client, address):
    for method in (client.get, client.put, client.delete, client.head):
        response = method(address)
        assert response.status_code == 405
        assert response.headers["Allow"] == "POST, OPTIONS"


def test_a_site_that_asks_everybody_to_sign_in_still_registers(settings):
    login = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, login]
    assert post(Client(), GOOD).status_code == 201


def test_the_limits_are_those_that_the_documentation_names():
    assert (view.MAX_BYTES, view.PER_ADDRESS_PER_HOUR, view.PER_SITE_PER_HOUR) == (32768, 20, 1000)
    assert registration.MAX_REDIRECTS == 10
