"""Sessions in the database: opened by ``initialize``, found by their id, bound to their caller.

The id is 256 random bits and stored as a digest. It does not authenticate: every request is
authenticated on its own, and only the principal that opened a session can use it.

``ClientSession`` is a session as handlers see it; ``StoredSession`` stores it in the database and
``MemorySession`` in the memory of a connection.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from django.db.models import (
    BooleanField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    Sum,
    TextField,
    Window,
)
from django.db.models.functions import Cast, Length, Now, RowNumber

from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManySessions
from mcp_django.protocol.envelope import Envelope, read_handshake_meta
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.protocol.text import storable
from mcp_django.protocol.uritemplate import lower_scheme
from mcp_django.storage.cache import Confirmed, RefreshAheadCache, forget, list_delay
from mcp_django.storage.cleanup import GRACE_SECONDS
from mcp_django.storage.databases import (
    after_commit,
    digest_of_network,
    rows,
    seconds_ago,
    seconds_from_now,
    tables,
    write_alias,
)
from mcp_django.storage.pubsub import notify
from mcp_django.storage.statements import (
    CompiledInsert,
    CompiledQuery,
    CompiledUpdate,
    Parameter,
    numbered,
    padded,
    parameters,
    placeholders,
)
from mcp_django.storage.streams import notify_get_streams
from mcp_django.storage.versions import TopicKey, last_number
from mcp_django.storage.writer import LOCK_SECONDS, RESOLUTION_SECONDS, note_seen, row_writer
from mcp_django.tenants import current_tenant

# The maximum number of subscriptions of a session.
MAX_SUBSCRIPTIONS = 1000
# The maximum number of characters of all their URIs.
MAX_SUBSCRIBED_CHARACTERS = 256 * 1024
# The maximum number of sessions of one caller that end when a new one is opened.
MAX_EVICTED = 99
# After how many seconds a client should retry if there are too many sessions.
RETRY_AFTER_SECONDS = 60
# The server chooses the level before the first logging/setLevel (2025-11-25, "Logging").
DEFAULT_LOG_LEVEL = "info"


class TooManySubscriptions(Exception):
    """The session has the maximum number of subscriptions."""


class ClientSession(ABC):
    """The session of a client of a handshake revision, with what both sides have agreed on.

    Handlers use it wherever it is stored: ``StoredSession`` is a row of the database,
    ``MemorySession`` lasts as long as its connection.
    """

    revision: Revision
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None
    """The level of ``logging/setLevel``, ``None`` if the client has set none."""
    digest: str
    """The digest of the id, by which logs and traces name the session; may be empty."""

    def envelope_of(self, request: Request) -> Envelope:
        """Return the envelope of a request, with the values that the session negotiated.

        Raises:
            InvalidParams: the progress token is neither a string nor an integer.
        """
        progress_token, trace = read_handshake_meta(request.params)
        return Envelope(
            revision=self.revision,
            client_capabilities=self.capabilities,
            client_info=self.client_info,
            log_level=self.log_level or DEFAULT_LOG_LEVEL,
            progress_token=progress_token,
            trace=trace,
        )

    @abstractmethod
    def set_log_level(self, level: str) -> None:
        """Store the log level of all calls that follow."""

    @abstractmethod
    def subscribe(self, uri: str) -> None:
        """Notify the client of changes of a resource from now on.

        Raises:
            TooManySubscriptions: the session has the maximum number.
        """

    @abstractmethod
    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes of a resource."""


