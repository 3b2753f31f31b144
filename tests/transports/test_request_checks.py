"""Requests that are rejected by their head or length, and answers to browsers; on every mount."""

from __future__ import annotations

import json

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.test import override_settings

from mcp_django.protocol.errors import INVALID_REQUEST
from mcp_django.protocol.headers import Headers
from mcp_django.transports.request_checks import accepts, is_allowed_origin
from tests.kit.drivers import Answer, Connection, headers_for, message
from tests.sites.example.mcp import open_server
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask

PATH = "/open/mcp"
ECHO = message("tools/call", {"name": "echo_sync", "arguments": {"text": "still here"}})
SITE = "http://testserver"


async def assert_serving(mount: str) -> None:
    answer = await ask(mount, PATH, ECHO)
    assert answer.json()["result"]["content"] == [{"type": "text", "text": "still here"}]


def assert_refused(answer: Answer, status: int) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == INVALID_REQUEST
    assert "id" not in answer.json()
    assert "www-authenticate" not in answer.headers


# Host ---------------------------------------------------------------------------------------------


@spec("HTTP-32")
@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "a b", "[::1"])
async def test_a_foreign_host_is_refused(host, mount):
    answer = await ask(mount, PATH, ECHO, host=host)
    assert answer.status == 400
    await assert_serving(mount)


@spec("HTTP-32")
async def test_loopback_names_need_no_setting_while_debugging(mount, settings):
    settings.ALLOWED_HOSTS = []
    settings.DEBUG = True
    for host in ("localhost:8000", "127.0.0.1:9", "[::1]:80"):
        assert (await ask(mount, PATH, ECHO, host=host)).status == 200
    assert (await ask(mount, PATH, ECHO, host="evil.example")).status == 400


async def test_behind_a_proxy_the_forwarded_host_counts(mount, settings):
    settings.USE_X_FORWARDED_HOST = True
    inside = {"host": "backend:8000", "x_forwarded_host": "testserver"}
    assert (await ask(mount, PATH, ECHO, **inside)).status == 200
    own = await ask(mount, PATH, ECHO, origin=SITE, **inside)
    assert own.headers["access-control-allow-origin"] == SITE
    outside = {"host": "testserver", "x_forwarded_host": "evil.example"}
    assert (await ask(mount, PATH, ECHO, **outside)).status == 400


# Origin -------------------------------------------------------------------------------------------


@spec("HTTP-2", "AUT-13", "VER-21")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://[",
        "http://a@testserver",
        "http://testserver, http://evil.example",
        "http://testserver/",
        "http://testserver#x",
        "http://testserver:abc",
    ],
)
async def test_a_foreign_origin_is_refused(origin, verb, mount):
    answer = await ask(mount, PATH, ECHO, verb=verb, origin=origin, authorization="Bearer x")
    assert_refused(answer, 403)
    assert "access-control-allow-origin" not in answer.headers


@spec("HTTP-2")
@pytest.mark.parametrize(
    ("trusted", "headers", "scheme"),
    [
        (None, {}, "http"),
        # The header is ignored unless SECURE_PROXY_SSL_HEADER names it.
        (None, {"x_forwarded_proto": "https"}, "http"),
        (("HTTP_X_FORWARDED_PROTO", "https"), {"x_forwarded_proto": "https"}, "https"),
        (("HTTP_X_FORWARDED_PROTO", "https"), {"x_forwarded_proto": "https, http"}, "https"),
        (("HTTP_X_FORWARDED_PROTO", "https"), {"x_forwarded_proto": "http"}, "http"),
        (("HTTP_X_FORWARDED_PROTO", "https"), {}, "http"),
    ],
)
async def test_a_page_of_this_host_over_the_other_scheme_is_foreign(
    trusted, headers, scheme, mount, settings
):
    settings.SECURE_PROXY_SSL_HEADER = trusted
    other = {"http": "https", "https": "http"}[scheme]
    for verb in ("POST", "OPTIONS"):
        origin = f"{other}://testserver"
        answer = await ask(mount, PATH, ECHO, verb=verb, origin=origin, **headers)
        assert_refused(answer, 403)
        assert "access-control-allow-origin" not in answer.headers
    answer = await ask(mount, PATH, ECHO, origin=f"{scheme}://testserver", **headers)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == f"{scheme}://testserver"


