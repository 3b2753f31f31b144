"""A caller in the row of a task, and back: who runs it later has seen no credential."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models

from mcp_django.auth.authentication import refresh
from mcp_django.auth.principal import Principal, anonymous
from mcp_django.runtime.incoming import Incoming

if TYPE_CHECKING:
    from mcp_django.models import Task


DETAILS = ("client_name", "issuer", "subject", "audience", "claims", "credential")


def user_of(principal: Principal) -> Any:
    """The row of the caller's user, ``None`` for nobody."""
    user = principal.user
    # What ``request.user`` is lazy about is a row all the same.
    return user if user.is_authenticated and isinstance(user, models.Model) else None


def details_of(incoming: Incoming) -> dict[str, Any]:
    """What of a caller has no column."""
    principal = incoming.principal
    expires = principal.expires_at
    return {
        **{name: getattr(principal, name) for name in DETAILS},
        "expires_at": expires.isoformat() if expires is not None else None,
        "origin": incoming.origin,
        "acting": incoming.acting,
    }


def principal_of(row: Task) -> Principal | None:
    """The caller as it is now, ``None`` if it would not be let in any more. Uses the database.

    That an access token has expired meanwhile ends no task whose client can renew it. That it was
    revoked does, and so does the end of one that nothing renews.
    """
    if row.user is None:
        # A caller of whom there is no row cannot be looked up again.
        nobody = anonymous()
        return nobody if row.principal == nobody.key else None
    known = row.caller
    expires = known["expires_at"]
    scopes = row.scopes
    principal = Principal(
        key=row.principal,
        user=row.user,
        backend=row.backend,
        scopes=None if scopes is None else frozenset(scopes),
        client_id=row.client_id,
        expires_at=datetime.fromisoformat(expires) if expires else None,
        **{name: known[name] for name in DETAILS},
    )
    if not row.user.is_active:
        return None
    return refresh(principal)
