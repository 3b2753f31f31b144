"""Resource identifiers: one for each endpoint, and none for any other URL."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory
from django.urls import resolve, set_script_prefix
from hypothesis import given, strategies as st

from mcp_django import MCPServer
from mcp_django.auth import endpoints
from mcp_django.auth.endpoints import canonicalize_url
from tests.auth import sites
from tests.spec import spec

ORIGIN = "http://testserver"


def request_to(path: str, urlconf: Any = None, **more: Any) -> Any:
    request: Any = RequestFactory().post(path, **more)
    if urlconf is not None:
        request.urlconf = urlconf
        request.resolver_match = resolve(request.path_info, urlconf)
    return request


# The canonical form ---------------------------------------------------------------------------


@spec("AUT-9", "AUT-24")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h/mcp", "https://h/mcp"),
        ("HTTPS://H.Example/mcp/", "https://h.example/mcp"),
        ("https://h:443/MCP", "https://h/MCP"),
        ("http://h:80", "http://h"),
        ("http://h:/mcp", "http://h/mcp"),
        ("https://h/", "https://h"),
        ("https://h:8443/mcp", "https://h:8443/mcp"),
        ("http://h:443/mcp", "http://h:443/mcp"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
        ("https://h/%6d%63%70", "https://h/mcp"),
        ("https://h/caf%c3%a9", "https://h/caf%C3%A9"),
        ("https://h/a%20b", "https://h/a%20b"),
        ("https://h/a%3fb", "https://h/a%3Fb"),
        ("https://h/a~b;c=d", "https://h/a~b;c=d"),
        ("https://h//mcp", "https://h//mcp"),
    ],
)
def test_one_address_has_one_spelling(url, expected):
    assert canonicalize_url(url) == expected
    assert canonicalize_url(expected) == expected


@spec("AUT-9")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp",
        "/mcp",
        "//h/mcp",
        "ftp://h/mcp",
        "javascript:alert(1)",
        "https:///mcp",
        "https://u@h/mcp",
        "https://u:p@h/mcp",
        "https://@h/mcp",
        "https://h/mcp?",
        "https://h/mcp?a=b",
        "https://h/mcp#",
        "https://h/mcp#a",
        "https://h/./mcp",
        "https://h/a/../mcp",
        "https://h/%2e%2e/mcp",
        "https://h/a%2fmcp",
        "https://h/a%5Cmcp",
        "https://h/a\\mcp",
        "https://h/mcp%00",
        "https://h/mcp%0d%0aX:y",
        "https://h/mcp%",
        "https://h/mcp%zz",
        "https://h/mcp%ff",
        "https://h/mcp//",
        "https://h/m cp",
        "https://h/mcp\n",
        "https://h\t/mcp",
        "https://h/m\u0441p",
        "https://h:0/mcp",
        "https://h:99999/mcp",
        "https://h:x/mcp",
        "https://[::1/mcp",
        "https://[::1%25eth0]/mcp",
        'https://h"x/mcp',
        "https://h%41/mcp",
        "https://h/" + "a" * 2000,
    ],
)
def test_what_is_ambiguous_names_no_resource(url):
    assert canonicalize_url(url) is None


@given(st.text(max_size=60))
def test_whatever_follows_the_host_never_changes_it(rest):
    url = canonicalize_url(f"https://h/{rest}")
    assert url is None or url == "https://h" or url.startswith("https://h/")
    assert url is None or canonicalize_url(url) == url


# The resource of a request -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urlconf", "path", "expected"),
    [
        (sites.single, "/mcp", "/mcp"),
        (sites.single, "/mcp/", "/mcp"),
        (sites.single, "/mcp/sse", "/mcp"),
        (sites.single, "/mcp/messages/", "/mcp"),
        (sites.rooted, "/", ""),
        (sites.rooted, "/sse", ""),
        (sites.named_like_a_part, "/sse", "/sse"),
        (sites.named_like_a_part, "/sse/sse", "/sse"),
        (sites.accents, "/café au lait/mcp", "/caf%C3%A9%20au%20lait/mcp"),
        (None, "/raw/mcp/sse", "/raw/mcp"),
        (None, "/raw/mcp", "/raw/mcp"),
    ],
)
def test_a_request_is_for_its_endpoint(urlconf, path, expected):
    assert endpoints.resource_of(request_to(path, urlconf)) == f"{ORIGIN}{expected}"


@spec("AUT-14")
def test_the_site_s_own_settings_say_what_the_origin_is(settings):
    headers = {"HTTP_X_FORWARDED_HOST": "evil.example", "HTTP_X_FORWARDED_PROTO": "https"}
    assert endpoints.resource_of(request_to("/mcp", sites.single, **headers)) == f"{ORIGIN}/mcp"
    settings.USE_X_FORWARDED_HOST = True
    settings.ALLOWED_HOSTS = ["public.example"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    behind = {"HTTP_X_FORWARDED_HOST": "public.example", "HTTP_X_FORWARDED_PROTO": "https"}
    request = request_to("/mcp", sites.single, **behind)
    assert endpoints.resource_of(request) == "https://public.example/mcp"
    settings.MCP_DJANGO = {"BASE_URL": "HTTPS://Pinned.Example:443/ignored"}
    assert endpoints.resource_of(request) == "https://pinned.example/mcp"


def test_a_script_name_belongs_to_the_resource():
    request = request_to("/mcp", sites.single, SCRIPT_NAME="/app")
    assert endpoints.resource_of(request) == f"{ORIGIN}/app/mcp"
    endpoint = endpoints.find_endpoint(f"{ORIGIN}/app/mcp", request)
    assert endpoint == endpoints.ServerEndpoint(sites.shop, f"{ORIGIN}/app/mcp")
    for other in ("/mcp", "/application/mcp", "/app", "/app/app/mcp"):
        assert endpoints.find_endpoint(f"{ORIGIN}{other}", request) is None
    assert endpoints.all_resources(request)[f"{ORIGIN}/app/mcp"] is sites.shop


# Finding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urlconf", "path", "resource"),
    [
        (sites.single, "/mcp", "/mcp"),
        (sites.single, "/mcp/", "/mcp"),
        (sites.single, "/mcp/sse", "/mcp"),
        (sites.single, "/mcp/messages", "/mcp"),
        (sites.slashed, "/mcp", "/mcp"),
        (sites.slashed, "/mcp/sse/", "/mcp"),
        (sites.rooted, "", ""),
        (sites.rooted, "/", ""),
        (sites.rooted, "/messages", ""),
        (sites.tenants, "/north/mcp", "/north/mcp"),
        (sites.languages, "/en-us/mcp", "/en-us/mcp"),
        (sites.languages, "/de/mcp/sse", "/de/mcp"),
        (sites.accents, "/caf%c3%a9%20au%20lait/mcp", "/caf%C3%A9%20au%20lait/mcp"),
        (sites.named_like_a_part, "/sse", "/sse"),
    ],
)
def test_an_endpoint_is_found_by_each_of_its_addresses(urlconf, path, resource):
    request = RequestFactory().get("/")
    request.urlconf = urlconf
    endpoint = endpoints.find_endpoint(f"{ORIGIN}{path}", request)
    assert endpoint == endpoints.ServerEndpoint(sites.shop, f"{ORIGIN}{resource}")
    assert endpoints.find_server(f"{ORIGIN}{path}", request) is sites.shop
    assert endpoints.find_resources([f"{ORIGIN}{path}"] * 2, request) == [f"{ORIGIN}{resource}"]


@pytest.mark.parametrize(
    "url",
    [
        ORIGIN,
        f"{ORIGIN}/",
        f"{ORIGIN}/mc",
        f"{ORIGIN}/MCP",
        f"{ORIGIN}/mcp/x",
        f"{ORIGIN}/mcp/sse/sse",
        f"{ORIGIN}/.well-known/oauth-protected-resource",
        f"{ORIGIN}/mcp?x",
        "https://testserver/mcp",
        "http://testserver:81/mcp",
        "http://testserver.evil.example/mcp",
        "http://evil.example/mcp",
        "nonsense",
    ],
)
def test_anything_else_is_unknown(url):
    request = RequestFactory().get("/")
    request.urlconf = sites.single
    assert endpoints.find_endpoint(url, request) is None
    assert endpoints.find_server(url, request) is None
    assert endpoints.find_resources([f"{ORIGIN}/mcp", url], request) is None


@pytest.mark.parametrize(
    ("urlconf", "expected"),
    [
        (sites.single, {"/mcp": sites.shop}),
        (sites.two, {"/mcp": sites.shop, "/nested/mcp": sites.depot}),
        (sites.rooted, {"": sites.shop}),
        (sites.slashed, {"/mcp": sites.shop}),
        (sites.tenants, {}),
        (sites.languages, {"/en-us/mcp": sites.shop}),
        (sites.accents, {"/caf%C3%A9%20au%20lait/mcp": sites.shop}),
    ],
)
def test_all_endpoints_without_variables_are_listed(urlconf, expected):
    request = RequestFactory().get("/")
    request.urlconf = urlconf
    resources = endpoints.all_resources(request)
    assert resources == {f"{ORIGIN}{path}": server for path, server in expected.items()}


def test_a_declared_url_is_the_only_one_of_its_server():
    with sites.gated() as (gate, urlconf):
        request = request_to("/inside/mcp", urlconf)
        assert endpoints.resource_of(request) == sites.GATE
        assert endpoints.resource_of(RequestFactory().post("/raw"), gate) == sites.GATE
        endpoint = endpoints.find_endpoint(f"{sites.GATE}/", request)
        assert endpoint == endpoints.ServerEndpoint(gate, sites.GATE)
        assert endpoints.find_server(f"{ORIGIN}/inside/mcp", request) is None
        assert endpoints.all_resources(request) == {sites.GATE: gate}
        assert endpoints.server_of(sites.GATE) is gate


@pytest.mark.urls(sites.two)
def test_a_resource_is_known_without_a_request():
    assert endpoints.server_of(f"{ORIGIN}/mcp") is sites.shop
    assert endpoints.server_of("https://other.example/nested/mcp/") is sites.depot
    assert endpoints.server_of(f"{ORIGIN}/nothing") is None
    assert endpoints.server_of("nonsense") is None
    set_script_prefix("/app/")
    try:
        assert endpoints.server_of(f"{ORIGIN}/app/mcp") is sites.shop
        assert endpoints.server_of(f"{ORIGIN}/mcp") is None
    finally:
        set_script_prefix("/")


@pytest.mark.parametrize("url", ["mcp", "https://h/mcp?x=1", "ftp://h/mcp"])
def test_a_declared_url_that_is_none_is_told(url):
    with pytest.raises(ImproperlyConfigured, match="resource_url of the server 'odd' is"):
        MCPServer("odd", resource_url=url)
