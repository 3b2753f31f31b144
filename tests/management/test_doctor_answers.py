"""What `mcp doctor` reports about answers that other sites give, but not sites of this package."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mcp_django.management.doctor import diagnose
from mcp_django.management.doctor_hosts import HOSTS
from mcp_django.management.doctor_oauth import Registration
from mcp_django.management.doctor_transport import (
    HostReport,
    NoResponse,
    ProbeRequest,
    ProbeResponse,
    ReportStep,
)

URL = "https://shop.example/mcp"
ORIGIN = "https://shop.example"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"
CORS = {"access-control-allow-origin": "*"}


def answer(status: int, body: Any = None, **headers: str) -> ProbeResponse:
    """Return an answer with a JSON body; `_` in the name of a header stands for `-`."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ProbeResponse(
        status=status,
        headers={"content-type": "application/json", **CORS, **given},
        body=b"" if body is None else json.dumps(body).encode(),
    )


class Site:
    """A site that does everything right, apart from what a test replaces."""

    def __init__(self) -> None:
        self.resource: dict[str, Any] = {
            "resource": URL,
            "authorization_servers": [ORIGIN],
            "scopes_supported": ["mcp"],
        }
        self.server: dict[str, Any] = {
            "issuer": ORIGIN,
            "authorization_endpoint": f"{ORIGIN}/authorize",
            "token_endpoint": f"{ORIGIN}/token",
            "registration_endpoint": f"{ORIGIN}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "scopes_supported": ["mcp"],
        }
        self.replaced: dict[tuple[str, str], ProbeResponse] = {}

    def send(self, request: ProbeRequest) -> ProbeResponse:
        path = request.url.removeprefix(ORIGIN).partition("?")[0]
        if request.method == "OPTIONS":
            return self.replaced.get((request.method, path), answer(204))
        if (request.method, path.rstrip("/")) in self.replaced:
            return self.replaced[request.method, path.rstrip("/")]
        return self._right(request, path.rstrip("/"))

    def _right(self, request: ProbeRequest, path: str) -> ProbeResponse:
        if path == "/mcp":
            challenge = f'Bearer scope="mcp", resource_metadata="{ORIGIN}{RESOURCE}"'
            foreign = request.headers.get("Origin", ORIGIN) != ORIGIN
            return answer(403) if foreign else answer(401, {}, www_authenticate=challenge)
        if path == RESOURCE:
            return answer(200, self.resource)
        if path == SERVER:
            return answer(200, self.server)
        if path == "/register":
            return self._registered(json.loads(request.body))
        if path == "/authorize":
            return answer(302, location="/login/?next=/authorize")
        if path == "/token":
            return answer(400, {"error": "invalid_grant"})
        return answer(404)

    def _registered(self, metadata: dict[str, Any]) -> ProbeResponse:
        if not metadata:
            return answer(400, {"error": "invalid_client_metadata"})
        return answer(201, {**metadata, "client_id": "abc"})


def reports_of(site: Site, host: str = "vscode") -> dict[str, HostReport]:
    reports = diagnose(site, URL, [HOSTS[host]], Registration(may_register=True), is_sure=True)
    return {report.slug: report for report in reports}


def last(site: Site, host: str = "vscode") -> ReportStep:
    """Return the step at which a host is stopped."""
    report = reports_of(site, host)[host]
    assert not report.is_ok
    return next(step for step in report.steps if step.verdict == "failed")


def test_nothing_is_wrong_with_a_site_that_does_everything_right():
    reports = reports_of(Site())
    assert {step.verdict for step in reports["vscode"].steps} == {"ok"}
    failed = [step for step in reports["every-host"].steps if step.verdict == "failed"]
    assert failed == []


@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [("POST, OPTIONS, GET, DELETE", "ok"), ("POST, OPTIONS, DELETE", "warned"), ("POST", None)],
)
def test_a_site_that_cannot_stream_is_told_what_is_lost(allowed, verdict):
    site = Site()
    site.replaced["OPTIONS", "/mcp"] = answer(204, allow=allowed)
    steps = [step for step in reports_of(site)["every-host"].steps if step.name == "streams"]
    assert [step.verdict for step in steps] == ([verdict] if verdict else [])
    if verdict == "warned":
        assert "progress" in steps[0].found
        assert "ASGI" in steps[0].fix


@pytest.mark.parametrize(
    ("change", "step", "words"),
    [
        # Behind TLS, of which the site does not know.
        ({"resource": "http://shop.example/mcp"}, "resource", "SECURE_PROXY_SSL_HEADER"),
        ({"resource": f"{URL}/"}, "resource", "BASE_URL"),
        ({"authorization_servers": []}, "issuer", "mcp_django.oauth"),
        (
            {"authorization_servers": ["https://elsewhere.example"]},
            "authorization server metadata",
            "include(",
        ),
    ],
)
def test_resource_metadata(change, step, words):
    site = Site()
    site.resource |= change
    last_step = last(site)
    assert last_step.name == step
    assert words in last_step.fix


@pytest.mark.parametrize(
    ("change", "step", "words"),
    [
        ({"issuer": f"{ORIGIN}/"}, "issuer", "ISSUER"),
        ({"code_challenge_methods_supported": None}, "PKCE", "mcp_django.oauth"),
        ({"token_endpoint": "http://shop.example/token"}, "addresses", "SECURE_PROXY_SSL_HEADER"),
        ({"response_types_supported": ["token"]}, "addresses", "metadata"),
        ({"token_endpoint_auth_methods_supported": ["tls"]}, "addresses", "client_secret_basic"),
        ({"registration_endpoint": None}, "registration", "'DCR'"),
    ],
)
def test_metadata_of_the_authorization_server(change, step, words):
    site = Site()
    site.server |= change
    last_step = last(site)
    assert last_step.name == step
    assert words in last_step.fix


