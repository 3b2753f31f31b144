"""Streams as the transports store them, each with its own transaction."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_django.storage import streams
from mcp_django.storage.databases import atomic
from mcp_django.storage.inbox import ensure_heartbeat
from mcp_django.storage.streams import (
    EVENTS,
    GET_STREAM_ENDS,
    NEW_GET_STREAMS,
    NEW_STREAMS,
    GetStreamEnd,
    GetStreamState,
    NewEvents,
    NewGetStream,
    NumberedEvent,
)
from mcp_django.storage.writer import row_writer

KEPT_SECONDS = 300
PATIENCE = 5


def open_stream(session_pk: int, *, request_id: str = "7") -> int:
    """Store the stream of a response, and return its number."""
    row = streams.new_stream(session_pk, request_id=request_id)
    row_writer.write(NEW_STREAMS, row, seconds=PATIENCE)
    number: int = row.pk
    return number


def append_events(number: int, events: Sequence[NumberedEvent], *, final: bool = False) -> None:
    """Store events of a stream."""
    new = NewEvents(number, events, is_final=final, retention=KEPT_SECONDS)
    row_writer.write(EVENTS, new, seconds=PATIENCE)


def open_get_stream(
    session_pk: int, number: int, *, replaced: int | None = None
) -> GetStreamState | None:
    """Store a GET stream, and return its state."""
    ensure_heartbeat()
    new = NewGetStream(session_pk, number, replaced)
    state: GetStreamState | None = row_writer.write(NEW_GET_STREAMS, new, seconds=PATIENCE)
    return state


def close_get_streams(*ends: GetStreamEnd) -> None:
    """Store the ends of GET streams, in one transaction."""
    with atomic():
        GET_STREAM_ENDS.write(ends, again=False)
