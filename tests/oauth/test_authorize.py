"""The authorization endpoint: what the user is shown, what the client is sent, and what neither."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest
from django.contrib.auth import get_user_model
from oauth2_provider.models import get_application_model, get_grant_model
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error

from mcp_django.models import AuthEvent
from mcp_django.oauth import authorization_request, authorize
from mcp_django.oauth.models import Consent
from mcp_django.oauth.validator import Validator
from tests.oauth import parties
from tests.oauth.asking import AUTHORIZE, all_redirect_parameters, answer, ask, redirect_parameters

pytestmark = pytest.mark.django_db
Grant = get_grant_model()


@pytest.fixture
def browser(client, user):
    """The browser of a user who is signed in."""
    client.force_login(user)
    return client


def test_the_user_signs_in_before_anything_is_looked_at(client, app):
    response = ask(client, app, client_id="https://evil.example/client.json")
    assert response.status_code == 302
    assert response["Location"].startswith("/login/?next=/oauth/authorize%3F")


def test_the_way_back_from_signing_in_keeps_the_request(client, app):
    response = ask(client, app, approval_prompt="auto", resource=[parties.RESOURCE])
    back = urlsplit(parse_qs(urlsplit(response["Location"]).query)["next"][0])
    query = parse_qs(back.query)
    assert back.path == AUTHORIZE
    assert query["state"] == ["s t/1"]
    assert "approval_prompt" not in query


@pytest.mark.parametrize("path", ["/oauth/authorize/", "/authorize", "/authorize/"])
def test_every_spelling_answers(browser, app, path):
    assert browser.get(path).status_code == 400


@pytest.mark.parametrize("method", ["head", "options", "put", "delete"])
def test_other_methods_are_refused(browser, method):
    assert getattr(browser, method)(AUTHORIZE).status_code == 405


def test_a_request_is_read_once_and_its_values_checked_once_more(browser, app, monkeypatch):
    calls = []

    def count(module, name):
        function = getattr(module, name)

        def counted(*args, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    count(authorize, "parse_request")
    count(authorize, "check_again")
    count(authorization_request, "_validate_client")
    page = ask(browser, app)
    assert calls == ["parse_request", "_validate_client"]
    calls.clear()
    assert "code" in redirect_parameters(answer(browser, page))
    assert calls == ["check_again", "_validate_client"]


@pytest.mark.spec("AUT-28")
def test_consent_gives_a_code_for_what_the_page_showed(browser, user, app):
    response = answer(browser, ask(browser, app))
    grant = Grant.objects.get()
    assert set(redirect_parameters(response)) == {"code", "state", "iss"}
    assert redirect_parameters(response)["state"] == "s t/1"
    assert (grant.user, grant.application, grant.scope) == (user, app, "mcp")
    assert grant.resource == [parties.RESOURCE]
    assert grant.code_challenge_method == "S256"
    row = Consent.objects.get()
    assert (row.client_id, row.resource, row.scopes) == (app.client_id, parties.RESOURCE, ["mcp"])
    assert row.redirect_host == "client.example"
    assert AuthEvent.objects.filter(kind=AuthEvent.Kind.CONSENT, user=user).count() == 1


def test_denial_tells_the_client_and_keeps_nothing(browser, user, app):
    response = answer(browser, ask(browser, app), "deny")
    assert redirect_parameters(response)["error"] == "access_denied"
    assert redirect_parameters(response)["state"] == "s t/1"
    assert not Grant.objects.exists()
    assert not Consent.objects.exists()
    assert AuthEvent.objects.filter(kind=AuthEvent.Kind.DENIAL, user=user).count() == 1


def test_no_decision_is_a_denial(browser, app):
    assert redirect_parameters(answer(browser, ask(browser, app), ""))["error"] == "access_denied"


def test_scopes_that_are_not_ticked_are_not_granted(browser, app):
    page = ask(browser, app, scope="mcp mcp:write orders:refund")
    answer(browser, page, scope=["orders:refund", "admin:everything"])
    assert Grant.objects.get().scope == "mcp orders:refund"


def test_what_every_connection_needs_cannot_be_unticked(browser, app):
    answer(browser, ask(browser, app, scope="mcp:write mcp"))
    assert Grant.objects.get().scope == "mcp"


def test_nothing_ticked_at_all_is_asked_again(browser, app):
    page = answer(browser, ask(browser, app, scope="mcp:write"))
    assert page.status_code == 400
    assert b'role="alert"' in page.content
    answer(browser, page, scope=["mcp:write"])
    assert Grant.objects.get().scope == "mcp:write"


def test_a_step_up_says_what_is_new(browser, app):
    answer(browser, ask(browser, app))
    page = ask(browser, app, scope="mcp mcp:write").content.decode()
    assert page.count("Allowed before") == 1
    assert page.count('class="tag new"') == 1


def test_unticking_what_was_allowed_takes_it_from_the_tokens_too(browser, user, app):
    answer(browser, ask(browser, app, scope="mcp mcp:write"), scope=["mcp:write"])
    parties.make_token(user, app, scope="mcp mcp:write")
    answer(browser, ask(browser, app, scope="mcp mcp:write"))
    assert not user.oauth2_provider_accesstoken.exists()
    assert Consent.objects.get().scopes == ["mcp"]


def test_asking_for_more_keeps_what_was_allowed(browser, user, app):
    answer(browser, ask(browser, app))
    parties.make_token(user, app)
    answer(browser, ask(browser, app, scope="mcp:write"), scope=["mcp:write"])
    assert user.oauth2_provider_accesstoken.count() == 1
    assert Consent.objects.get().scopes == ["mcp", "mcp:write"]


@pytest.mark.spec("AUT-24")
def test_a_client_that_names_no_server_gets_all_and_the_page_says_so(browser, app):
    page = ask(browser, app, resource=None)
    assert parties.RESOURCE in page.content.decode()
    assert parties.OTHER_RESOURCE in page.content.decode()
    answer(browser, page)
    assert Grant.objects.get().resource == [parties.RESOURCE, parties.OTHER_RESOURCE]
    assert Consent.objects.count() == 2


def test_a_site_may_insist_on_the_resource(browser, app, settings):
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"MISSING_RESOURCE": "reject"}}
    assert redirect_parameters(ask(browser, app, resource=None))["error"] == "invalid_target"


def test_who_may_not_connect_is_offered_another_account_or_the_way_back(browser, app, settings):
    rule = f"{__name__}.orders_are_closed"
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"CAN_CONNECT": rule}}
    assert redirect_parameters(ask(browser, app, prompt="none"))["error"] == "access_denied"
    page = ask(browser, app)
    assert page.status_code == 403
    assert "You are signed in as <bdi>ada</bdi>" in page.content.decode()
    back = re.search(r'<a href="([^"]+)"', page.content.decode())
    assert back is not None
    url, _, query = unescape(back[1]).partition("?")
    answered = dict(parse_qsl(query))
    assert url == parties.REDIRECT
    assert answered["error"] == "access_denied"
    assert (answered["state"], answered["iss"]) == ("s t/1", "http://testserver")
    again = page.wsgi_request.get_full_path()
    switched = browser.post(again, {"decision": "switch"})
    login, _, following = switched["Location"].partition("?next=")
    path, _, repeated = unquote(following).partition("?")
    assert (login, path) == ("/login/", again.partition("?")[0])
    assert parse_qsl(repeated) == parse_qsl(again.partition("?")[2])
    assert "_auth_user_id" not in browser.session
    assert not Grant.objects.exists()


def test_who_names_no_server_gets_those_that_the_user_may_connect(browser, app, settings):
    rule = f"{__name__}.orders_are_closed"
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"CAN_CONNECT": rule}}
    answer(browser, ask(browser, app, resource=None))
    assert Grant.objects.get().resource == [parties.OTHER_RESOURCE]


def orders_are_closed(user: Any, server: Any, client_id: str) -> bool:
    return bool(server.name != "orders")


def test_whoever_may_no_longer_connect_when_he_answers_gets_nothing(browser, app, settings):
    page = ask(browser, app)
    rule = f"{__name__}.orders_are_closed"
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"CAN_CONNECT": rule}}
    assert redirect_parameters(answer(browser, page))["error"] == "access_denied"
    assert not Grant.objects.exists()


def test_an_inactive_user_gets_nothing(browser, user, app, settings):
    settings.AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.AllowAllUsersModelBackend"]
    browser.force_login(user)
    page = ask(browser, app)
    get_user_model().objects.update(is_active=False)
    assert redirect_parameters(answer(browser, page))["error"] == "access_denied"
    assert redirect_parameters(ask(browser, app))["error"] == "access_denied"
    assert not Grant.objects.exists()


def test_another_account_is_asked_anew(browser, app):
    page = ask(browser, app, resource=None)
    response = answer(browser, page, "switch")
    assert "_auth_user_id" not in browser.session
    back = parse_qs(urlsplit(response["Location"]).query)["next"][0]
    # The servers were bound for the first account; the second may use others.
    assert "resource" not in parse_qs(urlsplit(back).query)
    browser.force_login(parties.make_user("grace"))
    answer(browser, browser.get(back))
    assert Grant.objects.get().user.username == "grace"


def test_a_page_that_another_account_was_shown_is_worth_nothing(browser, app):
    page = ask(browser, app)
    browser.force_login(parties.make_user("grace"))
    assert answer(browser, page).status_code == 400
    assert not Grant.objects.exists()


def test_an_answer_after_signing_out_is_refused(browser, app):
    page = ask(browser, app)
    browser.logout()
    assert answer(browser, page).status_code == 400


def test_prompt_none_never_shows_a_page(client, user, app):
    app.registration_source = "manual"
    app.save()
    assert redirect_parameters(ask(client, app, prompt="none"))["error"] == "login_required"
    client.force_login(user)
    assert redirect_parameters(ask(client, app, prompt="none"))["error"] == "consent_required"
    assert redirect_parameters(ask(client, app, prompt="none login"))["error"] == "invalid_request"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"request": "e30.e30."}, "request_not_supported"),
        ({"request_uri": "https://client.example/r"}, "request_uri_not_supported"),
        ({"prompt": ["none", "login"]}, "invalid_request"),
        ({"nonce": "n" * 256}, "invalid_request"),
        ({"claims": "\0"}, "invalid_request"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(browser, app, changes, error):
    response = ask(browser, app, **changes)
    assert redirect_parameters(response)["error"] == error
    assert redirect_parameters(response)["state"] == "s t/1"


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state"])
def test_a_parameter_that_decides_where_the_answer_goes_comes_once(browser, app, name):
    response = ask(browser, app, **{name: ["a", "b"]})
    assert response.status_code == 400
    assert "Location" not in response


def test_a_huge_request_is_refused_whole(browser, app):
    response = ask(browser, app, state="s" * 20_000)
    assert response.status_code == 400
    assert "Location" not in response


def test_too_many_requests_of_one_account(browser, app):
    # Without the consent page, because rendering it takes longer.
    answers = [ask(browser, app, prompt="none").status_code for _ in range(61)]
    assert answers == [302] * 60 + [429]
    response = ask(browser, app)
    assert int(response["Retry-After"]) > 0
    assert AuthEvent.objects.filter(kind=AuthEvent.Kind.RATE_LIMIT).exists()


def test_a_client_document_may_be_fetched_only_while_a_user_is_signed_in(
    client, user, app, monkeypatch
):
    seen: list[bool] = []
    monkeypatch.setattr(
        "mcp_django.oauth.cimd.SignedInOnly.has_permission",
        lambda self, request, client_id: bool(seen.append(request.mcp_oauth.is_allowed)),
    )
    ask(client, app, client_id="https://client.example/c.json", prompt="none")
    client.force_login(user)
    ask(client, app, client_id="https://client.example/c.json")
    assert seen == [True]


def test_a_first_party_client_of_the_site_is_not_asked_about(browser, app):
    app.skip_authorization, app.registration_source = True, "manual"
    app.save()
    assert "code" in redirect_parameters(ask(browser, app))
    assert Consent.objects.get().client_id == app.client_id
    assert ask(browser, app, prompt="consent").status_code == 200


def test_a_client_of_the_sites_own_api_keeps_tokens_without_a_server(browser, app, settings):
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "SCOPES": {"photos": "See photos"}}
    app.registration_source = "manual"
    app.save()
    page = ask(browser, app, scope="photos", resource=None)
    answer(browser, page, scope=["photos"])
    grant = Grant.objects.get()
    assert (grant.scope, grant.resource) == ("photos", [])


def test_an_unknown_scope_is_dropped_for_a_client_nobody_knows(browser, app):
    answer(browser, ask(browser, app, scope="mcp photos offline_access openid"))
    assert Grant.objects.get().scope == "mcp"
    app.registration_source = "manual"
    app.save()
    assert redirect_parameters(ask(browser, app, scope="mcp photos"))["error"] == "invalid_scope"
    assert ask(browser, app, scope="mcp offline_access").status_code == 200


def test_a_listed_address_that_is_none_stops_no_client(browser, app, settings):
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"APP_REDIRECTS": ["https://["]}}
    app.registration_source = "manual"
    app.save()
    assert ask(browser, app).status_code == 200


def test_no_scope_means_what_the_server_needs(browser, app):
    answer(browser, ask(browser, app, scope=None))
    assert Grant.objects.get().scope == "mcp"


def remembering(settings: Any, app: Any, **changes: Any) -> Any:
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"REMEMBER_CONSENT": 3600}}
    for name, value in {"registration_source": "manual", **changes}.items():
        setattr(app, name, value)
    app.save()
    return app


def test_a_remembered_consent_is_not_asked_for_again(browser, app, settings):
    remembering(settings, app)
    answer(browser, ask(browser, app, scope="mcp mcp:write"), scope=["mcp:write"])
    given = Consent.objects.get().updated_at
    assert "code" in redirect_parameters(ask(browser, app, scope="mcp"))
    assert "code" in redirect_parameters(ask(browser, app, scope="mcp", prompt="none"))
    # Only a decision of the user renews the consent.
    assert Consent.objects.get().updated_at == given


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": "mcp orders:refund"},
        {"resource": parties.OTHER_RESOURCE},
        {"redirect_uri": "https://other.example/callback"},
        {"redirect_uri": "http://localhost:1234/callback"},
        {"prompt": "consent"},
        {"prompt": "select_account"},
    ],
)
def test_another_request_than_the_remembered_one_is_asked_about(browser, app, settings, changes):
    remembering(
        settings,
        app,
        redirect_uris=f"{parties.REDIRECT} https://other.example/callback http://localhost/callback",
    )
    answer(browser, ask(browser, app))
    assert ask(browser, app, **changes).status_code == 200


def test_a_public_client_that_registered_itself_is_never_remembered(browser, app, settings):
    remembering(settings, app, registration_source="dcr")
    answer(browser, ask(browser, app))
    assert ask(browser, app).status_code == 200


def test_consent_is_remembered_no_longer_than_set(browser, app, settings):
    remembering(settings, app)
    answer(browser, ask(browser, app))
    Consent.objects.update(updated_at="2020-01-01T00:00:00Z")
    assert ask(browser, app).status_code == 200


def test_approval_comes_before_anything_upstream(browser, app, monkeypatch):
    from django.http import HttpResponseRedirect

    from mcp_django.oauth.authorize import finish_request

    steps: list[Any] = []

    def next_step(request: Any, server: Any, approved: Any) -> Any:
        steps.append(json.loads(json.dumps(approved)))
        return HttpResponseRedirect("https://upstream.example/") if len(steps) == 1 else None

    monkeypatch.setattr("mcp_django.oauth.authorize._upstream_redirect", next_step)
    page = ask(browser, app)
    answer(browser, page, "deny")
    assert steps == []
    response = answer(browser, ask(browser, app))
    assert response["Location"] == "https://upstream.example/"
    assert not Grant.objects.exists()
    finished = finish_request(response.wsgi_request, steps[0])
    assert "code" in redirect_parameters(finished)
    # A client that was removed in the meantime gets nothing.
    get_application_model().objects.all().delete()
    assert finish_request(response.wsgi_request, steps[0]).status_code == 400


def test_what_a_validator_of_the_site_refuses_last_is_told_to_the_client(browser, app, monkeypatch):
    def refuse(*args, **kwargs):
        raise CustomOAuth2Error(error="access_denied", description="The desk is closed.")

    monkeypatch.setattr(Validator, "save_authorization_code", refuse)
    params = redirect_parameters(answer(browser, ask(browser, app)))
    assert (params["error"], params["error_description"]) == (
        "access_denied",
        "The desk is closed.",
    )
    assert not Grant.objects.exists()


@pytest.mark.spec("AUT-27")
def test_threat_18_iss_is_on_every_answer_once(browser, app):
    issuer = browser.get("/.well-known/oauth-authorization-server").json()["issuer"]
    app.redirect_uris = f"{parties.REDIRECT}?iss=https://evil.example&x=%20a+b&flag"
    app.save()
    uri = app.redirect_uris
    page = ask(browser, app, redirect_uri=uri)
    for response in (
        answer(browser, page),
        answer(browser, page, "deny"),
        ask(browser, app, redirect_uri=uri, prompt="none"),
        ask(browser, app, redirect_uri=uri, response_type="token"),
        ask(browser, app, redirect_uri=uri, code_challenge=None),
        ask(browser, app, redirect_uri=uri, resource="https://evil.example/mcp"),
    ):
        assert all_redirect_parameters(response)["iss"] == [issuer]
        assert all_redirect_parameters(response)["x"] == [" a b"]
        assert "&x=%20a+b&flag&" in response["Location"].replace("?", "&")
    browser.logout()
    get_application_model().objects.update(registration_source="manual")
    assert all_redirect_parameters(ask(browser, app, redirect_uri=uri, prompt="none"))["iss"] == [
        issuer
    ]


def test_threat_18_a_pinned_issuer_is_the_one_told(browser, app, settings):
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"ISSUER": "https://id.example/o"}}
    assert redirect_parameters(answer(browser, ask(browser, app)))["iss"] == "https://id.example/o"


@pytest.mark.parametrize("kind", ["public", "confidential"])
@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": None},
        {"code_challenge": None},
        {"code_challenge": "short"},
        {"code_challenge": "=" * 43},
        {"code_challenge": "x" * 44},
    ],
)
@pytest.mark.spec("AUT-21")
def test_threat_14_no_code_without_s256(browser, app, kind, changes):
    app.client_type = kind
    app.save()
    response = ask(browser, app, **changes)
    assert redirect_parameters(response)["error"] == "invalid_request"
    assert not Grant.objects.exists()
