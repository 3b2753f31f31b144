"""Invalid bearers: counted by address, and rejected without a lookup once there are too many."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import RequestFactory

from mcp_django.auth import limits
from mcp_django.auth.limits import (
    MAX_ATTEMPTS,
    AcceptedCredentials,
    limit_source,
    source_of_headers,
)
from mcp_django.models import AuthEvent
from mcp_django.protocol.headers import Headers
from tests.kit.drivers import message
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.mounts import EVERY_MOUNT, ask

pytestmark = pytest.mark.django_db(transaction=True)

LIST = message("tools/list")


@pytest.fixture(autouse=True)
def _one_window(monkeypatch):
    """Stop the clock, so that no minute ends within a test."""
    clock = SimpleNamespace(time=lambda: 60_000_010.0, monotonic=lambda: 0.0)
    monkeypatch.setattr(limits, "time", clock)


@pytest.fixture(params=EVERY_MOUNT)
def mount(request, settings):
    """Each mount in turn."""
    settings.ROOT_URLCONF = "tests.transports.urls"
    name: str = request.param
    return name


async def try_until_refused(mount: str, *, times: int = MAX_ATTEMPTS, **changes: str) -> None:
    for number in range(times):
        answer = await ask(mount, "/mcp", LIST, authorization=f"Bearer mcp_{number}", **changes)
        assert answer.status == 401


@spec("AUT-3")
async def test_threat_27_too_many_bad_bearers_are_429_before_any_look(
    mount, django_assert_num_queries
):
    await try_until_refused(mount)
    answer = await ask(mount, "/mcp", LIST, authorization="Bearer mcp_x")
    assert answer.status == 429
    assert answer.headers["retry-after"] == "50"
    assert "www-authenticate" not in answer.headers
    assert answer.json()["error"] == "too_many_attempts"
    kinds = AuthEvent.objects.order_by("pk").values_list("kind", flat=True)
    assert [kind async for kind in kinds] == ["refused"] * 5 + ["rate_limit"]


@spec("AUT-2")
async def test_threat_06_a_token_in_the_query_is_in_the_security_log_without_the_token(mount):
    assert (await ask(mount, "/mcp?access_token=mcp_leaked", LIST)).status == 400
    (event,) = [row async for row in AuthEvent.objects.all()]
    assert (event.kind, event.details["reason"]) == ("refused", "token in query string")
    assert "leaked" not in str(event.as_dict())
    for _ in range(20):
        await ask(mount, "/mcp?access_token=mcp_leaked", LIST)
    assert await AuthEvent.objects.acount() == 5


async def test_threat_27_over_the_limit_nothing_is_looked_up(mount, monkeypatch):
    await try_until_refused(mount)
    monkeypatch.setattr("mcp_django.auth.authentication.get_backend", None)
    for bearer in ("Bearer mcp_x", "Bearer eyJ.e30.c2ln", "Basic dTpw"):
        assert (await ask(mount, "/mcp", LIST, authorization=bearer)).status == 429


async def test_an_office_goes_on_working_behind_its_one_address(mount):
    token, good = await sync_to_async(_token)()
    assert (await ask(mount, "/mcp", LIST, authorization=good)).status == 200
    await try_until_refused(mount)
    assert (await ask(mount, "/mcp", LIST, authorization=good)).status == 200
    # A request without a bearer is not blocked.
    assert (await ask(mount, "/mcp", LIST)).status == 401
    # The revoked token counts as one more invalid bearer, and is the last one that is looked up.
    await sync_to_async(token.revoke)()
    assert (await ask(mount, "/mcp", LIST, authorization=good)).status == 401
    assert (await ask(mount, "/mcp", LIST, authorization=good)).status == 429


def _token() -> tuple[Any, str]:
    token, plaintext = token_for(person())
    return token, f"Bearer {plaintext}"


async def test_each_address_is_counted_on_its_own(mount, settings):
    settings.MCP_DJANGO = {"PROXIES": 1}
    await try_until_refused(mount, x_forwarded_for="203.0.113.7")
    for address, status in (("203.0.113.7", 429), ("10.0.0.1, 203.0.113.7", 429), ("::1", 401)):
        answer = await ask(
            mount, "/mcp", LIST, authorization="Bearer mcp_x", x_forwarded_for=address
        )
        assert answer.status == status


@pytest.mark.parametrize(
    ("proxies", "header", "value"),
    [
        (0, "x_forwarded_for", "203.0.113.7"),
        (0, "forwarded", "for=203.0.113.7"),
        (0, "x_real_ip", "203.0.113.7"),
        (1, "x_forwarded_for", "unknown"),
        (1, "x_forwarded_for", ""),
    ],
)
async def test_threat_27_no_header_switches_the_limit_off(
    proxies, header, value, settings, monkeypatch
):
    settings.ROOT_URLCONF = "tests.transports.urls"
    settings.MCP_DJANGO = {"PROXIES": proxies}
    monkeypatch.setattr(limits, "UNKNOWN_FACTOR", 2)
    _, good = await sync_to_async(_token)()
    assert (await ask("wsgi", "/mcp", LIST, authorization=good)).status == 200
    await try_until_refused("wsgi", times=2 * MAX_ATTEMPTS, **{header: value})
    # The address in the header does not matter.
    for header_value in (value, "198.51.100.9, unknown", "10.0.0.1, _hidden"):
        answer = await ask(
            "wsgi", "/mcp", LIST, authorization="Bearer mcp_x", **{header: header_value}
        )
        assert answer.status == 429
    # An accepted caller can go on, and a known address has a count of its own.
    answer = await ask("wsgi", "/mcp", LIST, authorization=good, **{header: value})
    assert answer.status == 200
    known = {"x_forwarded_for": "198.51.100.9"} if proxies else {}
    assert (await ask("wsgi", "/mcp", LIST, authorization="Bearer x", **known)).status == 401


def test_a_proxy_that_the_setting_does_not_mention_is_told_once_a_minute(monkeypatch, caplog):
    monkeypatch.setattr(limits, "_logged_at", {})
    caplog.set_level(logging.WARNING, "mcp_django.security")
    for _ in range(3):
        get = RequestFactory(REMOTE_ADDR="10.0.0.2").get
        limit_source(get("/", headers={"X-Forwarded-For": "203.0.113.7, mcp_secret"}))
    (line,) = caplog.messages
    assert "from 10.0.0.2, but MCP_DJANGO['PROXIES'] is 0" in line
    assert "mcp_secret" not in line
    caplog.clear()
    monkeypatch.setattr(limits, "_logged_at", {})
    limit_source(RequestFactory(REMOTE_ADDR="10.0.0.2").get("/"))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("proxies", "meta", "expected"),
    [
        (0, {"REMOTE_ADDR": "203.0.113.7"}, "203.0.113.7"),
        (0, {"REMOTE_ADDR": "127.0.0.1"}, "127.0.0.1"),
        (0, {"REMOTE_ADDR": ""}, None),
        # Behind a proxy that the setting does not mention, all clients would share one address.
        (0, {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.7"}, None),
        (0, {"REMOTE_ADDR": "10.0.0.2", "HTTP_FORWARDED": "for=203.0.113.7"}, None),
        (0, {"REMOTE_ADDR": "", "HTTP_X_FORWARDED_FOR": "203.0.113.7"}, None),
        (0, {"REMOTE_ADDR": "::ffff:10.0.0.2", "HTTP_X_FORWARDED_PROTO": "https"}, None),
        # A client from outside forges the header, and is counted by its own address.
        (0, {"REMOTE_ADDR": "::ffff:93.184.215.14", "HTTP_FORWARDED": "for=x"}, "93.184.215.14"),
        (0, {"REMOTE_ADDR": "93.184.215.14", "HTTP_X_FORWARDED_FOR": "::1"}, "93.184.215.14"),
        (1, {"REMOTE_ADDR": "10.0.0.2", "HTTP_X_FORWARDED_FOR": "6.6.6.6, 9.9.9.9"}, "9.9.9.9"),
        (2, {"REMOTE_ADDR": "10.0.0.2", "HTTP_X_FORWARDED_FOR": "6.6.6.6, 9.9.9.9"}, "6.6.6.6"),
        (1, {"REMOTE_ADDR": "10.0.0.2", "HTTP_X_FORWARDED_FOR": "unknown"}, None),
    ],
)
def test_an_address_is_the_clients_or_unknown(proxies, meta, expected, settings):
    settings.MCP_DJANGO = {"PROXIES": proxies}
    assert limit_source(RequestFactory().get("/", **meta)) == expected
    # The same before there is a request object.
    assert source_of_headers(Headers.from_environ(meta), meta["REMOTE_ADDR"]) == expected


def test_the_oldest_of_many_good_ones_makes_room(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(limits, "time", clock)
    monkeypatch.setattr(limits, "MAX_ACCEPTED", 2)
    known = AcceptedCredentials()
    for fingerprint in (b"a", b"b", b"a", b"c"):
        known.add(fingerprint)
    assert [credential in known for credential in (b"a", b"b", b"c")] == [True, False, True]
    known.discard(b"c")
    assert b"c" not in known
    clock.monotonic = lambda: float(limits.ACCEPTED_SECONDS)
    assert b"a" not in known