@spec("HTTP-2", "HTTP-11")
async def test_the_site_itself_may_call(mount):
    answer = await ask(mount, PATH, ECHO, origin=SITE)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]
    assert "Origin" in answer.headers["vary"]


@spec("HTTP-11", "AUT-13")
async def test_an_allowed_origin_can_read_a_refusal(mount):
    challenged = await ask(mount, "/mcp", ECHO, origin=SITE)
    refused = await ask(mount, PATH, ECHO, origin=SITE, content_type="text/plain")
    assert (challenged.status, refused.status) == (401, 415)
    for answer in (challenged, refused):
        assert answer.headers["access-control-allow-origin"] == SITE


HOST = {"ALLOWED_HOSTS": ["shop.example"]}
ANY = {"ALLOWED_HOSTS": ["*"]}


@spec("HTTP-2")
@pytest.mark.parametrize(
    ("origin", "host", "configured", "allowed"),
    [
        ("https://shop.example", "shop.example", HOST, True),
        ("https://SHOP.example", "shop.example", HOST, True),
        # Over HTTP, an attacker on the network path can forge a page of this host.
        ("http://shop.example", "shop.example", HOST, False),
        ("https://shop.example:444", "shop.example", HOST, False),
        ("https://shop.example", "shop.example", ANY, False),
        ("https://a.shop.example", "a.shop.example", {"ALLOWED_HOSTS": [".shop.example"]}, True),
        ("ftp://shop.example", "shop.example", HOST, False),
        ("http://localhost:3000", "shop.example", HOST, False),
        ("http://localhost:3000", "shop.example", {**HOST, "DEBUG": True}, True),
        ("http://[::1]:3000", "shop.example", {**HOST, "DEBUG": True}, True),
        ("http://127.0.1.1:3000", "shop.example", {**HOST, "DEBUG": True}, True),
        ("http://127.0.1.1.evil.example", "shop.example", {**HOST, "DEBUG": True}, False),
        ("http://localhost.evil.example", "shop.example", {**HOST, "DEBUG": True}, False),
        ("null", "shop.example", {**HOST, "DEBUG": True}, False),
        ("https://a.example", "x", {"CSRF_TRUSTED_ORIGINS": ["https://a.example"]}, True),
        ("https://b.a.example", "x", {"CSRF_TRUSTED_ORIGINS": ["https://*.a.example"]}, True),
        ("http://b.a.example", "x", {"CSRF_TRUSTED_ORIGINS": ["https://*.a.example"]}, False),
        ("https://ba.example", "x", {"CSRF_TRUSTED_ORIGINS": ["https://*.a.example"]}, False),
        ("https://a.example", "x", {"MCP_DJANGO": {"ALLOWED_ORIGINS": ["https://a.example"]}}, 1),
        ("https://b.example", "x", {"MCP_DJANGO": {"ALLOWED_ORIGINS": ["https://a.example"]}}, 0),
        ("https://a.example", "x", {"MCP_DJANGO": {"BASE_URL": "https://a.example/app"}}, True),
    ],
)
def test_which_origins_are_allowed(origin, host, configured, allowed):
    with override_settings(**configured):
        assert is_allowed_origin(origin, "https", host) is bool(allowed)


# Verbs and preflights -----------------------------------------------------------------------------


@spec("HTTP-8", "HTTP-29")
@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
async def test_only_post_is_served(verb, mount):
    answer = await ask(mount, PATH, b"", verb=verb)
    assert answer.status == 405
    assert answer.headers["allow"] == "POST, OPTIONS"


