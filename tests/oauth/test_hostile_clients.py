"""What a malicious client or user tries at the authorization server."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_grant_model

from mcp_django.auth import limits
from mcp_django.auth.credentials import rate_limit_source
from mcp_django.auth.security_log import MAX_PER_SOURCE, event_limiter
from mcp_django.models import AuthEvent
from mcp_django.oauth import authorize, registration, token
from mcp_django.oauth.models import Consent
from mcp_django.oauth.token import MAX_BODY_BYTES, RevokeView
from mcp_django.oauth.validator import Validator
from tests.kit.no_nul import refusing_nul
from tests.oauth import parties
from tests.oauth.asking import answer, ask, redirect_parameters
from tests.oauth.exchanges import (
    FORM,
    REVOKE,
    SECRET,
    TOKEN,
    call,
    error_of,
    make_code,
    post,
    redeem,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_said_yet():
    event_limiter.clear()


@pytest.fixture
def browser(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def remembering(site):
    """A client whose approvals are remembered for an hour."""
    site.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"REMEMBER_CONSENT": 3600}}
    return parties.make_app(
        registration_source="cimd",
        client_id="https://client.example/metadata.json",
        redirect_uris=f"{parties.REDIRECT} https://other.example/callback",
    )


@pytest.mark.parametrize("signed_in", [True, False])
def test_threat_27_asking_too_often_does_not_fill_the_security_log(
    user, app, signed_in, monkeypatch
):
    monkeypatch.setattr(authorize, "LIMIT", 3)
    client = Client()
    if signed_in:
        client.force_login(user)
    statuses = [ask(client, app, prompt="none").status_code for _ in range(3 + 20)]
    assert statuses[-1] == 429
    assert AuthEvent.objects.filter(kind="rate_limit").count() == MAX_PER_SOURCE


def test_threat_27_a_code_that_is_replayed_again_and_again_does_not_fill_the_security_log(
    user, app
):
    code, verifier = make_code(user, app)
    issued = redeem(app, code, verifier).json()["access_token"]
    for _ in range(20):
        assert redeem(app, code, verifier).status_code == 400
    assert call(issued).status_code == 401
    assert AuthEvent.objects.filter(kind="replay").count() == 1 + MAX_PER_SOURCE


PARAMETERS = (
    *("client_id", "redirect_uri", "scope", "state", "resource", "response_type", "prompt"),
    *("code_challenge", "code_challenge_method", "nonce", "claims", "response_mode", "anything"),
)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("signed_in", [True, False])
def test_a_nul_in_an_authorization_request_is_no_error_of_the_server(browser, app, signed_in, name):
    client = browser if signed_in else Client()
    for value in ("\0", "a\0b"):
        for more in ({}, {"prompt": "none"}):
            with refusing_nul():
                page = ask(client, app, **{**more, name: value})
            assert page.status_code == 400 or name != "client_id"
            assert page.status_code in (200, 302, 400)


@pytest.mark.parametrize(
    "name",
    [
        *("client_id", "client_secret", "code", "redirect_uri", "code_verifier", "refresh_token"),
        *("grant_type", "scope", "resource", "assertion", "token", "token_type_hint"),
    ],
)
@pytest.mark.parametrize("address", [TOKEN, REVOKE])
def test_a_nul_in_a_form_is_refused(app, address, name):
    credentials = b64encode(b"a\0b:c\0d").decode()
    with refusing_nul():
        for form in ({name: "a\0b"}, {name: "x", "b\0": "x"}):
            assert error_of(post(form, path=address)) == (400, "invalid_request")
        answered = post({name: "x"}, path=address, authorization=f"Basic {credentials}")
        assert answered.status_code in (400, 401)


def test_a_nul_in_what_a_client_says_of_itself_registers_nothing(site):
    good = {"redirect_uris": [parties.REDIRECT], "token_endpoint_auth_method": "none"}
    for odd in (
        *(
            {"client_name": "a\0b"},
            {"client_name": "\ud800"},
            {"redirect_uris": ["https://a\0.b/"]},
        ),
        *({"scope": "mcp\0"}, {"client_uri": "https://a.b/\0"}, {"a\0": "b\0"}),
    ):
        with refusing_nul():
            answered = Client().post("/oauth/register", {**good, **odd}, "application/json")
        assert answered.status_code in (201, 400)
        if answered.status_code == 201:
            assert "\\u0000" not in answered.content.decode()


def test_threat_11_an_approval_renews_only_what_it_was_of(browser, remembering):
    wide = {"scope": "mcp mcp:write"}
    redirect_parameters(answer(browser, ask(browser, remembering, **wide), scope=["mcp:write"]))
    assert "code" in redirect_parameters(ask(browser, remembering, **wide))
    Consent.objects.update(updated_at=timezone.now() - timedelta(hours=2))
    redirect_parameters(answer(browser, ask(browser, remembering, scope="mcp")))
    assert "code" in redirect_parameters(ask(browser, remembering, scope="mcp"))
    assert ask(browser, remembering, **wide).status_code == 200
    # The page still shows what the assistant holds.
    assert Consent.objects.get().scopes == ["mcp", "mcp:write"]


def test_threat_11_an_approval_for_one_address_is_none_for_another(browser, remembering):
    wide = {"scope": "mcp mcp:write"}
    redirect_parameters(answer(browser, ask(browser, remembering, **wide), scope=["mcp:write"]))
    other = {"redirect_uri": "https://other.example/callback"}
    redirect_parameters(answer(browser, ask(browser, remembering, scope="mcp", **other)))
    assert ask(browser, remembering, **wide, **other).status_code == 200


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_threat_27_the_addresses_of_one_subscriber_are_one_source(address, source):
    assert rate_limit_source(address) == source


def _register(body: str, **more: Any) -> int:
    return Client().post("/oauth/register", body, "application/json", **more).status_code


def test_threat_09_who_has_many_addresses_of_ipv6_registers_no_more_clients():
    for number in range(registration.PER_ADDRESS_PER_HOUR):
        assert _register("{}", REMOTE_ADDR=f"2001:db8::{number + 1:x}") == 400
    assert _register("{}", REMOTE_ADDR="2001:db8::ffff:1") == 429
    assert _register("{}", REMOTE_ADDR="2001:db8:0:1::1") == 400


def test_threat_09_no_header_switches_the_limit_of_registrations_off(monkeypatch):
    monkeypatch.setattr(limits, "UNKNOWN_FACTOR", 2)
    monkeypatch.setattr(registration, "PER_ADDRESS_PER_HOUR", 5)
    # A proxy that no setting mentions has many clients: they may register more than one address.
    for number in range(2 * registration.PER_ADDRESS_PER_HOUR):
        status = _register(
            "{}", REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR=f"203.0.113.{number}"
        )
        assert status == 400
    assert _register("{}", REMOTE_ADDR="10.0.0.2", HTTP_FORWARDED="for=198.51.100.9") == 429
    assert _register("{}", REMOTE_ADDR="", HTTP_X_FORWARDED_FOR="198.51.100.9") == 429
    assert _register("{}", REMOTE_ADDR="127.0.0.1") == 400


def test_threat_27_no_header_switches_the_limit_of_failing_clients_off(monkeypatch):
    monkeypatch.setattr(limits, "UNKNOWN_FACTOR", 2)
    monkeypatch.setattr(token, "MAX_FAILURES", 5)
    monkeypatch.setattr(token, "MAX_FAILURES_OF_ADDRESS", token.MAX_FAILURES + 1)

    def fail(number: int) -> int:
        form = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "nobody"}
        headers = {"X-Forwarded-For": f"203.0.113.{number}"}
        return Client().post(TOKEN, form, headers=headers).status_code

    # Failures are not counted by the named client: an attacker could block it for all others.
    times = 2 * (token.MAX_FAILURES + 1)
    assert [fail(number) for number in range(times + 1)] == [401] * times + [429]


def test_threat_27_no_header_switches_the_limit_of_the_consent_page_off(app, monkeypatch):
    monkeypatch.setattr(limits, "UNKNOWN_FACTOR", 2)
    monkeypatch.setattr(authorize, "LIMIT", 5)

    def statuses(times: int, **meta: str) -> list[int]:
        client = Client(**meta)
        return [ask(client, app, prompt="none").status_code for _ in range(times)]

    behind = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.7"}
    assert statuses(11, **behind) == [400] * 10 + [429]
    # All addresses of one subscriber count as one.
    assert statuses(5, REMOTE_ADDR="2001:db8::1") == [400] * 5
    assert statuses(1, REMOTE_ADDR="2001:db8::2") == [429]


class _Endless(BytesIO):
    """A body without an end; `taken` counts the bytes that were read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size > 0, "Somebody reads to the end."
        self.taken += size
        return b"a" * size


