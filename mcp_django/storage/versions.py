"""The versions of topics and the order of their changes: the rows behind pub/sub.

A notification may get lost, but the row of a topic is committed. Changes of lists, of resources and
of GET streams are numbered by a clock, whose row is locked until the numbers are committed: a
process that has seen a number has seen every smaller one. Subscribers read the changes with a
number larger than the last one they saw. For all other topics they compare the versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.db import connections
from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now

from mcp_django.storage.databases import (
    atomic,
    limit_lock_wait,
    rows,
    seconds_ago,
    tables,
    write_alias,
)
from mcp_django.storage.statements import CompiledQuery, numbered, padded, placeholder, placeholders
from mcp_django.tenants import current_tenant

# The maximum number of topics that get one number together; databases limit query parameters.
MAX_NUMBERED: Final = 500
# How long ``assign_number`` waits for other transactions, each of which takes a few milliseconds.
LOCK_SECONDS: Final = 5
# The kinds of lists that a server has.
LISTS: Final = ("tools", "resources", "prompts")
# How many changes one query reads; more than can have the same number.
PAGE_SIZE: Final = 5000


@dataclass(frozen=True, slots=True)
class TopicKey:
    """Something that changes, to which listeners subscribe.

    It is a list of one server (``tools``, ``resources``, ``prompts``), one of its resources
    (``resource``), a row of this package (``session``, ``stream``), the access of a caller
    (``credential``, ``user``), or a tag of what processes cache (``tag``).
    """

    server: str
    kind: str
    uri: str = ""
    tenant: str = ""
    """Only for the lists and resources of a server, of which each tenant has its own."""

    @property
    def digest(self) -> str:
        """The primary key of its row."""
        text = f"{self.server}\0{self.kind}\0{self.uri}"
        if self.tenant:
            text = f"{text}\0{self.tenant}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def has_version(self) -> bool:
        """Whether its changes are counted; other topics have rows with more details."""
        return self.kind not in ("session", "stream", "tag")

    @property
    def is_numbered(self) -> bool:
        """Whether its changes are numbered, in one order with those of all numbered topics."""
        return self.kind in (*LISTS, "resource", "standing")

    @property
    def is_list(self) -> bool:
        """Whether it is a list of a server."""
        return self.kind in LISTS

    @property
    def is_revocation(self) -> bool:
        """Whether it changes when a caller's access is revoked; polls read ``REVOKED`` first."""
        return self.kind in ("credential", "user")


# Changes with every revocation, so that one row shows whether to read the rows of callers.
REVOKED = TopicKey("", "sent-away")
# Its subscribers are notified of every tag; see ``storage.cache``.
TAGS = TopicKey("", "tag")
# Changes with every override in the admin, of any tenant. Its row is never deleted: a process that
# was suspended for longer than other rows are kept would miss the changes.
OVERRIDES = TopicKey("", "managed")
# Its version is the last number that was assigned. Its row is never deleted.
CLOCK = TopicKey("", "clock")


def list_topic(server: str, kind: str) -> TopicKey:
    """Return the topic of a list of a server, as the current tenant sees it."""
    return TopicKey(server, kind, tenant=current_tenant())


def resource_topic(server: str, uri: str) -> TopicKey:
    """Return the topic of a resource of a server, as the current tenant sees it."""
    return TopicKey(server, "resource", uri, tenant=current_tenant())


def topic_of_get_streams(session_pk: int) -> TopicKey:
    """Return the topic of a session's GET streams; it changes with the session or its streams."""
    return TopicKey("", "standing", str(session_pk))


def assign_number(changed: Sequence[TopicKey]) -> None:
    """Count a change of each topic, and assign the next number to all of them.

    For at most ``MAX_NUMBERED`` numbered topics, in a transaction of its own: the clock's row is
    locked from the first statement until the commit, so that numbers are committed in order.
    """
    digests = sorted({topic.digest for topic in changed})
    queryset = rows(tables.Topic).filter(pk__in=digests)
    with atomic():
        # A process may have been suspended in its transaction.
        limit_lock_wait(queryset.db, LOCK_SECONDS)
        clock = rows(tables.Topic).filter(pk=CLOCK.digest)
        if not clock.update(version=F("version") + 1):
            first = tables.Topic(digest=CLOCK.digest, version=0, changed_at=Now())
            rows(tables.Topic).bulk_create([first], ignore_conflicts=True)
            clock.update(version=F("version") + 1)
        number = clock.values_list("version", flat=True).get()
        changes = {"version": F("version") + 1, "seq": number, "changed_at": Now()}
        if queryset.update(**changes) < len(digests):
            there = set(queryset.values_list("pk", flat=True))
            # No other process adds numbered topics while the clock is locked.
            rows(tables.Topic).bulk_create(
                tables.Topic(digest=digest, version=1, seq=number, changed_at=Now())
                for digest in digests
                if digest not in there
            )


def last_number(*, before: float) -> Any:
    """Return the last number assigned more than ``before`` seconds ago, as an expression.

    It is 0 if no number was assigned before that.
    """
    clock = rows(tables.Topic).filter(pk=CLOCK.digest).values("version")
    if not before:
        return Coalesce(Subquery(clock), 0)
    recent = rows(tables.Topic).filter(seq__gt=0, changed_at__gt=seconds_ago(before))
    first = recent.order_by("seq").values("seq")[:1]
    return Coalesce(Subquery(first) - 1, Subquery(clock), 0)


