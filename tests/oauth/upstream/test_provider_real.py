"""The whole flow with a provider in another process: a Django site with the OAuth toolkit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django import Context
from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream.grants import decrypt
from tests.kit.drivers import message
from tests.kit.processes import REPOSITORY, Server, serving
from tests.kit.servers import call as call_tool, post
from tests.oauth.parties import REDIRECT, RESOURCE, SETTINGS, make_user, pkce
from tests.oauth.servers import orders
from tests.oauth.upstream.parties import KEYS, dumped

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]
SITE = "tests.sites.upstream"
CALLBACK = "http://testserver/oauth/upstream/acme/callback"
WHOAMI = message("tools/call", {"name": "whoami", "arguments": {}})
PATHS = {"2025-03-26": "", "2025-11-25": "/oauth"}


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    """The provider, with one user and this site's registration."""
    directory: Path = tmp_path_factory.mktemp("provider")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    environ = {
        "DJANGO_SETTINGS_MODULE": f"{SITE}.settings",
        "UPSTREAM_DATABASE": str(directory / "provider.sqlite3"),
        "UPSTREAM_KEY": key.decode(),
    }
    subprocess.run(
        [sys.executable, "-m", f"{SITE}.asgi", CALLBACK],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        check=True,
        timeout=240,
    )
    settings = environ.pop("DJANGO_SETTINGS_MODULE")
    with serving(
        "uvicorn", f"{SITE}.asgi:application", directory, settings=settings, **environ
    ) as server:
        yield server


@pytest.fixture
def acme(provider, site, monkeypatch):
    """This site, which knows the provider by its issuer and two endpoints."""
    monkeypatch.setattr(orders, "upstream", "acme")
    base = f"{provider.url}/o"
    acme = {
        "ISSUER": base,
        "TITLE": "Acme",
        "CLIENT_ID": "our-site",
        "CLIENT_SECRET": "our-secret",
        "SCOPES": ["openid", "files"],
        "INTROSPECTION_ENDPOINT": f"{base}/introspect/",
        "REVOCATION_ENDPOINT": f"{base}/revoke_token/",
        "PROBE": "introspection",
    }
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": {"UPSTREAM": {"acme": acme}, "FIELD_KEYS": KEYS}}
    return provider


def sign_in_upstream(provider: Server, location: str) -> str:
    """Sign in at the provider, and return the query of the redirect back."""
    assert location.startswith(f"{provider.url}/o/authorize")
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        form = browser.get(location)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
        assert token is not None
        fields = {
            "csrfmiddlewaretoken": token[1],
            "username": "ada.at.acme",
            "password": "lovelace",
        }
        answer = browser.post(form.url, data=fields, follow_redirects=False)
        while not answer.headers["Location"].startswith(CALLBACK):
            answer = browser.get(answer.next_request.url, follow_redirects=False)
    return urlsplit(answer.headers["Location"]).query


def connect(provider: Server, user: Any, version: str) -> dict[str, Any]:
    """Obtain a token as an MCP client of a revision does, and return the token response."""
    root, (verifier, challenge) = PATHS[version], pkce()
    registered = Client().post(
        f"{root}/register",
        {
            "client_name": "Example",
            "redirect_uris": [REDIRECT],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
        },
        content_type="application/json",
    )
    assert registered.status_code == 201
    client_id = registered.json()["client_id"]
    resource = {} if version == "2025-03-26" else {"resource": RESOURCE}
    browser = Client()
    browser.force_login(user)
    page = browser.get(
        f"{root}/authorize",
        {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "state": "s",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **resource,
        },
    )
    signed = re.search(r'name="request" value="([^"]+)"', page.content.decode())
    assert signed is not None
    approved = browser.post(
        f"{root}/authorize", {"request": signed[1], "decision": "allow", "scope": ["mcp"]}
    )
    query = sign_in_upstream(provider, approved["Location"])
    back = browser.get(f"/oauth/upstream/acme/callback?{query}")
    assert back["Location"].startswith(REDIRECT)
    code = parse_qs(urlsplit(back["Location"]).query)["code"][0]
    answer = Client().post(
        f"{root}/token",
        {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "code_verifier": verifier,
            **resource,
        },
    )
    assert answer.status_code == 200, answer.content
    return {**answer.json(), "client_id": client_id}


