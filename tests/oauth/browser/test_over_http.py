"""The same site over a socket, without a test client that imitates a browser."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from oauth2_provider.models import get_grant_model

from tests.oauth import parties
from tests.oauth.asking import AUTHORIZE, request_of


@pytest.fixture
def signed_in(live, ada):
    """The cookies of a user who has signed in through the login page."""
    with httpx.Client(base_url=live, timeout=60) as browser:
        page = browser.get("/login/")
        form = {"username": "ada", "password": "ada", "csrfmiddlewaretoken": token_of(page)}
        answer = browser.post("/login/?next=/oauth/connections/", data=form)
        assert answer.headers["location"] == "/oauth/connections/"
        yield browser


def token_of(page: httpx.Response) -> str:
    match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert match, page.text
    return match[1]


def ask(browser: httpx.Client, app: Any, **changes: Any) -> httpx.Response:
    query = request_of(app, resource=f"{str(browser.base_url).rstrip('/')}/mcp", **changes)
    return browser.get(AUTHORIZE, params=query)


def allow(browser: httpx.Client, page: httpx.Response, **more: str) -> httpx.Response:
    match = re.search(r'name="request" value="([^"]+)"', page.text)
    assert match, page.text
    return browser.post(AUTHORIZE, data={"request": match[1], "decision": "allow", **more})


def test_threat_11_a_second_client_is_asked_about_over_http(signed_in):
    first, second = parties.make_app(), parties.make_app(name="Second")
    page = ask(signed_in, first)
    assert allow(signed_in, page, csrfmiddlewaretoken=token_of(page)).status_code == 302
    for app in (second, first):
        again = ask(signed_in, app, approval_prompt="auto")
        assert again.status_code == 200
        assert 'value="deny"' in again.text
    assert get_grant_model().objects.count() == 1


def test_threat_12_consent_cannot_be_forged_over_http(signed_in, live):
    page = ask(signed_in, parties.make_app())
    forged = [
        allow(signed_in, page),
        allow(signed_in, page, csrfmiddlewaretoken="x" * 64),
    ]
    signed_in.headers["Origin"] = "https://evil.example"
    forged.append(allow(signed_in, page, csrfmiddlewaretoken=token_of(page)))
    for response in (page, *forged):
        assert response.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert [refusal.status_code for refusal in forged] == [403, 403, 403]
    assert not get_grant_model().objects.exists()
    signed_in.headers["Origin"] = live
    answer = allow(signed_in, page, csrfmiddlewaretoken=token_of(page))
    assert answer.status_code == 302
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
