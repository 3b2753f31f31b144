"""Threats that concern several parts of a site: each part is tested."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode

import pytest
from django.contrib.auth.models import Group, Permission
from django.db.backends.utils import CursorWrapper
from django.test import Client
from django.urls import clear_url_caches, include, path
from oauth2_provider.models import get_access_token_model, get_application_model, get_grant_model

from mcp_django import MCPServer
from mcp_django.oauth import provider_settings
from tests.components.questions import site as questions
from tests.kit.drivers import headers_for
from tests.oauth import documents, parties, urls
from tests.oauth.asking import AUTHORIZE, answer, ask, redirect_parameters, request_of
from tests.oauth.exchanges import call, post, redeem
from tests.spec import spec

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>\"'\r\nX-Evil: 1"
API = {"photos": "See photos"}


def mounted(settings: Any, *patterns: Any) -> None:
    """Add these patterns to the site's URLs."""
    module = ModuleType("urlconf")
    module.urlpatterns = [*patterns, *urls.urlpatterns]
    settings.ROOT_URLCONF = module
    clear_url_caches()


@pytest.fixture
def statements():
    """The statements that any thread sends to the database."""
    seen: list[str] = []
    execute = CursorWrapper.execute

    def counted(self: Any, sql: str, params: Any = None) -> Any:
        seen.append(sql)
        return execute(self, sql, params)

    with patch.object(CursorWrapper, "execute", counted):
        yield seen


# Threat 5: the token of something else ------------------------------------------------------------


@pytest.mark.parametrize("resource", [(), ("http://testserver/api",), ("https://api.example/",)])
@pytest.mark.parametrize("scope", ["photos", "photos mcp"])
@spec("AUT-9", "AUT-10")
def test_threat_05_a_token_for_another_api_is_no_bearer(user, settings, resource, scope):
    settings.OAUTH2_PROVIDER = provider_settings(SCOPES=API)
    app = parties.make_app(registration_source="manual")
    token = parties.make_token(user, app, scope=scope, resource=resource)
    assert call(token).status_code == 401
    assert call(parties.make_token(user, app)).status_code == 200


# Threat 7: the state of somebody else's question --------------------------------------------------


def call_pay(server: MCPServer, where: str, bearer: str, **params: Any) -> dict[str, Any]:
    body = questions.call(name="pay", arguments={}, **params)
    response = Client().post(
        where,
        json.dumps(body),
        content_type="application/json",
        headers=headers_for(body, authorization=f"Bearer {bearer}"),
    )
    assert response.status_code == 200, response.content
    return dict(response.json())


@spec("MRT-5", "SES-6")
def test_threat_07_the_state_of_a_question_is_nobody_elses(user, app, settings):
    server, second = questions.asking("first"), questions.asking("second")
    mounted(settings, path("first/mcp", server.urls), path("second/mcp", second.urls))
    both = (f"{parties.ORIGIN}/first/mcp", f"{parties.ORIGIN}/second/mcp")
    mine, refreshed = (parties.make_token(user, app, resource=both) for _ in range(2))
    thieves = {
        "another user": parties.make_token(parties.make_user("bob"), app, resource=both),
        "another client": parties.make_token(user, parties.make_app(name="Other"), resource=both),
    }
    state = call_pay(server, "/first/mcp", mine)["result"]["requestState"]
    given = {"requestState": state, "inputResponses": {"sure": questions.accept(value=True)}}
    for name, thief in thieves.items():
        assert call_pay(server, "/first/mcp", thief, **given)["error"]["code"] == -32602, name
    assert call_pay(second, "/second/mcp", mine, **given)["error"]["code"] == -32602
    assert list(call_pay(server, "/first/mcp", refreshed, **given)["result"]["inputRequests"]) == [
        "why"
    ]


# Threat 8: documents, by the toolkit's own addresses ----------------------------------------------


