"""Protected resource metadata (RFC 9728): where it is, for which servers, and where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from mcp_django import MCPServer
from mcp_django.auth.challenges import metadata_url
from mcp_django.exceptions import Busy
from tests.auth import sites
from tests.overrides.site import decide_of_server_elsewhere
from tests.spec import spec

WELL_KNOWN = "/.well-known/oauth-protected-resource"
ORIGIN = "http://testserver"


@pytest.fixture(autouse=True)
def site(settings):
    settings.ROOT_URLCONF = sites.single
    return settings


def get(path: str, **headers: str) -> Any:
    return Client(raise_request_exception=False).get(f"{WELL_KNOWN}{path}", headers=headers)


def document(resource: str, **changes: Any) -> dict[str, Any]:
    issuers = [sites.ISSUER, f"{sites.ISSUER}/shop-front"]
    return {
        "resource": resource,
        "authorization_servers": issuers,
        "scopes_supported": ["mcp", "shop:read"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Shop",
    } | changes


@spec("AUT-12", "AUT-14", "AUT-15")
def test_an_endpoint_says_who_issues_its_tokens():
    response = get("/mcp")
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "public, max-age=300"
    assert response["Access-Control-Allow-Origin"] == "*"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response.json() == document(f"{ORIGIN}/mcp")


@spec("AUT-14")
@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/", "/mcp/"),
        ("/mcp/sse", "/mcp/sse"),
        ("/mcp/messages", "/mcp/messages"),
    ],
)
def test_the_resource_is_spelled_as_it_was_asked_for(path, resource):
    assert get(path).json() == document(f"{ORIGIN}{resource}")


@spec("AUT-15")
def test_the_root_form_is_that_of_the_only_endpoint(site):
    for path in ("", "/"):
        assert get(path).json() == document(f"{ORIGIN}/mcp")
    site.ROOT_URLCONF = sites.two
    for path in ("", "/"):
        assert get(path).status_code == 404
    assert get("/nested/mcp").json()["resource_name"] == "depot"
    site.ROOT_URLCONF = sites.rooted
    assert get("").json() == document(ORIGIN)
    assert get("/").json() == document(f"{ORIGIN}/")


@spec("AUT-14")
@pytest.mark.parametrize(
    "path",
    [
        "/evil",
        "/mc",
        "/MCP",
        "/mcp/x",
        "/mcp//",
        "/mcp/../mcp",
        "/http://evil.example/mcp",
        "/x/mcp",
    ],
)
def test_threat_19_a_path_that_is_no_endpoint_is_not_found(path):
    response = get(path)
    assert response.status_code == 404
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    assert response["Access-Control-Allow-Origin"] == "*"
    assert response.json()["error"] == "not_found"
    assert "evil" not in response.content.decode()


@spec("AUT-14")
def test_threat_19_what_a_proxy_is_said_to_have_seen_is_not_believed(site):
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    assert get("/mcp", **headers).json() == document(f"{ORIGIN}/mcp")
    assert get("/mcp", Host="evil.example").status_code == 400
    site.USE_X_FORWARDED_HOST = True
    assert get("/mcp", **headers).status_code == 400
    site.ALLOWED_HOSTS = ["public.example"]
    site.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    behind = {"X-Forwarded-Host": "public.example", "X-Forwarded-Proto": "https"}
    assert get("/mcp", **behind).json() == document("https://public.example/mcp")


@spec("AUT-14")
def test_threat_19_a_pinned_address_stands_whatever_the_host_is(site):
    site.MCP_DJANGO = {"BASE_URL": "https://pinned.example"}
    site.ALLOWED_HOSTS = ["*"]
    for host in ("testserver", "other.example"):
        assert get("/mcp", Host=host).json() == document("https://pinned.example/mcp")


@spec("AUT-14")
def test_a_server_without_an_issuer_has_no_document(site):
    site.ROOT_URLCONF = sites.closed
    for path in ("", "/mcp"):
        assert get(path).status_code == 404


def test_nothing_but_reading_is_served_and_a_browser_may_ask_first():
    client = Client(enforce_csrf_checks=True)
    refused = client.post(f"{WELL_KNOWN}/mcp")
    assert (refused.status_code, refused["Allow"]) == (405, "GET, HEAD, OPTIONS")
    head = client.head(f"{WELL_KNOWN}/mcp")
    assert (head.status_code, head.content) == (200, b"")
    preflight: HttpResponse = client.options(
        f"{WELL_KNOWN}/mcp",
        headers={
            "Origin": "https://inspector.example",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "mcp-protocol-version",
        },
    )
    assert (preflight.status_code, preflight.content) == (204, b"")
    assert preflight["Access-Control-Allow-Origin"] == "*"
    assert "GET" in preflight["Access-Control-Allow-Methods"]
    assert "MCP-Protocol-Version" in preflight["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in preflight


def test_a_site_that_asks_for_a_login_everywhere_serves_it_all_the_same(site):
    site.MIDDLEWARE = [*site.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert get("/mcp").status_code == 200


@pytest.mark.parametrize("path", ["/café au lait/mcp", "/caf%C3%A9%20au%20lait/mcp"])
def test_a_path_is_spelled_as_a_url(site, path):
    site.ROOT_URLCONF = sites.accents
    assert get(path).json()["resource"] == f"{ORIGIN}/caf%C3%A9%20au%20lait/mcp"


@spec("AUT-14", "AUT-15")
def test_under_a_prefix_both_addresses_name_the_whole_url(site):
    site.FORCE_SCRIPT_NAME = "/app"
    # Within the prefix, and at the root of the host, as a proxy may forward it.
    for path in ("/mcp", "/app/mcp"):
        response = Client().get(f"{WELL_KNOWN}{path}", SCRIPT_NAME="/app")
        assert response.json() == document(f"{ORIGIN}/app/mcp")
    assert Client().get(f"{WELL_KNOWN}/other/mcp", SCRIPT_NAME="/app").status_code == 404
    challenge = Client().post("/mcp", {}, content_type="application/json", SCRIPT_NAME="/app")
    assert f'"{ORIGIN}/app{WELL_KNOWN}/mcp"' in challenge["WWW-Authenticate"]


@spec("AUT-4")
@pytest.mark.parametrize(
    ("urlconf", "path", "expected"),
    [
        (sites.single, "/mcp", f"{ORIGIN}{WELL_KNOWN}/mcp"),
        (sites.single, "/mcp/", f"{ORIGIN}{WELL_KNOWN}/mcp/"),
        (sites.rooted, "/", f"{ORIGIN}{WELL_KNOWN}"),
        (sites.accents, "/café au lait/mcp", f"{ORIGIN}{WELL_KNOWN}/caf%C3%A9%20au%20lait/mcp"),
        (sites.elsewhere, "/mcp", f"{ORIGIN}/meta{WELL_KNOWN}/mcp"),
        (sites.bare, "/mcp", None),
    ],
)
def test_the_address_of_the_document_is_the_one_that_is_served(site, urlconf, path, expected):
    site.ROOT_URLCONF = urlconf
    request = RequestFactory().post(path)
    assert metadata_url(sites.shop, request, request.path) == expected
    if expected is not None:
        served = Client().get(expected.removeprefix(ORIGIN)).json()
        assert served["authorization_servers"][0] == sites.ISSUER


@spec("AUT-4", "AUT-14")
def test_a_declared_url_has_its_document_at_its_own_host(site):
    with sites.gated() as (gate, urlconf):
        site.ROOT_URLCONF = urlconf
        site.ALLOWED_HOSTS = ["gate.example", "inside.example"]
        request = RequestFactory().post("/inside/mcp", headers={"host": "inside.example"})
        url = metadata_url(gate, request, "/inside/mcp")
        assert url == f"https://gate.example{WELL_KNOWN}/to/mcp"
        response = Client().get(
            f"{WELL_KNOWN}/to/mcp", headers={"host": "gate.example"}, secure=True
        )
        assert response.json()["resource"] == sites.GATE
        assert response.json()["resource_name"] == "gate"
        site.MCP_DJANGO = {"BASE_URL": "https://inside.example"}
        response = Client().get(
            f"{WELL_KNOWN}/to/mcp", headers={"host": "gate.example"}, secure=True
        )
        assert response.json()["resource"] == sites.GATE
        assert Client().get(f"{WELL_KNOWN}/inside/mcp", secure=True).status_code in {400, 404}


@pytest.mark.usefixtures("unpinned")
@pytest.mark.django_db(transaction=True)
def test_the_document_has_the_title_that_another_process_decided():
    assert get("/mcp").json()["resource_name"] == "Shop"
    decide_of_server_elsewhere("shop-front", title="Market")
    assert get("/mcp").json()["resource_name"] == "Market"


@pytest.mark.usefixtures("unpinned")
def test_the_document_is_there_without_a_database(monkeypatch):
    def busy(self: MCPServer, **options: bool) -> None:
        raise Busy("The server cannot read its settings.")

    monkeypatch.setattr(MCPServer, "refresh", busy)
    assert get("/mcp").json() == document(f"{ORIGIN}/mcp")
