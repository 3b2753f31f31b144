"""GET streams in the database: their owners, the writer, and what is stored at the end."""

from __future__ import annotations

from itertools import count

import pytest
from django.db import transaction

from mcp_django.models import Session, Stream, Topic
from mcp_django.storage import sessions, streams, versions
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.streams import (
    GetStreamEnd,
    notify_get_streams,
    read_get_stream,
)
from tests.spec import spec
from tests.transports.http_session.conftest import (
    ELSEWHERE,
    HERE,
    as_worker,
    at_once,
    open_session,
    silence,
)
from tests.transports.http_session.stored import close_get_streams, open_get_stream

THREADS = 8
_numbers = count(1)


def opened(session: Session, *, replaced: int | None = None) -> int:
    """Open a GET stream of a session in this process."""
    number = next(_numbers)
    open_get_stream(session.pk, number, replaced=replaced)
    return number


def elsewhere(session: Session, *, silent: bool = False) -> int:
    """Open one in another process, which is dead if it is silent."""
    with as_worker(ELSEWHERE):
        number = opened(session)
    if silent:
        silence(ELSEWHERE)
    return number


def open_streams(session: Session) -> list[int]:
    rows = Stream.objects.filter(session=session, state="open").order_by("last_seq")
    return list(rows.values_list("pk", flat=True))


def writers(session: Session) -> list[int]:
    """Return the open streams that are the writer."""
    seen = {number: read_get_stream(session.pk, number) for number in open_streams(session)}
    return [number for number, sight in seen.items() if sight is not None and sight.is_writer]


def looks_asked_for(session: Session) -> int:
    """Return how often the streams of a session were notified."""
    rows = Topic.objects.filter(pk=versions.topic_of_get_streams(session.pk).digest)
    return rows.values_list("version", flat=True).first() or 0


# Who has which -------------------------------------------------------------------------------


@spec("RSM-9")
def test_the_newest_stream_writes_and_older_ones_stay(session):
    first = opened(session)
    assert writers(session) == [first]
    second, third = opened(session), opened(session)
    assert open_streams(session) == [first, second, third]
    assert writers(session) == [third]
    close_get_streams(GetStreamEnd(third, session.pk))
    assert writers(session) == [second]
    assert read_get_stream(session.pk, third) is None


@spec("RSM-9")
def test_a_fourth_stream_closes_the_oldest(session):
    first, second, third, fourth = (opened(session) for _ in range(4))
    assert open_streams(session) == [second, third, fourth]
    assert read_get_stream(session.pk, first) is None


@spec("RSM-9")
def test_a_stream_that_its_client_comes_back_from_ends(session):
    first, second = opened(session), opened(session)
    third = opened(session, replaced=first)
    assert open_streams(session) == [second, third]


@spec("RSM-9")
def test_of_many_that_come_at_once_three_remain(session):
    pks = at_once(THREADS, lambda _: opened(session))
    remaining = open_streams(session)
    assert len(remaining) == 3
    assert set(remaining) <= set(pks)
    assert writers(session) == remaining[-1:]


def test_streams_of_different_sessions_do_not_meet(session):
    other, _ = open_session()
    first, second = opened(session), opened(other)
    assert (writers(session), writers(other)) == ([first], [second])


@spec("RSM-9")
def test_a_dead_process_writes_for_nobody(session):
    mine, theirs = opened(session), elsewhere(session)
    sight = read_get_stream(session.pk, mine)
    assert sight is not None
    assert (sight.is_writer, sight.is_newest) == (False, False)
    silence(ELSEWHERE)
    sight = read_get_stream(session.pk, mine)
    assert sight is not None
    # If the other process was only slow, it must notice.
    assert (sight.is_writer, sight.is_newest) == (True, False)
    assert open_streams(session) == [mine, theirs]


def test_a_stream_finds_out_what_its_session_wants(session):
    number = opened(session)
    sight = read_get_stream(session.pk, number)
    assert sight is not None
    assert (sight.is_initialized, sight.uris) == (False, [])
    sessions.update_session(session.pk, is_initialized=True)
    for uri in ("store://b", "store://a"):
        sessions.add_subscription(session.pk, uri)
    sight = read_get_stream(session.pk, number)
    assert sight is not None
    assert (sight.is_initialized, sight.uris) == (True, ["store://b", "store://a"])


