"""An assistant that asks for access, and a user who answers it, as far as HTTP sees them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from tests.oauth import parties

AUTHORIZE = "/oauth/authorize"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def request_of(app: Any, **changes: Any) -> dict[str, Any]:
    """The parameters of an authorization request; a change to ``None`` leaves one out."""
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
    """The answer to an authorization request."""
    return browser.get(f"{AUTHORIZE}?{urlencode(request_of(app, **changes), doseq=True)}")


def signed(page: Any) -> str:
    """What the page carries of the request."""
    match = re.search(r'name="request" value="([^"]+)"', page.content.decode())
    assert match, page.content.decode()
    return match[1]


def answer(browser: Any, page: Any, decision: str = "allow", scope: Any = (), **more: Any) -> Any:
    """The user presses a button on the page, with these optional scopes ticked."""
    return browser.post(
        AUTHORIZE, {"request": signed(page), "decision": decision, "scope": list(scope), **more}
    )


def told(response: Any) -> dict[str, str]:
    """What a redirect tells the client, each parameter once."""
    assert response.status_code == 302, response.content.decode()
    pairs = parse_qsl(urlsplit(response["Location"]).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def all_told(response: Any) -> dict[str, list[str]]:
    """What a redirect tells the client, with every repetition."""
    return parse_qs(urlsplit(response["Location"]).query, keep_blank_values=True)
