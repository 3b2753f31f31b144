"""Topics: each change is counted, seen or not, and numbered in the order of the commits."""

from __future__ import annotations

import logging
import threading
from itertools import pairwise
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction

from mcp_django.models import Topic as Row
from mcp_django.storage import databases, versions
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import CLOCK, TopicKey
from tests.spec import spec
from tests.transports.http_session.conftest import at_once

PATIENCE = 15
WRITERS = 8
TOOLS = TopicKey("store", "tools")
ROOM = TopicKey("store", "resource", "store://room")


@pytest.mark.django_db
def test_each_change_of_a_topic_gives_it_another_version():
    assert versions.read_versions([TOOLS, ROOM]) == {}
    versions.increment_versions([TOOLS])
    assert versions.read_versions([TOOLS, ROOM]) == {TOOLS: 1}
    versions.increment_versions([TOOLS, ROOM, TOOLS])
    topic_versions = versions.read_versions([TOOLS, ROOM])
    assert topic_versions[TOOLS] > 1
    assert topic_versions[ROOM] == 1
    versions.increment_versions([ROOM])
    assert versions.read_versions([TOOLS, ROOM]) == {TOOLS: topic_versions[TOOLS], ROOM: 2}
    assert versions.read_versions([TopicKey("another", "tools")]) == {}


@pytest.mark.usefixtures("transactional_db")
def test_no_change_is_missed_when_many_see_one_first():
    at_once(8, lambda _: [versions.increment_versions([ROOM, TOOLS]) for _ in range(10)])
    topic_versions = versions.read_versions([TOOLS, ROOM])
    assert topic_versions[TOOLS] >= 80
    assert topic_versions[ROOM] >= 80


# Numbers -------------------------------------------------------------------------------------


def numbers() -> dict[str, int]:
    return dict(Row.objects.filter(seq__gt=0).values_list("pk", "seq"))


@pytest.mark.django_db
def test_the_topics_of_one_announcement_share_the_next_number():
    versions.assign_number([TOOLS, ROOM, TOOLS])
    assert numbers() == {TOOLS.digest: 1, ROOM.digest: 1}
    versions.assign_number([ROOM])
    assert numbers() == {TOOLS.digest: 1, ROOM.digest: 2}
    # Version numbers show the change too.
    assert versions.read_versions([TOOLS, ROOM, CLOCK]) == {TOOLS: 1, ROOM: 2, CLOCK: 2}


@pytest.mark.django_db
def test_what_changed_after_a_number_is_found_in_order():
    assert (
        versions.read_changes(None) == versions.read_changes(0) == versions.NumberedChanges(0, {})
    )
    for changed in ([TOOLS], [ROOM], [TOOLS]):
        versions.assign_number(changed)
    changes = versions.read_changes(0)
    assert (changes.until, list(changes.numbers.items())) == (
        3,
        [(ROOM.digest, 2), (TOOLS.digest, 3)],
    )
    assert versions.read_changes(2).numbers == {TOOLS.digest: 3}
    assert versions.read_changes(3) == versions.NumberedChanges(3, {})
    assert versions.read_changes(None) == versions.NumberedChanges(3, {})


@pytest.mark.django_db
def test_what_takes_no_number_is_not_among_them():
    versions.assign_number([TOOLS])
    versions.increment_versions([versions.OVERRIDES, TopicKey("", "user", "7")])
    assert versions.read_changes(0).numbers == {TOOLS.digest: 1}


@pytest.mark.django_db
def test_more_changes_than_one_page_has_are_read_by_whole_numbers(monkeypatch):
    monkeypatch.setattr(versions, "PAGE_SIZE", 4)
    for number in range(4):
        versions.assign_number(
            [TopicKey("store", "resource", f"a:{number}-{index}") for index in range(2)]
        )
    # The clock is a row of the page, so the last number may continue on the next page.
    first = versions.read_changes(0)
    assert (first.until, sorted(first.numbers.values()), first.is_all) == (1, [1, 1], False)
    seen, pages = 0, 0
    all_numbers: list[int] = []
    while True:
        changes = versions.read_changes(seen)
        all_numbers += changes.numbers.values()
        seen, pages = changes.until, pages + 1
        if changes.is_all:
            break
    assert (all_numbers, seen, pages) == ([1, 1, 2, 2, 3, 3, 4, 4], 4, 4)


@pytest.mark.django_db
def test_a_stream_asks_for_its_own_topics_alone():
    versions.assign_number([TOOLS])
    versions.assign_number([ROOM])
    assert versions.read_changed_topics([TOOLS, ROOM], 0) == (2, {TOOLS: 1, ROOM: 2})
    assert versions.read_changed_topics([TOOLS, ROOM], 1) == (2, {ROOM: 2})
    assert versions.read_changed_topics([TOOLS], 1) == (2, {})


