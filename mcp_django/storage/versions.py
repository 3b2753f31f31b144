"""What changed, how often, and in which order: the rows behind pub/sub.

A notification may get lost; what the row of a topic says does not. Changes of lists, of resources
and of what standing streams listen to are numbered by a clock, whose row is locked until the
numbers are committed: a process that has seen a number has seen every smaller one. Subscribers
read what has a larger number than the last that was seen. Of all other topics the versions are
compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connections
from django.db.models import F, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now

from mcp_django.storage.databases import atomic, rows, tables

# Topics of one announcement, and so of one number; a database takes only so many values.
MAX_NUMBERED: Final = 500
# How long an announcement waits for others, each of which takes a few milliseconds.
LOCK_SECONDS: Final = 5
# Changes that are read with one statement; more than one number can have.
PAGE: Final = 5000


@dataclass(frozen=True, slots=True)
class Topic:
    """A list of one server (``tools``, ``resources``, ``prompts``), one resource of it
    (``resource``), something of ours (``session``, ``stream``) that has a row of its own, or who is
    calling (``credential``, ``user``).
    """

    server: str
    kind: str
    uri: str = ""

    @property
    def digest(self) -> str:
        """The key of its row."""
        text = f"{self.server}\0{self.kind}\0{self.uri}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def has_version(self) -> bool:
        """Whether a change of it is counted; sessions and streams have rows that say more."""
        return self.kind not in ("session", "stream")

    @property
    def is_numbered(self) -> bool:
        """Whether its changes are numbered among those of all such topics."""
        return self.kind in ("tools", "resources", "prompts", "resource", "standing")

    @property
    def is_of_caller(self) -> bool:
        """Whether it changes when a caller is sent away, which nobody looks for one by one."""
        return self.kind in ("credential", "user")


# Counts whenever any caller is sent away, so that a look at one row tells whether to look at more.
SENT_AWAY = Topic("", "sent-away")
# Counts whenever the owner decides something in the admin. Its row is never swept up: a process
# that has slept for longer would take it that nothing was decided meanwhile.
MANAGED = Topic("", "managed")
# Its version is the last number that was given. Its row is never swept up.
CLOCK = Topic("", "clock")


def standing_of(session_pk: int) -> Topic:
    """What the standing streams of a session look at again: their session, and who writes."""
    return Topic("", "standing", str(session_pk))


def number(changed: Sequence[Topic]) -> None:
    """Count a change of each topic, and give all of them the next number.

    For at most ``MAX_NUMBERED`` numbered topics, in a transaction of its own: the clock's row is
    locked from the first statement until the commit, so that numbers are committed in their order.
    """
    digests = sorted({topic.digest for topic in changed})
    found = rows(tables.Topic).filter(pk__in=digests)
    with atomic():
        _wait_no_longer(found.db)
        given = _next_number()
        told = {"version": F("version") + 1, "seq": given, "changed_at": Now()}
        if found.update(**told) < len(digests):
            there = set(found.values_list("pk", flat=True))
            # Nobody else adds numbered topics while the clock is locked.
            rows(tables.Topic).bulk_create(
                tables.Topic(digest=one, version=1, seq=given, changed_at=Now())
                for one in digests
                if one not in there
            )


def _wait_no_longer(using: str) -> None:
    """A process that was frozen with the clock in its hands is not waited for without end."""
    connection = connections[using]
    # Elsewhere the server, or the driver, has such a limit by itself.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = %s", [f"{LOCK_SECONDS}s"])


def _next_number() -> int:
    clock = rows(tables.Topic).filter(pk=CLOCK.digest)
    if not clock.update(version=F("version") + 1):
        first = tables.Topic(digest=CLOCK.digest, version=0, changed_at=Now())
        rows(tables.Topic).bulk_create([first], ignore_conflicts=True)
        clock.update(version=F("version") + 1)
    return clock.values_list("version", flat=True).get()


def last_number() -> Any:
    """The last number that was given, 0 before the first one, as an expression."""
    found = rows(tables.Topic).filter(pk=CLOCK.digest).values("version")
    return Coalesce(Subquery(found), 0)


@dataclass(frozen=True, slots=True)
class Changes:
    """What was read of the numbered topics.

    ``until`` is the last number given, or the last read where ``is_all`` is false. ``numbers`` has
    the digests of topics with the number of their last change, in rising order.
    """

    until: int
    numbers: Mapping[str, int]
    is_all: bool = True


def changes_after(seen: int | None) -> Changes:
    """Every topic whose last change has a larger number, with one statement.

    Without a number it is found out what the last one is, and nothing else.
    """
    # Clock and numbers are of one moment: read one after the other, one of them could be older.
    wanted = Q(pk=CLOCK.digest) if seen is None else Q(pk=CLOCK.digest) | Q(seq__gt=seen)
    found = rows(tables.Topic).filter(wanted).order_by("seq")
    page = list(found.values_list("pk", "seq", "version")[:PAGE])
    until = next((version for digest, _, version in page if digest == CLOCK.digest), 0)
    numbers = {digest: seq for digest, seq, _ in page if digest != CLOCK.digest}
    if len(page) < PAGE:
        return Changes(until, numbers)
    # The last number may not be complete.
    last = page[-1][1]
    whole = {digest: seq for digest, seq in numbers.items() if seq < last}
    return Changes(max(whole.values()), whole, is_all=False)


def changed_after(topics: Iterable[Topic], seen: int) -> tuple[int, dict[Topic, int]]:
    """The last number given, and those topics whose last change has a larger one, with that.

    With a number that was never given (the database was restored to an earlier one) all of them,
    at the last number that was.
    """
    by_digest = {topic.digest: topic for topic in topics}
    found = rows(tables.Topic).filter(pk__in=[*by_digest, CLOCK.digest])
    late = found.filter(Q(seq__gt=seen) | Q(pk=CLOCK.digest))
    last, numbers = 0, {}
    for digest, seq, version in late.values_list("pk", "seq", "version"):
        if digest == CLOCK.digest:
            last = version
        else:
            numbers[by_digest[digest]] = seq
    return last, numbers if seen <= last else dict.fromkeys(by_digest.values(), last)


def touch(changed: Iterable[Topic]) -> None:
    """Count a change of each topic that takes no number, one more at least."""
    digests = sorted({topic.digest for topic in changed})
    found = rows(tables.Topic).filter(pk__in=digests)
    if len(digests) > 1 and connections[found.db].features.has_select_for_update:
        with atomic():
            _count(found, digests, is_ordered=True)
    else:
        _count(found, digests, is_ordered=False)


def _count(found: QuerySet[tables.Topic], digests: list[str], *, is_ordered: bool) -> None:
    if _one_more(found, is_ordered=is_ordered) == len(digests):
        return
    # Which ones were missing is not asked: another process may add them meanwhile, and a change
    # that is counted twice is noticed once.
    rows(tables.Topic).bulk_create(
        [tables.Topic(digest=digest, version=0, changed_at=Now()) for digest in digests],
        ignore_conflicts=True,
    )
    _one_more(found, is_ordered=is_ordered)


def _one_more(found: QuerySet[tables.Topic], *, is_ordered: bool) -> int:
    if is_ordered:
        # In one order, or two who count the same topics wait for each other.
        list(found.order_by("pk").select_for_update().values_list("pk"))
    return found.update(version=F("version") + 1, changed_at=Now())


def versions(topics: Iterable[Topic]) -> dict[Topic, int]:
    """How often each topic changed; those that never did are left out."""
    by_digest = {topic.digest: topic for topic in topics}
    found = rows(tables.Topic).filter(pk__in=list(by_digest))
    return {by_digest[digest]: version for digest, version in found.values_list("pk", "version")}
