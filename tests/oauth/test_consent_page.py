"""The consent page: it cannot be forged, framed, skipped or made to show something false."""

import base64
import hashlib
import re
from dataclasses import asdict

import pytest
from django.contrib.staticfiles import finders
from django.core import signing
from django.test import Client
from django.utils import translation
from oauth2_provider.models import get_application_model, get_grant_model

from mcp_django.models import Component
from mcp_django.oauth.authorization_request import SALT, AuthorizationRequest
from mcp_django.oauth.clients import destination_of
from mcp_django.oauth.models import Consent
from mcp_django.overrides.state import override_version
from mcp_django.protocol.text import printable
from tests.oauth import parties
from tests.oauth.asking import AUTHORIZE, CHALLENGE, answer, ask, redirect_parameters, signed

pytestmark = pytest.mark.django_db
Grant = get_grant_model()
CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@pytest.fixture
def browser(client, user):
    client.force_login(user)
    return client


OTHER_SPELLINGS = [
    "https://evil.example/callback",
    "https://client.example.evil.example/callback",
    "https://client.example@evil.example/callback",
    "https://user@client.example/callback",
    "https://client.example:8443/callback",
    "https://client.example/callback#x",
    "https://client.example/callback;x",
    "https://client.example/callback/",
    "https://client.example/callback?x=1",
    "https://client.example/callback/../evil",
    "https://client.example/%63allback",
    "https://client.example\\@evil.example/callback",
    "https://client.example/callback\n",
    "http://client.example/callback",
    "//evil.example/callback",
    "javascript:alert(1)//https://client.example/callback",
    "data:text/html,x",
    "",
]


@pytest.mark.parametrize("uri", OTHER_SPELLINGS)
@pytest.mark.parametrize("signed_in", [True, False])
@pytest.mark.spec("AUT-22")
def test_threat_02_nobody_is_sent_where_the_client_did_not_register(
    client, user, app, uri, signed_in
):
    # With two registered URIs, neither is the default of a request without one.
    app.redirect_uris = f"{parties.REDIRECT} https://client.example/second"
    app.save()
    if signed_in:
        client.force_login(user)
    response = ask(client, app, redirect_uri=uri, prompt="none" if not signed_in else None)
    assert response.status_code == 400
    assert "Location" not in response
    assert response["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("client_id", ["unknown", "", "\0", "https://unknown.example/c.json"])
def test_threat_02_an_unknown_client_is_sent_nowhere(browser, app, client_id):
    response = ask(browser, app, client_id=client_id)
    assert response.status_code == 400
    assert "Location" not in response


@pytest.mark.parametrize("uri", ["javascript:alert(1)", "http://evil.example/cb", "data:,x"])
def test_threat_02_what_was_registered_under_no_policy_is_not_trusted(browser, app, uri):
    get_application_model().objects.update(redirect_uris=uri)
    for changes in ({}, {"response_type": "token"}, {"code_challenge": None}):
        response = ask(browser, app, redirect_uri=uri, **changes)
        assert response.status_code == 400
        assert "Location" not in response


@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        ("http://localhost/callback", "http://localhost:43110/callback"),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:52000/cb"),
        ("cursor://anysphere.cursor-mcp/oauth/callback",) * 2,
    ],
)
@pytest.mark.spec("AUT-22")
def test_programs_on_the_users_machine_get_their_answer(browser, app, registered, requested):
    get_application_model().objects.update(redirect_uris=registered)
    page = ask(browser, app, redirect_uri=requested)
    assert page.status_code == 200
    assert answer(browser, page)["Location"].startswith(f"{requested}?code=")
    assert answer(browser, page, "deny")["Location"].startswith(f"{requested}?error=access_denied")


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/mcp",
        f"{parties.ORIGIN}/",
        f"{parties.ORIGIN}/mc",
        f"{parties.ORIGIN}/mcp?x",
        f"{parties.ORIGIN}/login/",
        [parties.RESOURCE, "https://evil.example/mcp"],
        "mcp",
        "",
    ],
)
@pytest.mark.spec("AUT-24")
def test_threat_04_an_unknown_server_is_refused_to_the_client(browser, app, resource):
    response = ask(browser, app, resource=resource)
    assert redirect_parameters(response)["error"] == "invalid_target"
    assert redirect_parameters(response)["state"] == "s t/1"
    assert not Grant.objects.exists()
    assert not Consent.objects.exists()


