"""Standing streams that end together are closed together."""

from __future__ import annotations

import time
from typing import Any

from mcp_django.models import Session, Stream
from mcp_django.store import standing, streams
from mcp_django.store.databases import before
from mcp_django.store.standing import StandingEnd, end_standing
from tests.sessions.conftest import ELSEWHERE, as_worker, open_session
from tests.spec import spec


def ends(*sessions: Session, told_at: float | None = None) -> list[StandingEnd]:
    """The ends of streams that are open now, one for each session."""
    return [StandingEnd(streams.open_standing(one.pk), one.pk, told_at) for one in sessions]


def states() -> list[str]:
    return list(Stream.objects.order_by("pk").values_list("state", flat=True))


def test_all_are_closed_with_as_many_statements_as_one(
    session: Session, django_assert_num_queries: Any
) -> None:
    found = ends(session, *(open_session()[0] for _ in range(4)))
    # Which are ours, the transaction's beginning and end, and the one change.
    with django_assert_num_queries(4):
        end_standing(found)
    assert states() == ["done"] * 5


def test_more_than_one_transaction_takes_are_closed_all_the_same(
    session: Session, monkeypatch: Any
) -> None:
    monkeypatch.setattr(standing, "MAX_ENDS", 2)
    end_standing(ends(session, *(open_session()[0] for _ in range(4))))
    assert states() == ["done"] * 5


@spec("RSM-9")
def test_one_that_was_taken_over_is_left_to_its_successor(session: Session) -> None:
    Session.objects.update(heard_at=before(100))
    (end,) = ends(session, told_at=time.monotonic())
    with as_worker(ELSEWHERE):
        successor = streams.open_standing(session.pk)
    end_standing([end])
    assert Stream.objects.get(pk=successor).state == "open"
    assert not Session.objects.filter(heard_at__gt=before(50)).exists()


def test_until_when_the_client_was_told_is_noted(session: Session) -> None:
    other = open_session()[0]
    Session.objects.update(heard_at=before(100))
    end_standing([*ends(session, told_at=time.monotonic() - 20), *ends(other)])
    told = Session.objects.filter(heard_at__gt=before(50), heard_at__lt=before(19))
    assert told.get() == session
