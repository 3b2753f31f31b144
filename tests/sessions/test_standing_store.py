"""Standing streams in the database: who has which, who writes, and what is noted at the end."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from django.db import transaction

from mcp_django.models import Session, Stream, Topic
from mcp_django.storage import sessions, streams, versions
from mcp_django.storage.databases import before
from mcp_django.storage.streams import (
    StandingEnd,
    end_standing,
    look_again,
    look_at_standing,
    open_standing,
)
from tests.sessions.conftest import ELSEWHERE, HERE, as_worker, at_once, open_session, silence
from tests.spec import spec

THREADS = 8
_numbers = count(1)


def opened(session: Session, *, replaced: int | None = None) -> int:
    """A standing stream of a session, of this process."""
    number = next(_numbers)
    open_standing(session.pk, number, replaced=replaced)
    return number


def elsewhere(session: Session, *, silent: bool = False) -> int:
    """One of another process, which is dead if it is silent."""
    with as_worker(ELSEWHERE):
        number = opened(session)
    if silent:
        silence(ELSEWHERE)
    return number


def open_streams(session: Session) -> list[int]:
    found = Stream.objects.filter(session=session, state="open").order_by("last_seq")
    return list(found.values_list("pk", flat=True))


def writers(session: Session) -> list[int]:
    """The open streams that find that they are to write."""
    seen = {number: look_at_standing(session.pk, number) for number in open_streams(session)}
    return [number for number, sight in seen.items() if sight is not None and sight.writes]


def looks_asked_for(session: Session) -> int:
    """How often the streams of a session were told to look."""
    found = Topic.objects.filter(pk=versions.standing_of(session.pk).digest)
    return found.values_list("version", flat=True).first() or 0


# Who has which -------------------------------------------------------------------------------


@spec("RSM-9")
def test_the_newest_stream_writes_and_older_ones_stay(session: Session) -> None:
    first = opened(session)
    assert writers(session) == [first]
    second, third = opened(session), opened(session)
    assert open_streams(session) == [first, second, third]
    assert writers(session) == [third]
    end_standing([StandingEnd(third, session.pk)])
    assert writers(session) == [second]
    assert look_at_standing(session.pk, third) is None


@spec("RSM-9")
def test_a_fourth_stream_closes_the_oldest(session: Session) -> None:
    first, second, third, fourth = (opened(session) for _ in range(4))
    assert open_streams(session) == [second, third, fourth]
    assert look_at_standing(session.pk, first) is None


@spec("RSM-9")
def test_a_stream_that_its_client_comes_back_from_ends(session: Session) -> None:
    first, second = opened(session), opened(session)
    third = opened(session, replaced=first)
    assert open_streams(session) == [second, third]


@spec("RSM-9")
def test_of_many_that_come_at_once_three_remain(session: Session) -> None:
    found = at_once(THREADS, lambda _: opened(session))
    remaining = open_streams(session)
    assert len(remaining) == 3
    assert set(remaining) <= set(found)
    assert writers(session) == remaining[-1:]


def test_streams_of_different_sessions_do_not_meet(session: Session) -> None:
    other, _ = open_session()
    first, second = opened(session), opened(other)
    assert (writers(session), writers(other)) == ([first], [second])


@spec("RSM-9")
def test_a_dead_process_writes_for_nobody(session: Session) -> None:
    mine, theirs = opened(session), elsewhere(session)
    sight = look_at_standing(session.pk, mine)
    assert sight is not None
    assert (sight.writes, sight.is_newest) == (False, False)
    silence(ELSEWHERE)
    sight = look_at_standing(session.pk, mine)
    assert sight is not None
    # Should the other one only have been slow, it is to be found out.
    assert (sight.writes, sight.is_newest) == (True, False)
    assert open_streams(session) == [mine, theirs]


def test_a_stream_finds_out_what_its_session_wants(session: Session) -> None:
    number = opened(session)
    sight = look_at_standing(session.pk, number)
    assert sight is not None
    assert (sight.is_initialized, sight.uris) == (False, [])
    sessions.change(session, is_initialized=True)
    for uri in ("store://b", "store://a"):
        sessions.subscribe(session, uri)
    sight = look_at_standing(session.pk, number)
    assert sight is not None
    assert (sight.is_initialized, sight.uris) == (True, ["store://b", "store://a"])


def test_an_open_stream_keeps_its_session_from_idling(session: Session) -> None:
    number = opened(session)
    Session.objects.update(seen_at=before(100))
    assert look_at_standing(session.pk, number) is not None
    assert Session.objects.filter(seen_at__gt=before(50)).exists()
    sessions.end(session)
    assert look_at_standing(session.pk, number) is None


# Being told to look --------------------------------------------------------------------------


@spec("RSM-9")
def test_others_are_told_when_a_stream_comes_or_goes(session: Session) -> None:
    first = opened(session)
    assert looks_asked_for(session) == 0
    second = opened(session)
    assert looks_asked_for(session) == 1
    end_standing([StandingEnd(second, session.pk)])
    assert looks_asked_for(session) == 2
    # Nobody is left to be told.
    end_standing([StandingEnd(first, session.pk)])
    assert looks_asked_for(session) == 2


def test_nobody_is_told_where_there_is_no_stream(session: Session) -> None:
    look_again([session.pk])
    assert looks_asked_for(session) == 0
    opened(session)
    look_again([session.pk])
    assert looks_asked_for(session) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_what_changed_in_a_transaction_is_looked_for_after_it(
    session: Session, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[versions.Topic] = []
    monkeypatch.setattr(sessions, "ring", lambda *found: rung.extend(found))
    opened(session)
    with transaction.atomic():
        sessions.end(session)
        assert not rung
        transaction.set_rollback(not keep)
    assert looks_asked_for(session) == int(keep)
    assert bool(rung) is keep


# The end -------------------------------------------------------------------------------------


def test_all_are_closed_with_as_many_statements_as_one(
    session: Session, django_assert_num_queries: Any
) -> None:
    every = [session, *(open_session()[0] for _ in range(4))]
    ends = [StandingEnd(opened(one), one.pk) for one in every]
    # The transaction's beginning and end, the one change, and who is left.
    with django_assert_num_queries(4):
        end_standing(ends)
    assert not any(map(open_streams, every))


def test_more_than_one_transaction_takes_are_closed_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_ENDS", 2)
    every = [session, *(open_session()[0] for _ in range(4))]
    end_standing([StandingEnd(opened(one), one.pk) for one in every])
    assert not any(map(open_streams, every))


def test_a_closed_stream_is_remembered_as_long_as_an_idle_session(
    session: Session, settings: Any
) -> None:
    settings.MCP_DJANGO = {"SESSION_IDLE": 1000}
    first = opened(session)
    second = opened(session, replaced=first)
    end_standing([StandingEnd(second, session.pk)])
    kept = Stream.objects.filter(expires_at__gt=before(-990), expires_at__lt=before(-1010))
    assert set(kept.values_list("pk", flat=True)) == {first, second}
    assert streams.kind_of(session.pk, first) == "get"


@spec("RSM-9")
def test_the_stream_of_another_process_is_not_closed(session: Session) -> None:
    theirs = elsewhere(session)
    assert HERE != ELSEWHERE
    end_standing([StandingEnd(theirs, session.pk)])
    assert open_streams(session) == [theirs]


@spec("SUB-5")
def test_what_the_client_knows_only_grows(session: Session) -> None:
    def heard() -> int:
        return Session.objects.values_list("heard_seq", flat=True).get(pk=session.pk)

    began = heard()
    end_standing([StandingEnd(opened(session), session.pk, began + 5)])
    assert heard() == began + 5
    end_standing([StandingEnd(opened(session), session.pk, began + 3)])
    end_standing([StandingEnd(opened(session), session.pk)])
    assert heard() == began + 5
    sight = look_at_standing(session.pk, opened(session))
    assert sight is not None
    assert sight.heard == began + 5


@spec("SUB-5")
def test_a_new_session_knows_of_everything(transactional_db: None) -> None:
    versions.number([versions.Topic("store", "tools")])
    session, _ = open_session()
    assert session.pk
    (heard,) = Session.objects.filter(pk=session.pk).values_list("heard_seq", flat=True)
    assert heard == versions.changes_after(None).until > 0