def test_threat_04_what_the_form_says_beside_the_signed_request_counts_for_nothing(browser, app):
    other = parties.make_app(name="Other")
    answer(
        browser,
        ask(browser, app),
        resource="https://evil.example/mcp",
        redirect_uri="https://evil.example/",
        client_id=other.client_id,
        code_challenge="x" * 43,
        state="other",
    )
    grant = Grant.objects.get()
    assert (grant.application, grant.redirect_uri) == (app, parties.REDIRECT)
    assert (grant.resource, grant.code_challenge) == ([parties.RESOURCE], CHALLENGE)


def test_threat_04_a_tampered_request_is_refused_and_nothing_is_stored(browser, user, app):
    page = ask(browser, app)
    text = signed(page)
    values = asdict(AuthorizationRequest.unsign(text, user)) | {"user": str(user.pk)}
    evil = values | {"resources": ["https://evil.example/mcp"]}
    for forged in (
        "",
        text[:-1] + ("A" if text[-1] != "A" else "B"),
        signing.dumps(evil, salt="another"),
        signing.dumps(evil, key="another", salt=SALT),
    ):
        response = browser.post(AUTHORIZE, {"request": forged, "decision": "allow"})
        assert response.status_code == 400
        assert "Location" not in response
    # Signed by this site, as if the server had been removed from the URLconf since.
    gone = signing.dumps(evil, salt=SALT)
    response = browser.post(AUTHORIZE, {"request": gone, "decision": "allow"})
    assert redirect_parameters(response)["error"] == "invalid_target"
    assert not Grant.objects.exists()
    assert not Consent.objects.exists()


def test_a_page_that_stood_open_for_an_hour_is_refused(browser, app, monkeypatch):
    page = ask(browser, app)
    monkeypatch.setattr("mcp_django.oauth.authorization_request.MAX_AGE_SECONDS", -1)
    assert answer(browser, page).status_code == 400


@pytest.mark.spec("AUT-32")
def test_threat_11_consent_is_for_one_client(browser, user, app):
    answer(browser, ask(browser, app))
    parties.make_token(user, app)
    other = parties.make_app(name="Other", client_type="confidential")
    assert ask(browser, other).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"approval_prompt": "auto"},
        {"redirect_uri": "http://localhost:4000/callback", "approval_prompt": "auto"},
        {"resource": parties.OTHER_RESOURCE, "approval_prompt": "auto"},
    ],
)
@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_threat_11_nothing_a_client_says_skips_the_question(browser, user, app, changes, source):
    get_application_model().objects.update(
        redirect_uris=f"{parties.REDIRECT} http://localhost/callback",
        skip_authorization=True,
        registration_source=source,
    )
    answer(browser, ask(browser, app))
    parties.make_token(user, app)
    grants = Grant.objects.count()
    assert ask(browser, app, **changes).status_code == 200
    assert Grant.objects.count() == grants


