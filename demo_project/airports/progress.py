"""A progress bar for terminals and logs."""

from __future__ import annotations

from typing import Protocol

WIDTH = 30
# A log gets one line for each of these parts, not for each step.
LOG_PARTS = 4


class Stream(Protocol):
    """The output of the bar: a text file, or the output of a management command."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...


class ProgressBar:
    """Writes how much of `total` is done: one line redrawn on a terminal, a few lines elsewhere."""

    def __init__(self, stream: Stream, *, label: str, total: int) -> None:
        self._stream = stream
        self._label = label
        self._total = total
        self._done = 0
        self._parts_logged = 0

    def advance(self, steps: int) -> None:
        """Add `steps` to what is done, and write the progress."""
        self._done = min(self._done + steps, self._total)
        if self._stream.isatty():
            self._redraw()
        else:
            self._log()
        self._stream.flush()

    def _redraw(self) -> None:
        filled = WIDTH * self._done // self._total
        bar = "#" * filled + "." * (WIDTH - filled)
        end = "\n" if self._done == self._total else ""
        self._stream.write(f"\r{self._label} [{bar}] {self._done:,} of {self._total:,}{end}")

    def _log(self) -> None:
        parts = LOG_PARTS * self._done // self._total
        if parts > self._parts_logged:
            self._parts_logged = parts
            self._stream.write(f"{self._label} {self._done:,} of {self._total:,}\n")
