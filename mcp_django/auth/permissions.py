"""Permission classes for servers and components, modeled on REST framework's.

A permission is a class or instance of ``BasePermission``, a codename (``"shop.refund_order"``) or
a list of them, all of which are required.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q, QuerySet

from mcp_django.auth.principal import Principal

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"


class BasePermission:
    """The base class of permissions; subclass it and override ``has_permission``."""

    def __str__(self) -> str:
        return type(self).__name__

    def has_permission(self, principal: Principal) -> bool:
        """Return whether this caller may use what the permission protects."""
        return True

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return the users whom the permission allows; ``None`` if a query cannot determine them.

        The admin uses this to show how many users can use a component.
        """
        return None


class AllowAny(BasePermission):
    """Allows every caller, also without credentials."""

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return all users."""
        return users


class IsAuthenticated(BasePermission):
    """Allows callers with a valid credential."""

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller is authenticated."""
        return principal.is_authenticated

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return all users."""
        return users


class IsStaff(IsAuthenticated):
    """Allows users who may use the admin."""

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller is an active member of staff."""
        return principal.is_staff

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return the members of staff."""
        return users.filter(is_staff=True) if _has_field(users, "is_staff") else None


class HasCodename(BasePermission):
    """Allows users who have a Django permission (``app_label.codename``)."""

    def __init__(self, codename: str) -> None:
        if codename.count(".") != 1:
            raise ImproperlyConfigured(
                f"{codename!r} is not a permission: write 'app_label.codename', "
                "a permission class or a list of both."
            )
        self.codename = codename

    def __str__(self) -> str:
        return self.codename

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the user has the permission."""
        return principal.has_perm(self.codename)

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return the users with the permission, if only Django's own backend gives permissions."""
        manager = users.model._default_manager
        backends = [*settings.AUTHENTICATION_BACKENDS]
        if backends != [MODEL_BACKEND] or not hasattr(manager, "with_perm"):
            return None
        holders = manager.with_perm(self.codename, backend=MODEL_BACKEND)
        return users.filter(pk__in=holders.values("pk"))


class InGroups(BasePermission):
    """Allows users who are in one of the named groups, and superusers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def __str__(self) -> str:
        return f"group {' or '.join(sorted(self.names))}"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the user is in one of the groups; one query at most for each user."""
        return principal.is_in_group(self.names)

    def filter_users(self, users: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return the members of the groups, and superusers."""
        if not (_has_field(users, "groups") and _has_field(users, "is_superuser")):
            return None
        members = users.model._default_manager.filter(
            Q(groups__name__in=self.names) | Q(is_superuser=True)
        )
        return users.filter(pk__in=members.values("pk"))


def filter_allowed(permission: BasePermission, users: QuerySet[Any]) -> QuerySet[Any] | None:
    """Return the users whom a permission allows; ``None`` if a query cannot determine them.

    A subclass that overrides only ``has_permission`` does not inherit the query.
    """
    query, rule = (
        next(base for base in type(permission).__mro__ if name in vars(base))
        for name in ("filter_users", "has_permission")
    )
    return permission.filter_users(users) if issubclass(query, rule) else None


def filter_active(users: QuerySet[Any]) -> QuerySet[Any]:
    """Return the active users; all of them if the model has no such column."""
    return users.filter(is_active=True) if _has_field(users, "is_active") else users


def _has_field(users: QuerySet[Any], name: str) -> bool:
    return any(field.name == name for field in users.model._meta.get_fields())


_OWN = frozenset({AllowAny, IsAuthenticated, IsStaff, HasCodename, InGroups})


def needs_only_account(permission: BasePermission) -> bool:
    """Return whether a permission depends only on the cached data of a caller (``Account``).

    A permission of the site may use the database, and therefore needs a thread.
    """
    return type(permission) in _OWN


def parse_permissions(declared: Any) -> tuple[BasePermission, ...]:
    """Return the permission objects of a declaration; ``None`` requires no permission.

    Raises:
        ImproperlyConfigured: something other than a permission class or codename was declared.
    """
    if declared is None:
        return ()
    if isinstance(declared, Sequence) and not isinstance(declared, str):
        return tuple(
            permission for declaration in declared for permission in parse_permissions(declaration)
        )
    if isinstance(declared, BasePermission):
        return (declared,)
    if isinstance(declared, (str, type)):
        return (_parse_permission(declared),)
    raise _invalid_permission(declared)


@cache
def _parse_permission(declared: str | type) -> BasePermission:
    if isinstance(declared, str):
        return HasCodename(declared)
    if issubclass(declared, BasePermission):
        return declared()
    raise _invalid_permission(declared)


def _invalid_permission(declared: object) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"{declared!r} is not a permission: use a subclass of BasePermission or "
        "'app_label.codename'."
    )


def find_codenames(declared: Any) -> list[str]:
    """Return the codenames in a declaration; a value that is not a permission has none."""
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, HasCodename):
        return [declared.codename]
    if isinstance(declared, Sequence):
        return [codename for declaration in declared for codename in find_codenames(declaration)]
    return []
