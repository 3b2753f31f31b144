"""Ids of events: the stream, and the place in it (RSM-2).

The place of an answer's event is its number on the stream. That of a standing stream's is the
number of the last change that was told completely by then (``store.topics``), and how many events
were sent since.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ID = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})(?:-([0-9a-f]{1,16}))?")
MAX = 1 << 63


class EventId(NamedTuple):
    """The id of an event; ``beyond`` is ``None`` unless it is one of a standing stream."""

    stream: int
    place: int
    beyond: int | None = None

    @property
    def is_of_standing(self) -> bool:
        """Whether it is written as those of standing streams are."""
        return self.beyond is not None


def write(stream: int, place: int, beyond: int | None = None) -> str:
    """The id of an event."""
    return f"{stream:x}-{place:x}" if beyond is None else f"{stream:x}-{place:x}-{beyond:x}"


def read(text: str) -> EventId | None:
    """The parts of an id, ``None`` for what is no id of ours."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    stream, place, beyond = (None if part is None else int(part, 16) for part in match.groups())
    assert stream is not None
    assert place is not None
    return EventId(stream, place, beyond) if max(stream, place, beyond or 0) < MAX else None