def initialize(token: str, version: str) -> Any:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    return post("/mcp", body, token=token, mcp_protocol_version=None, mcp_method=None)


def revoke_upstream(provider: Server) -> None:
    """Revoke the grant at the provider, as the provider would by itself."""
    refresh = decrypt(UpstreamGrant.objects.get().refresh_cipher)
    form = {"token": refresh, "token_type_hint": "refresh_token"}
    credentials = ("our-site", "our-secret")
    with httpx.Client(trust_env=False) as client:
        answer = client.post(f"{provider.url}/o/revoke_token/", data=form, auth=credentials)
    assert answer.status_code == 200


@pytest.mark.spec("AUT-30", "AUT-31", "AUT-32")
@pytest.mark.parametrize("version", PATHS)
def test_threat_26_access_is_given_used_and_revoked_at_a_real_provider(acme, version):
    ours = connect(acme, make_user(), version)
    assert initialize(ours["access_token"], version).status_code == 200
    grant = UpstreamGrant.objects.get()
    assert grant.subject
    dump = dumped()
    secrets = [decrypt(grant.access_cipher), decrypt(grant.refresh_cipher), ours["access_token"]]
    assert not [secret for secret in secrets if secret in dump]
    # The grant has not been checked for a while, and is still valid.
    UpstreamGrant.objects.update(checked_at=timezone.now() - timedelta(seconds=301))
    assert initialize(ours["access_token"], version).status_code == 200
    revoke_upstream(acme)
    UpstreamGrant.objects.update(checked_at=timezone.now() - timedelta(seconds=301))
    refused = initialize(ours["access_token"], version)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused["WWW-Authenticate"]
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.REVOKED
    assert not get_access_token_model().objects.exists()
    assert not get_refresh_token_model().objects.filter(revoked__isnull=True).exists()
    again = Client().post(
        "/oauth/token",
        {
            "grant_type": "refresh_token",
            "refresh_token": ours["refresh_token"],
            "client_id": ours["client_id"],
        },
    )
    assert again.status_code == 400
    assert again.json()["error"] == "invalid_grant"


@pytest.mark.spec("AUT-31")
def test_access_is_renewed_at_a_real_provider_that_rotates(acme):
    ours = connect(acme, make_user(), "2025-11-25")
    before = decrypt(UpstreamGrant.objects.get().refresh_cipher)
    for _ in range(2):
        UpstreamGrant.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        assert post("/mcp", WHOAMI, token=ours["access_token"]).status_code == 200
    assert decrypt(UpstreamGrant.objects.get().refresh_cipher) != before


@pytest.mark.spec("AUT-31")
def test_our_refresh_fails_once_the_access_is_gone_upstream(acme):
    ours = connect(acme, make_user(), "2025-11-25")
    revoke_upstream(acme)
    UpstreamGrant.objects.update(checked_at=timezone.now() - timedelta(seconds=301))
    answer = Client().post(
        "/oauth/token",
        {
            "grant_type": "refresh_token",
            "refresh_token": ours["refresh_token"],
            "client_id": ours["client_id"],
        },
    )
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_grant"


def test_tool_uses_the_access_of_its_caller(acme):
    user = make_user()
    ours = connect(acme, user, "2025-11-25")

    def owner(ctx: Context) -> str:
        """Say whose files the provider shows."""
        with httpx.Client(trust_env=False, auth=ctx.upstream("acme").auth) as client:
            return str(client.get(f"{acme.url}/files").json()["owner"])

    assert call_tool(owner, user=user).text == "ada.at.acme"
    assert ours["access_token"] != decrypt(UpstreamGrant.objects.get().access_cipher)


@pytest.mark.spec("AUT-31")
def test_access_that_is_disconnected_here_is_gone_at_the_provider(acme):
    user = make_user()
    ours = connect(acme, user, "2025-11-25")
    access = decrypt(UpstreamGrant.objects.get().access_cipher)
    browser = Client()
    browser.force_login(user)
    with httpx.Client(trust_env=False) as client:
        headers = {"Authorization": f"Bearer {access}"}
        assert client.get(f"{acme.url}/files", headers=headers).status_code == 200
        assert browser.post("/oauth/upstream/acme/disconnect").status_code == 200
        assert client.get(f"{acme.url}/files", headers=headers).status_code == 403
    assert post("/mcp", WHOAMI, token=ours["access_token"]).status_code == 401
