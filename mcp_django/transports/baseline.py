"""How often things had changed when a client began to count on hearing of them.

A session is answered before anybody listens for it; what changes in between is told, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db import DatabaseError

from mcp_django.store import topics
from mcp_django.store.topics import Topic

LISTS: Final = ("tools", "resources", "prompts")


class Baseline:
    """What is known of the lists and resources of one server, for one session."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: dict[Topic, int] = {}

    @property
    def lists(self) -> list[Topic]:
        """The lists of the server, whether it has them or not."""
        return [Topic(self._server, kind) for kind in LISTS]

    def note_lists(self) -> None:
        """Take note of the lists; in the thread of ``initialize``, before its answer."""
        self._note(self.lists)

    def note_resources(self, uris: Iterable[str]) -> None:
        """Take note of what is subscribed to; in the thread of the request, before its answer."""
        wanted = [Topic(self._server, "resource", uri) for uri in uris]
        self._note(wanted)
        for topic in {topic for topic in self._known if topic.uri} - set(wanted):
            self._known.pop(topic, None)

    def _note(self, wanted: list[Topic]) -> None:
        found = _versions(wanted)
        if found is not None:
            for topic in wanted:
                self._known.setdefault(topic, found.get(topic, 0))

    def outdated(self, listening: Iterable[Topic]) -> list[Topic]:
        """What has changed since it was noted, of what is listened to by now; in a thread.

        That needs to be known no longer; the rest may have been subscribed to a moment ago.
        """
        noted = {topic: self._known.pop(topic, None) for topic in listening}
        known = {topic: version for topic, version in noted.items() if version is not None}
        found = _versions(known) or {}
        return [topic for topic, version in found.items() if version != known[topic]]


def _versions(wanted: Iterable[Topic]) -> dict[Topic, int] | None:
    try:
        return topics.versions(wanted)
    except DatabaseError:  # then changes are heard of by the bell alone, as the hub has said
        return None
