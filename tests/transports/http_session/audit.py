"""Checks the stored streams after a run; prints their number and the broken ones as JSON.

A stream holds every number from 1 to its last one; the number of the error of a lost stream is far
above.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import django


def broken(state: str, last_seq: int, numbers: list[int], last_payload: str) -> bool:
    """Return whether the events of a stream contradict its row."""
    from mcp_django.storage.streams import LOST_SEQ

    if (state != "open") != ("id" in json.loads(last_payload or "{}")):
        return True
    before = [number for number in numbers if number < LOST_SEQ]
    whole = before == list(range(1, len(before) + 1))
    last = numbers[-1] if numbers else 0
    is_lost = LOST_SEQ in numbers
    return not whole or last != last_seq or is_lost != (state == "lost")


def main() -> None:
    """Print the findings about the database that the environment names."""
    django.setup()
    from mcp_django.models import Event, Stream

    wrong = []
    states: Counter[str] = Counter()
    for stream in Stream.objects.filter(kind="post"):
        states[stream.state] += 1
        events = Event.objects.filter(stream=stream).order_by("seq").values_list("seq", "payload")
        numbers = [seq for seq, _ in events]
        last_payload = events[len(events) - 1][1] if events else ""
        if broken(stream.state, stream.last_seq, numbers, last_payload):
            row = f"{stream.pk:x} {stream.state} last {stream.last_seq}"
            wrong.append(f"stored: {row} request {stream.request_id} has {numbers}")
    json.dump({**states, "broken": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
