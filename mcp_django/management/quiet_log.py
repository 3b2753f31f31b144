"""What Python logs by itself where no logging is configured, without the tracebacks.

A command tells its failures itself. What a site has configured in ``LOGGING`` is not touched.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError, OutputWrapper

from mcp_django.management.command_errors import chain_of, explain


@contextmanager
def without_tracebacks(stderr: OutputWrapper) -> Iterator[None]:
    """Hold back exceptions that are logged as a last resort, and write them in a line at the end.

    What the command itself ends with is not written twice.
    """
    handler = _Handler(stderr)
    before, logging.lastResort = logging.lastResort, handler
    told = ""
    try:
        yield
    except CommandError as exc:
        told = str(exc)
        raise
    finally:
        logging.lastResort = before
        handler.write_held(told)


class _Handler(logging.Handler):
    """Writes a message at once, and keeps one with an exception."""

    def __init__(self, stderr: OutputWrapper) -> None:
        super().__init__(logging.WARNING)
        self._stderr = stderr
        self._held: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if not record.exc_info and not record.exc_text:
            self._stderr.write(self.format(record), style_func=str)
            return
        plain = copy.copy(record)
        plain.exc_info = plain.exc_text = None
        try:
            message = self.format(plain)
        except Exception:  # noqa: BLE001  # an object of the site that cannot say what it is
            message = str(record.msg)
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None:
            sentence = explain(exc).partition("\n")[0]
            names = [type(one).__name__ for one in chain_of(exc)]
        else:
            # An exception with a secret is logged as text alone.
            sentence = (record.exc_text or "").rpartition("\n")[2]
            names = [sentence.partition(":")[0]]
        self._held.setdefault(f"{message} {sentence}", [sentence, *names])

    def write_held(self, told: str) -> None:
        """Write what the command's own error does not name."""
        for line, said in self._held.items():
            if not any(one in told for one in said):
                self._stderr.write(line, style_func=str)
