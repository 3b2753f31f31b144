"""Calls that wait for a person: rows that go from one state to the next by compare-and-set alone.

A yes is used by one ``UPDATE`` of a row that still has it, so of two calls at once one gets it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from mcp_django.conf import get_settings
from mcp_django.storage.databases import after, alias, before, rows, tables

# As ``Approval.State`` has them; models cannot be imported before the app registry is ready.
PENDING, GRANTED, REFUSED, USED = "pending", "granted", "refused", "used"
# Of several rows for one call: a yes, then one that waits, then a no.
ORDER = (GRANTED, PENDING, REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a yes is good for: this call of this caller, with these arguments."""

    server: str
    component: str
    by: str
    principal: str
    arguments_digest: str


def find(subject: Subject) -> tables.Approval | None:
    """The row that decides about a call now, if one does."""
    found = {row.state: row for row in _live(rows(tables.Approval).filter(**asdict(subject)))}
    return next((found[state] for state in ORDER if state in found), None)


def ask(subject: Subject, **details: Any) -> tables.Approval:
    """Begin to wait."""
    row = tables.Approval(
        **asdict(subject), **details, expires_at=after(get_settings().approval_seconds)
    )
    row.save(using=alias(), force_insert=True)
    row.refresh_from_db(using=alias())
    return row


def use(row: tables.Approval) -> bool:
    """Take a yes for a call; ``False`` where another call has taken it, or it is too old."""
    granted = _live(rows(tables.Approval).filter(pk=row.pk, state=GRANTED))
    return bool(granted.update(state=USED))


def give_back(pk: int) -> None:
    """Leave a yes to a later round of the call that took it, and has done nothing yet."""
    rows(tables.Approval).filter(pk=pk, state=USED).update(state=GRANTED)


def waiting(server: str, user_key: str) -> int:
    """How many calls of a user wait."""
    mine = rows(tables.Approval).filter(server=server, user_key=user_key, state=PENDING)
    return _live(mine).count()


def by_code(code: str, server: str) -> tables.Approval | None:
    """The row that a page shows."""
    return rows(tables.Approval).filter(code=code, server=server).first()


def is_open(row: tables.Approval) -> bool:
    """Whether somebody may still decide."""
    return _live(rows(tables.Approval).filter(pk=row.pk, state=PENDING)).exists()


def decide(row: tables.Approval, *, is_granted: bool, by: str, reason: str) -> bool:
    """Write a decision down; ``False`` where one was made before, or it is too late."""
    decided = _live(rows(tables.Approval).filter(pk=row.pk, state=PENDING)).update(
        state=GRANTED if is_granted else REFUSED,
        decided_at=Now(),
        decided_by=by,
        reason=reason,
        expires_at=after(get_settings().approval_seconds),
    )
    row.refresh_from_db(using=alias())
    return bool(decided)


def due() -> QuerySet[tables.Approval]:
    """What is swept up."""
    return rows(tables.Approval).filter(expires_at__lt=before(get_settings().retention.approvals))


def _live(found: QuerySet[tables.Approval]) -> QuerySet[tables.Approval]:
    return found.filter(expires_at__gt=Now())