@pytest.mark.filterwarnings("ignore:.*RFC 9700:DeprecationWarning")
@spec("AUT-26")
def test_threat_08_the_toolkits_own_addresses_fetch_nothing_either(client, user, settings):
    settings.OAUTH2_PROVIDER = {
        **settings.OAUTH2_PROVIDER,
        "CIMD_METADATA_FETCHER": "tests.oauth.documents.PublishedFetcher",
    }
    mounted(settings, path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")))
    documents.targets.clear()
    unknown = documents.publish()
    form = {"client_id": unknown, "client_secret": "x", "token": "x", "code": "x"}
    asked_for = urlencode(request_of(get_application_model()(client_id=unknown)))
    for at in ("introspect", "revoke_token", "token"):
        for grant in ("authorization_code", "refresh_token", "client_credentials"):
            client.post(f"/o/{at}/", {**form, "grant_type": grant, "refresh_token": "x"})
    for signed_in in (False, True):
        if signed_in:
            client.force_login(user)
        for more in ("", "&prompt=none", "&mcp_oauth=1"):
            client.get(f"/o/authorize/?{asked_for}{more}")
    assert documents.targets == []
    assert not get_application_model().objects.exists()


# Threat 10: scopes of the site's other APIs -------------------------------------------------------


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_threat_10_a_scope_of_another_api_is_never_in_a_token(client, user, app, settings, source):
    settings.OAUTH2_PROVIDER = provider_settings(SCOPES=API)
    get_application_model().objects.update(registration_source=source)
    client.force_login(user)
    verifier, challenge = parties.pkce()
    page = ask(client, app, scope="photos mcp", code_challenge=challenge)
    assert "photos" not in page.content.decode()
    code = redirect_parameters(answer(client, page, scope=["photos"]))["code"]
    issued = redeem(app, code, verifier, scope="photos mcp").json()
    assert issued["scope"] == "mcp"
    assert get_access_token_model().objects.get().scope == "mcp"


# Threat 17: a group that is left ------------------------------------------------------------------


@spec("AUT-11")
def test_threat_17_who_leaves_a_group_loses_its_tools_in_the_next_call(user, app):
    staff = Group.objects.create(name="Staff")
    staff.permissions.add(Permission.objects.get(codename="change_user"))
    user.groups.add(staff)
    token = parties.make_token(user, app)
    assert "result" in call(token, tool="hire", name="Bo").json()
    user.groups.remove(staff)
    refused = call(token, tool="hire", name="Bo")
    assert refused.json()["error"]["code"] == -32602
    assert "WWW-Authenticate" not in refused


# Threat 20: markup and headers, everywhere --------------------------------------------------------

GET = [
    "/oauth/authorize",
    "/authorize",
    "/oauth/connections/",
    "/oauth/upstream/acme/callback",
    "/oauth/upstream/acme/connect",
    "/.well-known/oauth-protected-resource/mcp",
    f"/.well-known/oauth-protected-resource/{quote(SCRIPT)}",
    "/.well-known/oauth-authorization-server",
    f"/.well-known/oauth-authorization-server/{quote(SCRIPT)}",
    "/mcp",
]
POST = ["/oauth/authorize", "/oauth/token", "/token", "/oauth/revoke", "/oauth/register", "/mcp"]
NAMES = ("resource", "client_id", "redirect_uri", "scope", "state", "error", "code", "grant_type")


def check_harmless(response: Any) -> None:
    assert "X-Evil" not in response
    assert response.status_code < 500
    if response["Content-Type"].startswith("application/json"):
        return
    assert response["Content-Type"].startswith("text/html")
    assert "<script>alert" not in response.content.decode()
    assert "\r" not in response.get("Location", "")


@pytest.mark.parametrize("at", GET)
@pytest.mark.parametrize("signed_in", [True, False])
def test_threat_20_no_address_repeats_markup(client, user, app, at, signed_in):
    if signed_in:
        client.force_login(user)
    for accept in ("text/html", "application/json"):
        query = urlencode(dict.fromkeys(NAMES, SCRIPT))
        check_harmless(client.get(f"{at}?{query}", headers={"Accept": accept}))
        known = urlencode(request_of(app, resource=SCRIPT))
        check_harmless(client.get(f"{at}?{known}", headers={"Accept": accept}))


@pytest.mark.parametrize("at", POST)
@pytest.mark.parametrize("signed_in", [True, False])
def test_threat_20_no_form_and_no_document_becomes_markup(client, user, app, at, signed_in):
    if signed_in:
        client.force_login(user)
    form = dict.fromkeys(NAMES, SCRIPT)
    for values in (form, {**form, "client_id": app.client_id, "grant_type": "refresh_token"}):
        check_harmless(client.post(at, values))
        check_harmless(post(values, path=at))
        check_harmless(client.post(at, json.dumps(values), content_type="application/json"))
    document = {"redirect_uris": [parties.REDIRECT], "client_name": SCRIPT, "client_uri": SCRIPT}
    response = client.post(at, json.dumps(document), content_type="application/json")
    check_harmless(response)
    assert (response.status_code == 201) == (at == "/oauth/register")


# Threat 27: what is large costs nothing -----------------------------------------------------------


@spec("AUT-3")
def test_threat_27_a_token_over_four_kibibytes_is_not_looked_up(db, statements):
    assert call("x" * 4096).status_code == 401
    assert [statement for statement in statements if statement.startswith("SELECT")] != []
    statements.clear()
    assert call("x" * 4097).status_code == 401
    assert [statement for statement in statements if statement.startswith("SELECT")] == []


@pytest.mark.parametrize("signed_in", [True, False])
@pytest.mark.parametrize("name", ["state", "scope", "resource", "nonce", "other"])
def test_threat_27_a_request_of_a_megabyte_is_refused_whole(client, user, app, name, signed_in):
    if signed_in:
        client.force_login(user)
    for more in ({}, {"prompt": "none"}, {"prompt": "login"}):
        response = ask(client, app, **{name: "s" * 1_000_000, **more})
        assert response.status_code == 400
        assert "Location" not in response
        assert "The request is too long." in response.content.decode()
        assert len(response.content) < 20_000


def test_threat_27_a_form_of_a_megabyte_is_refused_whole(client, user, app):
    client.force_login(user)
    response = client.post(AUTHORIZE, {"request": "s" * 1_000_000, "decision": "allow"})
    assert response.status_code == 400
    assert not get_grant_model().objects.exists()
    for path_ in ("/oauth/token", "/oauth/revoke"):
        large = {"client_id": app.client_id, "token": "x", "state": "s" * 1_000_000}
        assert post(large, path=path_).status_code == 413