async def test_a_browser_gets_a_page(mount):
    answer = await ask(mount, PATH, b"", verb="GET", accept="text/html", mcp_protocol_version=None)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "set-cookie" not in answer.headers
    assert b"http://testserver/open/mcp" in answer.body
    assert b"echo_sync" not in answer.body


@spec("HTTP-29")
async def test_a_client_gets_no_page(mount):
    answer = await ask(mount, PATH, b"", verb="GET", accept="text/html")
    assert_refused(answer, 405)


@spec("HTTP-11")
async def test_a_preflight_names_what_may_be_sent(mount):
    header_names = "content-type, Mcp-Param-Region, mcp-method, x-other"
    answer = await ask(
        mount,
        PATH,
        b"",
        verb="OPTIONS",
        origin=SITE,
        access_control_request_method="POST",
        access_control_request_headers=header_names,
    )
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SITE
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert set(allowed) == {
        "Authorization",
        "Content-Type",
        "Accept",
        "MCP-Protocol-Version",
        "Mcp-Session-Id",
        "Last-Event-ID",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Param-Region",
    }
    assert "POST" in answer.headers["access-control-allow-methods"]


# Types and sizes ----------------------------------------------------------------------------------


@spec("HTTP-8", "VER-21")
@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
async def test_a_body_that_is_not_declared_as_json_is_refused(given, mount):
    assert_refused(await ask(mount, PATH, ECHO, content_type=given), 415)
    await assert_serving(mount)


async def test_parameters_of_the_content_type_do_not_matter(mount):
    answer = await ask(mount, PATH, ECHO, content_type="Application/JSON; charset=utf-8")
    assert answer.status == 200


@spec("HTTP-8", "HTTP-5")
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (None, 200),
        ("*/*", 200),
        ("application/json", 200),
        ("application/*;q=0.5", 200),
        ("text/event-stream", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("", 406),
    ],
)
async def test_accept_is_read_leniently(accept, status, mount):
    answer = await ask(mount, PATH, ECHO, accept=accept)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"


def test_a_refused_type_is_not_accepted_by_a_wildcard():
    headers = Headers([(b"accept", b"application/json;q=0, */*")])
    assert not accepts(headers, "application/json")
    assert accepts(headers, "text/event-stream")


async def test_a_body_over_the_limit_is_refused(mount, settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 2000}
    body = message("tools/call", {"name": "echo_sync", "arguments": {"text": "x" * 2000}})
    assert_refused(await ask(mount, PATH, body), 413)
    await assert_serving(mount)


async def test_the_limit_for_forms_does_not_apply(mount, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    await assert_serving(mount)


@pytest.mark.parametrize("name", MOUNTS)
async def test_a_body_without_length_is_counted_as_it_comes(name, settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 50}
    parts = [b"x" * 30, b"x" * 30, b"x" * 30]
    connection = Connection(MOUNTS[name], PATH, parts, headers_for({}), "POST")
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    assert_refused(answer, 413)


@pytest.mark.parametrize("name", MOUNTS)
async def test_a_client_that_leaves_before_its_body_is_complete_gets_nothing(name):
    connection = Connection(
        MOUNTS[name], PATH, [b'{"jsonrpc"'], headers_for({}), "POST", complete=False
    )
    await connection.close()
    assert connection.sent == []


@pytest.mark.parametrize("name", MOUNTS)
async def test_a_body_may_come_in_parts(name):
    raw = json.dumps(ECHO).encode()
    parts = [raw[:10], b"", raw[10:]]
    connection = Connection(MOUNTS[name], PATH, parts, headers_for(ECHO), "POST")
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    assert answer.status == 200


# Being mounted in a Django site -------------------------------------------------------------------


@spec("HTTP-10")
@pytest.mark.parametrize("path", ["/open/mcp", "/open/mcp/"])
async def test_both_spellings_are_served_without_cookies(path, mount):
    answer = await ask(mount, path, ECHO, cookie=f"csrftoken={'x' * 32}; sessionid={'y' * 32}")
    assert answer.status == 200
    assert "set-cookie" not in answer.headers


@spec("HTTP-10")
async def test_login_required_middleware_leaves_the_endpoint_alone(settings):
    required = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, required]
    answer = await ask("wsgi", "/mcp", ECHO)
    assert answer.status == 401
    await assert_serving("wsgi")