@pytest.mark.parametrize("with_middleware", [True, False])
@pytest.mark.spec("AUT-28")
def test_threat_12_consent_cannot_be_forged(user, app, settings, with_middleware):
    if not with_middleware:
        settings.MIDDLEWARE = [
            name
            for name in settings.MIDDLEWARE
            if "csrf" not in name and "clickjacking" not in name
        ]
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    page = ask(browser, app)
    forged = answer(browser, page)
    assert forged.status_code == 403
    assert not Grant.objects.exists()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.content.decode())
    assert token
    allowed = answer(browser, page, csrfmiddlewaretoken=token[1])
    assert "code" in redirect_parameters(allowed)
    refused = ask(browser, app, redirect_uri="https://evil.example/")
    browser.logout()
    to_login = ask(browser, app)
    connections = browser.get("/oauth/connections/")
    for response in (page, forged, allowed, refused, to_login, connections):
        assert response["X-Frame-Options"] == "DENY"
        assert response["Content-Security-Policy"] == CSP
        assert response["Cache-Control"] == "no-store"
        assert response["Referrer-Policy"] == "same-origin"
        assert response["Cross-Origin-Opener-Policy"] == "unsafe-none"
    assert {page.status_code, allowed.status_code, refused.status_code} == {200, 302, 400}


@pytest.mark.parametrize("with_middleware", [True, False])
def test_threat_12_disconnecting_cannot_be_forged(user, app, settings, with_middleware):
    if not with_middleware:
        settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name]
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    row = Consent.objects.create(user=user, client_id=app.client_id, resource=parties.RESOURCE)
    assert browser.post("/oauth/connections/").status_code == 403
    assert browser.post(f"/oauth/connections/{row.pk}/disconnect/").status_code == 403
    assert Consent.objects.exists()


def test_styles_may_come_from_the_host_of_static_files(browser, app, settings):
    settings.STATIC_URL = "https://cdn.example/static/"
    response = ask(browser, app)
    assert "style-src 'self' https://cdn.example;" in response["Content-Security-Policy"]
    for sheet in (b"page.css", b"oauth/pages.css"):
        assert b'href="https://cdn.example/static/mcp_django/' + sheet + b'"' in response.content


def test_under_debug_the_page_holds_its_style(browser, app, settings, tmp_path):
    settings.DEBUG = True
    response = ask(browser, app)
    page, policy = response.content.decode(), response["Content-Security-Policy"]
    assert 'rel="stylesheet"' not in page
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(styles) == 2
    assert all("{" in sheet for sheet in styles)
    for style in styles:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    # A file of the site replaces the stylesheet of this package.
    own = tmp_path / "mcp_django" / "page.css"
    own.parent.mkdir()
    own.write_text("body { color: teal; }")
    settings.STATICFILES_DIRS = [tmp_path]
    finders.get_finder.cache_clear()
    try:
        assert "<style>body { color: teal; }</style>" in ask(browser, app).content.decode()
    finally:
        finders.get_finder.cache_clear()


@pytest.mark.parametrize("uri", ["http://localhost:4000/callback", "http://127.0.0.1:4000/cb"])
@pytest.mark.spec("AUT-26")
def test_threat_13_a_program_on_this_computer_is_warned_about(browser, app, uri):
    get_application_model().objects.update(
        redirect_uris=uri, registration_source="cimd", client_id="https://vendor.example/c.json"
    )
    app.refresh_from_db()
    page = ask(browser, app, redirect_uri=uri).content.decode()
    assert "any program can use this name" in page
    assert destination_of(uri).shown in page
    assert "Published by vendor.example" in page


def test_threat_13_an_app_is_warned_about(browser, app):
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    get_application_model().objects.update(redirect_uris=uri)
    page = ask(browser, app, redirect_uri=uri).content.decode()
    assert "any app can use this name" in page
    assert "cursor://anysphere.cursor-mcp" in page


@pytest.mark.parametrize(
    ("source", "badge"),
    [
        ("dcr", "Registered itself, not verified"),
        ("manual", "Approved by this site"),
    ],
)
@pytest.mark.spec("AUT-25")
def test_threat_13_the_page_says_how_the_name_is_known(browser, app, source, badge):
    get_application_model().objects.update(registration_source=source)
    assert badge in ask(browser, app).content.decode()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Claude\u202e edualC", "Claude edualC"),
        ("\u200bGood\u2066\n\tName\x07", "Good Name"),
        ("x" * 300, "x" * 119 + "…"),
        ("\u202e\u200f", ""),
    ],
)
def test_threat_13_names_cannot_turn_or_hide_text(name, shown):
    assert printable(name) == shown


