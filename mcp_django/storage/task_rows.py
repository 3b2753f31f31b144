"""Tasks: rows that go from one status to the next by compare-and-set alone (TKD-5).

Two things guard a row: its status, since a terminal one is final, and its ``run``, which counts how
often the function was begun, so that a worker that stalled cannot write over a later one. Who runs
a task holds a lease and renews it. One that ran out, and a task older than its time to live, is
closed as failed by whoever looks at it next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Length, Now

from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManyTasks
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.protocol.text import storable
from mcp_django.storage.cleanup import GRACE_SECONDS
from mcp_django.storage.databases import after, alias, before, digest_of_network, rows, tables
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import Topic

# As ``Task.Status`` has them; models cannot be imported before the app registry is ready.
WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
OPEN = (WORKING, INPUT_REQUIRED)

LEASE_SECONDS = 30
# Arguments are kept with their task; of longer ones a caller may have so much in all.
MAX_SHORT, MAX_LONG = 64 * 1024, 64 * 1024 * 1024

GONE = "The worker that ran this task is gone, and what it did so far is not known."
EXPIRED = "The task did not finish within its time to live."


def topic_of(pk: str) -> Topic:
    """What is rung whenever a task changes."""
    return Topic("", "task", pk)


def create(
    *,
    server: str,
    tool: str,
    arguments: bytes,
    principal: Any,
    user: Any,
    network: str | None = None,
    capabilities: Mapping[str, Any],
    client_info: Mapping[str, Any] | None,
    trace: Mapping[str, str],
    protocol_version: str,
    state: str = "",
    ttl: timedelta,
    poll: timedelta,
    session_pk: int | None = None,
    engine: str = "",
    caller: Mapping[str, Any] | None = None,
) -> tables.Task:
    """Write a task down, ``working`` and not yet handed to anybody.

    ``principal`` is the caller, ``user`` the caller's row or ``None``, ``network`` what a caller
    without credentials is counted by, ``caller`` what else of the principal its run needs.

    Raises:
        TooManyTasks: the caller has as many that are not over as one may, or too long arguments in
            all; or all callers without credentials have as many together as they may.
    """
    _check_room(of_principal(server, principal.key), network, len(arguments))
    scopes = principal.scopes
    row = tables.Task(
        server=server,
        tool=tool,
        arguments=arguments.decode(),
        principal=principal.key,
        network=digest_of_network(network),
        user=user,
        client_id=principal.client_id,
        backend=principal.backend,
        scopes=None if scopes is None else sorted(scopes),
        caller=dict(caller or {}),
        capabilities=dict(capabilities),
        client_info=dict(client_info or {}),
        trace=dict(trace),
        protocol_version=protocol_version,
        session=session_pk,
        state=state,
        ttl_ms=ttl // timedelta(milliseconds=1),
        poll_ms=poll // timedelta(milliseconds=1),
        expires_at=after(ttl.total_seconds()),
        engine=engine,
    )
    row.save(using=alias(), force_insert=True)
    row.refresh_from_db(using=alias())
    return row


def _check_room(known: QuerySet[tables.Task], network: str | None, size: int) -> None:
    settings = get_settings()
    most = settings.tasks_per_principal
    going_on = Q(status__in=OPEN, expires_at__gt=Now())
    if network is not None:
        together = settings.anonymous_factor * most
        if known.filter(going_on)[:together].count() >= together:
            raise TooManyTasks(
                f"Clients without credentials have {together} tasks that are not over; try later."
            )
        if not network:
            return
        known = known.filter(network=digest_of_network(network))
    if known.filter(going_on).count() >= most:
        raise TooManyTasks(
            f"You have {most} tasks that are not over; wait for one, or cancel one.",
        )
    if size > MAX_SHORT:
        long = known.annotate(size=Length("arguments")).filter(size__gt=MAX_SHORT)
        if long.aggregate(sum=Sum("size", default=0))["sum"] + size > MAX_LONG:
            raise TooManyTasks(
                f"Your tasks have arguments of {MAX_LONG} bytes and more, those that are over "
                "included; wait until one is gone, or send less."
            )


def find(task_id: str, *, server: str, principal_key: str) -> tables.Task | None:
    """The task of this id if it is this caller's, on this server; else ``None``."""
    row = of_principal(server, principal_key).filter(pk=task_id).annotate(is_late=_late()).first()
    return _as_it_is(row)


def by_pk(pk: str) -> tables.Task | None:
    """The task of this id, whoever has it: for workers and the admin."""
    found = rows(tables.Task).filter(pk=pk, expires_at__gt=before(GRACE_SECONDS))
    return _as_it_is(found.annotate(is_late=_late()).first())


def _as_it_is(row: tables.Task | None) -> tables.Task | None:
    if row is not None and row.is_late:  # type: ignore[attr-defined]
        # The one writer of SQLite may be this very run, in a transaction of its own.
        locked = (OperationalError,) if connections[alias()].vendor == "sqlite" else ()
        with suppress(*locked), transaction.atomic(using=alias()):
            close_late([row.pk])
        row.refresh_from_db(using=alias())
    return row


def of_principal(server: str, principal_key: str) -> QuerySet[tables.Task]:
    """The tasks of a caller on a server, newest first."""
    mine = rows(tables.Task).filter(server=server, principal=principal_key)
    return mine.filter(expires_at__gt=before(GRACE_SECONDS)).order_by("-created_at", "-task_id")


# What clients do ----------------------------------------------------------------------------------


def cancel(task: tables.Task) -> bool:
    """Cancel a task; ``False`` where it was over already. The row given is read anew."""
    found = _open(task.pk)
    is_changed = _change(found, task.pk, status=CANCELLED, status_message="", **_over())
    task.refresh_from_db(using=alias())
    return is_changed


