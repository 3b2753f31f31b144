"""Streams in the database: who may write, what a reader sees, and who marks one as lost."""

from __future__ import annotations

import pytest

from mcp_django.models import Event, Session, Stream
from mcp_django.storage import inbox, streams
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.streams import LOST_SEQ, LeaseLost, StreamSnapshot, UnknownStream
from tests.spec import spec
from tests.transports.http_session.conftest import (
    ELSEWHERE,
    HERE,
    as_worker,
    at_once,
    open_session,
    silence,
)
from tests.transports.http_session.stored import KEPT_SECONDS, append_events, open_stream

THREADS = 8


def opened(session: Session, request_id: str = "7") -> int:
    return open_stream(session.pk, request_id=request_id)


def write(number: int, *seqs: int, final: bool = False) -> None:
    events = [(seq, f'"{seq}"') for seq in seqs]
    append_events(number, events, final=final)


def lose(number: int, owner: int = HERE) -> bool:
    return streams.mark_lost(number, owner, payload='"lost"', retention=KEPT_SECONDS)


def numbers(number: int) -> list[int]:
    return list(Event.objects.filter(stream=number).order_by("seq").values_list("seq", flat=True))


def look(session: Session, number: int, after: int = 0) -> StreamSnapshot:
    return streams.read_stream(session.pk, number, after_seq=after)


# Writing and reading --------------------------------------------------------------------------


@spec("RSM-7")
def test_a_stream_is_there_before_its_first_event(session):
    number = opened(session)
    assert look(session, number) == StreamSnapshot("open", 0, HERE, "7", ())
    assert streams.find_stream_kind(session.pk, number) == "post"
    assert streams.find_request_owner(session.pk, 7) == HERE


@spec("RSM-1", "RSM-3")
def test_a_reader_gets_what_comes_after_the_event_that_it_has(session):
    number, other = opened(session), opened(session, "8")
    assert number != other
    write(number, 1, 2)
    write(number, 3)
    write(other, 1)
    assert look(session, number, after=1) == StreamSnapshot(
        "open", 3, HERE, "7", ((2, '"2"'), (3, '"3"'))
    )
    assert look(session, number, after=3).events == ()
    assert look(session, number, after=1 << 62).events == ()


def test_a_reader_gets_many_events_page_by_page(session):
    number = opened(session)
    write(number, *range(1, streams.PAGE_SIZE + 2), final=True)
    first = look(session, number)
    assert [seq for seq, _ in first.events] == list(range(1, streams.PAGE_SIZE + 1))
    rest = look(session, number, after=streams.PAGE_SIZE)
    assert [seq for seq, _ in rest.events] == [streams.PAGE_SIZE + 1]
    assert not rest.is_open


@spec("RSM-8", "SES-6")
def test_a_stream_is_unknown_to_every_other_session(session):
    number = opened(session)
    other, _ = open_session("somebody else")
    with pytest.raises(UnknownStream):
        look(other, number)
    with pytest.raises(UnknownStream):
        look(session, number + 1)
    assert streams.find_stream_kind(other.pk, number) is None
    assert streams.find_request_owner(other.pk, 7) is None


def test_the_last_message_ends_a_stream_and_starts_its_retention(session):
    number = opened(session)
    write(number, 1, 2, final=True)
    row = Stream.objects.get(pk=number)
    assert (row.state, row.last_seq) == ("done", 2)
    assert Stream.objects.filter(pk=number, expires_at__gt=seconds_ago(5 - KEPT_SECONDS)).exists()
    assert streams.find_request_owner(session.pk, 7) is None
    with pytest.raises(LeaseLost):
        write(number, 3)
    assert numbers(number) == [1, 2]


def test_nobody_but_the_owner_writes(session):
    number = opened(session)
    write(number, 1)
    with as_worker(ELSEWHERE):
        with pytest.raises(LeaseLost):
            write(number, 2)
        streams.close_streams(number)
    assert look(session, number) == StreamSnapshot("open", 1, HERE, "7", ((1, '"1"'),))


@pytest.mark.parametrize("final", [False, True])
def test_events_that_were_stored_already_may_be_stored_again(session, final):
    # The database may commit although its response is lost.
    number = opened(session)
    write(number, 1)
    for _ in range(2):
        write(number, 2, 3, final=final)
    assert numbers(number) == [1, 2, 3]
    assert look(session, number).is_open is not final


def test_a_stream_without_last_message_is_closed_and_expires(session):
    number = opened(session)
    write(number, 1)
    streams.close_streams(number)
    assert look(session, number).state == "done"
    assert Stream.objects.get(pk=number).expires_at is not None


# Lost -----------------------------------------------------------------------------------------


def test_a_living_owner_keeps_its_stream(session):
    number = opened(session)
    with as_worker(ELSEWHERE):
        assert not lose(number)
    assert look(session, number).is_open


def test_the_stream_of_a_dead_owner_ends_with_one_error(session):
    number = opened(session)
    write(number, 1)
    silence(HERE)
    with as_worker(ELSEWHERE):
        assert lose(number)
        assert not lose(number)
    glimpse = look(session, number, after=1)
    assert glimpse == StreamSnapshot("lost", LOST_SEQ, HERE, "7", ((LOST_SEQ, '"lost"'),))
    assert Stream.objects.get(pk=number).expires_at is not None


def test_the_error_comes_after_everything_that_was_sent_and_not_stored(session):
    number = opened(session)
    silence(HERE)
    with as_worker(ELSEWHERE):
        assert lose(number)
    assert look(session, number, after=100_000).events == ((LOST_SEQ, '"lost"'),)


def test_an_owner_that_wakes_up_too_late_stores_nothing(session):
    number = opened(session)
    write(number, 1)
    silence(HERE)
    with as_worker(ELSEWHERE):
        lose(number)
    inbox.write_heartbeat()
    for final in (False, True):
        with pytest.raises(LeaseLost):
            write(number, 2, final=final)
    assert numbers(number) == [1, LOST_SEQ]
    assert look(session, number).state == "lost"


def test_an_ended_stream_is_not_lost(session):
    number = opened(session)
    write(number, 1, final=True)
    silence(HERE)
    with as_worker(ELSEWHERE):
        assert not lose(number)
    assert numbers(number) == [1]


def test_one_of_many_readers_declares_a_stream_lost(session):
    number = opened(session)
    silence(HERE)
    with as_worker(ELSEWHERE):
        verdicts = at_once(THREADS, lambda _: lose(number))
    assert sorted(verdicts) == [False] * (THREADS - 1) + [True]
    assert numbers(number) == [LOST_SEQ]


@pytest.mark.parametrize("final", [False, True])
def test_a_late_owner_and_a_reader_agree_on_the_end(session, final):
    """The first of the two decides: no event follows the error, and no flush is stored in part."""
    for _ in range(10):
        number = opened(session)
        silence(HERE)
        # No heartbeat in the meantime: the owner counts as dead, but does not know it.

        def act(who: int, number: int = number) -> bool:
            if who:
                return streams.mark_lost(number, HERE, payload='"lost"', retention=KEPT_SECONDS)
            try:
                write(number, 1, 2, final=final)
            except LeaseLost:
                return False
            return True

        # `mark_lost` assumes that its own process is alive, so another process is the dead one.
        Stream.objects.filter(pk=number).update(owner=HERE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "is_alive", lambda owner: False)
            wrote, declared = at_once(2, act)
        stored = numbers(number)
        assert stored == [*([1, 2] if wrote else []), *([LOST_SEQ] if declared else [])]
        assert look(session, number).last_seq == stored[-1]
        assert wrote or declared
        assert not (final and wrote and declared)
