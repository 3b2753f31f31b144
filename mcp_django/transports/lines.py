"""Bytes to lines: the framing of stdio, wherever the chunks happen to be cut.

Only a newline ends a line; other characters that some readers take for line ends, such as U+2028,
are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, Literal, TypeAlias


class _Mark(Enum):
    TOO_LONG = auto()


TOO_LONG: Final = _Mark.TOO_LONG
"""Stands for a line over the limit, none of which was kept."""

Line: TypeAlias = bytes | Literal[_Mark.TOO_LONG]


class LineSplitter:
    r"""Cuts a stream of bytes at each ``\n``, and drops a ``\r`` before it.

    A line of more than ``limit`` bytes is given as ``TOO_LONG`` when it ends; what came of it is
    dropped as it comes, so no more than the limit is ever held.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._is_dropping = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """The lines that the chunk completes; blank ones are left out."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield from self._finish()
        self._add(rest)

    def end(self) -> Iterator[Line]:
        """What stood after the last newline, at the end of the stream."""
        yield from self._finish()

    def _add(self, part: bytes) -> None:
        # One byte more than the limit may be the return that is no part of the line.
        if self._is_dropping or len(self._begun) + len(part) > self._limit + 1:
            self._is_dropping = True
            self._begun.clear()
        else:
            self._begun += part

    def _finish(self) -> Iterator[Line]:
        line = bytes(self._begun).removesuffix(b"\r")
        is_too_long = self._is_dropping or len(line) > self._limit
        self._begun.clear()
        self._is_dropping = False
        if is_too_long:
            yield TOO_LONG
        elif line and not line.isspace():
            yield line
