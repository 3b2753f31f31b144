"""Who a subject of another issuer is here.

A subject is an ``ExternalIdentity`` after the first time, so a name that changes hands at the
issuer moves no account. Somebody unknown is nobody, unless the issuer's entry says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, router, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from mcp_django.conf_auth import ExternalIssuer
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import ExternalIdentity

logger = logging.getLogger("mcp_django.security")

MAX_SUBJECT = 255
LAST_USED_RESOLUTION = timedelta(minutes=1)


def user_of(entry: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """The active user that the ``sub`` of verified claims stands for.

    One query for a known subject, one more where the entry maps groups.

    Raises:
        AuthenticationRequired: nobody, or somebody who is inactive. Both answer alike.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise _nobody()
    identity = _known(entry, subject) or _introduced(entry, subject, claims)
    if not identity.user.is_active:
        raise _nobody()
    _touch(identity)
    if entry.groups:
        _sync_groups(entry, identity.user, claims)
    return identity.user


def _nobody() -> AuthenticationRequired:
    return AuthenticationRequired(
        "The token's subject has no active account here; ask the site's administrators.",
        error="invalid_token",
    )


def _introduced(entry: ExternalIssuer, subject: str, claims: Mapping[str, Any]) -> ExternalIdentity:
    """The identity of somebody who comes for the first time, kept if the entry lets him in."""
    with suppress(IntegrityError), transaction.atomic(using=router.db_for_write(ExternalIdentity)):
        user = _resolved(entry, claims) or _named(entry, claims)
        if user is not None and user.is_active:
            identity, is_new = ExternalIdentity.objects.get_or_create(
                issuer=entry.issuer, subject=subject, defaults={"user": user}
            )
            if is_new:
                logger.info("%s is the user %s from now on.", identity, user.pk)
            return identity
    # Another request may have brought the same subject meanwhile, and taken the name.
    found = _known(entry, subject)
    if found is None:
        raise _nobody()
    return found


def _known(entry: ExternalIssuer, subject: str) -> ExternalIdentity | None:
    identities = ExternalIdentity.objects.select_related("user")
    return identities.filter(issuer=entry.issuer, subject=subject).first()


def _resolved(entry: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    return import_string(entry.user)(claims, entry.issuer) if entry.user else None


def _named(entry: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """The user by the name in a claim: one who exists, or a new one, as the entry allows."""
    name = claims.get(entry.username_claim)
    if entry.unknown_users == "refuse" or not isinstance(name, str) or not name:
        return None
    if entry.username_claim == "email" and claims.get("email_verified") is not True:
        return None
    model = get_user_model()
    name = model.normalize_username(name)
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is not None:
        return user if "link" in entry.unknown_users else None
    return _created(name, claims) if "create" in entry.unknown_users else None


def _created(name: str, claims: Mapping[str, Any]) -> Any:
    """A user without a password and without permissions; ``None`` for a name that is none."""
    model = get_user_model()
    user = model(**{model.USERNAME_FIELD: name})
    email = claims.get("email")
    if claims.get("email_verified") is True and isinstance(email, str):
        setattr(user, model.get_email_field_name(), email)
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as exc:
        logger.info("No user can be made of a token's claims: %s", ", ".join(exc.message_dict))
        return None
    user.save(force_insert=True)
    return user


def _touch(identity: ExternalIdentity) -> None:
    """Note the use, at most once a minute: else each read would be a write."""
    now = timezone.now()
    if identity.last_used_at is None or now - identity.last_used_at >= LAST_USED_RESOLUTION:
        ExternalIdentity.objects.filter(pk=identity.pk).update(last_used_at=now)


def _sync_groups(entry: ExternalIssuer, user: Any, claims: Mapping[str, Any]) -> None:
    """Give and take the groups that the entry maps; a missing claim takes them all."""
    said = _claim(claims, entry.groups_claim)
    said = said if isinstance(said, list) else [said]
    wanted = {entry.groups[one] for one in said if isinstance(one, str) and one in entry.groups}
    mapped = set(entry.groups.values())
    held = set(user.groups.filter(name__in=mapped).values_list("name", flat=True))
    if wanted == held:
        return
    given = list(Group.objects.filter(name__in=wanted - held))
    user.groups.add(*given)
    user.groups.remove(*Group.objects.filter(name__in=held - wanted))
    absent = wanted - held - {group.name for group in given}
    if absent:
        logger.warning("%s maps to groups that do not exist: %s", entry.issuer, sorted(absent))


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name; where there is none of that name, dots lead into objects."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
