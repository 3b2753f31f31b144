"""Taking a person out of the call log and the approvals; the lines stay and can be counted.

Tasks go altogether: what they say is the caller's own, and nobody counts them.
"""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.models import Model, Q

from mcp_django.store.databases import rows, tables

CHUNK = 500
FORGOTTEN = "forgotten"


def forget(name: str, *, key: str | None) -> dict[str, int]:
    """Anonymize a user, and return in how many rows of each kind that were.

    ``key`` is the one of a user who is there; one who was deleted is found by the name alone. With
    the name goes what could lead back to it: values and digests of arguments, the session, the
    registration of the client and the trace.
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
    rows = model._default_manager.using(router.db_for_write(model))
    total = 0
    # From one key to the next: a name that is "forgotten" itself would be found for ever.
    last = 0
    while pks := list(
        rows.filter(mine, pk__gt=last).order_by("pk").values_list("pk", flat=True)[:CHUNK]
    ):
        total += rows.filter(pk__in=pks).update(**changes)
        last = pks[-1]
    return total
