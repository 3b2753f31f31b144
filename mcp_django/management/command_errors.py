"""Exceptions as sentences: a command ends with one of them, and shows a traceback if asked to.

What Python logs by itself where no logging is configured is written without tracebacks, too, since
a command tells its failures itself. What a site has configured in ``LOGGING`` is not touched.
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

from mcp_django.protocol.errors import clip

INTERRUPTED = 130
SEE_WHERE = "Run it again with --traceback to see where."

# What SQLite, PostgreSQL, MySQL and Oracle say of a table or column that a migration would make.
MISSING_TABLE = re.compile(
    r"no such (table|column)|(relation|column|table) \S+ (of relation \S+ )?does(n't| not) exist"
    r"|unknown column|table or view does not exist",
    re.IGNORECASE,
)
LOCKED = re.compile(r"database( table)? is locked|lock wait timeout|deadlock", re.IGNORECASE)


def command_error(exc: BaseException) -> CommandError:
    """Return the error that a command ends with."""
    if isinstance(exc, CommandError):
        return exc
    if isinstance(exc, KeyboardInterrupt):
        return CommandError("Interrupted.", returncode=INTERRUPTED)
    return CommandError(_explain(exc))


def _explain(exc: BaseException) -> str:
    """Say in a sentence what happened, and what to do about it where that is known."""
    for cause in _chain_of(exc):
        alias = _alias(cause)
        if isinstance(cause, AnyDatabaseError):
            return _database_sentence(cause, alias)
        if isinstance(cause, ImproperlyConfigured) and alias:
            return f"The database {alias!r} cannot be used: {text_of(cause)} (DATABASES)"
    if isinstance(exc, ImproperlyConfigured):
        return text_of(exc)
    if isinstance(exc, UnicodeEncodeError):
        return f"{clip(exc.object)!r} is not valid UTF-8; write it in UTF-8."
    return f"{name_and_text(exc)}\n{SEE_WHERE}"


def name_and_text(exc: BaseException) -> str:
    """Return the class of an exception and what it says."""
    text = text_of(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def text_of(value: Any) -> str:
    """Return what an object says of itself; of one that fails at it, nothing."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # the site's own code, which has failed once already
        return ""


def _chain_of(exc: BaseException) -> Iterator[BaseException]:
    """Return an exception and what caused it, one after the other."""
    found: BaseException | None = exc
    while found is not None:
        yield found
        found = found.__cause__


def _database_sentence(exc: BaseException, alias: str) -> str:
    # PostgreSQL goes on with the statement, and with advice that is no help here.
    text = text_of(exc).strip().partition("\n")[0].rstrip(".")
    name = alias or " or ".join(connections)
    if MISSING_TABLE.search(text):
        return f"The database {name!r}: {text}. Did you run manage.py migrate?"
    if LOCKED.search(text):
        return f"The database {name!r}: {text}. Another process is writing to it; try again."
    if isinstance(exc, DatabaseError) and _is_connected(alias):
        return f"The database {name!r}: {text}. {SEE_WHERE}"
    return f"The database {name!r} cannot be reached: {text}. See DATABASES in the settings."


def _is_connected(alias: str) -> bool:
    return bool(alias) and connections[alias].connection is not None


def _alias(exc: BaseException) -> str:
    """Return the alias of the database that an exception came from: it does not say so itself."""
    alias = ""
    for frame, _ in walk_tb(exc.__traceback__):
        owner = frame.f_locals.get("self")
        if owner is connections:
            alias = str(frame.f_locals.get("alias", alias))
        for one in (owner, getattr(owner, "connection", None), getattr(owner, "db", None)):
            if isinstance(one, BaseDatabaseWrapper):
                alias = one.alias
    return alias


# The log of last resort ---------------------------------------------------------------------------


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
            sentence = _explain(exc).partition("\n")[0]
            names = [type(one).__name__ for one in _chain_of(exc)]
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
