"""Turns exceptions into one-sentence command errors; ``--traceback`` shows the traceback as well.

Where logging is not configured, Python's handler of last resort writes exceptions without their
tracebacks, since a command reports its failures itself. A site's ``LOGGING`` is left unchanged.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, OutputWrapper
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error as AnyDatabaseError

from mcp_django.protocol.text import clip

INTERRUPTED = 130
TRACEBACK_HINT = "Run the command again with --traceback to see where."

# Errors of SQLite, PostgreSQL, MySQL and Oracle for a missing table or column.
MISSING_TABLE = re.compile(
    r"no such (table|column)|(relation|column|table) \S+ (of relation \S+ )?does(n't| not) exist"
    r"|unknown column|table or view does not exist",
    re.IGNORECASE,
)
LOCKED = re.compile(r"database( table)? is locked|lock wait timeout|deadlock", re.IGNORECASE)


def command_error(exc: BaseException) -> CommandError:
    """Return the ``CommandError`` that reports an exception to the user."""
    if isinstance(exc, CommandError):
        return exc
    if isinstance(exc, KeyboardInterrupt):
        return CommandError("Interrupted.", returncode=INTERRUPTED)
    return CommandError(_explain(exc))


def _explain(exc: BaseException) -> str:
    """Return a sentence that describes the problem and, if it is known, how to fix it."""
    for cause in _chain_of(exc):
        alias = _database_alias(cause)
        if isinstance(cause, AnyDatabaseError):
            # PostgreSQL's text continues with the statement and hints that do not help here.
            text = safe_str(cause).strip().partition("\n")[0].rstrip(".")
            database = f"The database {alias or ' or '.join(connections)!r}"
            if MISSING_TABLE.search(text):
                return f"{database}: {text}. Did you run manage.py migrate?"
            if LOCKED.search(text):
                return f"{database}: {text}. Another process is writing to it; try again."
            if (
                isinstance(cause, DatabaseError)
                and alias
                and connections[alias].connection is not None
            ):
                return f"{database}: {text}. {TRACEBACK_HINT}"
            return f"{database} cannot be reached: {text}. See DATABASES in the settings."
        if isinstance(cause, ImproperlyConfigured) and alias:
            return f"The database {alias!r} is not configured: {safe_str(cause)} (see DATABASES)"
    if isinstance(exc, ImproperlyConfigured):
        return safe_str(exc)
    if isinstance(exc, UnicodeEncodeError):
        return f"{clip(exc.object)!r} is not valid UTF-8; encode it in UTF-8."
    return f"{describe_exception(exc)}\n{TRACEBACK_HINT}"


def describe_exception(exc: BaseException) -> str:
    """Return the class name of an exception, and its text if it has one."""
    text = safe_str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def safe_str(value: Any) -> str:
    """Return ``str(value)``, or an empty string if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # the site's own code, which has failed once already
        return ""


def _chain_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its chain of causes."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _database_alias(exc: BaseException) -> str:
    """Return the alias of the database that raised an exception, found in its traceback frames.

    Database exceptions themselves do not contain the alias. It is empty if it is not found.
    """
    alias = ""
    for frame, _ in walk_tb(exc.__traceback__):
        owner = frame.f_locals.get("self")
        if owner is connections:
            alias = str(frame.f_locals.get("alias", alias))
        for candidate in (owner, getattr(owner, "connection", None), getattr(owner, "db", None)):
            if isinstance(candidate, BaseDatabaseWrapper):
                alias = candidate.alias
    return alias


@contextmanager
def without_tracebacks(stderr: OutputWrapper) -> Iterator[None]:
    """Replace ``logging.lastResort``: write logged exceptions at the end, one line each.

    An exception that the command's own error already names is not written again.
    """
    handler = _LastResortHandler(stderr)
    before, logging.lastResort = logging.lastResort, handler
    error_text = ""
    try:
        yield
    except CommandError as exc:
        error_text = str(exc)
        raise
    finally:
        logging.lastResort = before
        handler.write_kept(error_text)


class _LastResortHandler(logging.Handler):
    """Writes records immediately, and keeps those with an exception until the end."""

    def __init__(self, stderr: OutputWrapper) -> None:
        super().__init__(logging.WARNING)
        self._stderr = stderr
        self._kept: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or keep it if it has an exception."""
        if not record.exc_info and not record.exc_text:
            self._stderr.write(self.format(record), style_func=str)
            return
        plain = copy.copy(record)
        plain.exc_info = plain.exc_text = None
        try:
            message = self.format(plain)
        except Exception:  # noqa: BLE001  # an object of the site whose __str__ fails
            message = str(record.msg)
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None:
            sentence = _explain(exc).partition("\n")[0]
            names = [type(cause).__name__ for cause in _chain_of(exc)]
        else:
            # An exception that may contain a secret is logged as text only.
            sentence = (record.exc_text or "").rpartition("\n")[2]
            names = [sentence.partition(":")[0]]
        self._kept.setdefault(f"{message} {sentence}", [sentence, *names])

    def write_kept(self, error_text: str) -> None:
        """Write the kept records that ``error_text``, the command's own error, omits."""
        for line, texts in self._kept.items():
            if not any(text in error_text for text in texts):
                self._stderr.write(line, style_func=str)