class StoredSession(ClientSession):
    """A session in the database."""

    def __init__(self, record: SessionRecord) -> None:
        self.record = record
        self.digest = record.digest
        self.revision = REVISIONS[record.protocol_version]
        # Requests share the record, so each has objects of its own.
        self.client_info = json.loads(record.client_info)
        self.capabilities = json.loads(record.capabilities)
        self.log_level = record.log_level or None

    def set_log_level(self, level: str) -> None:
        """Store the log level of all calls that follow, in any process."""
        update_session(self.record.pk, log_level=level)

    def subscribe(self, uri: str) -> None:
        """Notify the client of changes of a resource from now on.

        Raises:
            TooManySubscriptions: the session has the maximum number.
        """
        if add_subscription(self.record.pk, uri):
            notify_get_streams([self.record.pk])

    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes of a resource."""
        if remove_subscription(self.record.pk, uri):
            notify_get_streams([self.record.pk])


class NewSession(NamedTuple):
    """A session to store; ``network`` is the source by which an anonymous caller is counted."""

    values: Mapping[str, Any]
    """Values by attribute name; the database computes those of the other attributes."""
    network: str | None

    @property
    def digest(self) -> str:
        """The digest of its id."""
        return str(self.values["digest"])


def new_session(
    server: str,
    principal: str,
    *,
    user_pk: Any,
    protocol_version: str,
    client_info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    network: str | None = None,
) -> tuple[NewSession, str]:
    """Return a session to store with ``NEW_SESSIONS``, and its id, which is not stored.

    ``principal`` is the caller's key, ``user_pk`` the primary key of the caller's user or ``None``;
    ``network`` is the source by which an anonymous caller is counted, empty if it is not known.
    """
    plaintext = secrets.token_urlsafe(32)
    values = {
        "digest": _digest(plaintext),
        "tenant": current_tenant(),
        "server": server,
        "principal": principal,
        "user_id": user_pk,
        "network": digest_of_network(network),
        "protocol_version": protocol_version,
        "client_info": storable(client_info),
        "capabilities": storable(capabilities),
    }
    return NewSession(values, network), plaintext


def open_session(server: str, principal: str, **values: Any) -> tuple[tables.Session, str]:
    """Store a ``new_session``, and return it with its id.

    Raises:
        TooManySessions: all anonymous callers together have the maximum number of sessions.
        Busy: the session could not be stored in time.
    """
    session, plaintext = new_session(server, principal, **values)
    row_writer.write(NEW_SESSIONS, session, seconds=get_settings().queue_seconds)
    return rows(tables.Session).get(digest=session.digest), plaintext


class _NewSessions:
    """The ``RowKind`` of new sessions, which ends the sessions that they replace.

    If a caller has too many sessions, the one that was idle the longest ends. The outcome is
    ``TooManySessions`` if all anonymous callers together have the maximum number.
    """

    lock_seconds = LOCK_SECONDS

    def alias(self) -> str:
        """Return the alias of the database of the sessions."""
        return write_alias()

    def write(self, new: Sequence[NewSession], *, again: bool) -> Sequence[Exception | None]:
        """Store sessions, and return the error of those for which there is no room."""
        # First, since a transaction of this package begins with its write.
        inserted = _new_sessions(get_settings().session_max_age, list_delay())
        inserted.insert(self.alias(), [session.values for session in new], again=again)
        refused = _refuse_too_many(new)
        _evict_oldest([session for session in new if session.digest not in refused])
        return [refused.get(session.digest) for session in new]


NEW_SESSIONS = _NewSessions()


@cache
def _new_sessions(max_age: float, list_delay: float) -> CompiledInsert:
    return CompiledInsert(
        lambda: tables.Session,
        lambda: {
            "created_at": Now(),
            "seen_at": Now(),
            # A process that does not know the last changes yet may send the client a list.
            "heard_seq": last_number(before=list_delay),
            "expires_at": seconds_from_now(max_age),
        },
    )


def _refuse_too_many(new: Sequence[NewSession]) -> dict[str, Exception]:
    """Delete anonymous callers' new sessions beyond the maximum; return errors by digest."""
    anonymous: dict[str, list[NewSession]] = defaultdict(list)
    for session in new:
        if session.network is not None:
            anonymous[session.values["tenant"]].append(session)
    settings = get_settings()
    most = settings.anonymous_factor * settings.sessions_per_principal
    refused: list[str] = []
    for tenant, opened in anonymous.items():
        surplus = _sessions_beyond(most, len(padded(opened)), settings.session_idle)
        caller = {"principal": opened[0].values["principal"], "tenant": tenant}
        if excess := list(surplus.rows(write_alias(), caller)):
            refused += [session.digest for session in opened[-len(excess) :]]
    if refused:
        rows(tables.Session).filter(digest__in=refused).delete()
    return {
        digest: TooManySessions(
            "There are too many sessions of clients without credentials; try again later.",
            data={"retryAfter": RETRY_AFTER_SECONDS},
        )
        for digest in refused
    }


