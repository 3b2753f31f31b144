"""Chunked forms and registrations under WSGI: the endpoint reads them, or rejects them itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from mcp_django.oauth.token import MAX_BODY_BYTES
from mcp_django.protocol.headers import FORM, JSON
from mcp_django.transports import bodies
from tests.oauth.exchanges import REVOKE, TOKEN, error_of, make_code, sign_in
from tests.oauth.parties import REDIRECT
from tests.transports.chunks import encode, send, silent, terminated, undecoded

REGISTER = "/oauth/register"
ENDPOINTS = [(TOKEN, FORM, "invalid_request"), (REVOKE, FORM, "invalid_request")]
ENDPOINTS += [(REGISTER, JSON, "invalid_client_metadata")]
KINDS = [terminated, lambda body: undecoded(encode(body))]


def post(path: str, form: dict[str, Any], kind: Callable[[bytes], Any]) -> Any:
    return send(path, kind(urlencode(form).encode()), content_type=FORM)


@pytest.mark.parametrize("kind", KINDS, ids=["decoded", "development server"])
def test_a_client_that_sends_chunks_signs_in_and_out(user, app, kind):
    code, verifier = make_code(user, app)
    form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
    answer = post(TOKEN, {**form, "redirect_uri": REDIRECT, "client_id": app.client_id}, kind)
    assert answer.status_code == 200, answer.content
    token = answer.json()["refresh_token"]
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": app.client_id}
    answer = post(TOKEN, form, kind)
    assert answer.status_code == 200, answer.content
    token = answer.json()["refresh_token"]
    assert post(REVOKE, {"token": token, "client_id": app.client_id}, kind).status_code == 200
    refused = post(TOKEN, {**form, "refresh_token": token}, kind)
    assert error_of(refused) == (400, "invalid_grant")


@pytest.mark.parametrize("kind", KINDS, ids=["decoded", "development server"])
def test_a_client_registers_in_chunks(db, kind):
    document = {"redirect_uris": ["http://127.0.0.1:1179/callback"], "client_name": "In chunks"}
    response = send(REGISTER, kind(json.dumps(document).encode()))
    assert (response.status_code, response.json()["client_name"]) == (201, "In chunks")


def test_a_form_of_several_parts_is_read(user, app):
    token = sign_in(user, app)["refresh_token"]
    form = {"token": token, "client_id": app.client_id}
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in form.items()
    )
    given = terminated(f"{parts}--x--\r\n".encode())
    response = send(REVOKE, given, content_type="multipart/form-data; boundary=x")
    assert response.status_code == 200
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": app.client_id}
    assert error_of(post(TOKEN, form, terminated)) == (400, "invalid_grant")


@pytest.mark.parametrize(("path", "content_type", "error"), ENDPOINTS)
def test_a_refused_body_is_told_in_the_words_of_the_endpoint(db, path, content_type, error):
    def refusal(given: Any, **options: Any) -> tuple[int, str, str]:
        response = send(path, given, content_type=content_type, **options)
        assert response["Access-Control-Allow-Origin"] == "*"
        answer = json.loads(response.getvalue())
        return response.status_code, answer["error"], answer["error_description"]

    assert refusal(silent(b"token=x")) == (411, error, bodies.NOT_DECODED)
    assert refusal(undecoded(b"zz\r\n")) == (400, error, bodies.MALFORMED)
    assert refusal(terminated(b"")) == (400, error, bodies.EMPTY)
    assert refusal(terminated(b"a=b"), CONTENT_LENGTH="3") == (400, error, bodies.TWO_LENGTHS)
    assert refusal(terminated(b"a=b"), coding="gzip")[:2] == (501, error)
    long = b"a=" + b"b" * MAX_BODY_BYTES
    too_long = f"The body is over {MAX_BODY_BYTES} bytes."
    assert refusal(terminated(long)) == (413, error, too_long)
    assert refusal(undecoded(encode(long))) == (413, error, too_long)
