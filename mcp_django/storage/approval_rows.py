"""Rows of calls that wait for approval; states change only by compare-and-set.

An approval is used by an ``UPDATE`` that matches only an unused row, so of two concurrent calls
one gets it.
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
# Which of several rows for one call counts: an approval, then a pending one, then a refusal.
ORDER = (GRANTED, PENDING, REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an approval applies to: this call of this caller, with these arguments."""

    server: str
    component: str
    by: str
    principal: str
    arguments_digest: str


def find(subject: Subject) -> tables.Approval | None:
    """Return the row that applies to a call now, ``None`` if there is none."""
    found = {row.state: row for row in _live(rows(tables.Approval).filter(**asdict(subject)))}
    return next((found[state] for state in ORDER if state in found), None)


def ask(subject: Subject, **details: Any) -> tables.Approval:
    """Create a pending row."""
    row = tables.Approval(
        **asdict(subject), **details, expires_at=after(get_settings().approval_seconds)
    )
    row.save(using=alias(), force_insert=True)
    row.refresh_from_db(using=alias())
    return row


def use(row: tables.Approval) -> bool:
    """Use an approval for a call; ``False`` if another call has used it, or it has expired."""
    granted = _live(rows(tables.Approval).filter(pk=row.pk, state=GRANTED))
    return bool(granted.update(state=USED))


def give_back(pk: int) -> None:
    """Make an approval usable again for a later round of its call, which has done nothing yet."""
    rows(tables.Approval).filter(pk=pk, state=USED).update(state=GRANTED)


def waiting(server: str, user_key: str) -> int:
    """Return how many calls of a user are pending."""
    mine = rows(tables.Approval).filter(server=server, user_key=user_key, state=PENDING)
    return _live(mine).count()


def by_code(code: str, server: str) -> tables.Approval | None:
    """Return the row with the code in the URL of an approval page."""
    return rows(tables.Approval).filter(code=code, server=server).first()


def is_open(row: tables.Approval) -> bool:
    """Return whether the row is pending and has not expired."""
    return _live(rows(tables.Approval).filter(pk=row.pk, state=PENDING)).exists()


def decide(row: tables.Approval, *, is_granted: bool, by: str, reason: str) -> bool:
    """Store the approver's decision; ``False`` if there was one before, or the row has expired."""
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
    """Return the rows whose retention is over."""
    return rows(tables.Approval).filter(expires_at__lt=before(get_settings().retention.approvals))


def _live(found: QuerySet[tables.Approval]) -> QuerySet[tables.Approval]:
    return found.filter(expires_at__gt=Now())