@lru_cache(maxsize=64)
def _sessions_beyond(most: int, upto: int, idle: float) -> CompiledQuery[Any]:
    """Return the query for up to ``upto`` sessions of a principal beyond the first ``most``."""

    def build(alias: str) -> Any:
        sessions = tables.Session._default_manager.using(alias)
        live = sessions.filter(
            principal=Parameter("principal"), tenant=Parameter("tenant"), expires_at__gt=Now()
        )
        used = live.filter(seen_at__gt=seconds_ago(idle)).order_by()
        return used.values_list("pk")[most : most + upto]

    return CompiledQuery(build)


def _evict_oldest(new: Sequence[NewSession]) -> None:
    """End the sessions beyond ``SESSIONS_PER_PRINCIPAL`` of the callers of the new ones."""
    opened: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for session in new:
        if session.network != "":
            caller = (
                session.values["tenant"],
                session.values["principal"],
                session.values["network"],
            )
            opened[caller].append(session.digest)
    if not opened:
        return
    keep = get_settings().sessions_per_principal
    callers = padded([*opened])
    # New sessions are excluded, since an older one with an open stream may have been seen later.
    digests = padded([digest for of_caller in opened.values() for digest in of_caller])
    above = keep - max(map(len, opened.values()))
    ranked = _ranked_sessions(len(callers), len(digests), above, keep + MAX_EVICTED)
    values = {f"digest {n}": digest for n, digest in enumerate(digests)}
    for n, (_, principal, network) in enumerate(callers):
        values |= {f"principal {n}": principal, f"network {n}": network}
    # The statement does not filter by tenant: in another tenant, this caller has opened none.
    pks = [
        pk
        for pk, tenant, principal, network, rank in ranked.rows(write_alias(), values)
        if rank > keep - len(opened.get((tenant, principal, network), ()))
    ]
    # A caller may have opened more sessions in one batch than it may have in total.
    surplus = [digest for of_caller in opened.values() for digest in of_caller[:-keep]]
    if surplus:
        theirs = rows(tables.Session).filter(digest__in=surplus)
        pks += theirs.values_list("pk", flat=True)
    if not pks:
        return
    end_sessions(pks, client_info={}, capabilities={})
    # No process writes to a session that was idle for so long, so it can be deleted immediately.
    silent = rows(tables.Session).filter(pk__in=pks, seen_at__lt=seconds_ago(GRACE_SECONDS))
    silent.filter(~Exists(rows(tables.Stream).filter(session=OuterRef("pk")))).delete()


