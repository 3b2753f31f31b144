"""Server-sent events: writing them, and reading them back for clients and tests.

WHATWG HTML Living Standard, section 9.2. Connections, retries and replay are not done here.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

COMMENT = b": keep-alive\n\n"
"""Keeps a silent stream open through proxies; readers skip it."""

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_MILLISECONDS = re.compile(r"[0-9]{1,9}")


def encode_event(
    data: bytes | None,
    *,
    id: str | None = None,
    event: str | None = "message",
    retry: int | None = None,
) -> bytes:
    """Return one event; without `data` it only tells the reader about `id` and `retry`.

    Raises:
        ValueError: the id or the event name would break out of its line.
    """
    lines: list[bytes] = []
    if event is not None and data is not None:
        lines.append(b"event: " + _one_line(event))
    if id is not None:
        lines.append(b"id: " + _one_line(id))
    if retry is not None:
        lines.append(b"retry: %d" % retry)
    if data is not None:
        lines += [b"data: " + line for line in _LINE_BREAK.split(data)]
    return b"\n".join(lines) + b"\n\n"


def _one_line(text: str) -> bytes:
    # A reader ignores an id with NUL, which would cost the stream its place.
    if any(character in text for character in "\r\n\0"):
        raise ValueError("An event's id or name holds a line break or NUL")
    return text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as a reader sees it."""

    data: str
    event: str = "message"
    id: str | None = None
    """The last id seen on the stream, this event's or an earlier one's."""


class Decoder:
    """Turns the bytes of a stream into events, wherever the chunks happen to be cut."""

    def __init__(self) -> None:
        self.last_event_id: str | None = None
        self.retry: int | None = None
        """How many milliseconds the server wants its clients to wait, once it said so."""
        # A byte order mark may open the stream and is no part of it.
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._line = ""
        self._after_return = False
        self._data: list[str] = []
        self._event = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes."""
        events: list[Event] = []
        for line in self._lines(self._text.decode(chunk)):
            if line:
                self._read_field(line)
            else:
                events += self._dispatch()
        return events

    def _lines(self, text: str) -> list[str]:
        # A return that ended the last chunk has ended its line; a newline now belongs to it.
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

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_event_id = value
        elif name == "retry" and _MILLISECONDS.fullmatch(value):
            self.retry = int(value)

    def _dispatch(self) -> list[Event]:
        data, event = self._data, self._event or "message"
        self._data, self._event = [], ""
        if not data:
            return []
        return [Event(data="\n".join(data), event=event, id=self.last_event_id)]
