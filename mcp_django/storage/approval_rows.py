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
from mcp_django.storage.databases import (
    rows,
    rows_of_tenant,
    seconds_ago,
    seconds_from_now,
    tables,
    write_alias,
)

# As ``Approval.State`` has them; models cannot be imported before the app registry is ready.
PENDING, GRANTED, REFUSED, USED = "pending", "granted", "refused", "used"
# Which of several rows for one call counts: an approval, then a pending one, then a refusal.
STATE_PRECEDENCE = (GRANTED, PENDING, REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSubject:
    """What an approval applies to: this call of this caller, with these arguments."""

    server: str
    component: str
    by: str
    principal: str
    arguments_digest: str


def find_approval(subject: ApprovalSubject) -> tables.Approval | None:
    """Return the row that applies to a call now, ``None`` if there is none."""
    rows = _unexpired(rows_of_tenant(tables.Approval).filter(**asdict(subject)))
    approvals_by_state = {row.state: row for row in rows}
    return next(
        (approvals_by_state[state] for state in STATE_PRECEDENCE if state in approvals_by_state),
        None,
    )


def create_pending(subject: ApprovalSubject, **details: Any) -> tables.Approval:
    """Create a pending row."""
    row = tables.Approval(
        **asdict(subject), **details, expires_at=seconds_from_now(get_settings().approval_seconds)
    )
    row.save(using=write_alias(), force_insert=True)
    row.refresh_from_db(using=write_alias())
    return row


def use_approval(row: tables.Approval) -> bool:
    """Use an approval for a call; ``False`` if another call has used it, or it has expired."""
    granted = _unexpired(rows(tables.Approval).filter(pk=row.pk, state=GRANTED))
    return bool(granted.update(state=USED))


def release_approval(pk: int) -> None:
    """Make an approval usable again for a later round of its call, which has done nothing yet."""
    rows(tables.Approval).filter(pk=pk, state=USED).update(state=GRANTED)


def count_pending(server: str, user_key: str) -> int:
    """Return how many calls of a user are pending."""
    mine = rows_of_tenant(tables.Approval).filter(server=server, user_key=user_key, state=PENDING)
    return _unexpired(mine).count()


def find_by_code(code: str, server: str) -> tables.Approval | None:
    """Return the row with the code in the URL of an approval page."""
    return rows_of_tenant(tables.Approval).filter(code=code, server=server).first()


def is_pending(row: tables.Approval) -> bool:
    """Return whether the row is pending and has not expired."""
    return _unexpired(rows(tables.Approval).filter(pk=row.pk, state=PENDING)).exists()


def save_decision(row: tables.Approval, *, is_granted: bool, by: str, reason: str) -> bool:
    """Store the approver's decision; ``False`` if there was one before, or the row has expired."""
    decided = _unexpired(rows(tables.Approval).filter(pk=row.pk, state=PENDING)).update(
        state=GRANTED if is_granted else REFUSED,
        decided_at=Now(),
        decided_by=by,
        reason=reason,
        expires_at=seconds_from_now(get_settings().approval_seconds),
    )
    row.refresh_from_db(using=write_alias())
    return bool(decided)


def expired_approvals() -> QuerySet[tables.Approval]:
    """Return the rows whose retention is over."""
    return rows(tables.Approval).filter(
        expires_at__lt=seconds_ago(get_settings().retention.approvals)
    )


def _unexpired(queryset: QuerySet[tables.Approval]) -> QuerySet[tables.Approval]:
    return queryset.filter(expires_at__gt=Now())
