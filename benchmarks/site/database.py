"""The database with the thousand rows: created once, and checked at every start."""

from __future__ import annotations

import secrets
import sqlite3
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from benchmarks.site.issuer import ISSUER, SUBJECT, issue_token
from benchmarks.site.models import ROWS, Row
from benchmarks.wire import HOST

TOKEN_NAME = "benchmarks"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = f"http://{HOST}"


class Bearers(NamedTuple):
    """One bearer token of each kind, all of the same user."""

    access: str = ""
    """An access token of the site."""
    oauth: str = ""
    """An access token of the site's authorization server."""
    signed: str = ""
    """A JWT of an external issuer."""


def check_rows() -> None:
    """Check that the table exists.

    Raises:
        ImproperlyConfigured: the table does not exist; the message has the command to create it.
    """
    if connection.vendor != "sqlite":
        # Asking would need a connection.
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
    with closing(sqlite3.connect(path)) as found:
        return found.execute(query, [name]).fetchone() is not None


def create_rows() -> Bearers:
    """Create missing tables and rows; return bearer tokens for the servers that require one."""
    call_command("migrate", run_syncdb=True, verbosity=0)
    missing = range(Row.objects.count(), ROWS)
    Row.objects.bulk_create(
        Row(name=f"row {n:04d}", value=n * 37 % 1009, created=FIRST + timedelta(minutes=n))
        for n in missing
    )
    return issue_tokens()


def issue_tokens() -> Bearers:
    """Issue tokens of the user, and delete those of earlier runs."""
    from django.contrib.auth import get_user_model

    from mcp_django.models import AccessToken, Call, ExternalIdentity, Session

    user, _ = get_user_model().objects.get_or_create(username="bench")
    AccessToken.objects.filter(name=TOKEN_NAME).delete()
    # A run leaves hundreds of thousands of call records, and thousands of sessions.
    Call.objects.all().delete()
    Session.objects.all().delete()
    ExternalIdentity.objects.get_or_create(issuer=ISSUER, subject=SUBJECT, defaults={"user": user})
    return Bearers(
        access=AccessToken.objects.issue(user, name=TOKEN_NAME)[1],
        oauth=_connect(user),
        signed=issue_token(f"{ORIGIN}/signed/mcp", f"{ORIGIN}/signed/raw"),
    )


def _connect(user: Any) -> str:
    """Return an access token, stored as the token endpoint does, with its refresh token."""
    from oauth2_provider.models import (
        get_access_token_model,
        get_application_model,
        get_refresh_token_model,
        set_token_value,
    )

    client, _ = get_application_model().objects.get_or_create(
        name=TOKEN_NAME,
        defaults={
            "client_type": "public",
            "authorization_grant_type": "authorization-code",
            "redirect_uris": f"{ORIGIN}/callback",
        },
    )
    get_access_token_model().objects.filter(application=client).delete()
    common = {
        "user": user,
        "application": client,
        "resource": [f"{ORIGIN}/connected/mcp", f"{ORIGIN}/connected/raw"],
    }
    expires = timezone.now() + timedelta(days=1)
    token = get_access_token_model()(**common, scope="mcp", expires=expires)
    bearer = secrets.token_urlsafe(32)
    set_token_value(token, bearer)
    token.save()
    refresh = get_refresh_token_model()(**common, access_token=token, token_family=uuid.uuid4())
    set_token_value(refresh, secrets.token_urlsafe(32))
    refresh.save()
    return bearer
