"""The authorization endpoint and login pages: users sign in once, and no parameter is lost."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import pytest
from django.contrib.auth.views import LoginView
from django.http import QueryDict
from django.test import Client
from django.urls import path
from oauth2_provider.models import get_grant_model

from tests.oauth import parties, urls as oauth_urls
from tests.oauth.asking import AUTHORIZE, CHALLENGE, answer, ask, redirect_parameters, request_of

pytestmark = pytest.mark.django_db
Grant = get_grant_model()

# A site whose login page does not ask a user who is signed in.
urlpatterns = [
    path(
        "sso/",
        LoginView.as_view(template_name="admin/login.html", redirect_authenticated_user=True),
        name="sso",
    ),
    *oauth_urls.urlpatterns,
]


@pytest.fixture
def staff(db):
    return parties.make_user(is_staff=True)


@pytest.fixture(params=["login", "admin:login", "sso"])
def login_url(request, settings):
    """Django's login page, the admin's, and one that redirects users who are signed in."""
    settings.ROOT_URLCONF = __name__
    settings.LOGIN_URL = request.param
    return str(request.param)


def arrive(browser: Client, response: Any) -> tuple[Any, int]:
    """Follow redirects and sign in; return the final response and the number of sign-ins."""
    times = 0
    for _ in range(8):
        if response.status_code == 200 and b'name="password"' in response.content:
            times += 1
            form = {"username": "ada", "password": "ada", "next": response.context["next"]}
            response = browser.post(response.wsgi_request.get_full_path(), form)
        elif response.status_code == 200 and b'name="request"' not in response.content:
            # The page that signs out a user who must sign in again.
            path = response.wsgi_request.get_full_path()
            response = browser.post(path, {"decision": "switch"})
        elif response.status_code == 302 and not urlsplit(response["Location"]).netloc:
            response = browser.get(response["Location"])
        else:
            break
    return response, times


@pytest.mark.parametrize("prompt", ["login", "login consent", "select_account login", "consent"])
@pytest.mark.usefixtures("login_url", "staff")
def test_signing_in_fulfills_prompt_login(client, app, prompt):
    page, times = arrive(client, ask(client, app, prompt=prompt))
    assert times == 1
    assert redirect_parameters(answer(client, page))["state"] == "s t/1"


@pytest.mark.parametrize("prompt", ["login", "login consent", "select_account login"])
@pytest.mark.usefixtures("login_url")
def test_a_signed_in_user_signs_in_again_for_prompt_login(client, staff, app, prompt):
    client.force_login(staff)
    page, times = arrive(client, ask(client, app, prompt=prompt))
    assert times == 1
    assert redirect_parameters(answer(client, page))["state"] == "s t/1"


@pytest.mark.usefixtures("login_url")
def test_the_address_alone_does_not_fulfill_prompt_login(client, staff, app):
    client.force_login(staff)
    page = ask(client, app, prompt="login")
    assert b"asks you to sign in again" in page.content
    path = page.wsgi_request.get_full_path()
    assert b"asks you to sign in again" in client.get(path).content
    assert "_auth_user_id" in client.session
    response = client.post(path, {"decision": "switch"})
    assert "_auth_user_id" not in client.session
    back = parse_qs(urlsplit(response["Location"]).query)["next"][0]
    _page, times = arrive(client, client.get(back))
    assert times == 1


def test_a_user_who_does_not_want_to_sign_in_again_goes_back(client, staff, app):
    client.force_login(staff)
    location = ask(client, app, prompt="login").context["location"]
    assert parse_qs(urlsplit(location).query)["error"] == ["login_required"]


@pytest.mark.parametrize("prompt", ["login", "login consent"])
def test_prompt_login_shows_the_consent_page_where_consent_is_remembered(
    client, staff, app, settings, prompt
):
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"REMEMBER_CONSENT": 3600}}
    app.registration_source = "manual"
    app.save()
    client.force_login(staff)
    answer(client, ask(client, app))
    assert "code" in redirect_parameters(ask(client, app))
    page, times = arrive(client, ask(client, app, prompt=prompt))
    assert times == 1
    assert page.context["known_before"]


def test_a_request_that_cannot_be_answered_signs_nobody_out(client, staff, app):
    client.force_login(staff)
    assert ask(client, app, prompt="login", client_id="nobody").status_code == 400
    response = ask(client, app, prompt="login", code_challenge=None)
    assert redirect_parameters(response)["error"] == "invalid_request"
    assert ask(client, app).context["account"] == staff


def test_another_account_signs_in_once_for_prompt_login(client, staff, app, settings):
    settings.MCP_DJANGO = {**parties.SETTINGS, "OAUTH": {"CAN_CONNECT": f"{__name__}.is_ada"}}
    client.force_login(parties.make_user("grace"))
    page = ask(client, app, prompt="login")
    assert page.status_code == 403
    again = page.wsgi_request.get_full_path()
    page, times = arrive(client, client.post(again, {"decision": "switch"}))
    assert times == 1
    answer(client, page)
    assert Grant.objects.get().user == staff


def is_ada(user: Any, server: Any, client_id: str) -> bool:
    return bool(user.username == "ada")


# Requests that login pages would drop -------------------------------------------------------------


def of_size(app: Any, size: int, **changes: Any) -> tuple[str, str]:
    """Return the URL of a request whose query has this size, and the request's state."""
    shortest = urlencode(request_of(app, **{"nonce": "n-1", **changes, "state": ""}))
    state = ("s~t/1 " * size)[:8]
    state += "x" * (size - len(shortest) - len(quote_plus(state)))
    query = urlencode(request_of(app, **{"nonce": "n-1", **changes, "state": state}))
    assert len(query) == size
    return f"{AUTHORIZE}?{query}", state


