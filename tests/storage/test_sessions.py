"""Sessions in the database: found by id and caller, and ended in time."""

from __future__ import annotations

import pytest
from django.db import connection

from mcp_django.models import Session
from mcp_django.storage import sessions
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.writer import RESOLUTION_SECONDS
from tests.spec import spec
from tests.transports.http_session.conftest import at_once, open_session

pytestmark = pytest.mark.usefixtures("transactional_db")


def find(
    plaintext: str, principal: str = "anonymous", server: str = "store"
) -> sessions.SessionRecord | None:
    return sessions.find_session(plaintext, server=server, principal=principal)


def subscriptions(session: Session) -> list[str]:
    return list(session.subscriptions.order_by("pk").values_list("uri", flat=True))


def age(session: Session, **columns: float) -> None:
    """Set columns of a session to this many seconds ago."""
    changes = {name: seconds_ago(seconds) for name, seconds in columns.items()}
    Session.objects.filter(pk=session.pk).update(**changes)


@spec("SES-2")
def test_the_id_is_long_visible_and_not_stored():
    plaintexts = {open_session()[1] for _ in range(20)}
    assert len(plaintexts) == 20
    for plaintext in plaintexts:
        assert len(plaintext) >= 43
        assert all("!" <= character <= "~" for character in plaintext)
    stored = {str(value) for row in Session.objects.values() for value in row.values()}
    assert not plaintexts & stored


@spec("SES-6", "SES-8")
def test_a_session_is_found_by_its_own_caller_on_its_own_server():
    session, plaintext = open_session("ada", capabilities={"sampling": {}})
    row = find(plaintext, "ada")
    assert row is not None
    assert (row.pk, row.protocol_version) == (session.pk, "2025-11-25")
    assert sessions.StoredSession(row).capabilities == {"sampling": {}}
    assert find(plaintext, "eve") is None
    assert find(plaintext, "ada", server="staff") is None
    assert find(plaintext + "x", "ada") is None
    assert find(session.digest, "ada") is None


@spec("SES-7")
@pytest.mark.parametrize(
    "columns", [{"seen_at": 3601}, {"expires_at": 1}, {"seen_at": 3601, "expires_at": 1}]
)
def test_a_session_expires_by_silence_and_by_age(columns):
    session, plaintext = open_session()
    age(session, **columns)
    assert find(plaintext) is None


@spec("SES-7")
def test_one_clock_says_when_a_session_begins_and_ends(settings):
    settings.MCP_DJANGO = {"SESSION_MAX_AGE": 3600}
    session, _ = open_session()
    session.refresh_from_db()
    assert 3599 < (session.expires_at - session.created_at).total_seconds() < 3610


def test_use_keeps_a_session_from_idling(settings):
    settings.MCP_DJANGO = {"SESSION_IDLE": 600}
    session, plaintext = open_session()
    age(session, seen_at=500)
    assert find(plaintext) is not None
    age(session, seen_at=500)
    assert sessions.mark_seen(session.pk)
    assert Session.objects.filter(pk=session.pk, seen_at__gt=seconds_ago(10)).exists()


def test_use_is_noted_after_a_minute():
    session, plaintext = open_session()
    for seconds, is_noted in (
        (RESOLUTION_SECONDS - 20, False),
        (RESOLUTION_SECONDS + 1, True),
    ):
        age(session, seen_at=seconds)
        assert find(plaintext) is not None
        assert (
            Session.objects.filter(pk=session.pk, seen_at__gt=seconds_ago(20)).exists() is is_noted
        )


def test_a_session_in_constant_use_is_written_once_a_minute(django_assert_num_queries):
    _, plaintext = open_session()
    with django_assert_num_queries(1):
        find(plaintext)


@spec("SES-4", "SES-5")
def test_an_ended_session_is_not_found_again():
    session, plaintext = open_session()
    sessions.end_sessions([session.pk])
    assert find(plaintext) is None
    assert not sessions.mark_seen(session.pk)
    # An update by a request that still holds the object does not restore the session.
    sessions.update_session(session.pk, log_level="debug")
    assert find(plaintext) is None


def test_a_site_that_commits_by_itself_may_change_and_end_sessions():
    session, plaintext = open_session()
    connection.set_autocommit(False)
    try:
        sessions.update_session(session.pk, log_level="debug")
        sessions.end_sessions([session.pk])
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert find(plaintext) is None


def test_of_too_many_the_one_that_was_silent_the_longest_ends(settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 3}
    opened = [open_session("ada") for _ in range(3)]
    others = open_session("bob")
    for seconds, (session, _) in zip((10, 30, 20), opened, strict=True):
        age(session, seen_at=seconds)
    open_session("ada")
    assert [find(plaintext, "ada") is not None for _, plaintext in opened] == [True, False, True]
    assert find(others[1], "bob") is not None


def test_a_new_session_does_not_give_way_to_one_that_was_seen_since(settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 1}
    older, _ = open_session("ada")
    # An open stream may mark its session as seen at any time.
    age(older, seen_at=-60)
    _, plaintext = open_session("ada")
    assert find(plaintext, "ada") is not None
    assert not sessions.mark_seen(older.pk)


def test_many_at_once_leave_as_many_as_one_may_have(settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 2}
    at_once(8, lambda _: open_session("ada"))
    open_session("ada")
    assert Session.objects.filter(principal="ada", expires_at__gt=seconds_ago(0)).count() == 2


def test_subscriptions_are_kept_once_and_bounded(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 2)
    session, _ = open_session()
    for uri in ("a:1", "a:1", "a:2"):
        sessions.add_subscription(session.pk, uri)
    assert subscriptions(session) == ["a:1", "a:2"]
    with pytest.raises(sessions.TooManySubscriptions):
        sessions.add_subscription(session.pk, "a:3")
    sessions.remove_subscription(session.pk, "a:1")
    sessions.remove_subscription(session.pk, "a:1")
    sessions.add_subscription(session.pk, "a:3")
    assert subscriptions(session) == ["a:2", "a:3"]


def test_a_subscription_that_is_there_is_no_subscription_more(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 1)
    session, _ = open_session()
    sessions.add_subscription(session.pk, "a:1")
    sessions.add_subscription(session.pk, "a:1")
    assert subscriptions(session) == ["a:1"]
