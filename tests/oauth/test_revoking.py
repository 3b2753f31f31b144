"""The revocation endpoint (RFC 7009): a client revokes its own tokens, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from oauth2_provider.models import get_refresh_token_model

from mcp_django.models import AuthEvent
from tests.oauth.exchanges import REVOKE, call, error_of, post, refresh, sign_in
from tests.oauth.parties import make_app, make_token

spec = pytest.mark.spec


def revoke(app: Any, token: str, *, path: str = REVOKE, **more: str) -> Any:
    return post({"token": token, "client_id": app.client_id} | more, path=path)


@spec("AUT-3", "AUT-23")
@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
@pytest.mark.parametrize("hint", ["", "access_token", "refresh_token", "unheard-of"])
@pytest.mark.parametrize("path", [REVOKE, f"{REVOKE}/"])
def test_either_token_ends_the_whole_sign_in(
    user, app, which, hint, path, django_capture_on_commit_callbacks, monkeypatch
):
    credentials: list[str] = []
    monkeypatch.setattr(
        "mcp_django.oauth.revoking.notify_revoked", lambda *a: credentials.extend(a)
    )
    answer = sign_in(user, app)
    family = get_refresh_token_model().objects.get().token_family
    with django_capture_on_commit_callbacks(execute=True):
        response = revoke(app, answer[which], token_type_hint=hint, path=path)
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    assert call(answer["access_token"]).status_code == 401
    assert error_of(refresh(app, answer["refresh_token"])) == (400, "invalid_grant")
    assert credentials == [f"family:{family}"]
    assert AuthEvent.objects.filter(kind="revoke", user=user, client_id=app.client_id).count() == 1
    # Use of a revoked token is not reported as theft.
    assert not AuthEvent.objects.filter(kind="reuse").exists()


def test_another_sign_in_of_the_same_client_goes_on(user, app):
    laptop, desktop = sign_in(user, app), sign_in(user, app)
    revoke(app, laptop["refresh_token"])
    assert call(laptop["access_token"]).status_code == 401
    assert call(desktop["access_token"]).status_code == 200
    assert refresh(app, desktop["refresh_token"]).status_code == 200


def test_an_unknown_token_is_no_error(app):
    for _ in range(2):
        assert revoke(app, "unheard-of").status_code == 200
    assert not AuthEvent.objects.filter(kind="revoke").exists()


def test_another_client_ends_nothing_and_learns_nothing(user, app):
    answer, other = sign_in(user, app), make_app(name="Other")
    known, unknown = revoke(other, answer["refresh_token"]), revoke(other, "unheard-of")
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    assert call(answer["access_token"]).status_code == 200


def test_a_token_without_a_family_ends_alone(user, app):
    token, other = make_token(user, app, refresh=False), make_token(user, app, refresh=False)
    assert revoke(app, token).status_code == 200
    assert call(token).status_code == 401
    assert call(other).status_code == 200


def test_the_client_has_to_be_known_and_prove_who_it_is(user, app):
    answer = sign_in(user, app)
    assert error_of(post({"token": answer["access_token"]}, path=REVOKE))[0] == 401
    closed = make_app(client_type="confidential", client_secret="s" * 40)
    token = make_token(user, closed)
    assert error_of(revoke(closed, token)) == (401, "invalid_client")
    assert call(token).status_code == 200
    assert revoke(closed, token, client_secret="s" * 40).status_code == 200
    assert call(token).status_code == 401


def test_the_token_is_asked_for(app):
    assert error_of(post({"client_id": app.client_id}, path=REVOKE)) == (400, "invalid_request")
