"""``Principal``: the authenticated caller of one request, and the scopes of its credential."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from django.contrib.auth import get_user_model

from mcp_django.conf import get_settings

# With the part of a client (at most 61 characters), a key fits the columns of 255 characters.
_MAX_ID = 120
ANONYMOUS = "anonymous"
"""The key of callers without credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user as the database confirmed it a moment ago, with the data that permissions need."""

    pk: Any
    key: str
    """The key of the user, the same for all clients."""
    username: str
    is_active: bool
    is_staff: bool
    is_superuser: bool
    codenames: frozenset[str]
    """The user's own permissions and those of the groups, as ``app_label.codename``."""
    groups: frozenset[str]


class Claims(Mapping[str, Any]):
    """The claims of a verified token, read from their JSON when they are used.

    A cached caller contains only their text, so that no two requests share a value that can be
    changed.
    """

    __slots__ = ("_read", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: dict[str, Any] | None = None

    def _claims(self) -> dict[str, Any]:
        if self._read is None:
            self._read = json.loads(self.text)
        return self._read

    def __getitem__(self, name: str) -> Any:
        return self._claims()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims())

    def __len__(self) -> int:
        return len(self._claims())

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def copy(self) -> dict[str, Any]:
        """Return the claims as a dictionary, which can be changed."""
        return dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller of a request, the backend that authenticated it, and its credential's scopes.

    ``key`` identifies the caller in tables and counters, and differs between two clients of one
    user; ``scopes`` is ``None`` for a credential without scopes (a session, the in-memory client);
    streams end at ``expires_at``. ``credential`` names what can be revoked: all tokens of one
    sign-in share it. ``audience`` is the resource that an OAuth token was issued for. The token
    itself is not stored here, so it cannot be passed on.
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
    """Whether a caller without credentials could present any that the server accepts."""
    expires_at: datetime | None = None
    account: Account | None = field(default=None, repr=False)
    """The user as the database confirmed it a moment ago; then ``user`` is loaded only if it is
    used. ``None`` if the user was loaded for this request."""

    @property
    def user_key(self) -> str:
        """The key of the user, the same for all clients."""
        return key_of(self.user) if self.account is None else self.account.key

    @property
    def user_pk(self) -> Any:
        """The primary key of the user, ``None`` for an anonymous caller."""
        return self.user.pk if self.account is None else self.account.pk

    @property
    def is_authenticated(self) -> bool:
        """Whether a credential was accepted."""
        return self.account is not None or bool(self.user.is_authenticated)

    @property
    def username(self) -> str:
        """The name of the user, empty for an anonymous caller."""
        if self.account is not None:
            return self.account.username
        return self.user.get_username()  # type: ignore[no-any-return]

    @property
    def is_staff(self) -> bool:
        """Whether the user is active and may use the admin."""
        user = self.account or self.user
        return bool(self.is_authenticated and user.is_active and user.is_staff)

    def has_perm(self, codename: str) -> bool:
        """Return whether the user has a permission (``app_label.codename``)."""
        account = self.account
        if account is None:
            return bool(self.user.has_perm(codename))
        return account.is_active and (account.is_superuser or codename in account.codenames)

    def is_in_group(self, names: frozenset[str]) -> bool:
        """Return whether the user is active and in one of the groups, or a superuser."""
        user = self.account or self.user
        if not self.is_authenticated or not user.is_active:
            return False
        if user.is_superuser:
            return True
        groups = _group_names(user) if self.account is None else self.account.groups
        return not names.isdisjoint(groups)


def principal_for(user: Any, **details: Any) -> Principal:
    """Return the principal of a user, which may be anonymous; ``key`` is the user's by default."""
    if not user.is_authenticated:
        return anonymous_principal()
    return Principal(user=user, **({"key": key_of(user)} | details))


def key_of(user: Any) -> str:
    """Return the key of a user in tables and counters, of at most 128 characters."""
    if not user.is_authenticated:
        return ANONYMOUS
    # Quoted, since ``@`` separates the client's name. A quoted key contains no colon, so it cannot
    # look like a digest.
    quoted = quote(str(user.pk), safe="")
    if len(quoted) > _MAX_ID:
        quoted = f"sha256:{hashlib.sha256(quoted.encode()).hexdigest()}"
    return f"user:{quoted}"


def _group_names(user: Any) -> frozenset[str]:
    """Return the names of a user's groups; one query for each user object."""
    names: frozenset[str] | None = getattr(user, "_mcp_group_names", None)
    if names is None:
        # Cached on the user object, as Django caches permissions.
        names = user._mcp_group_names = frozenset(user.groups.values_list("name", flat=True))
    return names


def find_user_by_name(name: str) -> Any:
    """Return the user of this name; ``None`` if there is none, or if the name contains a NUL."""
    users = get_user_model()
    try:
        return None if "\0" in name else users._default_manager.get_by_natural_key(name)
    except (users.DoesNotExist, ValueError):
        return None


def anonymous_principal(*, may_sign_in: bool = True) -> Principal:
    """Return the principal of a request without credentials."""
    user = _anonymous_user_class()()
    return Principal(key=ANONYMOUS, user=user, scopes=frozenset(), may_sign_in=may_sign_in)


@cache
def _anonymous_user_class() -> Any:
    # The model module of contrib.auth cannot be imported before the app registry is ready.
    from django.contrib.auth.models import AnonymousUser

    return AnonymousUser


def expand_scopes(granted: Iterable[str], implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the granted scopes with all scopes that they imply, through any number of steps."""
    reached: set[str] = set()
    waiting = list(granted)
    while waiting:
        scope = waiting.pop()
        if scope not in reached:
            reached.add(scope)
            waiting.extend(implies.get(scope, ()))
    return frozenset(reached)


def missing_scopes(granted: frozenset[str] | None, needed: Iterable[str]) -> tuple[str, ...]:
    """Return the needed scopes that a credential lacks; none if it has no scopes (``None``)."""
    if granted is None:
        return ()
    held = expand_scopes(granted, get_settings().scope_implies or {})
    return tuple(scope for scope in needed if scope not in held)
