"""The output streams of a command, which may be closed, full, or unable to show a character."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError

ESCAPES = "mcp_django.escapes"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Replace what the encoding lacks by the escapes of JSON, so that JSON stays JSON."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[place : place + 2].hex() for place in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(ESCAPES, _escaped)


class OutputStream:
    """A text stream that escapes what it cannot show, and tells in a sentence why it fails.

    A stream that is ``optional`` fails silently: an error that cannot be told is not another error.
    """

    def __init__(self, stream: Any, *, optional: bool = False) -> None:
        self._stream = stream
        self._optional = optional

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be written; Python has no stream for a descriptor that is closed."""
        return self._stream is None or getattr(self._stream, "closed", False)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return not self.is_closed and hasattr(self._stream, "isatty") and self._stream.isatty()

    def write(self, text: str) -> None:
        """Write, with escapes where the encoding lacks a character.

        Raises:
            CommandError: the stream takes nothing more.
        """
        if self.is_closed:
            self._fail("it is closed")
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._attempt(self._stream.write, text.encode(encoding, ESCAPES).decode(encoding))

    def flush(self) -> None:
        """Write what is buffered: at the end of the process, an error would be a traceback.

        Raises:
            CommandError: the stream takes nothing more.
        """
        if not self.is_closed and hasattr(self._stream, "flush"):
            self._attempt(self._stream.flush)

    def _attempt(self, act: Any, *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as exc:
            self._discard_buffer()
            gone = isinstance(exc, BrokenPipeError)
            self._fail("its reader has gone" if gone else f"{exc.strerror}")

    def _discard_buffer(self) -> None:
        """Keep Python from trying again when it ends."""
        if self._stream not in (sys.stdout, sys.stderr):
            return
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def _fail(self, reason: str) -> None:
        if not self._optional:
            raise CommandError(f"The standard output cannot be written to: {reason}.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
