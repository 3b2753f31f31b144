"""Which rows are deleted, when, and by which process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from mcp_django.models import (
    AuthEvent,
    Event,
    Inbox,
    Lease,
    Session,
    Stream,
    Subscription,
    Topic,
    Worker,
)
from mcp_django.storage import cleanup, databases, inbox, sessions, streams, versions
from mcp_django.storage.databases import seconds_ago
from tests.transports.http_session.conftest import ELSEWHERE, HERE, at_once, open_session, silence
from tests.transports.http_session.stored import append_events, open_get_stream, open_stream

NOTHING = {"streams": 0, "sessions": 0, "inbox": 0, "workers": 0, "security_events": 0, "topics": 0}


def prune() -> dict[str, int]:
    """Return the number of deleted rows by type; further types only if any were deleted."""
    counts: dict[str, int] = {}
    total = cleanup.delete_expired(lambda name, count: counts.update({name: count}))
    assert total == sum(counts.values())
    return {name: count for name, count in counts.items() if count or name in NOTHING}


def finished(session: Session, *, ago: float) -> int:
    """Create a stream of three events whose retention ended this many seconds ago."""
    number = open_stream(session.pk)
    append_events(number, [(1, "1"), (2, "2"), (3, "3")], final=True)
    Stream.objects.filter(pk=number).update(expires_at=seconds_ago(ago))
    return number


def test_nothing_that_is_used_is_swept_up(session):
    open_stream(session.pk)
    open_get_stream(session.pk, 1)
    sessions.add_subscription(session.pk, "a:1")
    inbox.put_message(session.pk, "answer", "ask-1")
    versions.increment_versions([versions.TopicKey("store", "tools")])
    finished(session, ago=-1)
    assert prune() == NOTHING
    assert Event.objects.count() == 3


def test_security_events_go_after_their_retention(session, settings):
    settings.MCP_DJANGO = {"RETENTION": {"security_events": 3600}}
    for seconds in (3500, 3700):
        event = AuthEvent.objects.create(kind="issue")
        then = timezone.now() - timedelta(seconds=seconds)
        AuthEvent.objects.filter(pk=event.pk).update(at=then)
    assert prune() == {**NOTHING, "security_events": 1}
    assert AuthEvent.objects.count() == 1


def test_a_finished_stream_goes_with_its_events_after_its_retention(session):
    gone, kept = finished(session, ago=1), finished(session, ago=-60)
    assert prune() == {**NOTHING, "streams": 1}
    assert set(Stream.objects.values_list("pk", flat=True)) == {kept}
    assert not Event.objects.filter(stream=gone).exists()
    assert Event.objects.filter(stream=kept).count() == 3


@pytest.mark.parametrize("columns", [{"expires_at": 61}, {"seen_at": 3600 + 61}])
def test_a_session_goes_with_all_that_belongs_to_it(session, columns):
    other, _ = open_session()
    for owner in (session, other):
        open_stream(owner.pk)
        finished(owner, ago=-60)
        sessions.add_subscription(owner.pk, "a:1")
        inbox.put_message(owner.pk, "answer", "ask-1")
    changes = {name: seconds_ago(seconds) for name, seconds in columns.items()}
    Session.objects.filter(pk=session.pk).update(**changes)
    assert prune() == {**NOTHING, "sessions": 1}
    assert list(Session.objects.all()) == [other]
    for model in (Stream, Subscription, Inbox):
        assert set(model.objects.values_list("session", flat=True)) == {other.pk}


def test_an_ended_session_is_left_alone_while_somebody_may_write_to_it(session):
    sessions.end_sessions([session.pk])
    assert prune() == NOTHING
    Session.objects.update(expires_at=seconds_ago(cleanup.GRACE_SECONDS + 1))
    assert prune() == {**NOTHING, "sessions": 1}


def test_letters_workers_and_topics_go_when_they_are_old(session):
    for ref in ("old", "new"):
        inbox.put_message(session.pk, "answer", ref)
    Inbox.objects.filter(ref="old").update(created_at=seconds_ago(601))
    silence(ELSEWHERE, seconds=3601)
    inbox.write_heartbeat()
    old, new = versions.TopicKey("store", "tools"), versions.TopicKey("store", "prompts")
    versions.increment_versions([old, new])
    Topic.objects.filter(pk=old.digest).update(changed_at=seconds_ago(24 * 3600 + 1))
    assert prune() == {**NOTHING, "inbox": 1, "workers": 1, "topics": 1}
    assert Inbox.objects.get().ref == "new"
    assert Worker.objects.get().pk == HERE
    assert Topic.objects.get().pk == new.digest


def test_retention_is_a_setting(session, settings):
    inbox.put_message(session.pk, "answer", "ask-1")
    silence(ELSEWHERE, seconds=20)
    Inbox.objects.update(created_at=seconds_ago(20))
    assert prune() == NOTHING
    settings.MCP_DJANGO = {"RETENTION": {"inbox": 10, "workers": 10}}
    assert prune() == {**NOTHING, "inbox": 1, "workers": 1}


def test_much_goes_in_chunks(session, monkeypatch):
    monkeypatch.setattr(cleanup, "CHUNK_SIZE", 3)
    for _ in range(7):
        finished(session, ago=1)
    assert prune() == {**NOTHING, "streams": 7}
    assert not Event.objects.exists()


def test_a_sweep_in_the_background_stops_after_each_chunk(session, monkeypatch):
    monkeypatch.setattr(cleanup, "CHUNK_SIZE", 3)
    for _ in range(7):
        finished(session, ago=1)
    left = []
    while cleanup.delete_expired_chunk():
        left.append(Stream.objects.count())
    assert left == [4, 1, 0]


def test_one_process_sweeps_at_a_time(session):
    assert at_once(8, lambda _: cleanup.take_sweep_lease()).count(True) == 1
    assert not cleanup.take_sweep_lease()
    Lease.objects.update(until=seconds_ago(0))
    assert at_once(8, lambda _: cleanup.take_sweep_lease()).count(True) == 1
    silence(ELSEWHERE, seconds=3601)
    assert prune() == {**NOTHING, "workers": 1}
    assert Lease.objects.count() == 1


def test_a_lease_is_had_by_one_until_its_time_is_over(session):
    assert at_once(8, lambda _: databases.take_lease("a", seconds=60)).count(True) == 1
    assert databases.take_lease("b", seconds=60)
    Lease.objects.filter(pk="a").update(until=seconds_ago(1))
    assert prune() == {**NOTHING, "leases": 1}
    assert databases.take_lease("a", seconds=60)
    assert not databases.take_lease("b", seconds=60)


def test_a_call_whose_session_was_swept_up_is_fenced(session):
    number = open_stream(session.pk)
    Session.objects.update(expires_at=seconds_ago(3600))
    prune()
    with pytest.raises(streams.LeaseLost):
        append_events(number, [(1, "1")])


def test_a_topic_that_changes_while_it_is_swept_up_stays(session, monkeypatch):
    room = versions.TopicKey("store", "resource", "store://room")
    versions.assign_number([room])
    Topic.objects.update(changed_at=seconds_ago(10_000_000))
    due = cleanup._expired_rows()["topics"]
    filtered = QuerySet.filter

    def late(self: Any, *arguments: Any, **wanted: Any) -> Any:
        if "pk__in" in wanted and wanted["pk__in"] == [room.digest]:
            monkeypatch.setattr(QuerySet, "filter", filtered)
            versions.assign_number([room])
        return filtered(self, *arguments, **wanted)

    monkeypatch.setattr(QuerySet, "filter", late)
    assert cleanup._delete_chunk(due) == 1
    assert versions.read_changed_topics([room], 1) == (2, {room: 2})
