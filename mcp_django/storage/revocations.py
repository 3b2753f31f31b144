"""Revoked access: notify every process, so that open streams check their callers immediately.

A notification says only that there is something to check: a process with an open stream checks
whether its caller is still authorized. A lost notification only delays; streams check again every
minute anyway.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from mcp_django.storage.cache import forget
from mcp_django.storage.databases import tables
from mcp_django.storage.pubsub import publish
from mcp_django.storage.sessions import session_tag
from mcp_django.storage.versions import REVOKED, TopicKey


def notify_revoked(*credentials: str) -> None:
    """Notify every stream whose principal has one of these credentials, to check it again.

    Call it after the commit. The strings are those of ``Principal.credential``; empty ones are
    ignored. Never raises.
    """
    if changed := [TopicKey("", "credential", one) for one in credentials if one]:
        publish(*changed, REVOKED)


def notify_user(pk: Any) -> None:
    """Notify every stream of a user, to check it again; after the commit. Never raises."""
    publish(TopicKey("", "user", str(pk)), REVOKED)


def revocation_topics(credential: str, user: Any) -> list[TopicKey]:
    """Return the topics of a caller's revocation; none if its access cannot be revoked."""
    found = [TopicKey("", "credential", credential)] if credential else []
    if user.is_authenticated:
        found.append(TopicKey("", "user", str(user.pk)))
    return found


# Signals of users, tokens and sessions ------------------------------------------------------------

# Signals report a saved or deleted instance: from the admin, a command, a view. A queryset's
# ``update`` sends none; streams then notice within a minute, requests after ``CONFIRM_SECONDS``.


def connect_receivers() -> None:
    """Connect the signal receivers; calling it again changes nothing."""
    user, uid = get_user_model(), "mcp_django.departures"
    post_save.connect(_user_saved, sender=user, dispatch_uid=uid)
    post_delete.connect(_user_deleted, sender=user, dispatch_uid=uid)
    post_save.connect(_token_saved, sender=tables.AccessToken, dispatch_uid=uid)
    post_delete.connect(_token_deleted, sender=tables.AccessToken, dispatch_uid=uid)
    for changed in (post_save, post_delete):
        changed.connect(_session_changed, sender=tables.Session, dispatch_uid=uid)


def _user_saved(instance: Any, *, created: bool, using: str, **kwargs: Any) -> None:
    known = "is_active" not in instance.get_deferred_fields()
    if not created and known and not instance.is_active:
        _after_commit(partial(notify_user, instance.pk), using)


def _user_deleted(instance: Any, *, using: str, **kwargs: Any) -> None:
    # Read the primary key now: after the delete it is ``None``.
    _after_commit(partial(notify_user, instance.pk), using)


def _token_saved(instance: tables.AccessToken, *, created: bool, using: str, **kwargs: Any) -> None:
    if not created and instance.revoked_at is not None:
        _after_commit(partial(notify_revoked, instance.credential), using)


def _token_deleted(instance: tables.AccessToken, *, using: str, **kwargs: Any) -> None:
    _after_commit(partial(notify_revoked, instance.credential), using)


def _session_changed(instance: tables.Session, *, using: str, **kwargs: Any) -> None:
    _after_commit(partial(forget, session_tag(instance.pk)), using)


def _after_commit(callback: Any, using: str) -> None:
    transaction.on_commit(callback, using=using, robust=True)
