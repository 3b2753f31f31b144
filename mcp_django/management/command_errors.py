"""Exceptions as sentences: a command ends with one of them, and shows a traceback if asked to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
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
    return CommandError(explain(exc))


def explain(exc: BaseException) -> str:
    """Say in a sentence what happened, and what to do about it where that is known."""
    for cause in chain_of(exc):
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


def chain_of(exc: BaseException) -> Iterator[BaseException]:
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
