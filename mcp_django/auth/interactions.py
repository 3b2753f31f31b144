"""Whose interaction it is: how a page finds out that its visitor is the caller who was sent there.

An interaction's id travels in a URL that anybody may get hold of. It names nobody, and says of one
person alone that it is theirs (ASK-16, ASK-17, ASK-19).
"""

from __future__ import annotations

import secrets
from typing import Any

from django.core.signing import BadSignature, Signer

from mcp_django.auth.principal import Principal, principal_for


def new_interaction(principal: Principal) -> str:
    """An id of 128 random bits and 66 characters, safe in a URL, that belongs to one principal."""
    return _signer(principal).sign(secrets.token_urlsafe(16))


def belongs_to(interaction_id: str | None, user: Any) -> bool:
    """Whether the interaction was begun by this user; nobody's belongs to nobody.

    A page that ``ctx.elicit_url`` sends people to asks this of ``request.user`` before it shows or
    takes anything.
    """
    if not interaction_id or not user.is_authenticated:
        return False
    try:
        _signer(principal_for(user)).unsign(interaction_id)
    except (BadSignature, UnicodeEncodeError):  # half a surrogate pair has no bytes to sign
        return False
    return True


def _signer(principal: Principal) -> Signer:
    return Signer(sep=".", salt=f"mcp_django.interaction:{principal.user_key}")
