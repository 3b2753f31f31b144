"""The authorization request as a browser opens it, and the token request as a host sends it."""

from __future__ import annotations

import base64
import hashlib
import secrets
from urllib.parse import urlencode

from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.discovery import Found
from mcp_django.management.doctor.hosts import Host
from mcp_django.management.doctor.messages import Answer, Door, DoorError, get, post_form
from mcp_django.management.doctor.registration import Client

AUTHORIZE, TOKEN = "authorization", "token"
REFUSALS = ("invalid_grant", "invalid_client")


def examine(chart: Chart, door: Door, host: Host, client: Client, found: Found) -> None:
    """Try the sign-in up to where somebody has to type a password, and the token endpoint."""
    verifier = secrets.token_urlsafe(48)
    _authorize(chart, door, host, client, found, verifier)
    _token(chart, door, host, client, found, verifier)


def _authorize(
    chart: Chart, door: Door, host: Host, client: Client, found: Found, verifier: str
) -> None:
    address = found.server["authorization_endpoint"]
    asked = _authorization_request(host, client, found, verifier)
    joint = "&" if "?" in address else "?"
    try:
        answer = door.send(get(f"{address}{joint}{urlencode(asked)}", Accept="text/html"))
    except DoorError as exc:
        chart.failed(AUTHORIZE, str(exc), "Name an endpoint that answers.")
        return
    if answer.location and "error=" not in answer.location:
        where = answer.location.partition("?")[0]
        chart.ok(AUTHORIZE, f"{answer.status}: sends the user to {where}")
    elif answer.status == 200:
        chart.ok(AUTHORIZE, "200: a page for the user")
    else:
        told = answer.location.partition("?")[2] or str(answer.status)
        chart.failed(AUTHORIZE, f"refused: {told}", _authorize_fix(answer))


def _authorization_request(
    host: Host, client: Client, found: Found, verifier: str
) -> dict[str, str]:
    digest = hashlib.sha256(verifier.encode()).digest()
    scopes = dict.fromkeys((*found.scopes, *_known(host, found)))
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": host.redirects[0],
        "state": secrets.token_urlsafe(16),
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "scope": " ".join(scopes),
        "resource": found.resource if host.reads_resource else "",
    }
    return {name: value for name, value in asked.items() if value}


def _known(host: Host, found: Found) -> tuple[str, ...]:
    """What a host adds to the scopes by itself, where the authorization server lists it."""
    listed = found.server.get("scopes_supported") or ()
    return tuple(scope for scope in host.scopes if scope in listed)


def _authorize_fix(answer: Answer) -> str:
    if "error=invalid_scope" in answer.location:
        return "Name the scope in MCP_DJANGO['SCOPES']."
    if "error=invalid_target" in answer.location:
        return "The resource has to be the address of a server of this site: see BASE_URL."
    if answer.status == 404:
        return "Include 'mcp_django.oauth.urls' at the root of ROOT_URLCONF."
    return "Set LOGIN_URL to a page of the site, and look at the site's log."


def _token(
    chart: Chart, door: Door, host: Host, client: Client, found: Found, verifier: str
) -> None:
    """Redeem a code that nobody issued: the refusal has to be one that hosts can read."""
    form = {
        "grant_type": "authorization_code",
        "code": f"doctor-{secrets.token_hex(8)}",
        "redirect_uri": host.redirects[0],
        "client_id": client.client_id,
        "code_verifier": verifier,
        **({"client_secret": client.secret} if client.secret else {}),
        **({"resource": found.resource} if host.reads_resource else {}),
    }
    try:
        answer = door.send(post_form(found.server["token_endpoint"], urlencode(form)))
    except DoorError as exc:
        chart.failed(TOKEN, str(exc), "Name an endpoint that answers.")
        return
    error = (answer.json() or {}).get("error")
    if answer.status in (400, 401) and error in REFUSALS:
        chart.ok(TOKEN, f"refuses a made-up code with {answer.status} {error}")
    elif answer.location:
        fix = "Answer both spellings of the address, with and without the slash at its end."
        chart.failed(TOKEN, f"{answer.status}: redirects to {answer.location}", fix)
    elif answer.status == 429:
        chart.warned(TOKEN, "429: token requests are limited", "Wait, and try again.")
    else:
        kind = answer.content_type or "nothing"
        chart.failed(
            TOKEN,
            f"{answer.status} {error or kind} instead of 400 invalid_grant as JSON",
            "Serve the token endpoint of mcp_django.oauth, exempt from CSRF and login middleware.",
        )
