"""Helpers that send an authorization request and answer its consent page, over HTTP."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from tests.oauth import parties

AUTHORIZE = "/oauth/authorize"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def request_of(app: Any, **changes: Any) -> dict[str, Any]:
    """Return the parameters of an authorization request; a change to ``None`` removes one."""
    values = {
        "response_type": "code",
        "client_id": app.client_id,
        "redirect_uri": parties.REDIRECT,
        "scope": "mcp",
        "state": "s t/1",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": parties.RESOURCE,
    } | changes
    return {name: value for name, value in values.items() if value is not None}


def ask(browser: Any, app: Any, **changes: Any) -> Any:
    """Send an authorization request and return the response."""
    return browser.get(f"{AUTHORIZE}?{urlencode(request_of(app, **changes), doseq=True)}")


def signed(page: Any) -> str:
    """Return the signed request in the form of the consent page."""
    match = re.search(r'name="request" value="([^"]+)"', page.content.decode())
    assert match, page.content.decode()
    return match[1]


def answer(browser: Any, page: Any, decision: str = "allow", scope: Any = (), **more: Any) -> Any:
    """Submit the consent page with this decision and these optional scopes."""
    return browser.post(
        AUTHORIZE, {"request": signed(page), "decision": decision, "scope": list(scope), **more}
    )


def redirect_parameters(response: Any) -> dict[str, str]:
    """Return the parameters of the redirect to the client, each of which must occur once."""
    assert response.status_code == 302, response.content.decode()
    pairs = parse_qsl(urlsplit(response["Location"]).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def all_redirect_parameters(response: Any) -> dict[str, list[str]]:
    """Return the parameters of the redirect to the client, with repeated values."""
    return parse_qs(urlsplit(response["Location"]).query, keep_blank_values=True)
