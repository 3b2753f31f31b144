"""The ends of standing streams: what is left to write when their clients have gone.

A process that is told to stop ends all of them at once, and a transaction for each would take
longer than it is given.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_django.store import sessions, streams
from mcp_django.store.databases import atomic

# Of one transaction.
MAX_ENDS = 500


@dataclass(frozen=True, slots=True)
class StandingEnd:
    """The end of one stream.

    ``told_at`` is the monotonic moment at which the client knew of every change, ``None`` if it
    never did.
    """

    number: int
    session_pk: int
    told_at: float | None


def end_standing(ends: Sequence[StandingEnd]) -> None:
    """Close these streams, and note until when their clients were told of changes."""
    for first in range(0, len(ends), MAX_ENDS):
        _end(ends[first : first + MAX_ENDS])


def _end(ends: Sequence[StandingEnd]) -> None:
    # One that was taken over has left the rest to its successor.
    mine = streams.open_among([end.number for end in ends])
    if not mine:
        return
    with atomic():
        streams.close(*mine)
        for end in ends:
            if end.number in mine and end.told_at is not None:
                sessions.heard(end.session_pk, ago=time.monotonic() - end.told_at)