def answer(task: tables.Task, responses: Mapping[str, Any]) -> bool:
    """Take the answers to what is outstanding and leave the rest of them alone.

    ``True`` when nothing is outstanding any more: then the task works again, under the number of
    its next run, and is to be enqueued. The row given is read anew.
    """
    while task.status == INPUT_REQUIRED:
        taken = {key: one for key, one in responses.items() if key in task.questions}
        if not taken:
            return False
        left = {key: one for key, one in task.questions.items() if key not in taken}
        changes: dict[str, Any] = {"questions": left, "answers": {**task.answers, **taken}}
        if not left:
            changes |= {"status": WORKING, "run": F("run") + 1, "lease_until": None}
        # Another request may answer another question meanwhile; then both have to count.
        unchanged = _open(task.pk).filter(status=INPUT_REQUIRED, step=task.step)
        is_changed = _change(unchanged, task.pk, **changes)
        task.refresh_from_db(using=alias())
        if is_changed:
            return not left
    return False


# What the run does --------------------------------------------------------------------------------


def start(pk: str, run: int) -> tables.Task | None:
    """Take a run, with its lease; ``None`` where it was taken, cancelled or is of the past."""
    free = _open(pk).filter(status=WORKING, run=run, lease_until=None, expires_at__gt=Now())
    if not free.update(lease_until=after(LEASE_SECONDS)):
        return None
    return rows(tables.Task).get(pk=pk)


def renew(pk: str, run: int) -> bool:
    """Hold the lease for longer; ``False`` where the run is not wanted any more."""
    held = _held(pk, run).filter(expires_at__gt=Now())
    return bool(held.update(lease_until=after(LEASE_SECONDS)))


def still_wanted(runs: Mapping[str, int]) -> set[str]:
    """Those of several runs that nobody has cancelled or closed, and that are not too old."""
    found = rows(tables.Task).filter(pk__in=list(runs), status=WORKING, expires_at__gt=Now())
    return {pk for pk, run in found.values_list("pk", "run") if runs[pk] == run}


def tell(pk: str, run: int, message: str) -> bool:
    """Say how far it is."""
    return _change(_held(pk, run), pk, status_message=storable(message))


def asked(pk: str, run: int, questions: Mapping[str, Mapping[str, Any]], state: str) -> bool:
    """Wait for answers to these, by their keys within the function; the run is over.

    Clients see other keys, none of which was used in this task before (TKE-7).
    """
    known: dict[str, str] = (
        rows(tables.Task).filter(pk=pk).values_list("keys", flat=True).first() or {}
    )
    fresh: dict[str, str] = {}
    for key in questions:
        shown, n = key, run
        while shown in known or shown in fresh:
            shown, n = f"{key}_{n}", n + 1
        fresh[shown] = key
    return _change(
        _held(pk, run),
        pk,
        status=INPUT_REQUIRED,
        questions={shown: dict(questions[key]) for shown, key in fresh.items()},
        answers={},
        keys={**known, **fresh},
        state=state,
        lease_until=None,
    )


def finish(
    pk: str,
    run: int,
    *,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> bool:
    """End a task with its result, or with the JSON-RPC error that it met (TKE-6).

    ``False`` where it was over before: a cancelled task stays cancelled.
    """
    changes: dict[str, Any] = {"status": FAILED if error is not None else COMPLETED}
    if message is not None or error is not None:
        changes["status_message"] = storable(str(error["message"] if error else message))
    return _change(_held(pk, run), pk, result=result, error=error, **changes, **_over())


def fail(pk: str, message: str, *, code: int = INTERNAL_ERROR) -> bool:
    """End a task that nobody can run."""
    return _change(_open(pk), pk, **_failure(message, code))


# What ran out -------------------------------------------------------------------------------------


def close_late(pks: Iterable[str] | None = None) -> int:
    """Close as failed what no worker renews any more and what is over its time; how many."""
    late = rows(tables.Task).filter(_late())
    if pks is not None:
        late = late.filter(pk__in=list(pks))
    closed = 0
    for pk, is_expired in late.annotate(is_expired=_expired()).values_list("pk", "is_expired"):
        # Looked at again in the same statement: it may have been renewed.
        found = rows(tables.Task).filter(_late(), pk=pk)
        closed += _change(found, pk, **_failure(EXPIRED if is_expired else GONE))
    return closed


def _expired() -> Q:
    return Q(expires_at__lte=Now())


def _late() -> Q:
    is_lost = Q(status=WORKING, lease_until__isnull=False, lease_until__lt=Now())
    return is_lost | (_expired() & Q(status__in=OPEN))


def _failure(message: str, code: int = INTERNAL_ERROR) -> dict[str, Any]:
    return {
        "status": FAILED,
        "status_message": message,
        "error": {"code": code, "message": message},
        **_over(),
    }


def _over() -> dict[str, Any]:
    """What goes with the end: what its user said was for a run, and there is none any more."""
    return {"lease_until": None, "questions": {}, "answers": {}, "state": ""}


def _open(pk: str) -> QuerySet[tables.Task]:
    return rows(tables.Task).filter(pk=pk, status__in=OPEN)


def _held(pk: str, run: int) -> QuerySet[tables.Task]:
    return rows(tables.Task).filter(pk=pk, run=run, status=WORKING, lease_until__isnull=False)


def _change(found: QuerySet[tables.Task], pk: str, **changes: Any) -> bool:
    if not found.update(updated_at=Now(), step=F("step") + 1, **changes):
        return False
    announce(topic_of(pk))
    return True
