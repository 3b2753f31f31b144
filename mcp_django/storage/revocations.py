"""Revoked access: what each process forgets, and which open streams check their callers.

A change of a user, a token, a permission or a session names tags (``storage.cache``), so that no
process uses what it cached before. A revocation also notifies open streams: it says only that there
is something to check, and a process with an open stream checks whether its caller is still
authorized. A lost notification only delays; streams check again every minute anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from mcp_django.storage.cache import forget
from mcp_django.storage.databases import after_commit, tables
from mcp_django.storage.pubsub import publish
from mcp_django.storage.sessions import session_tag
from mcp_django.storage.versions import REVOKED, TopicKey


def notify_revoked(*credentials: str) -> None:
    """Notify every stream of a principal with one of these credentials, to check access again.

    Call it after the commit. The strings are those of ``Principal.credential``; empty ones are
    ignored. Never raises.
    """
    if changed := [
        TopicKey("", "credential", credential) for credential in credentials if credential
    ]:
        forget(*(_credential_tag(topic.uri) for topic in changed))
        publish(*changed, REVOKED)


def notify_user(pk: Any) -> None:
    """Notify every stream of a user, to check access again.

    Call it after the commit. Never raises.
    """
    forget(_user_tag(pk))
    publish(TopicKey("", "user", str(pk)), REVOKED)


def revocation_topics(credential: str, user: Any) -> list[TopicKey]:
    """Return the topics of a caller's revocation; none if its access cannot be revoked."""
    topics = [TopicKey("", "credential", credential)] if credential else []
    if user.is_authenticated:
        topics.append(TopicKey("", "user", str(user.pk)))
    return topics


# Every caller that is cached has this tag.
PERMISSIONS = "permissions"


def caller_tags(credential: str, user_pk: Any) -> list[str]:
    """Return the tags of the cached values of a caller."""
    return [PERMISSIONS, _user_tag(user_pk), *([_credential_tag(credential)] if credential else [])]


def identity_tag(pk: Any) -> str:
    """Return the tag of the cached values of a subject of another issuer."""
    return f"identity:{pk}"


def _user_tag(pk: Any) -> str:
    return f"user:{pk}"


def _credential_tag(credential: str) -> str:
    return f"credential:{credential}"


def connect_receivers() -> None:
    """Connect the signal receivers; calling it again changes nothing.

    Signals report a saved or deleted instance: from the admin, a command, a view. A queryset's
    ``update`` sends none; streams then notice within a minute, requests after ``CONFIRM_SECONDS``.
    """
    user, uid = get_user_model(), "mcp_django.departures"
    for signal, receiver, sender in (
        (post_save, _user_saved, user),
        (post_delete, _user_deleted, user),
        (post_save, _token_saved, tables.AccessToken),
        (post_delete, _token_deleted, tables.AccessToken),
        (post_save, _identity_changed, tables.ExternalIdentity),
        (post_delete, _identity_changed, tables.ExternalIdentity),
        (post_save, _session_changed, tables.Session),
        (post_delete, _session_changed, tables.Session),
        *_permission_receivers(user),
    ):
        # A proxy or a child of a model sends signals of its own.
        for model in [
            subclass for subclass in apps.get_models() if issubclass(subclass, sender)
        ] or [sender]:
            signal.connect(receiver, sender=model, dispatch_uid=uid)


def _permission_receivers(user: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield signal, receiver and sender of each change to the permissions of users."""
    group, permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for field in user._meta.many_to_many:
        # Relations to other models do not affect anything that is cached.
        if field.related_model in (group, permission):
            yield m2m_changed, _members_changed, getattr(user, field.name).through
    yield m2m_changed, _permissions_changed, group.permissions.through
    for model in (group, permission):
        yield post_save, _permissions_changed, model
        yield post_delete, _permissions_changed, model


def _user_saved(
    instance: Any, *, created: bool, using: str, update_fields: Any, **kwargs: Any
) -> None:
    # Neither a new user nor a login changes anything that is cached.
    if created or update_fields == {"last_login"}:
        return
    is_loaded = "is_active" not in instance.get_deferred_fields()
    is_revoked = is_loaded and not instance.is_active
    tag = _user_tag(instance.pk)
    changed = partial(notify_user, instance.pk) if is_revoked else partial(forget, tag)
    after_commit(changed, using=using)


def _user_deleted(instance: Any, *, using: str, **kwargs: Any) -> None:
    # Read the primary key now: after the delete it is ``None``.
    after_commit(partial(notify_user, instance.pk), using=using)


def _token_saved(instance: tables.AccessToken, *, created: bool, using: str, **kwargs: Any) -> None:
    if not created:
        is_revoked = instance.revoked_at is not None
        credential, tag = instance.credential, _credential_tag(instance.credential)
        changed = partial(notify_revoked, credential) if is_revoked else partial(forget, tag)
        after_commit(changed, using=using)


def _token_deleted(instance: tables.AccessToken, *, using: str, **kwargs: Any) -> None:
    after_commit(partial(notify_revoked, instance.credential), using=using)


def _identity_changed(
    instance: tables.ExternalIdentity, *, using: str, created: bool = False, **kwargs: Any
) -> None:
    if not created:
        after_commit(partial(forget, identity_tag(instance.pk)), using=using)
        after_commit(partial(notify_user, instance.user_id), using=using)


def _members_changed(
    instance: Any, *, action: str, reverse: bool, pk_set: Any, using: str, **kwargs: Any
) -> None:
    """Forget the users who were given a group or a permission, or lost it."""
    if not action.startswith("post_"):
        return
    if not reverse:
        tags = [_user_tag(instance.pk)]
    else:
        # If a group or permission is cleared, its users are no longer known.
        tags = [PERMISSIONS] if pk_set is None else [_user_tag(pk) for pk in pk_set]
    after_commit(partial(forget, *tags), using=using)


def _permissions_changed(*, using: str, **kwargs: Any) -> None:
    after_commit(partial(forget, PERMISSIONS), using=using)


def _session_changed(instance: tables.Session, *, using: str, **kwargs: Any) -> None:
    after_commit(partial(forget, session_tag(instance.pk)), using=using)