def test_atomic_requests_do_not_enclose_the_endpoint(monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    view = open_server.view
    assert BaseHandler().make_view_atomic(view) is view


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:8000, http://evil.example",
        "http://127.0.0.1 http://evil.example",
        "http://evil.example@127.0.0.1",
        "http://127.0.0.1:abc",
        "http://127.0.0.1:",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:99999",
        "http://127.0.0.1#evil",
        "http://127.0.0.1?evil",
        "http://127.0.0.1/../evil",
        "http://127.0.0.1\\evil",
        "http://127.0.0.1\tevil",
        "//127.0.0.1",
    ],
)
@pytest.mark.parametrize("debug", [True, False])
def test_what_only_looks_like_an_origin_of_ours_is_foreign(origin, debug):
    host = "127.0.0.1"
    with override_settings(DEBUG=debug, ALLOWED_HOSTS=[host]):
        assert is_allowed_origin(f"http://{host}", "http", host)
        assert is_allowed_origin(f"http://{host}:65535", "http", host) is debug
        assert not is_allowed_origin(origin, "http", host)


@spec("HTTP-2")
@pytest.mark.parametrize("debug", [True, False])
async def test_a_refused_origin_is_named_while_debugging(debug, mount, settings):
    settings.DEBUG = debug
    settings.ALLOWED_HOSTS = ["testserver"]
    local = await ask(mount, PATH, ECHO, origin="http://localhost:5173")
    assert local.status == (200 if debug else 403)
    answer = await ask(mount, PATH, ECHO, origin="http://evil.example")
    assert_refused(answer, 403)
    assert ("'http://evil.example'" in answer.json()["error"]["message"]) is debug


async def ask_twice(name: str, header: str, first: str, second: str) -> Answer:
    """Send a header in two lines, which only ASGI keeps apart."""
    headers = headers_for(ECHO, **{header: first})
    body = json.dumps(ECHO).encode()
    connection = Connection(MOUNTS[name], PATH, body, headers, "POST")
    connection.scope["headers"].append((header.encode(), second.encode()))
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    return answer


@spec("HTTP-2")
@pytest.mark.parametrize("name", MOUNTS)
async def test_two_origins_are_none(name):
    for first, second in ((SITE, "http://evil.example"), ("http://evil.example", SITE), ("", SITE)):
        answer = await ask_twice(name, "origin", first, second)
        assert_refused(answer, 403)
        assert "access-control-allow-origin" not in answer.headers


@spec("HTTP-32")
@pytest.mark.parametrize("name", MOUNTS)
async def test_two_hosts_are_none(name):
    for first, second in (("testserver", "evil.example"), ("testserver", "testserver")):
        assert (await ask_twice(name, "host", first, second)).status == 400


async def test_a_refusal_names_what_was_given(mount):
    typed = await ask(mount, PATH, ECHO, content_type="text/csv")
    assert_refused(typed, 415)
    assert "'text/csv'" in typed.json()["error"]["message"]
    accepting = await ask(mount, PATH, ECHO, accept="image/png, text/html")
    assert_refused(accepting, 406)
    assert "'image/png, text/html'" in accepting.json()["error"]["message"]


@spec("HTTP-8")
async def test_two_content_types_are_none():
    for name in MOUNTS:
        answer = await ask_twice(name, "content-type", "application/json", "text/plain")
        assert_refused(answer, 415)
        assert "text/plain" in answer.json()["error"]["message"]
