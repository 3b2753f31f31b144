"""Ids of events: the stream, and the place in it (RSM-2)."""

from __future__ import annotations

import re

_ID = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})")
MAX = 1 << 63


def write(stream: int, seq: int) -> str:
    """The id of an event."""
    return f"{stream:x}-{seq:x}"


def read(text: str) -> tuple[int, int] | None:
    """Stream and place of an id, ``None`` for what is no id of ours."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    stream, seq = (int(part, 16) for part in match.groups())
    return (stream, seq) if stream < MAX and seq < MAX else None