def test_threat_27_a_body_without_a_length_is_not_read_to_its_end():
    body = _Endless()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/oauth/revoke",
        "query_string": b"",
        "headers": [(b"content-type", FORM.encode()), (b"transfer-encoding", b"chunked")],
    }
    response = RevokeView.as_view()(ASGIRequest(scope, body))
    assert response.status_code == 413
    assert body.taken == MAX_BODY_BYTES + 1


@pytest.mark.parametrize("path", [TOKEN, REVOKE])
@pytest.mark.parametrize("charset", ["utf-16", "iso-8859-1", "utf8"])
def test_threat_20_a_form_in_another_charset_is_refused_in_json(path, charset):
    response = Client().post(path, b"token=x", content_type=f"{FORM}; charset={charset}")
    assert error_of(response) == (400, "invalid_request")
    assert response["Access-Control-Allow-Origin"] == "*"


def test_threat_15_a_client_cannot_authenticate_as_one_and_ask_as_another(user):
    confidential = {"client_type": "confidential", "client_secret": SECRET}
    mine, theirs = parties.make_app(**confidential), parties.make_app(**confidential)
    pair = b64encode(f"{mine.client_id}:{SECRET}".encode()).decode()
    for owner in (mine, theirs):
        code, verifier = make_code(user, owner)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": parties.REDIRECT,
            "client_id": theirs.client_id,
        }
        refused = post(form, Authorization=f"Basic {pair}")
        assert error_of(refused) == (401, "invalid_client")
    token = {"token": parties.make_token(user, mine), "client_id": theirs.client_id}
    refused = post(token, path=REVOKE, Authorization=f"Basic {pair}")
    assert error_of(refused) == (401, "invalid_client")
    assert call(token["token"]).status_code == 200


@pytest.mark.parametrize("source", ["dcr", "cimd"])
@pytest.mark.parametrize(
    "more", [{}, {"response_type": "token"}, {"resource": "https://a.example/"}]
)
def test_threat_02_a_link_to_this_site_leads_nobody_on_who_is_not_signed_in(
    user, app, source, more
):
    app.registration_source = source
    app.save()
    response = ask(Client(), app, prompt="none", **more)
    assert response.status_code == 400
    assert "Location" not in response
    app.registration_source = "manual"
    app.save()
    assert "error" in redirect_parameters(ask(Client(), app, prompt="none", **more))


@pytest.mark.parametrize(
    "step", ["get_code_challenge", "get_code_challenge_method", "confirm_redirect_uri"]
)
def test_threat_15_a_code_that_is_gone_halfway_is_an_error_like_any_other(
    user, app, monkeypatch, step
):
    code, verifier = make_code(user, app)
    usual = getattr(Validator, step)

    def meanwhile(self: Validator, *args: Any, **kwargs: Any) -> Any:
        get_grant_model().objects.all().delete()
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(Validator, step, meanwhile)
    assert error_of(redeem(app, code, verifier)) == (400, "invalid_grant")