@pytest.mark.parametrize("size", [1_400, 1_600, 2_100, 3_000, 16_384])
@pytest.mark.usefixtures("login_url", "staff")
def test_a_long_request_goes_on_after_signing_in(client, app, size):
    url, state = of_size(app, size)
    page, times = arrive(client, client.get(url))
    assert times == 1
    assert QueryDict(urlsplit(url).query) == page.wsgi_request.GET
    assert redirect_parameters(answer(client, page))["state"] == state
    grant = Grant.objects.get()
    assert (grant.code_challenge, grant.nonce) == (CHALLENGE, "n-1")
    assert grant.resource == [parties.RESOURCE]


@pytest.mark.parametrize("size", [3_000, 16_382])
@pytest.mark.usefixtures("login_url")
def test_a_long_request_goes_on_after_signing_in_again(client, staff, app, size):
    client.force_login(staff)
    url, state = of_size(app, size, prompt="login")
    page, times = arrive(client, client.get(url))
    assert times == 1
    assert redirect_parameters(answer(client, page))["state"] == state


@pytest.mark.usefixtures("login_url")
def test_a_long_request_goes_on_with_another_account(client, staff, app):
    client.force_login(parties.make_user("grace"))
    url, state = of_size(app, 3_000)
    page, times = arrive(client, answer(client, client.get(url), "switch"))
    assert times == 1
    assert redirect_parameters(answer(client, page))["state"] == state
    assert Grant.objects.get().user == staff


def test_a_request_that_grew_too_long_is_refused_before_signing_in(client, app):
    start = f"prompt=login&{urlencode(request_of(app), safe='/:')}"
    response = client.get(f"{AUTHORIZE}?{start}{'x' * (16_384 - len(start))}")
    assert response.status_code == 400
    assert b"too long" in response.content
    assert not client.session.keys()


@pytest.mark.usefixtures("login_url", "staff")
def test_a_request_may_leave_characters_unquoted(client, app):
    state = "/:@!$()*,;?[]\\^`{|}~=" * 600
    start = urlencode(request_of(app, state=""), safe="/:")
    # The state comes last, and the parameter before it has no value.
    url = f"{AUTHORIZE}?{start}&login_hint&state={state}"
    url = url.replace("&state=&", "&")
    assert len(quote_plus(state)) > 16_384
    page, times = arrive(client, client.get(url))
    assert times == 1
    assert redirect_parameters(answer(client, page))["state"] == state


def test_a_short_request_opens_no_session(client, app):
    ask(client, app)
    assert "sessionid" not in client.cookies


@pytest.mark.usefixtures("staff")
def test_a_session_keeps_the_newest_requests(client, app):
    urls = [of_size(app, size) for size in range(3_000, 3_006)]
    login_pages = [client.get(url)["Location"] for url, _state in urls]
    client.get(urls[-1][0])
    assert len(str(dict(client.session.items()))) < 5 * 3_100
    client.login(username="ada", password="ada")
    ways = [parse_qs(urlsplit(place).query)["next"][0] for place in login_pages]
    assert [client.get(way).status_code for way in ways] == [400, 400, 302, 302, 302, 302]
    # A request that was continued is no longer stored.
    assert [client.get(way).status_code for way in ways] == [400] * 6
    assert len(str(dict(client.session.items()))) < 1_000


@pytest.mark.usefixtures("staff")
def test_a_request_waits_for_an_hour(client, app, monkeypatch):
    way = parse_qs(urlsplit(client.get(of_size(app, 3_000)[0])["Location"]).query)["next"][0]
    client.login(username="ada", password="ada")
    later = time.time() + 3_601
    monkeypatch.setattr("mcp_django.oauth.authorize.time.time", lambda: later)
    page = client.get(way)
    assert page.status_code == 400
    assert b"Go back to your assistant and connect again." in page.content


def test_a_request_waits_only_where_it_began(client, staff, app):
    way = parse_qs(urlsplit(client.get(of_size(app, 3_000)[0])["Location"]).query)["next"][0]
    other = Client()
    other.force_login(staff)
    assert other.get(way).status_code == 400


def test_a_client_may_send_a_parameter_of_that_name(client, staff, app):
    client.force_login(staff)
    assert ask(client, app, pending="x").status_code == 200


@pytest.mark.usefixtures("staff")
def test_the_session_of_a_stranger_ends_soon_and_that_of_a_user_does_not(client, app):
    response = client.get(of_size(app, 3_000)[0])
    assert response.cookies["sessionid"]["max-age"] == 3_600
    page, _times = arrive(client, response)
    assert page.status_code == 200
    assert client.session.get_expiry_age() == 14 * 24 * 3_600


def test_an_address_opens_few_sessions_with_requests(app):
    url, _state = of_size(app, 3_000)
    answers = [Client().get(url) for _ in range(11)]
    assert [response.status_code for response in answers] == [302] * 10 + [429]
    assert "sessionid" not in answers[-1].cookies
    # Other addresses are not affected.
    assert Client(REMOTE_ADDR="192.0.2.7").get(url).status_code == 302


def test_requests_that_store_nothing_leave_room_for_those_that_do(app):
    for _ in range(11):
        assert ask(Client(), app, prompt="none").status_code == 400
    assert Client().get(of_size(app, 3_000)[0]).status_code == 302


@pytest.mark.parametrize(("size", "status"), [(2_000, 302), (3_000, 400)])
def test_sessions_in_cookies_have_no_room_for_a_request(client, app, settings, size, status):
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    response = client.get(of_size(app, size)[0])
    assert response.status_code == status
    assert "sessionid" not in response.cookies
