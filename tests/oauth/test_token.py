"""The endpoints that clients post to: responses are JSON, not cached, and do not repeat input."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

from mcp_django.oauth import token
from tests.oauth.exchanges import FORM, REVOKE, TOKEN, error_of, make_code, post, redeem
from tests.oauth.parties import REDIRECT, make_app

spec = pytest.mark.spec
pytestmark = pytest.mark.django_db
PATHS = (TOKEN, f"{TOKEN}/", REVOKE, f"{REVOKE}/", "/token")
EVIL = "<script>alert('evil-value')</script>"


@spec("AUT-29")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["get", "put", "delete", "patch"])
def test_other_verbs_are_refused_in_json(path, method):
    response = getattr(Client(), method)(path)
    assert error_of(response) == (405, "invalid_request")
    assert response["Allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("path", PATHS)
def test_any_origin_may_ask_without_credentials(path):
    headers = {"Origin": "http://localhost:6274", "Access-Control-Request-Method": "POST"}
    response = Client().options(path, headers=headers)
    assert response.status_code == 204
    assert response["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in response
    allowed = {name.strip() for name in response["Access-Control-Allow-Headers"].split(",")}
    assert allowed >= {"Authorization", "Content-Type", "MCP-Protocol-Version"}
    refused = post({"grant_type": "x"}, path=path, Origin="http://localhost:6274")
    assert refused["Access-Control-Allow-Origin"] == "*"


@spec("AUT-29")
@pytest.mark.parametrize(
    ("form", "status"),
    [
        ("", 400),
        ("grant_type=", 400),
        ("grant_type=authorization_code&code=a&code=b", 400),
        ("grant_type=refresh_token&client_id=a&client_id=b", 400),
        ("grant_type=refresh_token&client_id=a%00b&refresh_token=x", 400),
        (f"grant_type={'x' * token.MAX_BODY_BYTES}", 413),
        (b"\xff\xfe=%ff", 400),
    ],
)
def test_malformed_forms_are_refused(form, status):
    assert error_of(post(form)) == (status, "invalid_request")


def test_parameters_in_the_address_are_refused(user, app):
    code, verifier = make_code(user, app)
    form = {"grant_type": "authorization_code", "code": code, "client_id": app.client_id}
    response = post(form, path=f"{TOKEN}?code_verifier={verifier}")
    assert error_of(response) == (400, "invalid_request")


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
def test_other_types_of_body_are_refused(content_type):
    response = Client().post(TOKEN, "{}", content_type=content_type)
    assert error_of(response) == (400, "invalid_request")


@spec("AUT-21", "AUT-29")
@pytest.mark.parametrize(
    "grant_type",
    [
        "password",
        "client_credentials",
        "urn:ietf:params:oauth:grant-type:device_code",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
        EVIL,
    ],
)
def test_grants_that_are_not_on_are_unknown(app, grant_type):
    form = {"grant_type": grant_type, "client_id": app.client_id, "username": "a", "password": "b"}
    assert error_of(post(form)) == (400, "unsupported_grant_type")


@spec("AUT-29")
@pytest.mark.parametrize(
    "name",
    [
        "grant_type",
        "code",
        "client_id",
        "client_secret",
        "redirect_uri",
        "code_verifier",
        "refresh_token",
        "resource",
        "scope",
    ],
)
@pytest.mark.parametrize("grant_type", ["authorization_code", "refresh_token"])
def test_threat_20_no_answer_repeats_a_value(user, app, name, grant_type):
    code, verifier = make_code(user, app)
    form = {
        "grant_type": grant_type,
        "client_id": app.client_id,
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": verifier,
        "refresh_token": "x",
    } | {name: EVIL}
    response = post(form)
    assert response["Content-Type"] == "application/json"
    assert b"evil-value" not in response.content
    assert not any("evil-value" in value for value in response.headers.values())


def test_a_mistake_of_ours_is_told_in_json_without_what_was_sent(user, app, monkeypatch, caplog):
    def fail(request: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("mcp_django.oauth.token._canonicalize_resources", fail)
    code, verifier = make_code(user, app)
    assert error_of(redeem(app, code, verifier)) == (500, "server_error")
    assert "broken" in caplog.text
    assert code not in caplog.text


@spec("AUT-29")
def test_an_unknown_client_gets_401_in_the_scheme_that_it_tried():
    form = {"grant_type": "authorization_code", "code": "x", "code_verifier": "y" * 43}
    response = post(form | {"client_id": "nobody"})
    assert error_of(response) == (401, "invalid_client")
    assert "WWW-Authenticate" not in response
    basic = base64.b64encode(b"nobody:secret").decode()
    response = post(form, Authorization=f"Basic {basic}")
    assert error_of(response) == (401, "invalid_client")
    assert response["WWW-Authenticate"] == 'Basic realm="oauth"'


def test_a_client_authenticates_in_one_way(user):
    app = make_app(client_type="confidential", client_secret="s" * 40)
    code, verifier = make_code(user, app)
    basic = base64.b64encode(f"{app.client_id}:{'s' * 40}".encode()).decode()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": verifier,
    }
    both = post(form | {"client_secret": "s" * 40}, Authorization=f"Basic {basic}")
    assert error_of(both) == (400, "invalid_request")
    assert post(form, Authorization=f"Basic {basic}").status_code == 200


def test_threat_08_an_unknown_client_document_is_not_fetched(app, monkeypatch):
    fetched: list[str] = []
    from mcp_django.oauth.cimd import Fetcher

    monkeypatch.setattr(Fetcher, "fetch", lambda self, url: fetched.append(url))
    document = "https://client.example/oauth/metadata.json"
    for form in (
        {"grant_type": "authorization_code", "code": "x", "client_id": document},
        {"grant_type": "refresh_token", "refresh_token": "x", "client_id": document},
    ):
        assert error_of(post(form)) == (401, "invalid_client")
    assert error_of(post({"token": "x", "client_id": document}, path=REVOKE))[0] == 401
    assert fetched == []


@pytest.mark.parametrize("path", [TOKEN, REVOKE])
def test_threat_27_who_fails_too_often_waits(app, path):
    form = {
        "grant_type": "refresh_token",
        "refresh_token": "x",
        "token": "x",
        "client_id": "nobody",
    }
    for _ in range(token.MAX_FAILURES):
        assert post(form, path=path).status_code == 401
    response = post(form, path=path)
    assert error_of(response) == (429, "slow_down")
    assert 0 < int(response["Retry-After"]) <= token.WINDOW_SECONDS
    # Another client at the same address is not affected.
    other = post(form | {"client_id": app.client_id}, path=path)
    assert other.status_code in (200, 400)


def test_a_success_is_not_counted(user, app, monkeypatch):
    monkeypatch.setattr(token, "MAX_FAILURES", 3)
    for _ in range(token.MAX_FAILURES + 2):
        code, verifier = make_code(user, app)
        assert redeem(app, code, verifier).status_code == 200


def test_a_form_may_come_in_parts(user, app):
    code, verifier = make_code(user, app)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": app.client_id,
        "redirect_uri": REDIRECT,
        "code_verifier": verifier,
    }
    assert Client().post(TOKEN, form).status_code == 200
    assert FORM in token.CONTENT_TYPES