@dataclass(frozen=True, slots=True)
class NumberedChanges:
    """Changes of numbered topics, as read by a query.

    ``until`` is the last assigned number, or the last one read if ``is_all`` is false. ``numbers``
    maps digests of topics to the number of their last change, in ascending order.
    """

    until: int
    numbers: Mapping[str, int]
    is_all: bool = True


def read_changes(seen: int | None) -> NumberedChanges:
    """Return all topics whose last change has a larger number than ``seen``, with one query.

    If ``seen`` is ``None``, return only the last assigned number.
    """
    page = list(_changes(seen is None, PAGE_SIZE).rows(write_alias(), {"seen": seen}))
    until = next((version for digest, _, version in page if digest == CLOCK.digest), 0)
    numbers = {digest: seq for digest, seq, _ in page if digest != CLOCK.digest}
    if len(page) < PAGE_SIZE:
        return NumberedChanges(until, numbers)
    # The last number may not be complete.
    last = page[-1][1]
    whole = {digest: seq for digest, seq in numbers.items() if seq < last}
    return NumberedChanges(max(whole.values()), whole, is_all=False)


@cache
def _changes(is_first: bool, size: int) -> CompiledQuery[Any]:  # noqa: FBT001
    """Return the query for the clock and, if it is not the first, the numbers after ``seen``."""

    def build(alias: str) -> Any:
        # One query for the clock and the numbers: of two queries, one would read an older state.
        condition = Q(pk=CLOCK.digest)
        if not is_first:
            condition |= Q(seq__gt=placeholder("seen"))
        queryset = tables.Topic._default_manager.using(alias).filter(condition).order_by("seq")
        return queryset.values_list("pk", "seq", "version")[:size]

    return CompiledQuery(build)


def read_changed_topics(topics: Iterable[TopicKey], seen: int) -> tuple[int, dict[TopicKey, int]]:
    """Return the last assigned number, and the numbers of the topics changed since ``seen``.

    If ``seen`` was never assigned (the database was restored to an earlier state), return all
    topics, with the last assigned number.
    """
    by_digest = {topic.digest: topic for topic in topics}
    digests = padded([*by_digest, CLOCK.digest])
    values = {**numbered(digests), "seen": seen}
    last, numbers = 0, {}
    for digest, seq, version in _late_topics(len(digests)).rows(write_alias(), values):
        if digest == CLOCK.digest:
            last = version
        else:
            numbers[by_digest[digest]] = seq
    return last, numbers if seen <= last else dict.fromkeys(by_digest.values(), last)


@cache
def _late_topics(count: int) -> CompiledQuery[Any]:
    """Return the query for those topics that changed after ``seen``, and the clock."""

    def build(alias: str) -> Any:
        queryset = tables.Topic._default_manager.using(alias).filter(pk__in=placeholders(count))
        late = queryset.filter(Q(seq__gt=placeholder("seen")) | Q(pk=CLOCK.digest))
        return late.order_by().values_list("pk", "seq", "version")

    return CompiledQuery(build)


def increment_versions(changed: Iterable[TopicKey]) -> None:
    """Count a change of each topic that is not numbered; the version grows by at least one."""
    digests = sorted({topic.digest for topic in changed})
    queryset = rows(tables.Topic).filter(pk__in=digests)
    is_ordered = len(digests) > 1 and connections[queryset.db].features.has_select_for_update
    with atomic() if is_ordered else nullcontext():
        if _increment(queryset, is_ordered=is_ordered) == len(digests):
            return
        # All topics, not only the missing ones: another process may add those in the meantime, and
        # a change that is counted twice is noticed once.
        rows(tables.Topic).bulk_create(
            [tables.Topic(digest=digest, version=0, changed_at=Now()) for digest in digests],
            ignore_conflicts=True,
        )
        _increment(queryset, is_ordered=is_ordered)


def _increment(queryset: QuerySet[tables.Topic], *, is_ordered: bool) -> int:
    if is_ordered:
        # In one order, to avoid deadlocks with a process that counts the same topics.
        list(queryset.order_by("pk").select_for_update().values_list("pk"))
    return queryset.update(version=F("version") + 1, changed_at=Now())


def read_versions(topics: Iterable[TopicKey]) -> dict[TopicKey, int]:
    """Return how often each topic has changed; topics without a change are left out."""
    by_digest = {topic.digest: topic for topic in topics}
    queryset = rows(tables.Topic).filter(pk__in=list(by_digest))
    return {by_digest[digest]: version for digest, version in queryset.values_list("pk", "version")}


def recently_changed(topics: Iterable[TopicKey], seconds: float) -> list[TopicKey]:
    """Return the topics that changed in the last ``seconds``, by the clock of the database."""
    by_digest = {topic.digest: topic for topic in topics}
    queryset = rows(tables.Topic).filter(
        pk__in=list(by_digest), changed_at__gt=seconds_ago(seconds)
    )
    return [by_digest[digest] for digest in queryset.values_list("pk", flat=True)]
