"""System checks of the authorization server: when they report a message and when they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core import checks as django_checks
from django.core.checks import CheckMessage, run_checks
from django.http import HttpResponse
from django.urls import clear_url_caches, include, path, re_path

from mcp_django import MCPServer, server as server_module
from mcp_django.checks import site as core
from mcp_django.oauth import checks, provider_settings
from mcp_django.oauth.clients import Scopes
from tests.kit.processes import REPOSITORY
from tests.oauth import urls
from tests.oauth.parties import SETTINGS, make_app

PAGE = REPOSITORY / "docs" / "ref" / "checks.md"


class OwnScopes(Scopes):
    """A subclass of this package's scopes backend, as a site may write it."""


def ids(messages: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("mcp_oauth.") for message in messages]


def all_checks() -> set[Any]:
    return {check for name, check in vars(checks).items() if name.startswith("check_")}


def without(settings: Any, *apps: str) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app not in apps]


def routed(settings: Any, *patterns: Any) -> None:
    module = ModuleType("urlconf")
    module.urlpatterns = list(patterns)
    settings.ROOT_URLCONF = module
    clear_url_caches()


def configured(settings: Any, **oauth: Any) -> None:
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": oauth}


@pytest.fixture
def no_servers(monkeypatch):
    monkeypatch.setattr(server_module, "_servers", weakref.WeakSet())


def test_a_site_that_follows_the_page_passes(settings, db):
    settings.SILENCED_SYSTEM_CHECKS = []
    assert run_checks(tags=[checks.TAG], include_deployment_checks=True) == []


def test_the_toolkit_that_is_missing_is_found(settings):
    assert checks.check_toolkit(None) == []
    without(settings, "oauth2_provider", "mcp_django.oauth")
    assert ids(checks.check_toolkit(None)) == ["E001"]
    # The other checks report nothing, because this one reports it.
    assert all(check(None) == [] for check in all_checks() - {checks.check_toolkit})


@pytest.mark.usefixtures("no_servers")
def test_tokens_of_an_authorization_server_that_is_missing_are_found(settings):
    kept = MCPServer("inline", auth=["tokens", "oauth"])
    assert core.check_oauth_app(None) == []
    without(settings, "oauth2_provider", "mcp_django.oauth")
    (message,) = core.check_oauth_app(None)
    assert ids([message]) == ["E002"]
    assert repr(kept.name) in message.msg
    assert core.check_backends(None) == []
    kept._auth = ["tokens"]
    assert core.check_oauth_app(None) == []
    settings.MCP_DJANGO = {"AUTH": ["oauth"]}
    (message,) = core.check_oauth_app(None)
    assert "MCP_DJANGO['AUTH']" in message.msg


@pytest.mark.parametrize("key", checks.REQUIRED_CLASSES)
@pytest.mark.parametrize("value", ["oauth2_provider.scopes.SettingsScopes", "no.such.module"])
def test_a_class_that_is_not_ours_is_found(settings, key, value):
    given: Any = (value,) if key.endswith("CLASSES") else value
    settings.OAUTH2_PROVIDER = provider_settings(**{key: given})
    (message,) = checks.check_classes(None)
    assert ids([message]) == ["E003"]
    assert repr(key) in message.msg


def test_a_site_that_did_not_call_provider_settings_is_found(settings):
    settings.OAUTH2_PROVIDER = {"SCOPES": {"read": "Read"}}
    assert ids(checks.check_classes(None)) == ["E003"] * 4
    assert ids(checks.check_refresh_tokens(None)) == ["E004"]
    assert ids(checks.check_security_settings(None)) == ["W005"] * 7
    assert ids(checks.check_documents(None)) == ["W008"]


def test_a_class_made_of_ours_is_as_good(settings):
    settings.OAUTH2_PROVIDER = provider_settings(SCOPES_BACKEND_CLASS=OwnScopes)
    assert checks.check_classes(None) == []


@pytest.mark.parametrize("key", ["ROTATE_REFRESH_TOKEN", "REFRESH_TOKEN_REUSE_PROTECTION"])
def test_refresh_tokens_that_can_be_stolen_unnoticed_are_found(settings, key):
    assert checks.check_refresh_tokens(None) == []
    settings.OAUTH2_PROVIDER = provider_settings(**{key: False})
    (message,) = checks.check_refresh_tokens(None)
    assert ids([message]) == ["E004"]
    assert repr(key) in message.msg


