"""Cleanup: delete expired rows, and anonymize a user in the call log and the approvals.

Rows are changed and deleted in chunks, so that no lock lasts long. At most one process starts the
automatic sweep within ``SWEEP_SECONDS``. Other apps add their own expired rows through
``extra_cleanups``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.db import router
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Now
from django.db.models.signals import post_delete
from django.utils import timezone

from mcp_django.conf import get_settings
from mcp_django.storage import approval_rows
from mcp_django.storage.databases import after_commit, rows, seconds_ago, tables, take_lease
from mcp_django.storage.versions import CLOCK, OVERRIDES, increment_versions
from mcp_django.tenants import (
    DjangoTenants,
    bound_tenant,
    current_tenant,
    is_shared,
    is_tenant_app,
    thread_context,
)

CHUNK_SIZE = 500
# The process that ended a session may still be writing to it.
GRACE_SECONDS = 60
SWEEP_SECONDS = 60
# Functions called before each cleanup, to close late rows that have not ended.
closers: list[Callable[[], Any]] = []
# Functions of other apps, each of which returns the expired rows to delete, by name.
extra_cleanups: list[Callable[[], dict[str, QuerySet[Any]]]] = []


def delete_expired(report: Callable[[str, int], Any] | None = None) -> int:
    """Delete all expired rows, and return how many."""
    for close in closers:
        close()
    total = 0
    for name, due in _expired_rows().items():
        count = sum(iter(partial(_delete_chunk, due), 0))
        total += count
        if report is not None:
            report(name, count)
    return total


take_sweep_lease = partial(take_lease, "sweep", seconds=SWEEP_SECONDS)
"""Return whether this process has to sweep now: no process has swept within ``SWEEP_SECONDS``."""


def delete_expired_chunk() -> int:
    """Delete one chunk of expired rows, and return how many; 0 if there are none."""
    for close in closers:
        close()
    return next(filter(None, map(_delete_chunk, _expired_rows().values())), 0)


def _expired_rows() -> dict[str, QuerySet[Any]]:
    settings = get_settings()
    retention = settings.retention
    idle = seconds_ago(settings.session_idle + GRACE_SECONDS)
    over = Q(expires_at__lt=seconds_ago(GRACE_SECONDS)) | Q(seen_at__lt=idle)
    topics = rows(tables.Topic).filter(changed_at__lt=seconds_ago(settings.session_max_age))
    others = {name: due for more in extra_cleanups for name, due in more().items()}
    if thread_context() is not None and is_shared(bound_tenant()):
        # No tenant is entered here, so tables that each tenant has of its own are left out.
        others = {
            name: due
            for name, due in others.items()
            if not is_tenant_app(due.model._meta.app_config.name)
        }
    return {
        "streams": rows(tables.Stream).filter(expires_at__lt=Now()),
        "sessions": rows(tables.Session).filter(over),
        "approvals": approval_rows.expired_approvals(),
        # Clients can read an expired task for a moment.
        "tasks": rows(tables.Task).filter(expires_at__lt=seconds_ago(GRACE_SECONDS)),
        "attachments": rows(tables.Attachment).filter(expires_at__lt=Now()),
        "inbox": rows(tables.Inbox).filter(created_at__lt=seconds_ago(retention.inbox)),
        "leases": rows(tables.Lease).filter(until__lt=Now()),
        "workers": rows(tables.Worker).filter(beat_at__lt=seconds_ago(retention.workers)),
        "security_events": _older_than(tables.AuthEvent, retention.security_events),
        "calls": _older_than(tables.Call, retention.calls),
        "topics": topics.exclude(pk__in=[OVERRIDES.digest, CLOCK.digest]),
        **others,
    }


def _older_than(model: type[Model], retention: float) -> QuerySet[Any]:
    """Return the rows of a log that are older than its retention."""
    return _routed_rows(model).filter(at__lt=timezone.now() - timedelta(seconds=retention))


def _routed_rows(model: type[Model]) -> QuerySet[Any]:
    """Return the rows of a table that may be routed to a database of its own."""
    return model._default_manager.using(router.db_for_write(model))


def _delete_chunk(due: QuerySet[Any]) -> int:
    pks = list(due.values_list("pk", flat=True)[:CHUNK_SIZE])
    if pks:
        # Filtered again: rows that were renewed meanwhile stay.
        due.filter(pk__in=pks).delete()
    return len(pks)


FORGOTTEN = "forgotten"


def anonymize_user(name: str, *, key: str | None) -> dict[str, int]:
    """Anonymize a user, and return the number of changed rows of each kind.

    ``key`` is the key of an existing user; a deleted one is found by the name alone. Everything
    that could identify the user is removed with the name: values and digests of arguments, the
    session, the registration of the client and the trace.

    On a site with tenants, the user is one of the current tenant.

    The rows of the call log and the approvals stay, for statistics. Tasks are deleted: their
    content belongs to the caller alone, and no statistics use them.
    """
    here = Q() if thread_context() is None else Q(tenant=current_tenant())
    mine = here & (Q(user_name=name) if key is None else Q(user_key=key))
    tasks = here & (Q(principal=key) | Q(principal__startswith=f"{key}@"))
    return {
        "calls": _update_in_chunks(
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
        "calls_in_fact_by": _update_in_chunks(
            tables.Call, here & Q(acting_user=name), acting_user=FORGOTTEN
        ),
        "approvals": _update_in_chunks(
            tables.Approval,
            mine,
            user_key=FORGOTTEN,
            user_name=FORGOTTEN,
            principal=FORGOTTEN,
            arguments={},
            arguments_digest="",
            preview=None,
        ),
        "decisions": _update_in_chunks(
            tables.Approval, here & Q(decided_by=name), decided_by=FORGOTTEN
        ),
        # The tasks of a deleted user were deleted with the user.
        "tasks": 0 if key is None else rows(tables.Task).filter(tasks).delete()[0],
    }


def delete_tenant(tenant: str) -> dict[str, int]:
    """Delete every row of a tenant that no longer exists, and return how many by model.

    A later tenant of this name must not get its tokens, sessions and decisions. Rows in other
    tables that belong to its sessions and texts are deleted with them.
    """
    counts = {
        model._meta.verbose_name_raw: sum(
            iter(partial(_delete_chunk, _routed_rows(model).filter(tenant=tenant)), 0)
        )
        for model in apps.get_app_config("mcp_django").get_models()
        if hasattr(model, "tenant") and not model._meta.proxy
    }
    # Other processes read its overrides again.
    increment_versions([OVERRIDES])
    return counts


def connect_tenants() -> None:
    """Connect the receiver that deletes the rows of a tenant when django-tenants deletes it."""
    # Not by ``thread_context``: the site's class may not be importable yet.
    name = getattr(django_settings, "TENANT_MODEL", None)
    if apps.is_installed("django_tenants") and name:
        model = apps.get_model(name)
        post_delete.connect(_tenant_deleted, sender=model, dispatch_uid="mcp_django.tenants")


def _tenant_deleted(instance: Any, *, using: str, **kwargs: Any) -> None:
    if isinstance(thread_context(), DjangoTenants):
        after_commit(partial(delete_tenant, str(instance.schema_name)), using=using)


def _update_in_chunks(model: type[Model], mine: Q, **changes: Any) -> int:
    """Change the rows in chunks, so that no lock lasts long, and return how many."""
    queryset = _routed_rows(model)
    total = 0
    # In the order of primary keys: a user named "forgotten" would otherwise match forever.
    last = 0
    while pks := list(
        queryset.filter(mine, pk__gt=last).order_by("pk").values_list("pk", flat=True)[:CHUNK_SIZE]
    ):
        total += queryset.filter(pk__in=pks).update(**changes)
        last = pks[-1]
    return total
