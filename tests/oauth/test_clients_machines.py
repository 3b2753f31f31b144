"""Machine clients: a service account with a secret or a key, within the limits of its profile."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth.authentication import CLIENT_CREDENTIALS
from mcp_django.auth.backends.jwt import clear_key_stores
from mcp_django.oauth.models import ClientProfile, UsedAssertion
from tests.oauth.exchanges import TOKEN, call, error_of, post
from tests.oauth.parties import ORIGIN, OTHER_RESOURCE, RESOURCE, make_app, make_user
from tests.oauth.signing import jwks, signed
from tests.overrides.site import decide_of_server_elsewhere

spec = pytest.mark.spec
SECRET = "s" * 40
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@pytest.fixture(autouse=True)
def _on(site):
    site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": {"CLIENT_CREDENTIALS": True}}


@pytest.fixture
def robot(db):
    """The service account."""
    return make_user("robot")


@pytest.fixture
def machine(robot):
    """A client with a secret that acts as the service account."""
    app = make_machine()
    ClientProfile.objects.create(client_id=app.client_id, service_user=robot)
    return app


def make_machine(**more: Any) -> Any:
    values = {
        "client_type": "confidential",
        "client_secret": SECRET,
        "authorization_grant_type": "client-credentials",
        "registration_source": "manual",
        "redirect_uris": "",
    }
    return make_app(**(values | more))


def ask(app: Any, **more: Any) -> Any:
    form = {
        "grant_type": "client_credentials",
        "client_id": app.client_id,
        "client_secret": SECRET,
        "resource": RESOURCE,
    } | more
    return post({name: value for name, value in form.items() if value is not None})


def prove(app: Any, by: str = "machine", **more: Any) -> Any:
    """Authenticate with a client assertion; keywords set its claims or, in capitals, options."""
    claims = {"iss": app.client_id, "sub": app.client_id, "aud": ORIGIN}
    header = {"kind": more.pop("KIND", "EC"), "algorithm": more.pop("ALGORITHM", "ES256")}
    assertion = more.pop("ASSERTION", None) or signed(claims | more, by=by, **header)
    return ask(
        app,
        client_id=None,
        client_secret=None,
        client_assertion=assertion,
        client_assertion_type=ASSERTION_TYPE,
    )


@spec("AUT-34")
def test_a_machine_acts_as_its_service_account(machine, robot):
    response = ask(machine)
    answer = response.json()
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    assert (answer["token_type"], answer["scope"]) == ("Bearer", "mcp")
    assert "refresh_token" not in answer
    assert call(answer["access_token"]).json()["result"]["content"][0]["text"] == "robot"
    assert call(answer["access_token"], path="/billing/mcp").status_code == 401
    assert get_access_token_model().objects.get().user == robot
    assert not get_refresh_token_model().objects.exists()


@spec("AUT-34")
def test_by_basic_authentication_as_well(machine):
    import base64

    basic = base64.b64encode(f"{machine.client_id}:{SECRET}".encode()).decode()
    form = {"grant_type": "client_credentials", "resource": RESOURCE}
    assert post(form, Authorization=f"Basic {basic}").status_code == 200


def test_the_owner_of_a_registration_is_not_who_the_client_acts_as(db):
    app = make_machine(user=make_user("owner", is_superuser=True))
    assert error_of(ask(app)) == (400, "unauthorized_client")
    ClientProfile.objects.create(client_id=app.client_id)
    assert error_of(ask(app)) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    "change",
    [
        {"registration_source": "dcr"},
        {"registration_source": "cimd"},
        {"authorization_grant_type": "authorization-code"},
        {"client_type": "public"},
    ],
)
def test_threat_09_no_other_client_is_a_machine(robot, change):
    app = make_machine(**change)
    ClientProfile.objects.create(client_id=app.client_id, service_user=robot)
    status, _ = error_of(ask(app))
    assert status in (400, 401)
    assert not get_access_token_model().objects.exists()


def test_the_secret_has_to_be_right(machine):
    for secret in ("wrong", "", None):
        assert error_of(ask(machine, client_secret=secret)) == (401, "invalid_client")


def test_scopes_are_what_the_profile_allows(machine):
    assert error_of(ask(machine, scope="mcp:write")) == (400, "invalid_scope")
    ClientProfile.objects.update(allowed_scopes=["mcp", "mcp:write", "undeclared"])
    assert ask(machine).json()["scope"] == "mcp mcp:write"
    assert ask(machine, scope="mcp orders:refund offline_access").json()["scope"] == "mcp"
    assert error_of(ask(machine, scope="orders:refund")) == (400, "invalid_scope")


def test_resources_are_what_the_profile_allows(machine):
    assert error_of(ask(machine, resource=None)) == (400, "invalid_target")
    ClientProfile.objects.update(allowed_resources=[f"{OTHER_RESOURCE}/"])
    assert error_of(ask(machine)) == (400, "invalid_target")
    answer = ask(machine, resource=None).json()
    assert get_access_token_model().objects.get().resource == [OTHER_RESOURCE]
    assert call(answer["access_token"], path="/billing/mcp", tool="invoices").status_code == 200
    assert error_of(ask(machine, resource="https://evil.example/")) == (400, "invalid_target")


def test_who_may_not_connect_gets_no_token(machine, settings):
    rule = {"CAN_CONNECT": "tests.oauth.test_token_codes.nobody", "CLIENT_CREDENTIALS": True}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": rule}
    assert error_of(ask(machine)) == (400, "invalid_target")


def test_threat_17_an_inactive_account_gets_nothing_and_calls_nothing(machine, robot):
    token = ask(machine).json()["access_token"]
    robot.is_active = False
    robot.save()
    assert call(token).status_code == 401
    assert error_of(ask(machine)) == (400, "unauthorized_client")


@pytest.mark.parametrize("change", ["edit", "delete", "off"])
def test_what_is_changed_holds_at_once(machine, settings, change):
    token = ask(machine).json()["access_token"]
    assert call(token).status_code == 200
    if change == "edit":
        ClientProfile.objects.get().save()
    elif change == "delete":
        ClientProfile.objects.all().delete()
    else:
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {}}
    assert call(token).status_code == 401


@spec("AUT-34")
@pytest.mark.parametrize(
    "audience", [ORIGIN, f"{ORIGIN}/", f"{ORIGIN}{TOKEN}", [ORIGIN], ["https://a.example", ORIGIN]]
)
def test_a_key_proves_the_client(machine, audience):
    ClientProfile.objects.update(jwks=jwks("other", "machine"))
    response = prove(machine, aud=audience)
    assert response.status_code == 200, response.content
    assert call(response.json()["access_token"]).status_code == 200


@spec("AUT-34")
@pytest.mark.parametrize(
    "bad",
    [
        {"aud": "https://elsewhere.example"},
        {"aud": RESOURCE},
        {"aud": None},
        {"iss": "somebody"},
        {"sub": "somebody"},
        {"sub": None},
        {"jti": None},
        {"exp": None},
        {"exp": 1},
        {"exp": int(time.time()) + 10**6},
        {"nbf": int(time.time()) + 10**6},
        {"by": "stranger"},
        {"ASSERTION": "no.jwt.atall"},
        {"ASSERTION": "x" * 9000},
        {"ALGORITHM": "none"},
        {"KIND": "RSA", "ALGORITHM": "RS256"},
    ],
)
def test_an_assertion_that_does_not_hold_proves_nothing(machine, bad):
    ClientProfile.objects.update(jwks=jwks("machine"))
    if bad.get("ALGORITHM") == "none":
        claims = {"iss": machine.client_id, "sub": machine.client_id, "aud": ORIGIN}
        bad = {"ASSERTION": signed(claims, by="machine", algorithm="none", secret="")}
    assert error_of(prove(machine, **bad)) == (401, "invalid_client")
    assert not get_access_token_model().objects.exists()
    assert not UsedAssertion.objects.exists()


def test_keys_may_be_fetched(machine, monkeypatch):
    urls: list[str] = []
    monkeypatch.setattr(
        "mcp_django.auth.outbound.fetch_json", lambda url: urls.append(url) or jwks("machine")
    )
    clear_key_stores()
    ClientProfile.objects.update(jwks_url="https://machine.example/jwks.json")
    assert prove(machine).status_code == 200
    assert error_of(prove(machine, by="stranger")) == (401, "invalid_client")
    assert urls == ["https://machine.example/jwks.json"]
    clear_key_stores()


def test_an_assertion_is_good_once(machine):
    ClientProfile.objects.update(jwks=jwks("machine"))
    claims = {"iss": machine.client_id, "sub": machine.client_id, "aud": ORIGIN}
    assertion = signed(claims, by="machine")
    assert prove(machine, ASSERTION=assertion).status_code == 200
    assert error_of(prove(machine, ASSERTION=assertion)) == (401, "invalid_client")


def test_a_client_with_keys_proves_itself_with_nothing_else(machine):
    ClientProfile.objects.update(jwks=jwks("machine"))
    assert error_of(ask(machine)) == (401, "invalid_client")


def test_a_client_without_keys_cannot_bring_its_own(machine):
    assert error_of(prove(machine)) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowed_scopes", "mcp"),
        ("allowed_resources", [1]),
        ("jwks", {"keys": [{"kty": "oct", "k": "secret"}]}),
        ("jwks", {"keys": [{"kty": "EC", "d": "private"}]}),
        ("jwks", []),
        ("jwks_url", "http://client.example/jwks"),
    ],
)
def test_a_profile_says_what_is_wrong_with_it(field, value):
    profile = ClientProfile(client_id="x", **{field: value})
    if field == "jwks" and not value:
        assert not profile.has_keys
        return
    with pytest.raises(ValidationError) as caught:
        profile.clean()
    assert list(caught.value.message_dict) == [field]


@spec("AUT-34")
def test_the_extension_is_advertised_only_when_it_is_on(settings):
    from mcp_django.auth.authentication import authorization_extensions

    assert authorization_extensions(("oauth",)) == {CLIENT_CREDENTIALS: {}}
    assert authorization_extensions(("tokens",)) == {}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {}}
    assert authorization_extensions(("oauth",)) == {}


@pytest.mark.usefixtures("unpinned")
def test_a_server_that_another_process_has_closed_is_no_target(machine):
    assert ask(machine).status_code == 200
    decide_of_server_elsewhere("orders", is_enabled=False)
    assert error_of(ask(machine)) == (400, "invalid_target")
