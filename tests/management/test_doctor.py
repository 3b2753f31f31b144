"""`manage.py mcp doctor`: each host is replayed, and a failed step is reported with its remedy."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class

from mcp_django.management.commands.mcp import django_options
from mcp_django.management.doctor_hosts import HOSTS
from tests.management.console import Outcome, attempt, fails, run

pytest.importorskip("oauth2_provider")

from oauth2_provider.models import get_application_model

from mcp_django.auth import security_log
from tests.oauth import documents, urls

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = urls.__name__
    fetcher = "tests.oauth.documents.PublishedFetcher"
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_METADATA_FETCHER": fetcher}
    for host in HOSTS.values():
        if host.client_id:
            documents.publish(documents.document(client_id=host.client_id))
    settings.LOGIN_URL = "login"
    settings.MCP_DJANGO = {
        "BASE_URL": "https://shop.example",
        "SCOPES": {
            "mcp": "Use the tools of this site",
            "mcp:write": "Change things",
            "orders:refund": "Refund orders",
        },
    }
    settings.ALLOWED_HOSTS = ["shop.example"]
    yield
    documents.targets.clear()
    documents.published.clear()


def examined(*options: str) -> dict[str, Any]:
    """Return the report of each host by its name, whether it passed or not."""
    outcome = attempt("doctor", "--server", "orders", "--json", *options)
    return {host["host"]: host for host in json.loads(outcome.out)["hosts"]}


def step(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(step for step in report["steps"] if step["step"] == name)


def broken(host: str, name: str) -> dict[str, Any]:
    """Return a step that must have failed, which fails its host."""
    outcome = attempt("doctor", "--server", "orders", "--host", host, "--json")
    (report,) = [report for report in json.loads(outcome.out)["hosts"] if report["host"] == host]
    assert (outcome.status, report["ok"]) == (1, False)
    failed_step = step(report, name)
    assert failed_step["verdict"] == "failed"
    return failed_step


@pytest.mark.parametrize("host", HOSTS)
def test_a_whole_site_is_well_for_every_host(host):
    outcome: Outcome = attempt("doctor", "--server", "orders", "--host", host)
    assert outcome.status == 0, outcome.out + outcome.error
    assert "✗" not in outcome.out
    lines = [line.strip() for line in outcome.out.splitlines()]
    assert "✓ issuer: https://shop.example" in lines
    assert "✓ PKCE: S256" in lines
    assert any(line.startswith("✓ authorization: 302: sends the user to") for line in lines)
    assert any(line.startswith("✓ token: rejects a made-up code with") for line in lines)


def test_what_concerns_every_host_is_told_once():
    report = examined("--host", "vscode")["every-host"]
    assert {step["step"] for step in report["steps"]} == {
        "foreign origin",
        "spelling",
        "compression",
        "chunked",
        "streams",
        "preflight",
        "well-known",
        "registration_endpoint",
        "token_endpoint",
    }
    # Only the site's server can show whether the site streams and decodes chunks.
    others = {step["step"]: step["verdict"] for step in report["steps"] if step["verdict"] != "ok"}
    assert others == {"streams": "skipped", "chunked": "skipped"}


def test_nothing_that_was_registered_stays():
    run("doctor", "--server", "orders")
    assert not get_application_model().objects.exists()


def test_a_cloud_needs_a_public_address(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": "http://shop.example"}
    assert "public https" in broken("chatgpt", "address")["fix"]
    assert examined("--host", "vscode")["vscode"]["ok"]


def test_a_site_that_does_not_know_its_address_is_not_blamed_for_it(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": ""}
    settings.ALLOWED_HOSTS = ["localhost"]
    report = examined("--host", "claude")["claude"]
    assert step(report, "address")["verdict"] == "skipped"
    assert report["ok"]


def test_a_site_without_oauth_is_for_hosts_that_take_a_token(settings):
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example", "AUTH": ["tokens"]}
    outcome = run("doctor", "--server", "default", "--json")
    reports = {report["host"]: report for report in json.loads(outcome.out)["hosts"]}
    assert all(report["ok"] for report in reports.values())
    skipped = step(reports["chatgpt"], "sign-in")
    assert skipped["verdict"] == "skipped"
    assert "howto/oauth.html" in skipped["found"]
    assert "mcp connect" in step(reports["vscode"], "token")["found"]
    # For such a host alone, the command fails.
    failure = attempt("doctor", "--server", "default", "--json", "--host", "chatgpt")
    (report,) = [
        report for report in json.loads(failure.out)["hosts"] if report["host"] == "chatgpt"
    ]
    assert "mcp_django.oauth" in step(report, "sign-in")["fix"]
    assert failure.error == "These hosts cannot connect: ChatGPT."


def test_only_errors_are_logged_beside_the_report(caplog):
    run("doctor", "--server", "orders", "--host", "vscode")
    assert caplog.messages == []
    logging.getLogger("django.request").warning("as before")
    assert caplog.messages == ["as before"]


def test_a_client_that_was_registered_by_hand_replaces_registration(settings):
    oauth = {**settings.MCP_DJANGO.get("OAUTH", {}), "DCR": "off", "CIMD": False}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": oauth}
    fix = broken("claude", "registration")["fix"]
    assert "--client-id" in fix
    client = get_application_model().objects.create(
        name="Claude",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris=" ".join(HOSTS["claude"].redirects),
    )
    report = examined("--host", "claude", "--client-id", client.client_id)["claude"]
    assert step(report, "registration")["found"] == f"not needed: client {client.client_id}"
    assert step(report, "authorization")["verdict"] == "ok"


def test_an_open_server_is_for_every_host(settings):
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    outcome = run("doctor", "--server", "open")
    assert outcome.out.count("✓ endpoint: 200: anonymous access is allowed") == len(HOSTS)


def test_a_host_that_is_not_allowed_is_told_with_the_setting(settings):
    settings.ALLOWED_HOSTS = ["other.example"]
    failed_step = broken("gemini-cli", "endpoint")
    assert failed_step["fix"] == "Add 'shop.example' to ALLOWED_HOSTS."


def test_registration_that_is_off_stops_who_has_no_document(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {"DCR": "off"}}
    assert "MCP_DJANGO['OAUTH']['DCR']" in broken("cursor", "registration")["fix"]
    assert examined("--host", "claude-code")["claude-code"]["ok"]


def test_a_document_that_the_site_cannot_fetch_stops_its_host():
    address = HOSTS["claude-code"].client_id
    assert address in step(examined()["claude-code"], "registration")["found"]
    del documents.published[address]
    failed_step = broken("claude-code", "registration")
    assert failed_step["found"] == f"{address}: The host responded with HTTP 404."
    assert "https" in failed_step["fix"]


def test_a_host_that_documents_are_not_taken_from_stops_it(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {"CIMD_HOSTS": ["other.example"]}}
    failed_step = broken("claude-code", "registration")
    assert "does not accept documents from this host" in failed_step["found"]
    assert "CIMD_HOSTS" in failed_step["fix"]


def test_documents_that_were_not_taken_lately_are_told():
    for reason in ("The document is too large.", "The document is not JSON."):
        security_log.record_event(
            "document", client_id="https://any.example/client.json", reason=reason
        )
    report = examined("--host", "vscode")["documents"]
    assert [(step["verdict"], step["found"]) for step in report["steps"]] == [
        ("warned", "https://any.example/client.json: The document is not JSON.")
    ]
    assert report["ok"]


def test_a_missing_app_scheme_stops_the_one_who_has_it(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "OAUTH": {"APP_REDIRECTS": []}}
    failed_step = broken("cursor", "registration")
    assert "cursor://anysphere.cursor-mcp/oauth/callback" in failed_step["fix"]
    assert "APP_REDIRECTS" in failed_step["fix"]


def test_an_issuer_elsewhere_is_told_with_the_setting(settings):
    settings.MCP_DJANGO = {
        **settings.MCP_DJANGO,
        "OAUTH": {"ISSUER": "https://shop.example/tenant"},
    }
    failed_step = broken("mcp-remote", "authorization server metadata")
    assert "['ISSUER']" in failed_step["fix"]
    assert examined("--host", "vscode")["vscode"]["ok"]


def test_a_mistake_on_the_command_line_is_named():
    assert "No host named 'vscod'. Did you mean vscode" in fails("doctor", "--host", "vscod")
    assert "more than 0 seconds" in fails("doctor", "--timeout", "0")
    assert "is not an HTTP URL" in fails("doctor", "ftp://x")
    assert "omit it if you pass a URL" in fails(
        "doctor", "https://x.example/mcp", "--server", "orders"
    )


def test_the_page_names_every_option_and_every_host():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "troubleshooting.md").read_text()
    parser = load_command_class("mcp_django", "mcp").create_parser("manage.py", "mcp")
    (choices,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    options = {name for action in choices["doctor"]._actions for name in action.option_strings}
    documented = re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE)
    django_names = {name for action in django_options()._actions for name in action.option_strings}
    assert {*documented} == options - django_names - {"-h", "--help"}
    hosts = re.findall(r"^\| `([a-z][a-z0-9-]+)` \|", page, re.MULTILINE)
    assert hosts == [*HOSTS]
