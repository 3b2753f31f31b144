"""The inbox: a message for another process is taken only once."""

from mcp_django.models import Inbox
from mcp_django.storage import inbox
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.inbox import InboxMessage
from tests.transports.http_session.conftest import at_once, open_session


def test_a_letter_is_taken_by_who_waits_for_it(session):
    inbox.put_message(session.pk, "answer", "ask-1", '{"action": "accept"}')
    inbox.put_message(session.pk, "answer", "ask-2")
    other, _ = open_session()
    assert inbox.take_messages(other.pk, ["ask-1"]) == []
    assert inbox.take_messages(session.pk, ["ask-3"]) == []
    taken = inbox.take_messages(session.pk, ["ask-1", "ask-3"])
    assert taken == [InboxMessage(session.pk, "answer", "ask-1", '{"action": "accept"}')]
    assert inbox.take_messages(session.pk, ["ask-1"]) == []
    assert inbox.take_messages(session.pk, {"ask-2"}) == [
        InboxMessage(session.pk, "answer", "ask-2", "")
    ]


def test_a_letter_is_taken_once_however_many_look(session):
    refs = [f"ask-{number}" for number in range(20)]
    for ref in refs:
        inbox.put_message(session.pk, "answer", ref)
    taken = at_once(8, lambda _: inbox.take_messages(session.pk, refs))
    assert sorted(letter.ref for letters in taken for letter in letters) == sorted(refs)
    assert not Inbox.objects.exists()


def test_sessions_with_letters_are_known(session):
    other, _ = open_session()
    assert inbox.sessions_with_messages([session.pk, other.pk]) == set()
    inbox.put_message(session.pk, "cancel", "7")
    inbox.put_message(session.pk, "cancel", "8")
    assert inbox.sessions_with_messages([session.pk, other.pk]) == {session.pk}
    assert inbox.sessions_with_messages([]) == set()


def test_what_perhaps_nobody_waits_for_is_there_once_and_gives_way(session):
    inbox.put_message(session.pk, "answer", "ask-1")
    for ref in ("1", "2", "1", "3"):
        inbox.put_bounded(session.pk, "cancel", ref, keep=2)
    kept = Inbox.objects.filter(kind="cancel").order_by("pk").values_list("ref", flat=True)
    assert [*kept] == ["1", "3"]
    assert inbox.refs_with_messages(session.pk, ["1", "2", "3", "ask-1"]) == ["ask-1", "1", "3"]


def test_a_session_has_so_much_waiting_and_no_more(session, settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 50}
    for ref in ("ask-1", "ask-2"):
        assert inbox.has_room(session.pk, "answer", size=40, keep=3)
        inbox.put_message(session.pk, "answer", ref, "x" * 40)
    assert not inbox.has_room(session.pk, "answer", size=40, keep=3)
    assert inbox.has_room(session.pk, "answer", size=20, keep=3)
    assert not inbox.has_room(session.pk, "answer", size=20, keep=2)
    # Messages are limited by count for each type, and by characters for all types together.
    assert inbox.has_room(session.pk, "message", size=20, keep=1)
    assert not inbox.has_room(session.pk, "message", size=40, keep=1)


def test_what_is_too_old_is_not_found(session):
    inbox.put_message(session.pk, "cancel", "old")
    Inbox.objects.update(created_at=seconds_ago(20))
    inbox.put_message(session.pk, "cancel", "new")
    assert inbox.refs_with_messages(session.pk, ["old", "new"], since=10) == ["new"]
    assert inbox.refs_with_messages(session.pk, ["old", "new"], since=30) == ["old", "new"]
