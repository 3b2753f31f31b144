"""Revoke access, for the user's own page, the admin and the revocation endpoint.

Each revocation is published after the commit, so that open streams are closed as well.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import router, transaction
from django.http import HttpRequest
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model

from mcp_django.auth import security_log
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.models import AuthEvent
from mcp_django.oauth.models import Consent
from mcp_django.oauth.upstream import bindings
from mcp_django.storage.revocations import notify_revoked


def revoke_access(
    user: Any,
    client_id: str,
    resource: str | None = None,
    *,
    request: HttpRequest | None = None,
    by: str = "",
) -> int:
    """Revoke a client's access for a user, at all servers or one.

    Deletes or revokes the consent, authorization codes, refresh tokens and access tokens in one
    transaction; open streams are notified afterwards. A token for several servers is revoked with
    any of them. Calling the function again has no effect. ``by`` is the name of the user who
    revokes the access of another user.

    Returns the number of consents, token families and access tokens without a family that ended.
    """
    consents = Consent.objects.filter(user=user, client_id=client_id)
    if resource is not None:
        consents = consents.filter(resource=resource)
    with transaction.atomic(using=router.db_for_write(Consent)):
        ended, _ = consents.delete()
        ended += _revoke_tokens(user, client_id, resource)
        if ended:
            details = {"resource": resource or "", "by": by}
            security_log.record_event(
                AuthEvent.Kind.REVOKE,
                request=request,
                user=user,
                client_id=client_id,
                **{name: value for name, value in details.items() if value},
            )
    return ended


def revoke_everything(user: Any, *, request: HttpRequest | None = None, by: str = "") -> int:
    """Revoke the access of every client for a user; return the number as ``revoke_access`` does."""
    client_ids = {
        client_id
        for model in (get_refresh_token_model(), get_access_token_model(), get_grant_model())
        for client_id in model.objects.filter(user=user, application__isnull=False).values_list(
            "application__client_id", flat=True
        )
    }
    client_ids |= set(Consent.objects.filter(user=user).values_list("client_id", flat=True))
    return sum(revoke_access(user, client_id, request=request, by=by) for client_id in client_ids)


def revoke_client(client_id: str, *, request: HttpRequest | None = None, by: str = "") -> int:
    """Revoke the access of a client for all users; return the number as ``revoke_access`` does."""
    users = {
        row.user
        for model in (get_refresh_token_model(), get_access_token_model())
        for row in model.objects.filter(
            application__client_id=client_id, user__isnull=False
        ).select_related("user")
    }
    users |= {
        row.user for row in Consent.objects.filter(client_id=client_id).select_related("user")
    }
    return sum(revoke_access(user, client_id, request=request, by=by) for user in users)


def _revoke_tokens(user: Any, client_id: str, resource: str | None) -> int:
    """Revoke codes and tokens; return how many token families and single tokens there were."""
    theirs = {"user": user, "application__client_id": client_id}
    for code in get_grant_model().objects.filter(**theirs):
        if _is_for(code, resource):
            code.delete()
    live = get_refresh_token_model().objects.filter(**theirs, revoked__isnull=True)
    refreshes = [token for token in live if _is_for(token, resource)]
    families = {token.token_family for token in refreshes} - {None}
    bindings.release_tokens(families=families)
    for family in families:
        revoke_family(family)
    for token in refreshes:
        if token.token_family is None:
            token.revoke()
    # The remaining tokens were issued without a refresh token, or outlived it.
    rest = get_access_token_model().objects.filter(**theirs)
    checksums = {token.token_checksum for token in rest if _is_for(token, resource)}
    bindings.release_tokens(checksums=checksums)
    for checksum in checksums:
        revoke_token(checksum)
    return len(families) + len(checksums)


def _is_for(row: Any, resource: str | None) -> bool:
    return resource is None or resource in {canonicalize_url(url) for url in row.resource}


# A token family is all tokens issued from one authorization, across refreshes.


def is_family_live(family: uuid.UUID | None) -> bool:
    """Return whether a family can still be refreshed."""
    tokens = get_refresh_token_model()._default_manager
    return bool(family and tokens.filter(token_family=family, revoked=None).exists())


def revoke_family(family: uuid.UUID) -> bool:
    """Revoke every token of a family; return whether it could still be refreshed."""
    was_live = is_family_live(family)
    get_refresh_token_model().revoke_family(family)
    _after_commit(partial(notify_revoked, f"family:{family}"))
    return was_live


def revoke_token(checksum: str) -> bool:
    """Delete an access token without a family by its SHA-256; return whether it existed."""
    count, _ = get_access_token_model()._default_manager.filter(token_checksum=checksum).delete()
    _after_commit(partial(notify_revoked, f"checksum:{checksum}"))
    return bool(count)


def revoke_machine_tokens(client_id: str) -> None:
    """Revoke the access tokens of a machine client."""
    tokens = get_access_token_model()._default_manager.filter(
        application__client_id=client_id,
        application__authorization_grant_type="client-credentials",
        refresh_token=None,
    )
    for checksum in list(tokens.values_list("token_checksum", flat=True)):
        revoke_token(checksum)


def family_of(access_token: Any) -> uuid.UUID | None:
    """Return the family of an access token, ``None`` if it has no refresh token."""
    refresh = getattr(access_token, "refresh_token", None)
    family: uuid.UUID | None = refresh.token_family if refresh is not None else None
    return family


def _after_commit(callback: Callable[[], None]) -> None:
    transaction.on_commit(callback, using=router.db_for_write(get_access_token_model()))
