"""Sessions in the database: opened by ``initialize``, found by their id, bound to their caller.

The id is 256 random bits and stored as a digest. It does not authenticate: every request is
authenticated on its own, and a session answers only to the principal that opened it (SES-6).

``ClientSession`` is what the handlers see of a session; ``StoredSession`` keeps it in the
database and ``MemorySession`` in the memory of a connection.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, Sum
from django.db.models.functions import Length, Now

from mcp_django.conf import get_settings
from mcp_django.core.context import Session
from mcp_django.exceptions import TooManySessions
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.protocol.text import storable
from mcp_django.storage.cleanup import GRACE_SECONDS
from mcp_django.storage.databases import after, alias, before, digest_of_network, rows, tables
from mcp_django.storage.pubsub import ring
from mcp_django.storage.streams import look_again
from mcp_django.storage.versions import Topic, last_number

# Subscriptions of one session.
MAX_SUBSCRIPTIONS = 1000
# Characters of their URIs in all.
MAX_SUBSCRIBED = 256 * 1024
# When a client is told to come again where there are too many sessions.
CROWDED_SECONDS = 60
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
    network: str | None = None,
) -> tuple[tables.Session, str]:
    """Open a session and return it with its id, which is shown this once.

    ``principal`` is the caller's key, ``user`` the caller's user or ``None``; ``network`` is what a
    caller without credentials is counted by, empty where it is not known. A caller with too many
    loses the one that was silent the longest.

    Raises:
        TooManySessions: callers without credentials have as many together as they may.
    """
    settings = get_settings()
    if network is not None:
        _check_room(principal, settings.anonymous_factor * settings.sessions_per_principal)
    plaintext = secrets.token_urlsafe(32)
    session = tables.Session(
        digest=_digest(plaintext),
        server=server,
        principal=principal,
        user=user,
        network=digest_of_network(network),
        protocol_version=protocol_version,
        client_info=storable(client_info),
        capabilities=storable(capabilities),
        seen_at=Now(),
        heard_seq=last_number(),
        expires_at=after(settings.session_max_age),
    )
    session.save(using=alias(), force_insert=True)
    if network != "":
        _evict(session, keep=settings.sessions_per_principal)
    return session, plaintext


def _check_room(principal: str, most: int) -> None:
    live = rows(tables.Session).filter(principal=principal, expires_at__gt=Now())
    used = live.filter(seen_at__gt=before(get_settings().session_idle))
    if used[:most].count() >= most:
        raise TooManySessions(
            "There are too many sessions of clients without credentials; try again later.",
            data={"retryAfter": CROWDED_SECONDS},
        )


def _evict(newest: tables.Session, *, keep: int) -> None:
    others = rows(tables.Session).filter(principal=newest.principal, network=newest.network)
    # The open stream of an older one may have been seen a moment after this one began.
    live = others.filter(expires_at__gt=Now()).exclude(pk=newest.pk).order_by("-seen_at", "-pk")
    pks = list(live.values_list("pk", flat=True)[keep - 1 : keep + 99])
    if not pks:
        return
    end_all(pks, client_info={}, capabilities={})
    # Nothing writes to one that was silent for so long, so it need not wait to be swept up.
    silent = rows(tables.Session).filter(pk__in=pks, seen_at__lt=before(GRACE_SECONDS))
    silent.filter(~Exists(rows(tables.Stream).filter(session=OuterRef("pk")))).delete()


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
    if row is None or not row.is_stale:
        return row
    # It may have been evicted a moment ago.
    live = rows(tables.Session).filter(pk=row.pk, expires_at__gt=Now())
    return row if live.update(seen_at=Now()) else None


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
    held = mine.aggregate(count=Count("pk"), size=Sum(Length("uri"), default=0))
    if held["count"] >= MAX_SUBSCRIPTIONS or held["size"] + len(uri) > MAX_SUBSCRIBED:
        raise TooManySubscriptions
    found.bulk_create(
        [tables.Subscription(session=session, uri=uri, digest=digest)], ignore_conflicts=True
    )
    return True


def unsubscribe(session: tables.Session, uri: str) -> bool:
    """Forget a subscription; whether there was one."""
    ended, _ = rows(tables.Subscription).filter(session=session, digest=_digest(uri)).delete()
    return bool(ended)


def end_all(pks: Iterable[int], **changes: Any) -> int:
    """End several sessions, with whatever is open for them anywhere; how many there were.

    ``changes`` are made to them as well.
    """
    named = list(pks)
    live = rows(tables.Session).filter(pk__in=named, expires_at__gt=Now())
    ended = live.update(expires_at=Now(), **changes)
    if ended:
        look_again(named)
        gone = [Topic("", "session", str(pk)) for pk in named]
        transaction.on_commit(partial(ring, *gone), using=alias())
    return ended


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# A session wherever it is kept --------------------------------------------------------------------


class ClientSession(Session, Protocol):
    """The session of a client of a handshake revision, in the database or in a connection."""

    @property
    def revision(self) -> Revision:
        """The negotiated revision."""

    def set_log_level(self, level: str) -> None:
        """Keep a level for all calls that follow."""

    def subscribe(self, uri: str) -> None:
        """Tell the client of changes of a resource.

        Raises:
            TooManySubscriptions: it listens to as many as one may.
        """

    def unsubscribe(self, uri: str) -> None:
        """Tell it no more."""


def _nothing() -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MemorySession:
    """The session of a connection that is a session itself: stdio, HTTP+SSE, a test."""

    revision: Revision
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    uris: dict[str, None] = field(default_factory=dict)
    on_change: Callable[[], None] = _nothing
    """Called, in any thread, when the subscriptions change."""

    def set_log_level(self, level: str) -> None:
        """Keep a level for all calls that follow."""
        self.log_level = level

    def subscribe(self, uri: str) -> None:
        """Tell the client of changes of a resource."""
        if len(self.uris) >= MAX_SUBSCRIPTIONS and uri not in self.uris:
            raise TooManySubscriptions
        self.uris[uri] = None
        self.on_change()

    def unsubscribe(self, uri: str) -> None:
        """Tell it no more."""
        self.uris.pop(uri, None)
        self.on_change()