@pytest.mark.parametrize(
    ("uri", "shown", "kind"),
    [
        ("https://Client.Example:444/x", "client.example:444", "web"),
        ("http://localhost:3118/cb", "localhost:3118", "loopback"),
        ("http://[::1]:3118/cb", "[::1]:3118", "loopback"),
        ("http://127.0.1.1/cb", "127.0.1.1", "loopback"),
        ("https://ex\u0430mple.com/cb", "xn--exmple-4nf.com", "web"),
        ("com.example.app:/cb", "com.example.app:", "app"),
    ],
)
def test_threat_13_the_host_is_shown_as_it_is(uri, shown, kind):
    destination = destination_of(uri)
    assert (destination.shown, destination.kind) == (shown, kind)


SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_threat_20_what_a_client_says_of_itself_is_text(browser, app):
    get_application_model().objects.update(name=SCRIPT)
    page = ask(browser, app).content.decode()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page
    answer(browser, ask(browser, app))
    page = browser.get("/oauth/connections/").content.decode()
    assert "&lt;script&gt;" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    "name", ["client_id", "redirect_uri", "resource", "scope", "state", "nonce", "response_type"]
)
@pytest.mark.parametrize("value", [SCRIPT, "a\r\nSet-Cookie: a=b", '"; x="'])
def test_threat_20_no_value_of_a_request_becomes_markup_or_a_header(browser, app, name, value):
    response = ask(browser, app, **{name: value})
    assert response.status_code in (200, 302, 400)
    assert "<script" not in response.content.decode()
    assert not {"\r", "\n"} & set(response.get("Location", ""))
    assert "a" not in browser.cookies


def test_a_site_may_override_parts_of_the_pages(browser, app, settings, tmp_path):
    place = tmp_path / "mcp_django" / "oauth"
    place.mkdir(parents=True)
    (place / "base.html").write_text(
        "<html><head><title>{% block title %}{% endblock %}</title></head>"
        "<body>Our site {% block content %}{% endblock %}</body></html>"
    )
    [engine] = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path]}]
    page = ask(browser, app).content.decode()
    assert "Our site" in page
    assert 'value="allow"' in page


def test_the_page_reads_from_right_to_left_where_the_language_does(browser, app, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    browser.cookies[settings.LANGUAGE_COOKIE_NAME] = "ar"
    try:
        assert '<html lang="ar" dir="rtl">' in ask(browser, app).content.decode()
    finally:
        translation.activate(settings.LANGUAGE_CODE)


def test_the_page_says_what_the_server_offers_this_user(browser, app):
    page = ask(browser, app, scope="mcp mcp:write").content.decode()
    assert "Orders" in page
    assert "3 tools" in page  # `hire` requires the permission to change users
    assert "Needed by 2 tools" in page
    assert "Change things" in page
    assert "ada" in page
    assert "/oauth/connections/" in page


def test_nothing_on_the_pages_is_inline(browser, app):
    answer(browser, ask(browser, app))
    for page in (ask(browser, app), browser.get("/oauth/connections/")):
        text = page.content.decode()
        assert not re.search(r"<script|<style|style=|\son\w+=|javascript:", text)


def test_the_page_counts_nothing_that_was_switched_off_elsewhere(browser, app):
    override_version.record_change()
    override_version.reset()
    details = {"server": "orders", "kind": "tool", "key": "place", "name": "place"}
    Component.objects.create(**details, is_enabled=False)
    page = ask(browser, app, scope="mcp mcp:write").content.decode()
    assert "2 tools" in page
    assert "Needed by 1 tool<" in page
