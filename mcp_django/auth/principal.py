"""``Principal``: the authenticated caller of one request, and the scopes of its credential."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from django.contrib.auth import get_user_model

from mcp_django.conf import get_settings

# With what a client adds (at most 61) it fits the columns of sessions, which hold 255.
_MAX_ID = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls, how that was found out, and how far the credential reaches.

    ``key`` identifies the caller in tables and counters, and differs between two clients of one
    user; ``scopes`` is ``None`` for a credential that is not scoped (a session, the in-memory
    client); ``expires_at`` ends streams. ``credential`` is what can be revoked: every token that
    came of one sign-in shares it. ``audience`` is the resource an OAuth token was issued for. No
    token is held here, so none can be passed on (AUT-10).
    """

    key: str
    user: Any = field(repr=False)
    backend: str = ""
    scopes: frozenset[str] | None = None
    client_id: str = ""
    client_name: str = ""
    issuer: str = ""
    subject: str = ""
    audience: str = ""
    claims: Mapping[str, Any] = field(default_factory=dict, repr=False)
    credential: str = field(default="", repr=False)
    may_sign_in: bool = True
    """Of a caller without credentials: whether one could be presented where it calls."""
    expires_at: datetime | None = None

    @property
    def user_key(self) -> str:
        """Who it is, whatever the client."""
        return key_of(self.user)

    @property
    def is_authenticated(self) -> bool:
        """Whether any credential was accepted."""
        return bool(self.user.is_authenticated)


def principal_for(user: Any, **details: Any) -> Principal:
    """The principal of a user, or of nobody; ``key`` is the user's unless given."""
    if not user.is_authenticated:
        return anonymous()
    return Principal(user=user, **({"key": key_of(user)} | details))


def key_of(user: Any) -> str:
    """What names a user in tables and counters, in at most 128 characters."""
    return f"user:{_id_of(user.pk)}" if user.is_authenticated else "anonymous"


def user_named(name: str) -> Any:
    """The user of this name, ``None`` if there is none: no database has one with a NUL in it."""
    users = get_user_model()
    try:
        return None if "\0" in name else users._default_manager.get_by_natural_key(name)
    except (users.DoesNotExist, ValueError):
        return None


def anonymous(*, may_sign_in: bool = True) -> Principal:
    """The principal of a request without credentials."""
    # The model module of contrib.auth cannot be imported before the app registry is ready.
    from django.contrib.auth.models import AnonymousUser

    return Principal(
        key="anonymous", user=AnonymousUser(), scopes=frozenset(), may_sign_in=may_sign_in
    )


def _id_of(pk: Any) -> str:
    """A primary key without the ``@`` after which a client is named, and of bounded length.

    No quoted key has a colon in it, so none looks like a digest.
    """
    quoted = quote(str(pk), safe="")
    if len(quoted) <= _MAX_ID:
        return quoted
    return f"sha256:{hashlib.sha256(quoted.encode()).hexdigest()}"


# Scopes -------------------------------------------------------------------------------------------


def closure(granted: Iterable[str], implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The granted scopes with everything that they imply, through any number of steps (AUT-7)."""
    reached: set[str] = set()
    waiting = list(granted)
    while waiting:
        scope = waiting.pop()
        if scope not in reached:
            reached.add(scope)
            waiting.extend(implies.get(scope, ()))
    return frozenset(reached)


def missing(granted: frozenset[str] | None, needed: Iterable[str]) -> tuple[str, ...]:
    """The needed scopes that a credential lacks; one without scopes (``None``) lacks nothing."""
    if granted is None:
        return ()
    held = closure(granted, get_settings().scope_implies or {})
    return tuple(scope for scope in needed if scope not in held)
