"""An MCP host as its vendor wrote it: discovery, registration, sign-in, calls and refreshes.

It trusts nothing: what a real host compares is compared, and a difference fails the test.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from mcp_django.management.doctor_hosts import HostProfile
from mcp_django.management.doctor_oauth import resource_addresses, server_address
from mcp_django.management.doctor_transport import ProbeResponse
from tests.oauth.live.browser import Browser
from tests.oauth.parties import pkce

SECONDS = 60


@dataclass(slots=True)
class Connection:
    """The connection of one host to one endpoint, for the user of `browser`."""

    host: HostProfile
    url: str
    browser: Browser
    http: httpx.Client
    document_id: str = ""
    redirect: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    scope: str = ""

    def discover(self) -> None:
        """Discover the authorization server in the order that this host uses."""
        refused = self.request("tools/list")
        assert refused.status_code == 401, refused.text
        challenge = _answer(refused).challenge()
        assert challenge is not None
        self.scope = challenge.get("scope", "")
        parts = urlsplit(self.url)
        issuer = f"{parts.scheme}://{parts.netloc}"
        if self.host.reads_resource:
            document = self._first(resource_addresses(self.url, _answer(refused)))
            assert document["resource"] == self.url
            issuer = document["authorization_servers"][0]
        self.server = self._first([server_address(issuer, form) for form in self.host.forms])
        assert self.server["issuer"] == issuer
        assert self.server["code_challenge_methods_supported"] == ["S256"]

    def register(self) -> None:
        """Register the client: by the host's metadata document if it has one, else dynamically."""
        if self.document_id:
            assert self.server["client_id_metadata_document_supported"] is True
            assert "none" in self.server["token_endpoint_auth_methods_supported"]
            self.client = {"client_id": self.document_id}
            return
        answer = self.http.post(self.server["registration_endpoint"], json=self.host.metadata)
        assert answer.status_code == 201, answer.text
        self.client = answer.json()
        assert self.client["redirect_uris"] == list(self.host.redirects)
        assert self.client["token_endpoint_auth_method"] == self.host.auth_method
        assert {*self.client["grant_types"]} == {"authorization_code", "refresh_token"}
        if self.host.auth_method != "none":
            assert self.client["client_secret_expires_at"] == 0

    def authorize(self, scope: str = "") -> None:
        """Sign in, consent, and redeem the code."""
        verifier, challenge = pkce()
        state = secrets.token_urlsafe(16)
        redirect = self.redirect or self.host.redirects[0]
        listed = {*self.server["scopes_supported"]}
        added = [name for name in self.host.scopes if name in listed]
        query = {
            "response_type": "code",
            "client_id": self.client["client_id"],
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **self._resource,
        }
        if wanted := " ".join([scope or self.scope, *added]).strip():
            query["scope"] = wanted
        landed = self.browser.authorize(
            f"{self.server['authorization_endpoint']}?{urlencode(query)}"
        )
        assert landed.partition("?")[0] == redirect
        answer = parse_qs(urlsplit(landed).query)
        assert "error" not in answer, answer
        assert answer["state"] == [state]
        assert answer["iss"] == [self.server["issuer"]]
        (code,) = answer["code"]
        self.redeem(
            grant_type="authorization_code",
            code=code,
            redirect_uri=redirect,
            code_verifier=verifier,
        )

    def refresh(self) -> None:
        """Exchange the refresh token, which must rotate."""
        before = dict(self.tokens)
        self.redeem(grant_type="refresh_token", refresh_token=before["refresh_token"])
        assert self.tokens["refresh_token"] != before["refresh_token"]
        assert self.tokens["access_token"] != before["access_token"]

    def redeem(self, **form: str) -> None:
        """Send a form to the token endpoint, with the client's authentication method."""
        answer = self._post("token_endpoint", form | self._resource)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["cache-control"] == "no-store"
        self.tokens = answer.json()
        assert self.tokens["token_type"].lower() == "bearer"

    def revoke(self) -> None:
        """Revoke the tokens (RFC 7009)."""
        answer = self._post("revocation_endpoint", {"token": self.tokens["refresh_token"]})
        assert answer.status_code == 200, answer.text

    def call(self, name: str, **arguments: str) -> httpx.Response:
        """Call a tool with the access token."""
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send one stateless request."""
        headers, body = message(method, dict(params or {}))
        if self.tokens:
            headers["Authorization"] = f"Bearer {self.tokens['access_token']}"
        return self.http.post(self.url, json=body, headers=headers)

    @property
    def _resource(self) -> dict[str, str]:
        return {"resource": self.url} if self.host.reads_resource else {}

    def _post(self, endpoint: str, form: dict[str, str]) -> httpx.Response:
        secret, auth = self.client.get("client_secret"), None
        given = {"client_id": self.client["client_id"], **form}
        if secret and self.client["token_endpoint_auth_method"] == "client_secret_basic":
            auth = (self.client["client_id"], secret)
        elif secret:
            given["client_secret"] = secret
        return self.http.post(self.server[endpoint], data=given, auth=auth)

    def _first(self, addresses: list[str]) -> dict[str, Any]:
        for address in addresses:
            # Clients of 2025-03-26 may send this header during discovery (AUT-19).
            answer = self.http.get(address, headers={"MCP-Protocol-Version": self.host.revision})
            if answer.status_code == 200:
                assert answer.headers["content-type"].startswith("application/json")
                return dict(answer.json())
        raise AssertionError(f"None of these answers: {addresses}")


def message(method: str, params: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return a request of 2026-07-28, and the headers that repeat parts of it."""
    revision = "2026-07-28"
    envelope = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": envelope}}
    return headers, body


def _answer(response: httpx.Response) -> ProbeResponse:
    return ProbeResponse(
        status=response.status_code, headers=dict(response.headers), body=response.content
    )
