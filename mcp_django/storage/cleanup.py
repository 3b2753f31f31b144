"""Cleanup: delete expired rows, and anonymize a user in the call log and the approvals.

Rows are changed and deleted in chunks, so that no lock is held for long. The automatic sweep is
started by one process at most in ``SWEEP_SECONDS``. Other apps add their own rows that are due
through ``extra``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import router
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from mcp_django.conf import get_settings
from mcp_django.storage import approval_rows, databases
from mcp_django.storage.databases import before, rows, tables
from mcp_django.storage.versions import CLOCK, MANAGED

CHUNK = 500
# Whoever ended a session may still be writing to it.
GRACE_SECONDS = 60
SWEEP_SECONDS = 60
# What other apps have swept up here too: each gives what is due now, by name.
extra: list[Callable[[], dict[str, QuerySet[Any]]]] = []


def prune(report: Callable[[str, int], Any] | None = None) -> int:
    """Sweep up everything that is due, and return how many rows that were."""
    _close_late_tasks()
    total = 0
    for name, due in _due().items():
        count = sum(iter(partial(_sweep, due), 0))
        total += count
        if report is not None:
            report(name, count)
    return total


def is_due() -> bool:
    """Whether this process is to sweep now: no other one has within ``SWEEP_SECONDS``."""
    return databases.take("sweep", seconds=SWEEP_SECONDS)


def sweep_chunk() -> int:
    """Sweep up some of what is due, for who has other things to do meanwhile; 0 if nothing is."""
    _close_late_tasks()
    return next(filter(None, map(_sweep, _due().values())), 0)


def _due() -> dict[str, QuerySet[Any]]:
    settings = get_settings()
    retention = settings.retention
    idle = before(settings.session_idle + GRACE_SECONDS)
    over = Q(expires_at__lt=before(GRACE_SECONDS)) | Q(seen_at__lt=idle)
    topics = rows(tables.Topic).filter(changed_at__lt=before(settings.session_max_age))
    others = {name: due for more in extra for name, due in more().items()}
    return {
        **others,
        "streams": rows(tables.Stream).filter(expires_at__lt=Now()),
        "sessions": rows(tables.Session).filter(over),
        "approvals": approval_rows.due(),
        # Their clients can read them for a moment after their time.
        "tasks": rows(tables.Task).filter(expires_at__lt=before(GRACE_SECONDS)),
        "attachments": rows(tables.Attachment).filter(expires_at__lt=Now()),
        "inbox": rows(tables.Inbox).filter(created_at__lt=before(retention.inbox)),
        "leases": rows(tables.Lease).filter(until__lt=Now()),
        "workers": rows(tables.Worker).filter(beat_at__lt=before(retention.workers)),
        "security_events": _older(tables.AuthEvent, retention.security_events),
        "calls": _older(tables.Call, retention.calls),
        "topics": topics.exclude(pk__in=[MANAGED.digest, CLOCK.digest]),
    }


def _close_late_tasks() -> None:
    # Imported here, since ``task_rows`` publishes through the hub, and the hub sweeps.
    from mcp_django.storage import task_rows

    task_rows.close_late()


def _older(model: type[Model], retention: float) -> QuerySet[Any]:
    """The lines of a log that are older than its retention."""
    return _routed(model).filter(at__lt=timezone.now() - timedelta(seconds=retention))


def _routed(model: type[Model]) -> QuerySet[Any]:
    """The rows of a table that may be routed to a database of its own."""
    return model._default_manager.using(router.db_for_write(model))


def _sweep(due: QuerySet[Any]) -> int:
    pks = list(due.values_list("pk", flat=True)[:CHUNK])
    if pks:
        # What is not due any more stays.
        due.filter(pk__in=pks).delete()
    return len(pks)


# Anonymizing a user -------------------------------------------------------------------------------

FORGOTTEN = "forgotten"


def forget(name: str, *, key: str | None) -> dict[str, int]:
    """Anonymize a user, and return in how many rows of each kind that were.

    ``key`` is the one of a user who is there; one who was deleted is found by the name alone. With
    the name goes what could lead back to it: values and digests of arguments, the session, the
    registration of the client and the trace.

    The rows of the call log and the approvals stay and can be counted. Tasks are deleted: their
    content belongs to the caller alone, and they are not counted.
    """
    mine = Q(user_name=name) if key is None else Q(user_key=key)
    return {
        "calls": _change(
            tables.Call,
            mine,
            user_key=FORGOTTEN,
            user_name="",
            uri="",
            arguments=None,
            arguments_digest="",
            session="",
            client_id="",
            trace_id="",
        ),
        "calls_in_fact_by": _change(tables.Call, Q(acting_user=name), acting_user=FORGOTTEN),
        "approvals": _change(
            tables.Approval,
            mine,
            user_key=FORGOTTEN,
            user_name=FORGOTTEN,
            principal=FORGOTTEN,
            arguments={},
            arguments_digest="",
            preview=None,
        ),
        "decisions": _change(tables.Approval, Q(decided_by=name), decided_by=FORGOTTEN),
        # With a user who was deleted they are gone already.
        "tasks": 0 if key is None else _delete_tasks(key),
    }


def _delete_tasks(key: str) -> int:
    theirs = Q(principal=key) | Q(principal__startswith=f"{key}@")
    deleted, _ = rows(tables.Task).filter(theirs).delete()
    return deleted


def _change(model: type[Model], mine: Q, **changes: Any) -> int:
    """Change the rows in chunks, so that no lock is held for long; none of them matches again."""
    found = _routed(model)
    total = 0
    # From one key to the next: a name that is "forgotten" itself would be found for ever.
    last = 0
    while pks := list(
        found.filter(mine, pk__gt=last).order_by("pk").values_list("pk", flat=True)[:CHUNK]
    ):
        total += found.filter(pk__in=pks).update(**changes)
        last = pks[-1]
    return total
