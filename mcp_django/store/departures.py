"""Who was sent away: users that were deactivated or deleted, tokens that were revoked.

Signals say so, for whatever saves one row: the admin, a command, a view. A queryset's ``update``
sends none; streams then find out within a minute.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from mcp_django.store.databases import tables
from mcp_django.store.revocations import announce_revoked, announce_user


def connect() -> None:
    """Listen from now on; calling it again changes nothing."""
    user, uid = get_user_model(), "mcp_django.departures"
    post_save.connect(_user_saved, sender=user, dispatch_uid=uid)
    post_delete.connect(_user_deleted, sender=user, dispatch_uid=uid)
    post_save.connect(_token_saved, sender=tables.AccessToken, dispatch_uid=uid)
    post_delete.connect(_token_deleted, sender=tables.AccessToken, dispatch_uid=uid)


def _user_saved(instance: Any, *, created: bool, using: str, **kwargs: Any) -> None:
    known = "is_active" not in instance.get_deferred_fields()
    if not created and known and not instance.is_active:
        _after_commit(partial(announce_user, instance.pk), using)


def _user_deleted(instance: Any, *, using: str, **kwargs: Any) -> None:
    # Its key is gone by the time of the commit.
    _after_commit(partial(announce_user, instance.pk), using)


def _token_saved(instance: tables.AccessToken, *, created: bool, using: str, **kwargs: Any) -> None:
    if not created and instance.revoked_at is not None:
        _after_commit(partial(announce_revoked, instance.credential), using)


def _token_deleted(instance: tables.AccessToken, *, using: str, **kwargs: Any) -> None:
    _after_commit(partial(announce_revoked, instance.credential), using)


def _after_commit(tell: Any, using: str) -> None:
    transaction.on_commit(tell, using=using, robust=True)
