"""A process that hangs during a transaction does not block other processes (PostgreSQL)."""

from __future__ import annotations

import threading

from mcp_django.models import Stream
from mcp_django.storage import streams
from mcp_django.storage.databases import atomic
from tests.transports.http_session.conftest import ELSEWHERE, HERE, as_worker, at_once, silence
from tests.transports.http_session.stored import open_stream


def test_a_reader_does_not_wait_for_an_owner_that_hangs_while_it_writes(session):
    number = open_stream(session.pk)
    silence(HERE)
    hangs, is_over = threading.Event(), threading.Event()

    def act(who: int) -> bool:
        if who:
            hangs.wait(5)
            with as_worker(ELSEWHERE):
                is_lost = streams.mark_lost(number, HERE, payload='"lost"', retention=300)
            is_over.set()
            return is_lost
        with atomic():
            Stream.objects.filter(pk=number).update(last_seq=1)
            hangs.set()
            return is_over.wait(5)

    assert at_once(2, act) == [True, False]
    assert Stream.objects.get(pk=number).state == "open"
    # Once the row is unlocked, the next check marks the stream as lost.
    with as_worker(ELSEWHERE):
        assert streams.mark_lost(number, HERE, payload='"lost"', retention=300)
