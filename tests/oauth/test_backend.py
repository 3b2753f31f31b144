"""Bearers at an endpoint: only tokens that this site issued for it are accepted."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model, set_token_value
from oauth2_provider.settings import oauth2_settings

from mcp_django.auth.backends import get_backend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, key_of
from mcp_django.oauth.backend import OAuthBackend
from mcp_django.protocol.headers import Headers
from tests.oauth.exchanges import call, sign_in
from tests.oauth.parties import ORIGIN, OTHER_RESOURCE, RESOURCE, make_app, make_token, make_user

spec = pytest.mark.spec


def principal_of(token: str, *, path: str = "/mcp") -> Principal | None:
    """Return the principal that the backend resolves for a bearer at an endpoint."""
    from django.test import RequestFactory

    request = RequestFactory().post(path)
    credentials = Credentials(
        headers=Headers([(b"authorization", f"Bearer {token}".encode())]),
        query="",
        request=lambda: request,
    )
    backend = get_backend("oauth")
    assert isinstance(backend, OAuthBackend)
    return backend.authenticate(credentials)


@spec("AUT-3", "AUT-9")
def test_a_token_is_its_users_with_its_scopes(user, app):
    token = make_token(user, app, scope="mcp mcp:write")
    principal = principal_of(token)
    assert principal is not None
    row = get_access_token_model().objects.get()
    family = get_refresh_token_model().objects.get().token_family
    assert (principal.user, principal.backend, principal.scopes) == (
        user,
        "oauth",
        {"mcp", "mcp:write"},
    )
    assert principal.key == f"user:{user.pk}@{app.client_id}"
    assert (principal.client_id, principal.client_name) == (app.client_id, "Example Client")
    assert (principal.issuer, principal.subject, principal.audience) == (
        ORIGIN,
        str(user.pk),
        RESOURCE,
    )
    assert (principal.credential, principal.expires_at) == (f"family:{family}", row.expires)
    assert token not in repr(principal)


def test_a_token_without_a_family_is_known_by_its_checksum(user, app):
    token = make_token(user, app, refresh=False)
    principal = principal_of(token)
    assert principal is not None
    assert principal.credential == f"checksum:{hashlib.sha256(token.encode()).hexdigest()}"
    assert get_backend("oauth").is_current(principal)
    get_access_token_model().objects.all().delete()
    assert not get_backend("oauth").is_current(principal)


def test_the_key_of_a_long_client_id_fits_its_column(user):
    app = make_app(client_id="https://client.example/" + "x" * 200)
    principal = principal_of(make_token(user, app))
    assert principal is not None
    assert len(principal.key) < 100
    assert principal.client_id == app.client_id


def test_no_two_callers_share_a_key_whatever_their_primary_keys(user, db):
    long = "u" * 250
    people = [
        AnonymousUser(),
        *(type(user)(pk=pk) for pk in ("a", "a@b", "a%40b", long, long + "v")),
    ]
    keys = {f"{key_of(person)}@{client}" for person in people for client in ("c", "b@c", "c" * 60)}
    assert len(keys) == 3 * len(people)
    assert max(map(len, keys)) <= 255
    assert key_of(type(user)(pk=uuid.UUID(int=7))) == f"user:{uuid.UUID(int=7)}"


@spec("AUT-9")
@pytest.mark.parametrize(
    "resource",
    [
        (),
        (OTHER_RESOURCE,),
        (ORIGIN,),
        (f"{ORIGIN}/",),
        (f"{ORIGIN}/mc",),
        (f"{ORIGIN}/MCP",),
        (f"{ORIGIN}/mcp/more",),
        (f"{ORIGIN}/mcp?x=1",),
        ("https://testserver/mcp",),
        ("http://testserver:8000/mcp",),
    ],
)
def test_threat_03_a_token_for_another_resource_opens_nothing(user, app, resource):
    assert call(make_token(user, app, resource=resource)).status_code == 401


@spec("AUT-9", "AUT-24")
@pytest.mark.parametrize(
    "resource", [f"{RESOURCE}/", "HTTP://TestServer/mcp", "http://testserver:80/mcp"]
)
def test_threat_03_another_spelling_is_the_same_resource(user, app, resource):
    assert call(make_token(user, app, resource=(resource,))).status_code == 200


def test_threat_05_a_registration_token_is_no_bearer(user, app):
    scope = f"mcp {oauth2_settings.DCR_REGISTRATION_SCOPE}"
    assert call(make_token(user, app, scope=scope)).status_code == 401


@pytest.mark.parametrize(
    "grant",
    ["urn:ietf:params:oauth:grant-type:device_code", "password", "implicit", "client-credentials"],
)
def test_threat_05_a_token_of_another_grant_is_no_bearer(user, grant):
    app = make_app(authorization_grant_type=grant, registration_source="manual")
    assert call(make_token(user, app, refresh=False)).status_code == 401


def test_threat_05_a_token_of_nobody_or_of_no_client_is_no_bearer(user, app):
    for owner, client in ((None, app), (user, None)):
        value = secrets.token_urlsafe(32)
        token = get_access_token_model()(
            user=owner,
            application=client,
            scope="mcp",
            resource=[RESOURCE],
            expires=timezone.now() + timedelta(hours=1),
        )
        set_token_value(token, value)
        token.save()
        assert call(value).status_code == 401


@spec("AUT-3")
def test_an_expired_token_opens_nothing(user, app):
    assert call(make_token(user, app, seconds=-1)).status_code == 401


@spec("AUT-3")
def test_threat_17_a_deactivated_users_token_opens_nothing(user, app):
    token = make_token(user, app)
    principal = principal_of(token)
    assert principal is not None
    assert get_backend("oauth").is_current(principal)
    user.is_active = False
    user.save()
    assert call(token).status_code == 401
    assert not get_backend("oauth").is_current(principal)


def test_a_principal_outlives_the_token_that_a_refresh_replaced(user, app):
    from tests.oauth.exchanges import refresh

    answer = sign_in(user, app)
    principal = principal_of(answer["access_token"])
    assert principal is not None
    refresh(app, answer["refresh_token"])
    assert get_backend("oauth").is_current(principal)


def test_an_unusable_client_opens_nothing(user, app, monkeypatch):
    token = make_token(user, app)
    seen: list[Any] = []
    monkeypatch.setattr(type(app), "is_usable", lambda self, request: seen.append(request))
    assert call(token).status_code == 401
    assert token not in str(seen[0].headers)


def test_a_foreign_bearer_is_left_to_others(db):
    assert principal_of("somebody-elses") is None
    assert principal_of("mcp_" + "x" * 40) is None


def test_a_refusal_does_not_say_why(user, app):
    answers = {
        call(make_token(user, app, seconds=-1)).content,
        call(make_token(user, app, resource=(OTHER_RESOURCE,))).content,
        call(make_token(make_user("eve", is_active=False), app)).content,
        call("made-up").content,
    }
    assert len(answers) == 1


def test_threat_29_a_call_without_a_session_costs_one_query(user, app, django_assert_num_queries):
    token = make_token(user, app)
    call(token)
    with django_assert_num_queries(1):
        assert call(token).status_code == 200


def test_threat_29_permissions_cost_at_most_three_more(user, app, django_assert_max_num_queries):
    from django.contrib.auth.models import Permission

    user.user_permissions.add(Permission.objects.get(codename="change_user"))
    token = make_token(user, app)
    call(token, tool="hire", name="Bo")
    with django_assert_max_num_queries(4):
        response = call(token, tool="hire", name="Bo")
    assert response.json()["result"]["content"][0]["text"] == "Hired Bo."


def test_threat_29_a_call_in_a_session_costs_two_queries(user, app, django_assert_num_queries):
    token = make_token(user, app)
    headers = {
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
    }

    def send(message: dict[str, Any], **more: str) -> Any:
        whole = {"jsonrpc": "2.0", **message}
        return Client().post(
            "/mcp", whole, content_type="application/json", headers={**headers, **more}
        )

    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    opened = send({"id": 1, "method": "initialize", "params": params})
    session = {"Mcp-Session-Id": opened["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    send({"method": "notifications/initialized"}, **session)
    ask = {"id": 2, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}
    send(ask, **session)
    with django_assert_num_queries(2):
        answer = send({**ask, "id": 3}, **session)
    assert answer.json()["result"]["content"][0]["text"] == "ada"
