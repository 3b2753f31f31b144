"""The database with the thousand rows: created once, and checked at every start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection

from benchmarks.site.models import ROWS, Row

TOKEN_NAME = "benchmarks"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def check_rows() -> None:
    """Check that the table exists.

    Raises:
        ImproperlyConfigured: the table does not exist; the message has the command to create it.
    """
    if connection.vendor != "sqlite":
        # The check would need a connection.
        return
    path = Path(connection.settings_dict["NAME"])
    table = Row._meta.db_table
    if not has_table(path, table):
        raise ImproperlyConfigured(
            f"{path} has no table {table}; create it with 'python -m benchmarks --prepare {path}'."
        )


def has_table(path: Path, name: str) -> bool:
    """Return whether the file has the table.

    Servers import an application on their event loop, where Django's connections raise an error.
    """
    if not path.exists():
        return False
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query, [name]).fetchone() is not None


def create_rows() -> str:
    """Create missing tables and rows; return an access token for the server that requires one."""
    call_command("migrate", run_syncdb=True, verbosity=0)
    missing = range(Row.objects.count(), ROWS)
    Row.objects.bulk_create(
        Row(name=f"row {n:04d}", value=n * 37 % 1009, created=FIRST + timedelta(minutes=n))
        for n in missing
    )
    return issue_token()


def issue_token() -> str:
    """Issue a token; delete the tokens, call records and sessions of earlier runs."""
    from django.contrib.auth import get_user_model

    from mcp_django.models import AccessToken, Call, Session

    user, _ = get_user_model().objects.get_or_create(username="bench")
    AccessToken.objects.filter(name=TOKEN_NAME).delete()
    # A run leaves hundreds of thousands of call records, and thousands of sessions.
    Call.objects.all().delete()
    Session.objects.all().delete()
    return AccessToken.objects.issue(user, name=TOKEN_NAME)[1]
