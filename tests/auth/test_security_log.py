"""The security log: what it stores, what it never stores, and that it interrupts no request."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import RequestFactory

from mcp_django.auth import limits, security_log
from mcp_django.auth.principal import anonymous_principal
from mcp_django.auth.security_log import record_event, record_limited
from mcp_django.models import AuthEvent
from mcp_django.schema.secrets import EVENT, HIDDEN
from tests.kit.servers import person

pytestmark = pytest.mark.django_db

JWT = "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
BEARER = "mcp_ocPpExYZzEnAmPkeP9V8-bYxZ6_F-TL7YsTA3MoVJfU"


def stored(**details: Any) -> dict[str, Any]:
    """Record an event, and return its details from the table."""
    record_event("issue", **details)
    return AuthEvent.objects.get().details


def test_an_event_is_in_the_table_and_in_the_log(caplog):
    caplog.set_level(logging.INFO, "mcp_django.security")
    request = RequestFactory().get("/", REMOTE_ADDR="203.0.113.7")
    record_event(
        "consent", request=request, user=person(), client_id="c1", server="shop", scopes=["mcp"]
    )
    (event,) = AuthEvent.objects.all()
    assert event.as_dict() == {
        "kind": "consent",
        "username": "ada",
        "client_id": "c1",
        "server": "shop",
        "address": "203.0.113.7",
        "details": {"scopes": ["mcp"]},
    }
    (line,) = caplog.records
    assert vars(line)["auth_event"] == event.as_dict()
    assert line.getMessage() == "access granted: ada, c1"


def test_nobody_and_nowhere_have_events_too():
    record_event("refused", user=anonymous_principal().user)
    (event,) = AuthEvent.objects.all()
    assert (event.user, event.username, event.address) == (None, "", None)


def test_an_event_outlives_its_user():
    ada = person()
    record_event("revoke", user=ada)
    ada.delete()
    (event,) = AuthEvent.objects.all()
    assert (event.user, event.username) == (None, "ada")


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "access_token",
        "code",
        "device_code",
        "client_secret",
        "assertion",
        "code_verifier",
        "state",
        "KEY",
    ],
)
def test_what_is_named_like_a_secret_is_hidden_and_told(name, caplog):
    assert stored(**{name: "s3cret"}) == {name: HIDDEN}
    assert "s3cret" not in caplog.text
    assert any(line.levelno == logging.ERROR and name in line.message for line in caplog.records)


@pytest.mark.parametrize("value", [JWT, BEARER, f"Bearer {JWT}", "Basic dXNlcjpwYXNz", "bearer x9"])
def test_what_looks_like_a_secret_is_hidden(value):
    text = str(stored(reason=f"sent {value} here", within={"list": [value]}))
    assert value.rpartition(" ")[2] not in text
    assert HIDDEN in text


@pytest.mark.parametrize(
    "name", ["scopes", "status_code", "redirect_host", "keys_url", "grant_type", "token_kind"]
)
def test_other_facts_stay(name):
    assert stored(**{name: "https://client.example"}) == {name: "https://client.example"}


def test_anything_becomes_json():
    details = stored(
        a={2, 1}, b=(1, None), c=object, d={"code": "x", "e": True}, f=1.5, g="a\r\nb\0"
    )
    assert details["a"] == [1, 2]
    assert details["b"] == [1, None]
    assert details["d"] == {"code": HIDDEN, "e": True}
    assert details["f"] == 1.5
    assert details["g"] == "a\ufffd\ufffdb\ufffd"


def test_a_name_is_no_way_in_for_a_secret_or_a_second_line():
    assert stored(within={BEARER: 1, "a\nb": 2}) == {"within": {HIDDEN: 1, "a\ufffdb": 2}}


def test_long_texts_are_cut():
    record_event("register", client_id="c" * 999, server="s" * 999, name="n" * 99_999)
    (event,) = AuthEvent.objects.all()
    assert (len(event.client_id), len(event.server)) == (255, 100)
    assert len(event.details["name"]) == EVENT.text


def test_a_table_that_fails_fails_nobody(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "mcp_django.security")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise DatabaseError("no such table")

    monkeypatch.setattr(AuthEvent, "save", fail)
    record_event("reuse", client_id="c1")
    assert [line.levelname for line in caplog.records] == ["INFO", "ERROR"]
    # The surrounding transaction still works.
    assert AuthEvent.objects.count() == 0


def test_what_is_rolled_back_stays_in_the_log(caplog):
    caplog.set_level(logging.INFO, "mcp_django.security")

    def roll_back() -> None:
        with transaction.atomic():
            record_event("replay", client_id="c1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        roll_back()
    assert AuthEvent.objects.count() == 0
    assert vars(caplog.records[0])["auth_event"]["kind"] == "replay"


def ask(address: str) -> Any:
    return RequestFactory().get("/", REMOTE_ADDR=address)


def test_threat_27_one_source_fills_no_table(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(limits, "time", now)
    for _ in range(50):
        record_limited("refused", request=ask("203.0.113.7"))
    assert AuthEvent.objects.count() == security_log.MAX_PER_SOURCE
    record_limited("refused", request=ask("203.0.113.8"))
    record_limited("step_up", request=ask("203.0.113.7"))
    assert AuthEvent.objects.count() == security_log.MAX_PER_SOURCE + 2
    now.monotonic = lambda: 1000.0 + limits.MINUTE_SECONDS
    record_limited("refused", request=ask("203.0.113.7"))
    assert AuthEvent.objects.count() == security_log.MAX_PER_SOURCE + 3


def test_threat_27_many_sources_fill_no_table(monkeypatch):
    monkeypatch.setattr(security_log.event_limiter, "total", 20)
    for number in range(40):
        record_limited("refused", request=ask(f"203.0.113.{number}"))
    assert AuthEvent.objects.count() == 20


def test_a_user_is_one_source_wherever_the_calls_come_from():
    ada = person()
    for number in range(20):
        record_limited("step_up", request=ask(f"203.0.113.{number}"), user=ada)
    assert AuthEvent.objects.count() == security_log.MAX_PER_SOURCE
