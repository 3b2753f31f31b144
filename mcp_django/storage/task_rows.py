"""Rows of tasks; the status changes only by compare-and-set.

Two columns protect a row: its status, since a terminal one is final, and its ``run``, which counts
how often the function was started, so that a stalled worker cannot overwrite a later run. The
worker of a task has a lease and renews it. A task whose lease or time to live has expired is closed
as failed when it is read next.
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
from mcp_django.storage.databases import (
    digest_of_network,
    rows,
    rows_of_tenant,
    seconds_ago,
    seconds_from_now,
    tables,
    write_alias,
)
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey

# As ``Task.Status`` has them; models cannot be imported before the app registry is ready.
WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
OPEN_STATUSES = (WORKING, INPUT_REQUIRED)

LEASE_SECONDS = 30
# Arguments are stored with their task. For one caller, all arguments that are longer than the first
# limit, in bytes, may together have at most the second.
MAX_SHORT, MAX_LONG = 64 * 1024, 64 * 1024 * 1024

WORKER_GONE = "The worker that ran this task has stopped, and what it did so far is not known."
EXPIRED = "The task did not finish within its time to live."


def task_topic(pk: str) -> TopicKey:
    """Return the topic that is published whenever a task changes."""
    return TopicKey("", "task", pk)


def create_task(
    *,
    server: str,
    arguments: bytes,
    principal: Any,
    network: str | None = None,
    capabilities: Mapping[str, Any],
    client_info: Mapping[str, Any] | None,
    trace: Mapping[str, str],
    ttl: timedelta,
    poll: timedelta,
    session_pk: int | None = None,
    caller: Mapping[str, Any] | None = None,
    **columns: Any,
) -> tables.Task:
    """Create a task with the status ``working`` that is not enqueued yet.

    ``principal`` is the caller, ``network`` the source by which an anonymous caller is counted, and
    ``caller`` the other values of the principal that the run needs. ``columns`` are other columns,
    such as ``user``, the caller's row or ``None``.

    Raises:
        TooManyTasks: the caller has the maximum number of open tasks, or too long arguments in
            total; or all anonymous callers together have the maximum number of open tasks.
    """
    _check_room(tasks_of_principal(server, principal.key), network, len(arguments))
    scopes = principal.scopes
    row = tables.Task(
        server=server,
        arguments=arguments.decode(),
        principal=principal.key,
        network=digest_of_network(network),
        client_id=principal.client_id,
        backend=principal.backend,
        scopes=None if scopes is None else sorted(scopes),
        caller=dict(caller or {}),
        capabilities=dict(capabilities),
        client_info=dict(client_info or {}),
        trace=dict(trace),
        session=session_pk,
        ttl_ms=ttl // timedelta(milliseconds=1),
        poll_ms=poll // timedelta(milliseconds=1),
        expires_at=seconds_from_now(ttl.total_seconds()),
        **columns,
    )
    row.save(using=write_alias(), force_insert=True)
    row.refresh_from_db(using=write_alias())
    return row


def _check_room(tasks: QuerySet[tables.Task], network: str | None, size: int) -> None:
    settings = get_settings()
    most = settings.tasks_per_principal
    going_on = Q(status__in=OPEN_STATUSES, expires_at__gt=Now())
    if network is not None:
        together = settings.anonymous_factor * most
        if tasks.filter(going_on)[:together].count() >= together:
            raise TooManyTasks(
                f"Clients without credentials have {together} open tasks, the maximum; try later."
            )
        if not network:
            return
        tasks = tasks.filter(network=digest_of_network(network))
    if tasks.filter(going_on).count() >= most:
        raise TooManyTasks(f"You have {most} open tasks, the maximum; wait for one, or cancel one.")
    if size > MAX_SHORT:
        long = tasks.annotate(size=Length("arguments")).filter(size__gt=MAX_SHORT)
        if long.aggregate(sum=Sum("size", default=0))["sum"] + size > MAX_LONG:
            raise TooManyTasks(
                f"The arguments of your tasks, finished ones included, would exceed {MAX_LONG} "
                "bytes; wait until a task expires, or send less."
            )


def find_task(task_id: str, *, server: str, principal_key: str) -> tables.Task | None:
    """Return the task of this id, server and caller, or ``None``; close it first if it is late."""
    mine = tasks_of_principal(server, principal_key)
    row = mine.filter(pk=task_id).annotate(is_late=_late_condition()).first()
    if row is not None and row.is_late:
        # On SQLite, the run of this task may have locked the database with its own transaction.
        locked = (OperationalError,) if connections[write_alias()].vendor == "sqlite" else ()
        with suppress(*locked), transaction.atomic(using=write_alias()):
            close_expired([row.pk])
        row.refresh_from_db(using=write_alias())
    return row


def tasks_of_principal(server: str, principal_key: str) -> QuerySet[tables.Task]:
    """Return the tasks of a caller on a server, newest first."""
    mine = rows_of_tenant(tables.Task).filter(server=server, principal=principal_key)
    return mine.filter(expires_at__gt=seconds_ago(GRACE_SECONDS)).order_by(
        "-created_at", "-task_id"
    )


def cancel_task(task: tables.Task) -> bool:
    """Cancel a task; ``False`` if it was over already. Refreshes ``task``."""
    queryset = _open_task(task.pk)
    is_changed = _update_task(
        queryset, task.pk, status=CANCELLED, status_message="", **_final_changes()
    )
    task.refresh_from_db(using=write_alias())
    return is_changed


def store_responses(task: tables.Task, responses: Mapping[str, Any]) -> bool:
    """Store the responses to outstanding client requests, and ignore the others.

    ``True`` if no client request is outstanding afterwards: then the task is ``working`` again,
    with the number of its next run, and has to be enqueued. Refreshes ``task``.
    """
    while task.status == INPUT_REQUIRED:
        taken = {key: response for key, response in responses.items() if key in task.questions}
        if not taken:
            return False
        remaining = {key: question for key, question in task.questions.items() if key not in taken}
        changes: dict[str, Any] = {"questions": remaining, "answers": {**task.answers, **taken}}
        if not remaining:
            changes |= {"status": WORKING, "run": F("run") + 1, "lease_until": None}
        # Another HTTP request may store another response meanwhile; both have to be kept.
        unchanged = _open_task(task.pk).filter(status=INPUT_REQUIRED, step=task.step)
        is_changed = _update_task(unchanged, task.pk, **changes)
        task.refresh_from_db(using=write_alias())
        if is_changed:
            return not remaining
    return False


def start_run(pk: str, run: int) -> tables.Task | None:
    """Take the lease of a run, and return its task.

    ``None`` if the run was taken or cancelled, is outdated or is too late.
    """
    free = _open_task(pk).filter(status=WORKING, run=run, lease_until=None, expires_at__gt=Now())
    if not free.update(lease_until=seconds_from_now(LEASE_SECONDS)):
        return None
    return rows(tables.Task).get(pk=pk)


def renew_lease(pk: str, run: int) -> bool:
    """Renew the lease; ``False`` if the run is no longer wanted."""
    held = _leased_run(pk, run).filter(expires_at__gt=Now())
    return bool(held.update(lease_until=seconds_from_now(LEASE_SECONDS)))


def filter_wanted(runs: Mapping[str, int]) -> set[str]:
    """Return the tasks of those runs that are not cancelled, closed or expired."""
    tasks = rows(tables.Task).filter(pk__in=list(runs), status=WORKING, expires_at__gt=Now())
    return {pk for pk, run in tasks.values_list("pk", "run") if runs[pk] == run}


def set_status_message(pk: str, run: int, message: str) -> bool:
    """Set the status message, which reports the progress; ``False`` if the lease is lost."""
    return _update_task(_leased_run(pk, run), pk, status_message=storable(message))


def wait_for_responses(
    pk: str, run: int, questions: Mapping[str, Mapping[str, Any]], state: str
) -> bool:
    """End the run, and store client requests whose responses the task waits for.

    ``questions`` has the keys of the function. Clients get keys that were not used in this task
    before.
    """
    used_keys: dict[str, str] = (
        rows(tables.Task).filter(pk=pk).values_list("keys", flat=True).first() or {}
    )
    fresh: dict[str, str] = {}
    for key in questions:
        client_key, n = key, run
        while client_key in used_keys or client_key in fresh:
            client_key, n = f"{key}_{n}", n + 1
        fresh[client_key] = key
    return _update_task(
        _leased_run(pk, run),
        pk,
        status=INPUT_REQUIRED,
        questions={client_key: dict(questions[key]) for client_key, key in fresh.items()},
        answers={},
        keys={**used_keys, **fresh},
        state=state,
        lease_until=None,
    )


def finish_task(
    pk: str,
    run: int,
    *,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> bool:
    """End a task with its result, or with the JSON-RPC error that occurred.

    ``False`` if it was over before: a cancelled task stays cancelled.
    """
    changes: dict[str, Any] = {"status": FAILED if error is not None else COMPLETED}
    if message is not None or error is not None:
        changes["status_message"] = storable(str(error["message"] if error else message))
    return _update_task(
        _leased_run(pk, run), pk, result=result, error=error, **changes, **_final_changes()
    )


def fail_task(pk: str, message: str, *, code: int = INTERNAL_ERROR) -> bool:
    """End a task that cannot be run, with an error."""
    return _update_task(_open_task(pk), pk, **_failure_changes(message, code))


def close_expired(pks: Iterable[str] | None = None) -> int:
    """Close tasks with an expired lease or time to live as failed; return how many."""
    late = rows(tables.Task).filter(_late_condition())
    if pks is not None:
        late = late.filter(pk__in=list(pks))
    closed = 0
    annotated = late.annotate(is_expired=Q(expires_at__lte=Now()))
    for pk, is_expired in annotated.values_list("pk", "is_expired"):
        # Checked again in the same query: the lease may have been renewed.
        queryset = rows(tables.Task).filter(_late_condition(), pk=pk)
        closed += _update_task(
            queryset, pk, **_failure_changes(EXPIRED if is_expired else WORKER_GONE)
        )
    return closed


def _late_condition() -> Q:
    is_lost = Q(status=WORKING, lease_until__isnull=False, lease_until__lt=Now())
    return is_lost | (Q(expires_at__lte=Now()) & Q(status__in=OPEN_STATUSES))


def _failure_changes(message: str, code: int = INTERNAL_ERROR) -> dict[str, Any]:
    return {
        "status": FAILED,
        "status_message": message,
        "error": {"code": code, "message": message},
        **_final_changes(),
    }


def _final_changes() -> dict[str, Any]:
    """Return the changes at the end of a task: without a run, responses are not needed."""
    return {"lease_until": None, "questions": {}, "answers": {}, "state": ""}


def _open_task(pk: str) -> QuerySet[tables.Task]:
    return rows(tables.Task).filter(pk=pk, status__in=OPEN_STATUSES)


def _leased_run(pk: str, run: int) -> QuerySet[tables.Task]:
    return rows(tables.Task).filter(pk=pk, run=run, status=WORKING, lease_until__isnull=False)


def _update_task(queryset: QuerySet[tables.Task], pk: str, **changes: Any) -> bool:
    if not queryset.update(updated_at=Now(), step=F("step") + 1, **changes):
        return False
    publish(task_topic(pk))
    return True