@pytest.mark.parametrize("key", [*checks.SECURITY_SETTINGS, "ALLOW_URI_WILDCARDS"])
def test_each_gate_that_is_open_is_found(settings, key):
    assert checks.check_security_settings(None) == []
    settings.OAUTH2_PROVIDER = provider_settings(**{key: key == "ALLOW_URI_WILDCARDS"})
    (message,) = checks.check_security_settings(None)
    assert ids([message]) == ["W005"]
    assert repr(key) in message.msg


def test_the_registration_of_the_toolkit_is_found(settings):
    assert checks.check_toolkit_registration(None) == []
    settings.OAUTH2_PROVIDER = provider_settings(DCR_ENABLED=True)
    assert ids(checks.check_toolkit_registration(None)) == ["W007"]


def test_documents_that_are_promised_and_not_read_are_found(settings):
    assert checks.check_documents(None) == []
    settings.OAUTH2_PROVIDER = provider_settings(CIMD_ENABLED=False)
    assert ids(checks.check_documents(None)) == ["W008"]
    configured(settings, CIMD=False)
    assert checks.check_documents(None) == []


def anything(request: object, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


AT_ROOT = path("", include("mcp_django.oauth.urls"))
AT_PREFIX = path("deep/", include("mcp_django.oauth.urls"))
CATCH_ALL = re_path(r"^.*$", anything)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([AT_ROOT], []),
        ([AT_ROOT, CATCH_ALL], []),
        ([], ["E005"]),
        ([AT_PREFIX], ["E006", "E007"]),
        ([CATCH_ALL, AT_ROOT], ["E006", "E007"]),
        ([re_path(r"^\.well-known/oauth-protected", anything), AT_ROOT], ["E007"]),
        ([re_path(r"^\.well-known/oauth-authorization", anything), AT_ROOT], ["E006"]),
    ],
)
def test_urls_that_lead_elsewhere_are_found(settings, patterns, expected):
    routed(settings, *patterns)
    assert ids(checks.check_urls(None)) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("login", []),
        ("/login/", []),
        ("/login/?fast=1", []),
        ("https://sso.example/login", []),
        ("/accounts/login/", ["E008"]),
        ("no_such_name", ["E008"]),
        ("admin:nothing", ["E008"]),
    ],
)
def test_a_sign_in_page_that_is_missing_is_found(settings, url, expected):
    settings.LOGIN_URL = url
    assert ids(checks.check_login(None)) == expected


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [
        ("django.contrib.sessions.middleware.SessionMiddleware", ["E009"]),
        ("django.contrib.auth.middleware.AuthenticationMiddleware", ["E009"]),
        ("django.middleware.csrf.CsrfViewMiddleware", ["W006"]),
        ("django.middleware.clickjacking.XFrameOptionsMiddleware", []),
    ],
)
def test_middleware_that_is_missing_is_found(settings, middleware, expected):
    others = [name for name in settings.MIDDLEWARE if name != middleware]
    settings.MIDDLEWARE = [*others, "no.such.middleware"]
    assert ids(checks.check_middleware(None)) == expected


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        ("", []),
        ("https://shop.example", []),
        ("https://shop.example:8443", []),
        ("http://localhost:8000", []),
        ("https://shop.example/o", ["W002"]),
        ("https://shop.example/", ["E010"]),
        ("https://shop.example/o/", ["E010"]),
        ("shop.example", ["E010"]),
        ("https://", ["E010"]),
        ("https://shop.example?x", ["E010"]),
        ("https://shop.example#x", ["E010"]),
        ("https://user@shop.example", ["E010"]),
        ("https://shop.example:0", ["E010"]),
        ("https://shop.example:port", ["E010"]),
        ("ftp://shop.example", ["E010"]),
    ],
)
def test_an_issuer_that_identifies_nobody_is_found(settings, issuer, expected):
    configured(settings, ISSUER=issuer)
    assert ids(checks.check_issuer(None)) == expected


def test_a_path_is_no_trouble_where_the_oldest_clients_are_not_served(settings):
    settings.MCP_DJANGO = {
        "PROTOCOL_VERSIONS": ["2025-11-25"],
        "OAUTH": {"ISSUER": "https://shop.example/o"},
    }
    assert checks.check_issuer(None) == []