@lru_cache(maxsize=64)
def _ranked_sessions(callers: int, digests: int, above: int, upto: int) -> CompiledQuery[Any]:
    """Return the query for the sessions of callers with these ranks; rank 1 was seen last."""

    def build(alias: str) -> Any:
        others = tables.Session._default_manager.using(alias).filter(
            principal__in=[Parameter(f"principal {n}") for n in range(callers)],
            network__in=[Parameter(f"network {n}") for n in range(callers)],
            expires_at__gt=Now(),
        )
        others = others.exclude(digest__in=[Parameter(f"digest {n}") for n in range(digests)])
        order = [F("seen_at").desc(), F("pk").desc()]
        parts = ["tenant", "principal", "network"]
        rank = Window(RowNumber(), partition_by=parts, order_by=order)
        ranked = others.annotate(rank=rank).filter(rank__gt=above, rank__lte=upto)
        return ranked.order_by().values_list("pk", *parts, "rank")

    return CompiledQuery(build)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A live session, as the database confirmed it a moment ago; requests share it."""

    pk: int
    digest: str = field(repr=False)
    protocol_version: str
    # As text: small, however many objects a client has put into it.
    client_info: str = field(repr=False)
    capabilities: str = field(repr=False)
    log_level: str
    is_initialized: bool
    created_at: datetime


class SessionKey(NamedTuple):
    """The key of a session for a request; it finds no session of another caller or tenant."""

    digest: str
    tenant: str
    server: str
    principal: str
    alias: str
    """The database of the sessions, as the router decides for the request."""


def session_key(plaintext: str, *, server: str, principal: str) -> SessionKey:
    """Return the key of the session with this id in ``session_cache``."""
    return SessionKey(_digest(plaintext), current_tenant(), server, principal, write_alias())


def find_session(plaintext: str, *, server: str, principal: str) -> SessionRecord | None:
    """Return the live session of this id, server and caller, ``None`` if there is none.

    The session was live at most ``CONFIRM_SECONDS`` ago, and this caller opened it.

    Raises:
        Error: the database could not be queried.
        Busy: too many requests wait for the database.
    """
    return session_cache.fetch(session_key(plaintext, server=server, principal=principal))


def _read_sessions(
    keys: Collection[SessionKey],
) -> dict[SessionKey, Confirmed[SessionRecord]]:
    """Return those sessions that are live, and note that they are in use."""
    idle = get_settings().session_idle
    sessions: dict[SessionKey, Confirmed[SessionRecord]] = {}
    for alias in dict.fromkeys(key.alias for key in keys):
        wanted_keys = {key for key in keys if key.alias == alias}
        digests = padded([*{key.digest for key in wanted_keys}])
        session_rows = _live_sessions(idle, len(digests)).rows(alias, numbered(digests))
        for tenant, server, principal, now, ends_at, seen_at, is_stale, *columns in session_rows:
            record = SessionRecord(*columns)
            key = SessionKey(record.digest, tenant, server, principal, alias)
            if key not in wanted_keys:
                # The session belongs to another caller or tenant than the request.
                continue
            if is_stale:
                note_seen(record.pk)
            seconds = min((ends_at - now).total_seconds(), (seen_at - now).total_seconds() + idle)
            sessions[key] = Confirmed(record, frozenset((session_tag(record.pk),)), seconds)
    return sessions


session_cache: RefreshAheadCache[SessionKey, SessionRecord] = RefreshAheadCache(
    "sessions", _read_sessions
)


def session_tag(pk: int) -> str:
    """Return the tag of the cached values of a session."""
    return f"session:{pk}"


@lru_cache(maxsize=64)
def _live_sessions(idle: float, count: int) -> CompiledQuery[Any]:
    def build(alias: str) -> Any:
        sessions = tables.Session._default_manager.using(alias).filter(
            digest__in=parameters(count),
            expires_at__gt=Now(),
            seen_at__gt=seconds_ago(idle),
        )
        return sessions.order_by().values_list(
            "tenant",
            "server",
            "principal",
            Now(),
            "expires_at",
            "seen_at",
            ExpressionWrapper(
                Q(seen_at__lt=seconds_ago(RESOLUTION_SECONDS)), output_field=BooleanField()
            ),
            "pk",
            "digest",
            "protocol_version",
            Cast("client_info", TextField()),
            Cast("capabilities", TextField()),
            "log_level",
            "is_initialized",
            "created_at",
        )

    return CompiledQuery(build)


def mark_seen(pk: int) -> bool:
    """Mark a session as seen, since an open stream prevents idling; return whether it is live."""
    sessions = rows(tables.Session).filter(pk=pk, expires_at__gt=Now())
    return bool(sessions.update(seen_at=Now()))


def live_sessions(pks: Iterable[int]) -> set[int]:
    """Return those sessions that have not ended or expired, without marking them as seen."""
    sessions = rows(tables.Session).filter(pk__in=list(pks), expires_at__gt=Now())
    return set(sessions.values_list("pk", flat=True))


def update_session(pk: int, **values: Any) -> None:
    """Set fields of a session, for all requests that follow, in any process."""
    rows(tables.Session).filter(pk=pk).update(**values)
    after_commit(partial(forget, session_tag(pk)), using=write_alias())


class _InitializedSessions:
    """The ``RowKind`` of sessions whose clients have sent ``notifications/initialized``."""

    lock_seconds = LOCK_SECONDS

    def alias(self) -> str:
        """Return the alias of the database of the sessions."""
        return write_alias()

    def write(self, pks: Sequence[int], *, again: bool) -> Sequence[None]:
        """Mark sessions as initialized, and notify their GET streams after the commit."""
        padded_pks = padded(pks)
        # A client may repeat the notification, and the cached session may not contain it yet.
        if _initialized_sessions(len(padded_pks)).update(self.alias(), numbered(padded_pks)):
            notify_get_streams(pks)
        return [None] * len(pks)


INITIALIZED_SESSIONS = _InitializedSessions()


@cache
def _initialized_sessions(count: int) -> CompiledUpdate:
    return CompiledUpdate(
        lambda alias: (
            tables.Session._default_manager.using(alias).filter(
                pk__in=placeholders(count), is_initialized=False
            ),
            {"is_initialized": True},
        )
    )


def add_subscription(session_pk: int, uri: str) -> bool:
    """Store a subscription to a resource; return whether it is new.

    Raises:
        TooManySubscriptions: the session has the maximum number.
    """
    digest = _digest(lower_scheme(uri))
    subscriptions = rows(tables.Subscription)
    mine = subscriptions.filter(session=session_pk)
    if mine.filter(digest=digest).exists():
        return False
    held = mine.aggregate(count=Count("pk"), size=Sum(Length("uri"), default=0))
    if held["count"] >= MAX_SUBSCRIPTIONS or held["size"] + len(uri) > MAX_SUBSCRIBED_CHARACTERS:
        raise TooManySubscriptions
    subscriptions.bulk_create(
        [tables.Subscription(session_id=session_pk, uri=uri, digest=digest)], ignore_conflicts=True
    )
    return True


def remove_subscription(session_pk: int, uri: str) -> bool:
    """Delete a subscription; return whether there was one."""
    ended, _ = (
        rows(tables.Subscription)
        .filter(session=session_pk, digest=_digest(lower_scheme(uri)))
        .delete()
    )
    return bool(ended)


def end_sessions(pks: Iterable[int], **changes: Any) -> int:
    """End several sessions with their open streams in every process; return how many were live.

    ``changes`` are further fields to set.
    """
    pk_list = list(pks)
    live = rows(tables.Session).filter(pk__in=pk_list, expires_at__gt=Now())
    ended = live.update(expires_at=Now(), **changes)
    if ended:
        notify_get_streams(pk_list)
        after_commit(partial(_notify_ended, pk_list), using=write_alias())
    return ended


def _notify_ended(pks: Sequence[int]) -> None:
    forget(*map(session_tag, pks))
    notify(*(TopicKey("", "session", str(pk)) for pk in pks))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _do_nothing(uris: Collection[str]) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class MemorySession(ClientSession):
    """The session of a connection that is itself the session: stdio, HTTP+SSE, a test."""

    revision: Revision
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    digest: str = ""
    uris: dict[str, None] = field(default_factory=dict)
    on_change: Callable[[Collection[str]], object] = _do_nothing
    """Called, in any thread, with the new subscriptions when the subscriptions have changed."""
    hold: Callable[[Collection[str]], object] = _do_nothing
    """Called, in any thread, with all subscriptions that remain after a change.

    A new subscription is stored only if the call does not raise.
    """

    def set_log_level(self, level: str) -> None:
        """Store the log level of all calls that follow."""
        self.log_level = level

    def subscribe(self, uri: str) -> None:
        """Notify the client of changes of a resource from now on.

        Raises:
            TooManySubscriptions: the session has the maximum number.
        """
        uris = [*self.uris]
        if lower_scheme(uri) not in map(lower_scheme, uris):
            size = sum(map(len, uris)) + len(uri)
            if len(uris) >= MAX_SUBSCRIPTIONS or size > MAX_SUBSCRIBED_CHARACTERS:
                raise TooManySubscriptions
            self.hold([*uris, uri])
            self.uris[uri] = None
        self.on_change([uri])

    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes of a resource."""
        for subscribed_uri in [*self.uris]:
            if lower_scheme(subscribed_uri) == lower_scheme(uri):
                del self.uris[subscribed_uri]
        self.hold([*self.uris])
        self.on_change([])
