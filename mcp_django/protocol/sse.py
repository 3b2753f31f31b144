"""Server-sent events: encoding, and decoding for clients and tests.

WHATWG HTML Living Standard, section 9.2. This module does not handle connections, retries or
replay.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

KEEPALIVE_COMMENT = b": keep-alive\n\n"
"""Keeps an idle stream open through proxies; clients ignore it."""

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_MILLISECONDS = re.compile(r"[0-9]{1,9}")


def encode_event(
    data: bytes | None,
    *,
    id: str | None = None,
    event: str | None = "message",
    retry: int | None = None,
) -> bytes:
    """Return one encoded event; without `data` it only sets the client's `id` and `retry`.

    Raises:
        ValueError: the id or the event name contains a line break or NUL.
    """
    lines: list[bytes] = []
    if event is not None and data is not None:
        lines.append(b"event: " + _encode_line(event))
    if id is not None:
        lines.append(b"id: " + _encode_line(id))
    if retry is not None:
        lines.append(b"retry: %d" % retry)
    if data is not None:
        lines += [b"data: " + line for line in _LINE_BREAK.split(data)]
    return b"\n".join(lines) + b"\n\n"


def _encode_line(text: str) -> bytes:
    # Clients ignore an id with NUL, and could then not resume the stream at this event.
    if any(character in text for character in "\r\n\0"):
        raise ValueError("An event's id or name must not contain a line break or NUL")
    return text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """One event as a client receives it."""

    data: str
    event: str = "message"
    id: str | None = None
    """The last id on the stream so far, from this event or an earlier one."""


class EventDecoder:
    """Decodes the bytes of a stream into events, however the stream is split into chunks."""

    def __init__(self) -> None:
        self.last_event_id: str | None = None
        self.retry: int | None = None
        """Milliseconds to wait before reconnecting, once the server sent them."""
        # The stream may start with a byte order mark, which is not data.
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._line = ""
        self._after_return = False
        self._data: list[str] = []
        self._event = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that `chunk` completes."""
        events: list[ServerSentEvent] = []
        for line in self._lines(self._text.decode(chunk)):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                # An empty line ends an event, which exists only if it has data.
                if self._data:
                    data, event = "\n".join(self._data), self._event or "message"
                    events.append(ServerSentEvent(data=data, event=event, id=self.last_event_id))
                self._data, self._event = [], ""
            elif name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif name == "id" and "\0" not in value:
                self.last_event_id = value
            elif name == "retry" and _MILLISECONDS.fullmatch(value):
                self.retry = int(value)
        return events

    def _lines(self, text: str) -> list[str]:
        # A CR at the end of the last chunk ended its line; an LF at the start of this one is part
        # of the same line break.
        if self._after_return and text:
            text = text.removeprefix("\n")
            self._after_return = False
        if text.endswith("\r"):
            self._after_return = True
        *lines, rest = re.split(r"\r\n|\r|\n", text)
        if lines:
            lines[0] = self._line + lines[0]
            self._line = rest
        else:
            self._line += rest
        return lines