@pytest.mark.parametrize(
    ("debug", "values", "expected"),
    [
        (False, {}, []),
        (False, {"BASE_URL": "https://shop.example"}, []),
        (False, {"BASE_URL": "http://shop.example"}, ["W001"]),
        (False, {"BASE_URL": "http://localhost:8000"}, []),
        (False, {"OAUTH": {"ISSUER": "http://shop.example"}}, ["W001"]),
        (True, {"BASE_URL": "http://shop.example"}, []),
    ],
)
def test_tokens_that_can_be_read_on_their_way_are_found(settings, debug, values, expected):
    settings.DEBUG = debug
    settings.MCP_DJANGO = values
    assert ids(checks.check_scheme(None)) == expected


@pytest.mark.parametrize(
    ("hosts", "values", "expected"),
    [
        (["shop.example"], {}, []),
        (["*"], {}, ["W003"]),
        ([".shop.example"], {}, ["W003"]),
        (["*"], {"BASE_URL": "https://shop.example"}, []),
    ],
)
def test_an_issuer_that_callers_decide_is_found(settings, hosts, values, expected):
    settings.ALLOWED_HOSTS = hosts
    settings.MCP_DJANGO = values
    assert ids(checks.check_hosts(None)) == expected


@pytest.mark.usefixtures("no_servers")
def test_tokens_that_no_server_takes_are_found(settings):
    first = MCPServer("first", auth=["tokens"])
    assert ids(checks.check_use(None)) == ["W004"]
    second = MCPServer("second", resource_url="https://mcp.shop.example/second")
    assert checks.check_use(None) == []
    settings.MCP_DJANGO = {"AUTH": ["tokens"]}
    assert ids(checks.check_use(None)) == ["W004"]
    assert {first.name, second.name} == {"first", "second"}


@pytest.mark.usefixtures("no_servers")
def test_a_server_that_no_url_leads_to_is_found(settings):
    server = MCPServer("nowhere")
    (message,) = checks.check_use(None)
    assert ids([message]) == ["W011"]
    assert "'nowhere'" in message.msg
    routed(settings, path("deep/", include([path("mcp", server.urls)])))
    assert checks.check_use(None) == []


def test_a_key_that_the_toolkit_passes_over_is_found(settings):
    assert checks.check_keys(None) == []
    settings.OAUTH2_PROVIDER = provider_settings(PKCE_REQURED=False, XYZZY=1)
    first, second = checks.check_keys(None)
    assert ids([first, second]) == ["W009", "W009"]
    assert "'PKCE_REQURED'" in first.msg
    assert first.hint == "Did you mean 'PKCE_REQUIRED'?"
    assert "MCP_DJANGO" in str(second.hint)


def test_pages_that_cannot_be_shown_are_found(settings, tmp_path):
    assert checks.check_templates(None) == []
    (engine,) = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "APP_DIRS": False, "OPTIONS": {}}]
    messages = checks.check_templates(None)
    assert ids(messages) == ["E016"] * 3
    assert "mcp_django/oauth/authorize.html does not exist" in messages[0].msg
    own = tmp_path / "mcp_django" / "oauth" / "error.html"
    own.parent.mkdir(parents=True)
    own.write_text("{% nothing %}")
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path]}]
    (message,) = checks.check_templates(None)
    # Django 6.1 names the file before the error.
    assert "error.html fails: " in message.msg
    assert "Invalid block tag" in message.msg


@pytest.mark.parametrize(
    ("prefix", "issuer", "expected"),
    [
        ("/app", "", ["W010"]),
        ("/", "", []),
        ("/app", "https://shop.example/app", ["W002"]),
    ],
)
def test_an_issuer_above_the_site_is_found(settings, prefix, issuer, expected):
    configured(settings, ISSUER=issuer)
    settings.FORCE_SCRIPT_NAME = prefix
    messages = checks.check_issuer(None)
    assert ids(messages) == expected
    assert all(
        "https://shop.example/app" in str(message.hint)
        for message in messages
        if "W010" in message.id
    )


@pytest.mark.parametrize("url", [None, ""])
def test_no_sign_in_page_at_all_is_found(settings, url):
    settings.LOGIN_URL = url
    assert ids(checks.check_login(None)) == ["E008"]


def test_an_issuer_that_is_none_has_no_metadata_to_look_for(settings):
    configured(settings, ISSUER="shop.example")
    assert checks.check_urls(None) == []


