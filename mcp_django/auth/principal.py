"""``Principal``: the authenticated caller of one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls, how that was found out, and how far the credential reaches.

    ``key`` identifies the caller in tables and counters; ``scopes`` is ``None`` for a credential
    that is not scoped (a session, the in-memory client); ``expires_at`` ends streams.
    """

    key: str
    user: Any = field(repr=False)
    backend: str = ""
    scopes: frozenset[str] | None = None
    client_id: str = ""
    credential: str = field(default="", repr=False)
    expires_at: datetime | None = None

    @property
    def is_authenticated(self) -> bool:
        """Whether any credential was accepted."""
        return bool(self.user.is_authenticated)


def principal_for(user: Any, **details: Any) -> Principal:
    """The principal of a user, or of nobody for an anonymous one."""
    if not user.is_authenticated:
        return anonymous()
    return Principal(key=f"user:{user.pk}", user=user, **details)


def anonymous() -> Principal:
    """The principal of a request without credentials."""
    # The model module of contrib.auth cannot be imported before the app registry is ready.
    from django.contrib.auth.models import AnonymousUser

    return Principal(key="anonymous", user=AnonymousUser(), scopes=frozenset())
