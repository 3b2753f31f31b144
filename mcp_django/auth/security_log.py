"""The security log: consents, authorized and rejected access, and revocations, without secrets.

Each event is written to the log ``mcp_django.security`` first and then to the table. A database
error never reaches the request. A row that is written within a transaction shares its outcome: if
the transaction is rolled back, only the log has the event. So code that records the use of a stolen
credential (reuse, replay) does so after its own transaction; a second connection would wait for the
first one's locks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, router, transaction
from django.http import HttpRequest
from django.utils.asyncio import async_unsafe
from django.utils.translation import override

from mcp_django.auth.credentials import client_ip
from mcp_django.auth.limits import PerMinute
from mcp_django.schema.secrets import EVENT, OAUTH_WORDS, is_secret_name, mask
from mcp_django.storage.databases import tables

if TYPE_CHECKING:
    from mcp_django.models import AccessToken

logger = logging.getLogger("mcp_django.security")

# Limits on the rows of events that any client can cause, per minute and process: these events must
# not fill the site's disk.
MAX_PER_SOURCE = 5
MAX_IN_ALL = 300


@async_unsafe("The security log is written in a thread.")
def record_event(
    kind: str,
    *,
    request: HttpRequest | None = None,
    user: Any = None,
    client_id: str = "",
    server: str = "",
    **details: Any,
) -> None:
    """Record an event in the log ``mcp_django.security`` and in the table.

    ``kind`` is one of ``AuthEvent.Kind``. ``details`` are short facts that are not secret: hosts,
    scopes, reasons. A detail whose name or value looks like a secret is hidden; such a name is also
    logged as an error, since it is a mistake in the calling code.
    """
    _report_secret_names(details)
    is_known = user is not None and user.is_authenticated
    event = tables.AuthEvent(
        kind=kind,
        user=user if is_known else None,
        username=user.get_username()[:150] if is_known else "",
        client_id=mask(client_id, {}, limits=EVENT)[:255],
        server=mask(server, {}, limits=EVENT)[:100],
        address=client_ip(request) if request is not None else None,
        details=mask(details, {}, limits=EVENT),
    )
    # Only this kind reports a problem that the site owner has to fix; the others are routine.
    level = logging.WARNING if kind == tables.AuthEvent.Kind.DOCUMENT else logging.INFO
    by, reason = event.details.get("by"), event.details.get("reason")
    # Untranslated: the log is not for the user whose request this is.
    with override(None):
        message = f"{event}{f', by {by}' if by else ''}{f': {reason}' if reason else ''}"
    logger.log(level, "%s", message, extra={"auth_event": event.as_dict()})
    alias = router.db_for_write(tables.AuthEvent)
    try:
        # A savepoint if in a transaction: after an error PostgreSQL rejects all other statements.
        with transaction.atomic(using=alias):
            event.save(using=alias, force_insert=True)
    except DatabaseError:
        logger.exception("A security event could not be stored.")


def record_token_event(
    kind: str, token: AccessToken, *, by: str, request: HttpRequest | None = None
) -> None:
    """Record that an access token was issued or revoked; ``by`` names who did it."""
    record_event(kind, request=request, user=token.user, client_id=f"token:{token.pk}", by=by)


event_limiter = PerMinute(MAX_IN_ALL, MAX_PER_SOURCE)


@async_unsafe("The security log is written in a thread.")
def record_limited(
    kind: str,
    *,
    request: HttpRequest,
    user: Any = None,
    client_id: str = "",
    server: str = "",
    **details: Any,
) -> None:
    """Record an event that clients can cause at will: only the first few of each source.

    Events are counted in this process, so that the rows are limited even if the cache fails.
    """
    source = f"user:{user.pk}" if user is not None else client_ip(request) or ""
    if event_limiter.allows((kind, source)):
        record_event(
            kind, request=request, user=user, client_id=client_id, server=server, **details
        )


def _report_secret_names(details: Mapping[str, Any]) -> None:
    for name, value in details.items():
        if is_secret_name(str(name), OAUTH_WORDS):
            logger.error("The security log received a secret named %r; it is hidden.", name)
        elif isinstance(value, Mapping):
            _report_secret_names(value)
