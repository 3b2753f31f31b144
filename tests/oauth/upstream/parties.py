"""A provider in memory, this site's registration there, and grants from earlier."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils import timezone

from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream.grants import encrypt

ISSUER = "https://acme.example"
KEYS = [Fernet.generate_key().decode(), Fernet.generate_key().decode()]
ACME: dict[str, Any] = {
    "ISSUER": ISSUER,
    "TITLE": "Acme",
    "CLIENT_ID": "our-site",
    "CLIENT_SECRET": "our-secret",
    "SCOPES": ["openid", "files"],
    "PROBE": "introspection",
}


def configured(*, keys: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """Return `MCP_DJANGO["OAUTH"]` with the provider."""
    return {"UPSTREAM": {"acme": {**ACME, **changes}}, "FIELD_KEYS": KEYS if keys is None else keys}


class FakeProvider:
    """The endpoints of `https://acme.example`; `asked` lists the paths that were requested."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.nonce = ""
        self.claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.is_active = True
        self.refresh_token = "refresh-1"
        self.on_token: Callable[[], None] = lambda: None

    def open_client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self.handle))

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        assert request.url.host == "acme.example"
        if path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=self.described())
        if path == "/jwks":
            return httpx.Response(200, json={"keys": [self.public_key()]})
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        self.forms.append(form)
        if path == "/introspect":
            return httpx.Response(200, json={"active": self.is_active})
        if path == "/revoke":
            return httpx.Response(200)
        assert path == "/token"
        return self.token(form)

    def token(self, form: dict[str, str]) -> httpx.Response:
        self.on_token()
        if self.refusal is not None:
            status, body = self.refusal
            return httpx.Response(status, json=body)
        if form["grant_type"] == "refresh_token" and form["refresh_token"] != self.refresh_token:
            return httpx.Response(400, json={"error": "invalid_grant"})
        self.refresh_token = f"refresh-{secrets.token_hex(4)}"
        answer = {
            "access_token": f"access-{secrets.token_hex(8)}",
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": self.refresh_token,
            "scope": "openid files",
            "id_token": self.signed({"nonce": self.nonce, **self.claims}),
        }
        # Not `json=`, which refuses numbers that are not finite.
        body = json.dumps({**answer, **self.answer})
        return httpx.Response(200, text=body, headers={"Content-Type": "application/json"})

    def described(self) -> dict[str, Any]:
        return {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/jwks",
            "introspection_endpoint": f"{ISSUER}/introspect",
            "revocation_endpoint": f"{ISSUER}/revoke",
            **self.metadata,
        }

    def public_key(self) -> dict[str, Any]:
        jwk = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**jwk, "kid": "one", "use": "sig"}

    def signed(self, claims: dict[str, Any], **header: Any) -> str:
        now = int(time.time())
        known = {
            "iss": ISSUER,
            "aud": "our-site",
            "sub": "ada.at.acme",
            "sid": "session-1",
            "iat": now,
            "exp": now + 300,
        }
        kept = {name: value for name, value in {**known, **claims}.items() if value is not None}
        return jwt.encode(kept, self.key, algorithm="ES256", headers={"kid": "one", **header})

    def count(self, path: str) -> int:
        return self.asked.count(path)


def asked_by(location: str) -> dict[str, str]:
    """Return the parameters of the authorization request in a redirect to the provider."""
    assert location.startswith(f"{ISSUER}/authorize?")
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


def make_grant(user: Any, **changes: Any) -> UpstreamGrant:
    """Create a grant that the user gave earlier and that is valid for an hour."""
    now = timezone.now()
    values: dict[str, Any] = {
        "provider": "acme",
        "user": user,
        "issuer": ISSUER,
        "subject": "ada.at.acme",
        "session_id": "session-1",
        "scopes": ["openid", "files"],
        "access_cipher": encrypt("access-0"),
        "refresh_cipher": encrypt("refresh-1"),
        "expires_at": now + timedelta(hours=1),
        "checked_at": now,
        "authorized_at": now,
    }
    return UpstreamGrant.objects.create(**{**values, **changes})


def dumped() -> str:
    """Return every value in the tables of third-party authorization, as a dump would show them."""
    rows: list[dict[str, Any]] = []
    for model in (UpstreamGrant, UpstreamBinding, UpstreamTransaction):
        rows.extend(model.objects.values())
    return json.dumps(
        rows,
        default=lambda value: (
            bytes(value).decode("latin-1") if isinstance(value, (bytes, memoryview)) else str(value)
        ),
    )
