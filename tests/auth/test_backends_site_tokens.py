"""Access tokens: which are accepted, their queries, and that no secret is shown."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.http import HttpRequest
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.auth import security_log
from mcp_django.auth.authentication import LocalCaller
from mcp_django.auth.backends import get_backend
from mcp_django.auth.principal import anonymous_principal
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import AccessToken, AuthEvent
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.spec import spec

pytestmark = pytest.mark.django_db

WHOAMI = message("tools/call", {"name": "whoami"})
LIST = message("tools/list")


def status(plaintext: str) -> int:
    return post("/mcp", LIST, token=plaintext).status_code


def test_a_token_stands_for_its_user():
    _, plaintext = token_for(person())
    result = post("/mcp", WHOAMI, token=plaintext).json()["result"]["structuredContent"]
    assert (result["user"], result["backend"]) == ("ada", "tokens")
    assert result["method"] == "POST"


def test_only_the_digest_is_kept():
    token, plaintext = token_for(person(), "b", "a", "b")
    assert plaintext.startswith("mcp_")
    assert len(plaintext) > 40
    stored = AccessToken.objects.values().get()
    assert plaintext not in str(stored)
    assert plaintext.removeprefix("mcp_") not in str(stored)
    assert stored["digest"] == hashlib.sha256(plaintext.encode()).hexdigest()
    assert stored["hint"] == plaintext[-4:]
    assert stored["scopes"] == ["a", "b"]
    for text in (repr(token), str(token)):
        assert plaintext not in text
        assert token.digest not in text


def test_a_site_may_derive_the_secret():
    _, plaintext = token_for(person(), secret="derived-from-a-key")
    assert plaintext == "mcp_derived-from-a-key"
    assert status(plaintext) == 200


@spec("AUT-3")
def test_an_ended_token_is_refused_with_the_reason():
    token, plaintext = token_for(person())
    assert status(plaintext) == 200
    token.revoke()
    first = token.revoked_at
    token.revoke()
    assert token.revoked_at == first
    response = post("/mcp", LIST, token=plaintext)
    assert response.status_code == 401
    assert 'error="invalid_token"' in response["WWW-Authenticate"]
    assert plaintext not in str(response.content) + str(response.headers)


@pytest.mark.parametrize(("seconds", "expected"), [(-1, 401), (0, 401), (60, 200)])
def test_an_expired_token_is_refused(seconds, expected):
    _, plaintext = token_for(person(), expires=timezone.now() + timedelta(seconds=seconds))
    assert status(plaintext) == expected


def test_the_token_of_an_inactive_user_is_refused():
    user = person()
    _, plaintext = token_for(user)
    user.is_active = False
    user.save()
    assert status(plaintext) == 401


def test_a_deleted_user_takes_the_tokens_along():
    user = person()
    token_for(user)
    user.delete()
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize("bearer", ["mcp_unknown", "foreign", "mcp_", "x" * 10_000, "ä"])
def test_an_unknown_bearer_is_refused_also_where_nobody_has_to_sign_in(bearer):
    for path in ("/mcp", "/open/mcp"):
        response = post(path, LIST, token=bearer)
        assert response.status_code == 401
        assert 'error="invalid_token"' in response["WWW-Authenticate"]


@spec("AUT-2", "AUT-3")
@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b"])
def test_a_malformed_header_is_a_bad_request(header):
    response = post("/open/mcp", LIST, authorization=header)
    assert response.status_code == 400
    assert 'error="invalid_request"' in response["WWW-Authenticate"]


def test_the_scheme_is_read_in_any_case_and_others_are_refused():
    _, plaintext = token_for(person())
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert post("/mcp", LIST, authorization=f"{scheme} {plaintext}").status_code == 200
    for other in (f"Basic {plaintext}", plaintext, f"Token {plaintext}"):
        assert post("/mcp", LIST, authorization=other).status_code == 401


@spec("AUT-2")
def test_a_token_in_the_address_is_refused():
    _, plaintext = token_for(person())
    for query in (f"access_token={plaintext}", "access_token=", "a=1&access_token=x"):
        for path in ("/mcp", "/open/mcp"):
            response = post(f"{path}?{query}", LIST, token=plaintext)
            assert response.status_code == 400
            assert plaintext not in str(response.content) + str(response.headers)


# Queries --------------------------------------------------------------------------------------


@pytest.fixture
def used():
    """The plaintext of a token that was used within the last minute."""
    token, plaintext = token_for(person())
    AccessToken.objects.filter(pk=token.pk).update(last_used_at=timezone.now())
    return plaintext


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("server/discover", {}),
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
        ("tools/call", {"name": "add", "arguments": {"a": 1}}),
        ("resources/read", {"uri": "shop://about"}),
        ("tools/call", {"name": "missing"}),
        ("nonsense", {}),
    ],
)
def test_a_request_with_a_token_costs_one_query(method, params, used, django_assert_num_queries):
    with django_assert_num_queries(1) as queries:
        post("/mcp", message(method, params), token=used)
    assert "mcp_django_accesstoken" in queries.captured_queries[0]["sql"]


def test_a_tool_pays_only_for_its_own_queries(used, django_assert_num_queries):
    with django_assert_num_queries(2):
        post("/mcp", message("tools/call", {"name": "count_groups"}), token=used)


def test_no_token_costs_no_query(django_assert_num_queries):
    with django_assert_num_queries(0):
        post("/mcp", LIST)
        post("/open/mcp", LIST)


def test_a_foreign_token_is_not_looked_up_and_soon_not_recorded(
    settings, django_assert_num_queries
):
    settings.MCP_DJANGO = {"AUTH": ["tokens"]}
    for _ in range(security_log.MAX_PER_SOURCE):
        post("/mcp", LIST, token="foreign")
    assert AuthEvent.objects.filter(kind="refused").count() == security_log.MAX_PER_SOURCE
    with django_assert_num_queries(0):
        post("/mcp", LIST, token="foreign")
        post("/open/mcp", LIST, token="foreign")


def test_the_last_use_is_written_once_a_minute(monkeypatch):
    token, plaintext = token_for(person())
    start = timezone.now()
    at: list[int] = [0]
    monkeypatch.setattr(timezone, "now", lambda: start + timedelta(seconds=at[0]))
    for seconds, is_written, last in ((0, 1, 0), (59, 0, 0), (60, 1, 60), (61, 0, 60)):
        at[0] = seconds
        with CaptureQueriesContext(connection) as queries:
            assert status(plaintext) == 200
        writes = [query["sql"] for query in queries if query["sql"].startswith("UPDATE")]
        assert len(writes) == is_written
        token.refresh_from_db()
        assert token.last_used_at == start + timedelta(seconds=last)


# Streams --------------------------------------------------------------------------------------


def test_a_principal_is_current_while_its_token_holds():
    from mcp_django.auth.authentication import authenticate, refresh_principal
    from mcp_django.auth.credentials import Credentials
    from mcp_django.protocol.headers import Headers

    user = person()
    token, plaintext = token_for(user, "s", expires=timezone.now() + timedelta(days=1))
    pairs = [(b"authorization", f"Bearer {plaintext}".encode())]
    credentials = Credentials(headers=Headers(pairs), query="", request=HttpRequest)
    principal = authenticate(["tokens"], credentials)
    assert principal.scopes == frozenset({"s"})
    assert principal.expires_at == token.expires_at
    assert plaintext not in repr(principal)
    user.is_staff = True
    user.save()
    refreshed = refresh_principal(principal)
    assert refreshed is not None
    assert refreshed.user.is_staff
    token.revoke()
    assert refresh_principal(principal) is None
    assert refresh_principal(anonymous_principal()) is not None
    AccessToken.objects.all().delete()
    assert not get_backend("tokens").is_current(principal)


# Secrets --------------------------------------------------------------------------------------


@spec("ERR-5")
@override_settings(DEBUG=True)
def test_no_secret_reaches_a_log_or_an_answer(caplog):
    caplog.set_level(logging.DEBUG)
    _, plaintext = token_for(person())
    bug = message("tools/call", {"name": "fail", "arguments": {"kind": "bug"}})
    answers = [
        post("/mcp", bug, token=plaintext),
        post("/staff/mcp", LIST, token=plaintext),
        post("/mcp", LIST, token=plaintext + "x"),
    ]
    for response in answers:
        assert plaintext not in response.content.decode() + str(response.headers)
        assert "/etc/passwd" not in response.content.decode()
    assert plaintext not in caplog.text


# Where it is good -----------------------------------------------------------------------------


@spec("AUT-9")
def test_a_token_for_some_servers_opens_no_other():
    user = person(is_staff=True)
    _, plaintext = token_for(user, servers=["staff"])
    assert post("/staff/mcp", LIST, token=plaintext).status_code == 200
    refused = post("/mcp", LIST, token=plaintext)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("networks", "address", "expected"),
    [
        (["127.0.0.1"], "127.0.0.1", 200),
        (["127.0.0.0/8"], "127.0.0.1", 200),
        (["::1", "10.0.0.0/8"], "10.9.8.7", 200),
        (["10.0.0.0/8"], "::ffff:10.9.8.7", 200),
        (["2001:db8::/32"], "2001:db8::5", 200),
        (["10.0.0.0/8"], "11.0.0.1", 401),
        (["10.0.0.0/8"], "::1", 401),
        (["10.0.0.0/8"], "", 401),
        ([], "", 200),
    ],
)
def test_a_token_for_some_networks_is_refused_from_elsewhere(networks, address, expected):
    _, plaintext = token_for(person(), networks=networks)
    client = Client(REMOTE_ADDR=address)
    assert post("/mcp", LIST, token=plaintext, client=client).status_code == expected


def test_an_address_behind_proxies_is_the_one_they_saw():
    _, plaintext = token_for(person(), networks=["192.0.2.0/24"])
    seen = {"x_forwarded_for": "198.51.100.9, 192.0.2.7"}
    assert post("/mcp", LIST, token=plaintext, **seen).status_code == 401
    with override_settings(MCP_DJANGO={"PROXIES": 1}):
        assert post("/mcp", LIST, token=plaintext, **seen).status_code == 200
        forged = {"x_forwarded_for": "192.0.2.7, 198.51.100.9"}
        assert post("/mcp", LIST, token=plaintext, **forged).status_code == 401


def test_a_cached_caller_widens_a_token_to_no_server_and_no_network():
    user = person(is_staff=True)
    _, bound = token_for(user, servers=["staff"], networks=["10.0.0.0/8"])
    inside, outside = Client(REMOTE_ADDR="10.0.0.1"), Client(REMOTE_ADDR="11.0.0.1")
    with override_settings(MCP_DJANGO={"CONFIRM_SECONDS": 10}):
        assert post("/staff/mcp", LIST, token=bound, client=inside).status_code == 200
        assert post("/staff/mcp", LIST, token=bound, client=outside).status_code == 401
        assert post("/mcp", LIST, token=bound, client=inside).status_code == 401


@pytest.mark.parametrize("network", ["here", "10.0.0.1/8", "10.0.0.0/33", ""])
def test_what_is_no_network_makes_no_token(network):
    with pytest.raises(ValueError, match=r"network|address|host bits"):
        token_for(person(), networks=[network])
    token, _ = token_for(person("bob"))
    token.networks = [network]
    with pytest.raises(ValidationError):
        token.full_clean()
    assert AccessToken.objects.get().networks == []


def test_a_local_process_honors_what_a_token_is_bound_to():
    user = person()
    _, plaintext = token_for(user, servers=["staff"])
    assert LocalCaller(token=plaintext, server="staff").principal().user == user
    with pytest.raises(AuthenticationRequired):
        LocalCaller(token=plaintext, server="default").principal()
