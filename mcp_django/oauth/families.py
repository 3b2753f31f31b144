"""Ending what was issued: a family is every token that came of one sign-in.

Whatever ends here is announced after the commit, so that open streams end as well.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import router, transaction
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.storage.revocations import announce_revoked


def is_live(family: uuid.UUID | None) -> bool:
    """Whether a family can still be refreshed."""
    tokens = get_refresh_token_model()._default_manager
    return bool(family and tokens.filter(token_family=family, revoked=None).exists())


def end_family(family: uuid.UUID) -> bool:
    """End every token of a family; whether one could still be refreshed."""
    was_live = is_live(family)
    get_refresh_token_model().revoke_family(family)
    _after_commit(partial(announce_revoked, f"family:{family}"))
    return was_live


def end_token(checksum: str) -> bool:
    """End an access token without a family, by the SHA-256 of its value; whether there was one."""
    found, _ = get_access_token_model()._default_manager.filter(token_checksum=checksum).delete()
    _after_commit(partial(announce_revoked, f"checksum:{checksum}"))
    return bool(found)


def family_of(access_token: Any) -> uuid.UUID | None:
    """The family that an access token belongs to, ``None`` for one that cannot be refreshed."""
    refresh = getattr(access_token, "refresh_token", None)
    found: uuid.UUID | None = refresh.token_family if refresh is not None else None
    return found


def _after_commit(do: Callable[[], None]) -> None:
    transaction.on_commit(do, using=router.db_for_write(get_access_token_model()))
