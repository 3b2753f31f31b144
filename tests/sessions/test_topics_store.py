"""Topics: each change is counted, whoever saw it."""

from __future__ import annotations

import pytest

from mcp_django.models import Session
from mcp_django.store import sessions, topics
from mcp_django.store.topics import Topic
from tests.sessions.conftest import at_once

TOOLS = Topic("store", "tools")
ROOM = Topic("store", "resource", "store://room")


@pytest.mark.django_db
def test_each_change_of_a_topic_gives_it_another_version() -> None:
    assert topics.versions([TOOLS, ROOM]) == {}
    topics.touch([TOOLS])
    assert topics.versions([TOOLS, ROOM]) == {TOOLS: 1}
    topics.touch([TOOLS, ROOM, TOOLS])
    found = topics.versions([TOOLS, ROOM])
    assert found[TOOLS] > 1
    assert found[ROOM] == 1
    topics.touch([ROOM])
    assert topics.versions([TOOLS, ROOM]) == {TOOLS: found[TOOLS], ROOM: 2}
    assert topics.versions([Topic("another", "tools")]) == {}


@pytest.mark.usefixtures("transactional_db")
def test_no_change_is_missed_when_many_see_one_first() -> None:
    at_once(8, lambda _: [topics.touch([ROOM, TOOLS]) for _ in range(10)])
    found = topics.versions([TOOLS, ROOM])
    assert found[TOOLS] >= 80
    assert found[ROOM] >= 80


def test_a_session_is_told_what_changed_since_it_last_heard(session: Session) -> None:
    topics.touch([TOOLS])
    assert topics.changed_since_heard([TOOLS, ROOM], session.pk) == [TOOLS]
    sessions.heard(session.pk)
    assert topics.changed_since_heard([TOOLS, ROOM], session.pk) == []
    topics.touch([ROOM])
    assert topics.changed_since_heard([TOOLS, ROOM], session.pk) == [ROOM]
    assert topics.changed_since_heard([TOOLS], session.pk) == []