def test_an_issuer_elsewhere_is_the_one_to_be_mended():
    site, issuer = Site(), "https://id.vendor.example"
    site.resource["authorization_servers"] = [issuer]
    document = {**site.server, "issuer": issuer, "code_challenge_methods_supported": None}
    site.replaced["GET", f"{issuer}/.well-known/oauth-authorization-server"] = answer(200, document)
    last_step = last(site)
    assert last_step.name == "PKCE"
    assert last_step.fix.startswith(f"Have {issuer} list S256")


def _other_method(site: Site) -> None:
    site.replaced["POST", "/register"] = answer(
        201,
        {
            "client_id": "abc",
            "client_secret": "s",
            "redirect_uris": list(HOSTS["vscode"].redirects),
            "token_endpoint_auth_method": "client_secret_basic",
        },
    )


@pytest.mark.parametrize(
    ("replace", "step", "words"),
    [
        (_other_method, "registration", "mcp_django.oauth"),
        (
            lambda site: site.replaced.update(
                {("POST", "/register"): answer(400, {"error": "invalid_client_metadata"})}
            ),
            "registration",
            "mcp_django.oauth",
        ),
        (
            lambda site: site.replaced.update(
                {("POST", "/register"): answer(429, {}, retry_after="30")}
            ),
            "registration",
            "Wait 30 seconds",
        ),
        (
            lambda site: site.replaced.update({("POST", "/register"): answer(401)}),
            "registration",
            "'DCR'",
        ),
        (
            lambda site: site.replaced.update(
                {("GET", "/authorize"): answer(302, location="http://x/?error=invalid_scope")}
            ),
            "authorization",
            "SCOPES",
        ),
        (
            lambda site: site.replaced.update({("GET", "/authorize"): answer(500)}),
            "authorization",
            "LOGIN_URL",
        ),
        (
            lambda site: site.replaced.update(
                {("POST", "/token"): answer(301, location="/token/")}
            ),
            "token",
            "without a trailing slash",
        ),
        (
            lambda site: site.replaced.update(
                {("POST", "/token"): answer(403, content_type="text/html")}
            ),
            "token",
            "CSRF",
        ),
        (
            lambda site: site.replaced.update({("POST", "/mcp"): answer(401)}),
            "challenge",
            "WWW-Authenticate",
        ),
    ],
)
def test_what_stops_a_host_later(replace, step, words):
    site = Site()
    replace(site)
    last_step = last(site)
    assert last_step.name == step
    assert words in last_step.fix


def test_streams_that_are_compressed_fail_every_host():
    site = Site()
    site.replaced["POST", "/mcp"] = answer(
        200, content_type="text/event-stream", content_encoding="gzip"
    )
    steps = {step.name: step for step in reports_of(site)["every-host"].steps}
    assert steps["compression"].verdict == "failed"
    assert "gzip off" in steps["compression"].fix


@pytest.mark.parametrize(
    ("unread", "words"),
    [
        (answer(411, {"error": {"message": "Send Content-Length."}}), "411 instead of 400"),
        # The answer to an empty body.
        (answer(400, {"error": {"message": "truncated"}}), "400 instead of 400"),
        (None, "the connection was reset"),
    ],
)
def test_a_server_that_does_not_decode_chunks_is_warned_of(unread, words):
    class Undecoded(Site):
        def send(self, request: ProbeRequest) -> ProbeResponse:
            if not request.body.startswith(b"access_token="):
                return super().send(request)
            if not request.is_chunked:
                return answer(400, {"error": "invalid_request"})
            if unread is None:
                raise NoResponse("the connection was reset")
            return unread

    report = reports_of(Undecoded())["every-host"]
    (step,) = [step for step in report.steps if step.name == "chunked"]
    assert (step.verdict, report.is_ok) == ("warned", True)
    assert words in step.found
    assert "howto/deploy" in step.fix
    (right,) = [step for step in reports_of(Site())["every-host"].steps if step.name == "chunked"]
    assert right.verdict == "ok"


def test_browsers_are_warned_of_and_not_failed():
    site = Site()
    site.replaced["OPTIONS", "/token"] = answer(200, access_control_allow_origin="")
    report = reports_of(site)["every-host"]
    warned = [step.name for step in report.steps if step.verdict == "warned"]
    assert "preflight" in warned
    assert report.is_ok


def test_a_foreign_origin_has_to_be_refused():
    site = Site()
    site.replaced["POST", "/mcp"] = answer(
        401, {}, www_authenticate=f'Bearer resource_metadata="{ORIGIN}{RESOURCE}"'
    )
    steps = {step.name: step for step in reports_of(site)["every-host"].steps}
    assert steps["foreign origin"].verdict == "failed"
    assert "ALLOWED_ORIGINS" in steps["foreign origin"].fix


def test_a_compressed_document_is_read_like_any_other():
    body = gzip.compress(json.dumps({"a": 1}).encode())
    packed = ProbeResponse(status=200, headers={"content-encoding": "gzip"}, body=body)
    assert packed.json() == {"a": 1}
    broken = ProbeResponse(status=200, headers={"content-encoding": "gzip"}, body=b"no")
    assert broken.json() is None


def test_an_address_without_an_endpoint_is_told_that_of_the_site(settings):
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    reports = diagnose(Site(), ORIGIN, [HOSTS["vscode"]], Registration(), is_sure=True)
    # Without an endpoint, what every host needs cannot be checked.
    (report,) = reports
    (step,) = report.steps
    assert step.found == "404 instead of 401 or 200"
    assert f"Pass the URL of the endpoint, such as {ORIGIN}/mcp," in step.fix
