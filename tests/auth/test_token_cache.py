"""``TOKEN_CACHE_SECONDS``: what a second request saves, and what it never does."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone

from mcp_django.auth import authentication
from mcp_django.auth.authentication import TokenCache
from mcp_django.auth.principal import principal_for
from tests.drivers import message
from tests.servers import person, post, token_for
from tests.spec import spec

pytestmark = pytest.mark.django_db

LIST = message("tools/list")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still."""
    found = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(authentication, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def status(plaintext: str, path: str = "/mcp") -> int:
    return post(path, LIST, token=plaintext).status_code


def test_without_a_word_every_request_is_looked_up() -> None:
    token, plaintext = token_for(person())
    assert status(plaintext) == 200
    token.revoke()
    assert status(plaintext) == 401


@spec("AUT-1")
def test_a_revoked_token_holds_so_long_and_no_longer(settings: Any, clock: Any) -> None:
    settings.MCP_DJANGO = {"TOKEN_CACHE_SECONDS": 30}
    token, plaintext = token_for(person())
    assert status(plaintext) == 200
    token.revoke()
    clock.now += 29
    assert status(plaintext) == 200
    clock.now += 1
    assert status(plaintext) == 401


def test_a_second_request_looks_nobody_up(
    settings: Any, clock: Any, django_assert_num_queries: Any
) -> None:
    settings.MCP_DJANGO = {"TOKEN_CACHE_SECONDS": 30}
    _, plaintext = token_for(person())
    assert status(plaintext) == 200
    with django_assert_num_queries(0):
        assert status(plaintext) == 200


def test_an_unknown_bearer_is_never_kept(settings: Any, clock: Any) -> None:
    settings.MCP_DJANGO = {"TOKEN_CACHE_SECONDS": 30}
    token, plaintext = token_for(person())
    type(token).objects.update(revoked_at=timezone.now())
    assert status(plaintext) == 401
    type(token).objects.update(revoked_at=None)
    assert status(plaintext) == 200


@spec("AUT-9")
def test_another_endpoint_asks_anew(settings: Any, clock: Any) -> None:
    settings.MCP_DJANGO = {"TOKEN_CACHE_SECONDS": 30}
    settings.ROOT_URLCONF = "tests.transports.urls"
    token, plaintext = token_for(person(is_staff=True))
    assert status(plaintext) == 200
    token.revoke()
    assert status(plaintext, "/staff/mcp") == 401


def test_what_has_expired_is_not_served_from_memory(clock: Any, monkeypatch: Any) -> None:
    cache = TokenCache()
    ends = timezone.now() + timedelta(hours=1)
    cache.put(b"k", principal_for(person(), expires_at=ends), seconds=99)
    assert cache.get(b"k") is not None
    monkeypatch.setattr(authentication, "timezone", SimpleNamespace(now=lambda: ends))
    assert cache.get(b"k") is None


@spec("AUT-11")
def test_threat_17_permissions_are_read_anew_all_the_same(clock: Any) -> None:
    cache, ada = TokenCache(), person()
    permission = Permission.objects.get(codename="change_user")
    ada.user_permissions.add(permission)
    assert ada.has_perm("auth.change_user")
    cache.put(b"k", principal_for(ada), seconds=99)
    first = cache.get(b"k")
    assert first is not None
    assert first.user.has_perm("auth.change_user")
    ada.user_permissions.clear()
    second = cache.get(b"k")
    assert second is not None
    assert second.user == first.user
    assert not second.user.has_perm("auth.change_user")


def test_the_oldest_of_many_makes_room(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MAX_CACHED_TOKENS", 2)
    cache, ada = TokenCache(), person()
    for key in (b"a", b"b", b"a", b"c"):
        cache.put(key, principal_for(ada), seconds=99)
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
