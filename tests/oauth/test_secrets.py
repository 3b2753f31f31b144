"""Threat 23: no secret can be found again in the places where it could be stored or shown.

Secrets are issued in every way that exists; then everything stored or shown is searched.
"""

from __future__ import annotations

import io
import json
import logging
from base64 import b64encode
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.admin.sites import site as admin_site
from django.core.cache import cache
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client, RequestFactory
from django.urls import reverse
from django.views.debug import ExceptionReporter
from oauth2_provider.models import get_grant_model

from mcp_django.auth.authentication import authenticate
from mcp_django.auth.backends import get_backend
from mcp_django.auth.credentials import Credentials
from mcp_django.models import AccessToken
from mcp_django.protocol.headers import Headers
from tests.kit.servers import token_for
from tests.oauth import asking, parties
from tests.oauth.exchanges import REVOKE, call, post, redeem, refresh, sign_in

pytestmark = pytest.mark.django_db

# A confidential client authenticates with it, and must keep it secret.
CLIENT_SECRET = "kept-by-a-confidential-client-0123456789"
BEARERS = ("own token", "refreshed access")


class Log(logging.Handler):
    """Collects all log records, with every attribute that a formatter could use."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = io.StringIO()

    def emit(self, record: logging.LogRecord) -> None:
        seen = {name: value for name, value in vars(record).items() if name != "request"}
        self.text.write(f"{self.format(record)} {seen!r}\n")


@pytest.fixture
def log():
    """The log at DEBUG, without SQL statements, because the database is searched separately."""
    handler, root = Log(), logging.getLogger()
    level = root.level
    quiet = logging.getLogger("django.db.backends")
    was = quiet.level
    quiet.setLevel(logging.INFO)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)
    quiet.setLevel(was)


def _code_from_the_consent_page(user: Any, app: Any) -> str:
    browser = Client()
    browser.force_login(user)
    page = asking.ask(browser, app)
    assert page.status_code == 200, page.content
    return asking.redirect_parameters(asking.answer(browser, page))["code"]


def issue_everything(user: Any, app: Any) -> dict[str, str]:
    """Issue one secret of each kind, and use each correctly and incorrectly."""
    secrets = {"own token": token_for(user, "mcp")[1]}
    confidential = parties.make_app(
        name="Confidential", client_type="confidential", client_secret=CLIENT_SECRET
    )
    secrets["client secret"] = CLIENT_SECRET
    secrets["authorization code"] = _code_from_the_consent_page(user, app)
    assert get_grant_model().objects.exists()

    first = sign_in(user, app)
    secrets |= {"access token": first["access_token"], "refresh token": first["refresh_token"]}
    second = refresh(app, first["refresh_token"]).json()
    secrets["refreshed access"] = second["access_token"]
    secrets["refreshed refresh"] = second["refresh_token"]
    # A replayed answer stores the pair for a while, and must store it encrypted.
    assert refresh(app, first["refresh_token"]).json()["access_token"] == second["access_token"]

    registered = Client().post(
        "/oauth/register",
        json.dumps(
            {
                "client_name": "Registered",
                "redirect_uris": [parties.REDIRECT],
                "token_endpoint_auth_method": "client_secret_post",
            }
        ),
        content_type="application/json",
    )
    assert registered.status_code == 201, registered.content
    secrets["registered secret"] = registered.json()["client_secret"]

    for token in (secrets["own token"], secrets["refreshed access"]):
        call(token)
        call(token, tool="nothing-like-this")
        call(token, path="/billing/mcp")
    call(secrets["own token"] + "x")
    redeem(app, secrets["authorization code"], "v" * 43)
    redeem(app, secrets["authorization code"], "w" * 43)
    basic = b64encode(f"{confidential.client_id}:{CLIENT_SECRET}x".encode()).decode()
    post({"grant_type": "refresh_token", "refresh_token": "r"}, AUTHORIZATION=f"Basic {basic}")
    form = {"token": secrets["refreshed access"], "client_id": app.client_id}
    post({**form, "client_id": "unknown"}, path=REVOKE)
    return secrets


def dump() -> str:
    """Return every column of every row of every table."""
    lines = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            lines += [f"{table} {row!r}" for row in cursor.fetchall()]
    return "\n".join(lines)


def assert_absent(secrets: dict[str, str], where: str, text: str) -> None:
    for name, secret in secrets.items():
        lines = [line for line in text.splitlines() if secret in line]
        assert not lines, f"The {name} is in {where}."


def test_threat_23_no_secret_is_in_the_database_or_the_log(user, app, log):
    secrets = issue_everything(user, app)
    text = dump()
    assert "oauth2_provider_accesstoken" in text
    assert_absent(secrets, "the database", text)
    assert "mcp_django.security" in log.text.getvalue()
    assert_absent(secrets, "the log", log.text.getvalue())


def test_threat_23_no_secret_is_in_the_cache(user, app):
    secrets = issue_everything(user, app)
    held = cache._cache
    assert held
    assert_absent(secrets, "the cache", repr(held))


@pytest.mark.parametrize(
    ("text", "given", "shown"),
    [
        ("Saving %r for %r", ({"code": "s3cret", "scope": "mcp"}, 7), "{'code': '[hidden]', 'sco"),
        ("Saving %r", ({"device_code": "s3cret"},), "{'device_code': '[hidden]'}"),
        ("Saving %r", ({"state": "s3cret", "in": {"pin": "s3cret"}},), "'in': {'pin': '[hidden]'}"),
        ("Refresh token: %s", ("s3cret",), "Refresh token: [hidden]"),
        ("With the access_token %r", ("s3cret",), "With the access_token '[hidden]'"),
        ("State %s, client %s", ("s3cret", "c1"), "State [hidden], client c1"),
        ("Going to %s", ("https://a.example/?code=s3cret",), "https://a.example/?code=[hidden]"),
        ("Valid token: %s, after %d of %r", (True, 3, object), "Valid token: True, after 3 of <cl"),
    ],
)
def test_threat_23_the_libraries_log_no_secret(text, given, shown, log):
    logging.getLogger("oauthlib.oauth2.rfc6749.grant_types.base").debug(text, *given)
    assert shown in log.text.getvalue()
    assert "s3cret" not in log.text.getvalue()


# It requests fifty pages.
@pytest.mark.outside
def test_threat_23_the_admin_shows_no_secret(user, app, few_servers):
    secrets = issue_everything(user, app)
    browser = Client()
    browser.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    seen = 0
    for model in admin_site._registry:
        if model._meta.app_label not in ("oauth2_provider", "mcp_django", "mcp_oauth"):
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        pages = [reverse(f"{name}_changelist")]
        for row in model._default_manager.all():
            pages += [reverse(f"{name}_{page}", args=[row.pk]) for page in ("change", "delete")]
        for page in pages:
            answer = browser.get(page)
            assert answer.status_code in (200, 403), page
            assert_absent(secrets, page, answer.content.decode())
            seen += answer.status_code == 200
    assert seen > 3


def credentials_of(bearer: str, path: str = "/mcp") -> Credentials:
    request = RequestFactory().post(path, headers={"Authorization": f"Bearer {bearer}"})
    raw = [(b"authorization", f"Bearer {bearer}".encode())]
    return Credentials(headers=Headers(raw), query="", request=lambda: request)


def test_threat_23_no_repr_shows_a_secret(user, app):
    secrets = issue_everything(user, app)
    rows = [*AccessToken.objects.all(), *get_grant_model().objects.all()]
    for kind in BEARERS:
        credentials = credentials_of(secrets[kind])
        principal = authenticate(("tokens", "oauth"), credentials)
        assert principal.is_authenticated, kind
        for value in (credentials, principal, *rows, *map(vars, rows)):
            assert_absent({kind: secrets[kind]}, type(value).__name__, repr(value))


def check_reports(secrets: dict[str, str], failing: Any, backends: tuple[str, ...]) -> None:
    """Assert that the reports of an error during the lookup of a bearer do not contain it."""
    for kind in BEARERS:
        credentials = credentials_of(secrets[kind])
        with failing:
            try:
                authenticate(backends, credentials)
            except ZeroDivisionError as exc:
                # Leave out the frame of this function, which has the secret.
                within = exc.__traceback__ and exc.__traceback__.tb_next
                reporter = ExceptionReporter(credentials.request(), type(exc), exc, within)
        for text in (reporter.get_traceback_text(), reporter.get_traceback_html()):
            assert "ZeroDivisionError" in text
            assert_absent({kind: secrets[kind]}, "the error report", text)
        del reporter


@pytest.mark.parametrize("debug", [False, True])
def test_threat_23_no_error_report_shows_a_bearer(user, app, debug, settings):
    secrets = issue_everything(user, app)
    settings.DEBUG = debug
    backend = type(get_backend("tokens"))
    failing = patch.object(backend, "authenticate", side_effect=ZeroDivisionError)
    check_reports(secrets, failing, ("tokens",))


def test_threat_23_no_report_of_a_failing_database_shows_a_bearer(user, app):
    secrets = issue_everything(user, app)
    failing = patch.object(SQLCompiler, "execute_sql", side_effect=ZeroDivisionError)
    check_reports(secrets, failing, ("tokens", "oauth"))
