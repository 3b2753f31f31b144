"""Threats 1, 11 and 12 against a site in another process, where nothing is exempt by accident."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from mcp_django.management.doctor_hosts import HOSTS
from tests.oauth.live.host import Connection, message
from tests.oauth.parties import pkce
from tests.spec import spec

pytestmark = [pytest.mark.outside, pytest.mark.timeout(600)]
STRANGER = "https://evil.example"


@pytest.fixture
def connection(live, browser, http):
    """A registered client that has not sent an authorization request yet."""
    made = Connection(host=HOSTS["gemini-cli"], url=live.mcp, browser=browser, http=http)
    made.discover()
    made.register()
    return made


def request_of(connection: Connection, **changes: str) -> str:
    """Return the address of an authorization request."""
    query = {
        "response_type": "code",
        "client_id": connection.client["client_id"],
        "redirect_uri": connection.host.redirects[0],
        "state": "a-state",
        "code_challenge": pkce()[1],
        "code_challenge_method": "S256",
        "scope": "mcp",
        "resource": connection.url,
        **changes,
    }
    return f"{connection.server['authorization_endpoint']}?{urlencode(query)}"


@spec("AUT-13")
@pytest.mark.parametrize("origin", [STRANGER, "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
def test_threat_01_a_foreign_origin_is_refused_before_anybody_is_asked_who_he_is(
    live, http, verb, origin
):
    headers, body = message("tools/list", {})
    given = {**headers, "Origin": origin, "Authorization": "Bearer whatever"}
    answer = http.request(verb, live.mcp, headers=given, json=body if verb == "POST" else None)
    assert answer.status_code == 403
    assert "www-authenticate" not in answer.headers


def test_threat_01_a_rebound_name_is_refused(live, http):
    headers, body = message("tools/list", {})
    for path in ("/mcp", "/.well-known/oauth-authorization-server", "/oauth/register"):
        answer = http.post(
            f"{live.base}{path}", headers={**headers, "Host": "evil.example"}, json=body
        )
        assert answer.status_code in (400, 403), path
        assert "evil.example" not in answer.text


@spec("AUT-28")
def test_threat_11_consent_is_asked_for_each_client_and_each_time(connection, live, browser, http):
    connection.authorize()
    second = Connection(host=HOSTS["gemini-cli"], url=live.mcp, browser=browser, http=http)
    second.discover()
    second.register()
    other_server = f"{live.base}/billing/mcp"
    for url in (
        request_of(second),
        request_of(connection),
        request_of(connection, approval_prompt="auto"),
        request_of(connection, resource=other_server, approval_prompt="auto"),
        request_of(connection, redirect_uri="http://localhost:5555/oauth/callback"),
    ):
        assert browser.open(url) is None, url
        assert any(("decision", "allow") in form.buttons for form in browser.forms()), url


@spec("AUT-28")
def test_threat_12_consent_needs_the_token_of_its_own_page(connection, browser):
    browser.open(request_of(connection))
    browser.sign_in()
    forged = browser.send_without_csrf("decision", "allow")
    assert forged.status_code == 403
    assert "location" not in forged.headers
    landed = browser.press("allow")
    assert parse_qs(urlsplit(landed).query)["state"] == ["a-state"]


@spec("AUT-28")
def test_threat_12_no_page_can_be_framed(connection, browser):
    browser.open(request_of(connection))
    browser.sign_in()
    consent = browser.page
    browser.open(request_of(connection, redirect_uri="https://evil.example/callback"))
    refused = browser.page
    assert consent is not None
    assert refused is not None
    assert (consent.status_code, refused.status_code) == (200, 400)
    browser.open(request_of(connection))
    for page in (consent, refused, browser.send_without_csrf("decision", "allow")):
        assert page.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"


@spec("AUT-27")
def test_a_denial_names_the_issuer_too(connection, browser):
    landed = browser.deny(request_of(connection))
    answer = parse_qs(urlsplit(landed).query)
    assert answer["error"] == ["access_denied"]
    assert answer["iss"] == [connection.server["issuer"]]


def test_threat_23_no_token_is_in_the_database_or_the_log(connection, live):
    connection.authorize()
    assert connection.call("whoami").status_code == 200
    stored, logged = live.tables(), live.server.output
    for name in ("access_token", "refresh_token"):
        assert connection.tokens[name] not in stored
        assert connection.tokens[name] not in logged
