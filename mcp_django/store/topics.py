"""What changed, and how often: the rows behind the doorbell.

A ring may get lost; the version of a topic does not. Whoever listens compares versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connections
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from mcp_django.store.databases import atomic, rows, tables


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
    def is_of_caller(self) -> bool:
        """Whether it changes when a caller is sent away, which nobody looks for one by one."""
        return self.kind in ("credential", "user")


# Counts whenever any caller is sent away, so that a look at one row tells whether to look at more.
SENT_AWAY = Topic("", "sent-away")
# Counts whenever the owner decides something in the admin. Its row is never swept up: a process
# that has slept for longer would take it that nothing was decided meanwhile.
MANAGED = Topic("", "managed")


def standing_of(session_pk: int) -> Topic:
    """What the standing stream of a session has to look at again: its session, and whose it is."""
    return Topic("", "standing", str(session_pk))


def touch(changed: Iterable[Topic]) -> None:
    """Count a change of each topic, one more at least."""
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


def changed_since_heard(topics: Iterable[Topic], session_pk: int) -> list[Topic]:
    """The topics that changed after a session was last told of changes."""
    by_digest = {topic.digest: topic for topic in topics}
    heard = rows(tables.Session).filter(pk=session_pk).values("heard_at")[:1]
    found = rows(tables.Topic).filter(pk__in=list(by_digest), changed_at__gt=heard)
    return [by_digest[digest] for digest in found.values_list("pk", flat=True)]