@spec("RSM-12")
@pytest.mark.django_db
def test_a_number_that_was_never_given_finds_every_topic():
    versions.assign_number([TOOLS])
    never = TopicKey("store", "prompts")
    assert versions.read_changed_topics([TOOLS, never], 2) == (1, {TOOLS: 1, never: 1})


@spec("RSM-12")
@pytest.mark.usefixtures("transactional_db")
def test_whoever_has_seen_a_number_has_seen_every_smaller_one():
    """Writers number changes of two topics each while a reader reads repeatedly."""
    finished: list[int] = []
    looks: list[versions.NumberedChanges] = []

    def write(writer: int) -> None:
        try:
            for index in range(12):
                publish(TopicKey("store", "resource", f"w:{writer}-{index}"), ROOM)
        finally:
            finished.append(writer)

    def read() -> None:
        seen, is_over = 0, False
        while not is_over:
            is_over = len(finished) == WRITERS
            looks.append(versions.read_changes(seen))
            seen = looks[-1].until

    at_once(WRITERS + 1, lambda number: write(number) if number else read())
    digests = [digest for look in looks for digest in look.numbers]
    own = {
        TopicKey("store", "resource", f"w:{writer}-{index}").digest
        for writer in range(1, WRITERS + 1)
        for index in range(12)
    }
    # Each change was read once, and none was skipped.
    assert own <= set(digests)
    assert all(digests.count(digest) == 1 for digest in own)
    assert all(earlier.until <= later.until for earlier, later in pairwise(looks))
    own_numbers = [seq for digest, seq in numbers().items() if digest in own]
    assert sorted(own_numbers) == sorted(set(own_numbers))


# Announcing ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("transactional_db")
def test_more_topics_than_one_number_may_have_take_several(monkeypatch):
    monkeypatch.setattr(versions, "MAX_NUMBERED", 2)
    publish(*(TopicKey("store", "resource", f"a:{index}") for index in range(5)))
    assert sorted(numbers().values()) == [1, 1, 2, 2, 3]


@spec("RSM-12")
@pytest.mark.usefixtures("transactional_db")
def test_the_clock_does_not_wait_for_a_transaction_of_the_site():
    """A change that is published within another transaction is numbered outside of it."""
    clerk_is_free = threading.Event()
    with transaction.atomic():
        # On SQLite nothing is written in it, because that would block other writers.
        if connection.vendor != "sqlite":
            Row.objects.filter(pk="none").update(version=1)
        publish(TOOLS)
        databases.submit_to_db_thread(clerk_is_free.set)
        assert connection.vendor == "sqlite" or clerk_is_free.wait(PATIENCE)
        transaction.set_rollback(True)
    assert clerk_is_free.wait(PATIENCE)
    assert numbers() == {TOOLS.digest: 1}


@pytest.mark.django_db
def test_an_announcement_within_a_test_is_numbered_at_once():
    with transaction.atomic():
        publish(TOOLS)
        assert numbers() == {TOOLS.digest: 1}


class Conflict(Exception):
    """The driver's error for a transaction that lost a conflict."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def losing(times: int, sqlstate: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make this many announcements fail; the returned list counts the attempts."""
    number, attempts = versions.assign_number, [0]

    def lose(changed: Any) -> None:
        attempts[0] += 1
        if attempts[0] <= times:
            raise OperationalError("lost") from Conflict(sqlstate)
        number(changed)

    monkeypatch.setattr(versions, "assign_number", lose)
    return attempts


@pytest.mark.django_db
@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_change_that_lost_against_another_is_numbered_again(sqlstate, monkeypatch):
    attempts = losing(3, sqlstate, monkeypatch)
    publish(TOOLS)
    assert attempts == [4]
    assert numbers() == {TOOLS.digest: 1}


@pytest.mark.django_db
def test_a_database_that_is_away_is_not_waited_for(monkeypatch, caplog):
    attempts = losing(3, "08006", monkeypatch)
    with caplog.at_level(logging.WARNING, logger="mcp_django"):
        publish(TOOLS)
    assert attempts == [1]
    assert "A change could not be counted (lost)" in caplog.text


@pytest.mark.django_db
def test_a_change_that_always_loses_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(databases, "CONFLICT_SECONDS", 0)
    attempts = losing(3, "40001", monkeypatch)
    with caplog.at_level(logging.WARNING, logger="mcp_django"):
        publish(TOOLS)
    assert attempts == [1]
    assert "A change could not be counted (lost)" in caplog.text


@pytest.mark.django_db
def test_what_could_not_be_counted_takes_nothing_else_along(monkeypatch, caplog):
    def away(changed: Any) -> None:
        raise InterfaceError("gone")

    monkeypatch.setattr(versions, "increment_versions", away)
    with caplog.at_level(logging.WARNING, logger="mcp_django"):
        publish(versions.REVOKED, TOOLS)
    assert numbers() == {TOOLS.digest: 1}
    assert "A change could not be counted (gone)" in caplog.text