def test_a_third_party_without_keys_is_found(settings):
    assert checks.check_field_keys(None) == []
    configured(settings, UPSTREAM={"acme": {}})
    assert ids(checks.check_field_keys(None)) == ["E012"]
    configured(settings, UPSTREAM={"acme": {}}, FIELD_KEYS=["x" * 43 + "="])
    assert checks.check_field_keys(None) == []


@pytest.mark.django_db
@pytest.mark.parametrize("grant", ["client-credentials", "password", "implicit"])
def test_threat_09_a_client_with_a_grant_that_asks_nobody_is_found(grant):
    make_app()
    make_app(registration_source="manual", authorization_grant_type=grant)
    assert checks.check_clients(None, databases=["default"]) == []
    made = make_app(authorization_grant_type=grant)
    assert checks.check_clients(None) == []
    (error,) = checks.check_clients(None, databases=["default"])
    assert ids([error]) == ["E013"]
    assert made.client_id in error.msg
    messages = run_checks(tags=["database"], databases=["default"])
    assert "mcp_oauth.E013" in {message.id for message in messages}


def test_settings_that_cannot_be_read_are_told_by_their_own_check(settings):
    settings.MCP_DJANGO = {"PAGE_SIZ": 5}
    assert all(check(None) == [] for check in all_checks())
    assert core.check_oauth_app(None) == []


RUN_CHECKS = (
    "from django.core.checks import run_checks; "
    "print([one.id for one in run_checks(tags=['mcp_oauth'])]); import mcp_django.oauth.urls"
)


def started(*apps: str) -> subprocess.CompletedProcess[str]:
    """Run the checks and load the URLs of a site with these apps, in a process of its own."""
    installed = ["django.contrib.auth", "django.contrib.contenttypes", "mcp_django", *apps]
    program = (
        "import django; from django.conf import settings; "
        f"settings.configure(INSTALLED_APPS={installed!r}, ROOT_URLCONF='mcp_django.oauth.urls'); "
        f"django.setup(); {RUN_CHECKS}"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.outside
def test_the_admin_says_what_is_missing_before_anything_else_does():
    result = started("django.contrib.admin", "mcp_django.oauth")
    assert result.stderr.rstrip().endswith(
        "ImproperlyConfigured: mcp_django.oauth is installed without django-oauth-toolkit: pip "
        "install 'django-mcp-provider[oauth]', and add \"oauth2_provider\" to INSTALLED_APPS."
    )


@pytest.mark.outside
def test_urls_without_their_app_say_so():
    result = started("oauth2_provider")
    assert result.stderr.rstrip().endswith(
        'ImproperlyConfigured: mcp_django.oauth.urls needs its app: add "mcp_django.oauth" to '
        "INSTALLED_APPS, or remove it from the URLconf."
    )


@pytest.mark.outside
def test_the_urls_say_what_is_missing_before_anything_else_does():
    result = started("mcp_django.oauth")
    assert result.stdout == "['mcp_oauth.E001']\n"
    assert result.stderr.rstrip().endswith(
        "ImproperlyConfigured: mcp_django.oauth.urls needs django-oauth-toolkit: add "
        '"oauth2_provider" to INSTALLED_APPS, or remove mcp_django.oauth.urls from the URLconf.'
    )


def test_the_checks_run_with_the_others():
    assert len(all_checks()) == 20
    assert all_checks() <= set(django_checks.registry.registry.get_checks(True))
    assert checks.check_scheme in django_checks.registry.registry.deployment_checks
    assert set(checks.check_clients.tags) == {checks.TAG, django_checks.Tags.database}
    assert django_settings.ROOT_URLCONF == "tests.oauth.urls"
    assert urls.urlpatterns


def test_the_page_lists_every_check():
    folder = Path(checks.__file__).parent
    files = [*folder.glob("*.py"), Path(core.__file__)]
    used = set(re.findall(r'"mcp_oauth\.([EW]\d{3})"', "".join(file.read_text() for file in files)))
    rows = re.findall(
        r"^\| `mcp_oauth\.([EW]\d{3})` \| .+ \| .+ \|$", PAGE.read_text(), re.MULTILINE
    )
    assert sorted(used) == rows
    for kind in "EW":
        numbers = sorted(int(code[1:]) for code in used if code.startswith(kind))
        assert numbers == [*range(1, len(numbers) + 1)]
