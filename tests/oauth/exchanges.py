"""Helpers for the token endpoint: they make codes, redeem them, refresh tokens and call tools."""

from __future__ import annotations

import hashlib
import json
import secrets
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_grant_model

from tests.oauth.parties import REDIRECT, RESOURCE, pkce

TOKEN, REVOKE = "/oauth/token", "/oauth/revoke"
FORM = "application/x-www-form-urlencoded"
SECRET = "the-secret-of-a-client"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def make_code(
    user: Any,
    app: Any,
    *,
    scope: str = "mcp",
    resource: tuple[str, ...] = (RESOURCE,),
    seconds: int = 60,
    redirect_uri: str = REDIRECT,
) -> tuple[str, str]:
    """Store a code as the authorization endpoint does, and return it with its verifier."""
    verifier, challenge = pkce()
    code = secrets.token_urlsafe(24)
    get_grant_model().objects.create(
        user=user,
        application=app,
        code=digest(code),
        expires=timezone.now() + timedelta(seconds=seconds),
        redirect_uri=redirect_uri,
        scope=scope,
        code_challenge=challenge,
        code_challenge_method="S256",
        resource=list(resource),
    )
    return code, verifier


def post(form: Any, *, path: str = TOKEN, **headers: str) -> Any:
    """Post a form (a dictionary or text) from a client without cookies."""
    from urllib.parse import urlencode

    body = form if isinstance(form, (str, bytes)) else urlencode(form, doseq=True)
    client = Client(enforce_csrf_checks=True, headers=headers)
    return client.post(path, body, content_type=FORM)


def redeem(app: Any, code: str, verifier: str, **more: Any) -> Any:
    """Redeem a code; keyword arguments replace parameters, and ``None`` removes one."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": app.client_id,
        "redirect_uri": REDIRECT,
        "code_verifier": verifier,
    } | more
    return post({name: value for name, value in form.items() if value is not None})


def refresh(app: Any, token: str, **more: Any) -> Any:
    """Use a refresh token."""
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": app.client_id}
    return post(form | more)


def sign_in(user: Any, app: Any, **more: Any) -> dict[str, Any]:
    """Redeem a new code, and return the answer of the token endpoint."""
    code, verifier = make_code(user, app, **more)
    response = redeem(app, code, verifier)
    assert response.status_code == 200, response.content
    return dict(response.json())


def message_of(tool: str, arguments: dict[str, Any], **capabilities: Any) -> dict[str, Any]:
    """Return a stateless tool call by a client with these capabilities."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def headers_of(tool: str, token: str) -> dict[str, str]:
    """Return the headers of such a call."""
    return {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        "Authorization": f"Bearer {token}",
    }


def call(token: str, *, path: str = "/mcp", tool: str = "whoami", **arguments: Any) -> Any:
    """Call a tool without a session, with a bearer."""
    return Client().post(
        path,
        json.dumps(message_of(tool, arguments)),
        content_type="application/json",
        headers=headers_of(tool, token),
    )


def error_of(response: Any) -> tuple[int, str]:
    """Return the status and the OAuth error of a response, which must be JSON with `no-store`."""
    assert response["Content-Type"] == "application/json", response.content
    assert response["Cache-Control"] == "no-store"
    return response.status_code, response.json()["error"]
