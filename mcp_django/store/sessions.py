"""Sessions in the database: opened by ``initialize``, found by their id, bound to their caller.

The id is 256 random bits and stored as a digest. It authenticates nobody: every request is
authenticated on its own, and a session answers to the principal that opened it alone (SES-6).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from mcp_django.conf import get_settings
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.protocol.text import storable
from mcp_django.store.databases import after, alias, before, rows, tables
from mcp_django.store.hub import ring
from mcp_django.store.standing import look_again
from mcp_django.store.topics import Topic, last_number

# Subscriptions of one session.
MAX_SUBSCRIPTIONS = 1000
# How often a session's row says when it was last seen; each request would make each read a write.
SEEN_SECONDS = 60


class TooManySubscriptions(Exception):
    """The session listens to as many resources as one may."""


class StoredSession:
    """A session with its row."""

    def __init__(self, row: tables.Session) -> None:
        self.row = row

    @property
    def revision(self) -> Revision:
        """The negotiated revision."""
        return REVISIONS[self.row.protocol_version]

    @property
    def client_info(self) -> Mapping[str, Any]:
        """What the client says of itself."""
        return self.row.client_info  # type: ignore[no-any-return]

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can be asked for."""
        return self.row.capabilities  # type: ignore[no-any-return]

    @property
    def log_level(self) -> str | None:
        """The level of ``logging/setLevel``, ``None`` before there was one."""
        return self.row.log_level or None

    def set_log_level(self, level: str) -> None:
        """Keep a level for all calls that follow, in any process."""
        change(self.row, log_level=level)

    def subscribe(self, uri: str) -> None:
        """Tell the client of changes of a resource.

        Raises:
            TooManySubscriptions: it listens to as many as one may.
        """
        if subscribe(self.row, uri):
            look_again([self.row.pk])

    def unsubscribe(self, uri: str) -> None:
        """Tell it no more."""
        if unsubscribe(self.row, uri):
            look_again([self.row.pk])


def begin(
    server: str,
    principal: str,
    *,
    user: Any,
    protocol_version: str,
    client_info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
) -> tuple[tables.Session, str]:
    """Open a session and return it with its id, which is shown this once.

    ``principal`` is the caller's key, ``user`` the caller's user or ``None``. A caller with too
    many loses the one that was silent the longest.
    """
    settings = get_settings()
    plaintext = secrets.token_urlsafe(32)
    session = tables.Session(
        digest=_digest(plaintext),
        server=server,
        principal=principal,
        user=user,
        protocol_version=protocol_version,
        client_info=storable(client_info),
        capabilities=storable(capabilities),
        seen_at=Now(),
        heard_seq=last_number(),
        expires_at=after(settings.session_max_age),
    )
    session.save(using=alias(), force_insert=True)
    _evict(session, keep=settings.sessions_per_principal)
    return session, plaintext


def _evict(newest: tables.Session, *, keep: int) -> None:
    # The open stream of an older one may have been seen a moment after this one began.
    others = rows(tables.Session).filter(principal=newest.principal).exclude(pk=newest.pk)
    live = others.filter(expires_at__gt=Now()).order_by("-seen_at", "-pk")
    if pks := list(live.values_list("pk", flat=True)[keep - 1 : keep + 99]):
        end_all(pks)


def find(plaintext: str, *, server: str, principal: str) -> tables.Session | None:
    """The live session of this id, on this server, of this caller."""
    idle = get_settings().session_idle
    row = (
        rows(tables.Session)
        .filter(digest=_digest(plaintext), server=server, principal=principal)
        .filter(expires_at__gt=Now(), seen_at__gt=before(idle))
        .annotate(is_stale=Q(seen_at__lt=before(SEEN_SECONDS)))
        .first()
    )
    if row is not None and row.is_stale:
        rows(tables.Session).filter(pk=row.pk).update(seen_at=Now())
    return row


def is_live(pk: int) -> bool:
    """Whether a session was not ended and has not expired; an open stream keeps it from idling."""
    found = rows(tables.Session).filter(pk=pk, expires_at__gt=Now())
    return bool(found.update(seen_at=Now()))


def living(pks: Iterable[int]) -> set[int]:
    """Those sessions that were not ended and have not expired; nothing is noted."""
    found = rows(tables.Session).filter(pk__in=list(pks), expires_at__gt=Now())
    return set(found.values_list("pk", flat=True))


def end(session: tables.Session) -> None:
    """End a session; what belongs to it is swept up later, when nobody writes to it any more."""
    end_all([session.pk])


def change(session: tables.Session, **values: Any) -> None:
    """Change members of a session, here and in its row."""
    rows(tables.Session).filter(pk=session.pk).update(**values)
    for name, value in values.items():
        setattr(session, name, value)


def subscribe(session: tables.Session, uri: str) -> bool:
    """Note that the client wants to hear of a resource; whether that is news.

    Raises:
        TooManySubscriptions: it has as many as one may.
    """
    digest = _digest(uri)
    found = rows(tables.Subscription)
    mine = found.filter(session=session)
    if mine.filter(digest=digest).exists():
        return False
    if mine.count() >= MAX_SUBSCRIPTIONS:
        raise TooManySubscriptions
    found.bulk_create(
        [tables.Subscription(session=session, uri=uri, digest=digest)], ignore_conflicts=True
    )
    return True


def unsubscribe(session: tables.Session, uri: str) -> bool:
    """Forget a subscription; whether there was one."""
    ended, _ = rows(tables.Subscription).filter(session=session, digest=_digest(uri)).delete()
    return bool(ended)


def end_all(pks: Iterable[int]) -> int:
    """End several sessions, with whatever is open for them anywhere; how many there were."""
    named = list(pks)
    live = rows(tables.Session).filter(pk__in=named, expires_at__gt=Now())
    ended = live.update(expires_at=Now())
    if ended:
        look_again(named)
        gone = [Topic("", "session", str(pk)) for pk in named]
        transaction.on_commit(partial(ring, *gone), using=alias())
    return ended


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
