"""The security log: who was let in, asked, refused and sent away. No secret ever goes in.

Each event is written to the log ``mcp_django.security`` first and to the table then. Nothing that
goes wrong there reaches the request. A row that is written within a transaction shares its fate: if
the transaction is rolled back, the log alone has the event. So whoever records that a credential
was stolen (reuse, replay) does so after its own transaction; a second connection would wait for
the first one's locks.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.db import DatabaseError, router, transaction
from django.http import HttpRequest
from django.utils.asyncio import async_unsafe

from mcp_django.auth.credentials import client_ip
from mcp_django.schema.secrets import HIDDEN, names_secret, without_secrets

logger = logging.getLogger("mcp_django.security")

MAX_TEXT = 500
# Of the events that anybody can cause, so many rows a minute and process: the disk is the site's.
SOME_SECONDS = 60
SOME_OF_ONE = 5
SOME_IN_ALL = 300

# Names of OAuth, which are those of other things elsewhere.
_OAUTH_NAME = re.compile(r"(^|_)key$|^(authorization_)?code$|^state$", re.IGNORECASE)


@async_unsafe("The security log is written in a thread.")
def record(
    kind: str,
    *,
    request: HttpRequest | None = None,
    user: Any = None,
    client_id: str = "",
    server: str = "",
    **details: Any,
) -> None:
    """Keep one event, in the log ``mcp_django.security`` and in the table.

    ``kind`` is one of ``AuthEvent.Kind``. ``details`` are short facts that are no secret: hosts,
    scopes, reasons. One whose name or value is a secret's is hidden, and told as an error, since
    the caller has a mistake.
    """
    # Models cannot be imported before the app registry is ready, and this package can.
    from mcp_django.models import AuthEvent

    known = user is not None and user.is_authenticated
    event = AuthEvent(
        kind=kind,
        user=user if known else None,
        username=user.get_username()[:150] if known else "",
        client_id=_clean(client_id)[:255],
        server=_clean(server)[:100],
        address=client_ip(request) if request is not None else None,
        details=_guarded(details),
    )
    # All others are what happens anywhere; of this one the site's owner has something to mend.
    level = logging.WARNING if kind == AuthEvent.Kind.DOCUMENT else logging.INFO
    reason = event.details.get("reason")
    told = f"{event}: {reason}" if reason else event
    logger.log(level, "%s", told, extra={"auth_event": event.as_dict()})
    alias = router.db_for_write(AuthEvent)
    try:
        # A savepoint, where there is a transaction: PostgreSQL would refuse all that comes after.
        with transaction.atomic(using=alias):
            event.save(using=alias, force_insert=True)
    except DatabaseError:
        logger.exception("A security event could not be stored.")


class _Sparingly:
    """Counts what one source has said in this minute; a new minute begins from nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends = 0.0
        self._said: Counter[tuple[str, str]] = Counter()

    def allows(self, kind: str, source: str) -> bool:
        """Whether one more is kept."""
        now = time.monotonic()
        with self._lock:
            if now >= self._ends:
                self._ends = now + SOME_SECONDS
                self._said.clear()
            if self._said.total() >= SOME_IN_ALL or self._said[kind, source] >= SOME_OF_ONE:
                return False
            self._said[kind, source] += 1
            return True

    def clear(self) -> None:
        """Begin from nothing."""
        with self._lock:
            self._ends = 0.0


sparingly = _Sparingly()


@async_unsafe("The security log is written in a thread.")
def record_some(
    kind: str,
    *,
    request: HttpRequest,
    user: Any = None,
    client_id: str = "",
    server: str = "",
    **details: Any,
) -> None:
    """Keep an event that anybody can cause as often as they like: the first few of each source.

    Counted in this process and without a cache, so that the table has a bound whatever fails.
    """
    source = f"user:{user.pk}" if user is not None else client_ip(request) or ""
    if sparingly.allows(kind, source):
        record(kind, request=request, user=user, client_id=client_id, server=server, **details)


def _guarded(details: Mapping[str, Any]) -> dict[str, Any]:
    guarded = {}
    for name, value in details.items():
        if names_secret(name) or _OAUTH_NAME.search(name):
            logger.error("The security log was handed a secret named %r; it is hidden.", name)
            guarded[name] = HIDDEN
        else:
            guarded[name] = _plain(value)
    return guarded


def _plain(value: Any) -> Any:
    """What JSON can hold of a value, without what looks like a credential."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return _guarded({str(name): one for name, one in value.items()})
    if isinstance(value, (list, tuple, set, frozenset)):
        members = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [_plain(one) for one in members]
    return _clean(str(value))


def _clean(text: str) -> str:
    """A text without credentials, control characters (a line of the log is one line) and length."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in text[: 4 * MAX_TEXT])
    return without_secrets(printable)[:MAX_TEXT]