def test_an_open_stream_keeps_its_session_from_idling(session):
    number = opened(session)
    Session.objects.update(seen_at=seconds_ago(100))
    assert read_get_stream(session.pk, number) is not None
    assert Session.objects.filter(seen_at__gt=seconds_ago(50)).exists()
    sessions.end_sessions([session.pk])
    assert read_get_stream(session.pk, number) is None


@spec("RSM-9")
def test_an_attempt_that_is_repeated_changes_nothing(session):
    """The database may have committed although its response was lost."""
    first = opened(session)
    for _ in range(2):
        state = open_get_stream(session.pk, first)
        assert state is not None
        assert (state.is_newest, state.is_writer) == (True, True)
    second = opened(session)
    state = open_get_stream(session.pk, first)
    assert state is not None
    assert (state.is_newest, state.is_writer) == (False, False)
    assert open_streams(session) == [first, second]


def test_a_stream_of_an_ended_session_is_not_stored(session):
    sessions.end_sessions([session.pk])
    assert open_get_stream(session.pk, 1) is None
    assert not Stream.objects.exists()


# Being told to look --------------------------------------------------------------------------


@spec("RSM-9")
def test_others_are_told_when_a_stream_comes_or_goes(session):
    first = opened(session)
    assert looks_asked_for(session) == 0
    second = opened(session)
    assert looks_asked_for(session) == 1
    close_get_streams(GetStreamEnd(second, session.pk))
    assert looks_asked_for(session) == 2
    # No stream is left to be notified.
    close_get_streams(GetStreamEnd(first, session.pk))
    assert looks_asked_for(session) == 2


def test_nobody_is_told_where_there_is_no_stream(session):
    notify_get_streams([session.pk])
    assert looks_asked_for(session) == 0
    opened(session)
    notify_get_streams([session.pk])
    assert looks_asked_for(session) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_what_changed_in_a_transaction_is_looked_for_after_it(session, keep, monkeypatch):
    rung: list[versions.TopicKey] = []
    monkeypatch.setattr(sessions, "notify", lambda *topics: rung.extend(topics))
    opened(session)
    with transaction.atomic():
        sessions.end_sessions([session.pk])
        assert not rung
        transaction.set_rollback(not keep)
    assert looks_asked_for(session) == int(keep)
    assert bool(rung) is keep


# The end -------------------------------------------------------------------------------------


def test_all_are_closed_with_as_many_statements_as_one(session, django_assert_num_queries):
    owners = [session, *(open_session()[0] for _ in range(4))]
    ends = [GetStreamEnd(opened(owner), owner.pk) for owner in owners]
    # The begin and end of the transaction, one update, and a query for the remaining streams.
    with django_assert_num_queries(4):
        close_get_streams(*ends)
    assert not any(map(open_streams, owners))


def test_a_closed_stream_is_remembered_as_long_as_an_idle_session(session, settings):
    settings.MCP_DJANGO = {"SESSION_IDLE": 1000}
    first = opened(session)
    second = opened(session, replaced=first)
    close_get_streams(GetStreamEnd(second, session.pk))
    kept = Stream.objects.filter(
        expires_at__gt=seconds_ago(-990), expires_at__lt=seconds_ago(-1010)
    )
    assert set(kept.values_list("pk", flat=True)) == {first, second}
    assert streams.find_stream_kind(session.pk, first) == "get"


@spec("RSM-9")
def test_the_stream_of_another_process_is_not_closed(session):
    theirs = elsewhere(session)
    assert HERE != ELSEWHERE
    close_get_streams(GetStreamEnd(theirs, session.pk))
    assert open_streams(session) == [theirs]


@spec("SUB-5")
def test_what_the_client_knows_only_grows(session):
    def heard() -> int:
        return Session.objects.values_list("heard_seq", flat=True).get(pk=session.pk)

    began = heard()
    close_get_streams(GetStreamEnd(opened(session), session.pk, began + 5))
    assert heard() == began + 5
    close_get_streams(GetStreamEnd(opened(session), session.pk, began + 3))
    close_get_streams(GetStreamEnd(opened(session), session.pk))
    assert heard() == began + 5
    sight = read_get_stream(session.pk, opened(session))
    assert sight is not None
    assert sight.seen_number == began + 5


@spec("SUB-5")
def test_a_new_session_knows_of_everything(transactional_db):
    versions.assign_number([versions.TopicKey("store", "tools")])
    session, _ = open_session()
    assert session.pk
    (heard,) = Session.objects.filter(pk=session.pk).values_list("heard_seq", flat=True)
    assert heard == versions.read_changes(None).until > 0
