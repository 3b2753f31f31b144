"""Permission classes for servers and components, modeled on REST framework's.

A permission is a class or instance of ``BasePermission``, a codename (``"shop.refund_order"``) or
a list of them, all of which are required. ``can_connect`` returns whether a user may give a client
access to a server at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.auth.principal import Principal, principal_for
from mcp_django.conf import get_settings


class BasePermission:
    """The base class of permissions; subclass it and override ``has_permission``."""

    def __str__(self) -> str:
        return type(self).__name__

    def has_permission(self, principal: Principal) -> bool:
        """Return whether this caller may use what the permission protects."""
        return True


class AllowAny(BasePermission):
    """Allows every caller, also without credentials."""


class IsAuthenticated(BasePermission):
    """Allows callers with a valid credential."""

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller is authenticated."""
        return principal.is_authenticated


class IsStaff(IsAuthenticated):
    """Allows users who may use the admin."""

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller is an active member of staff."""
        user = principal.user
        return bool(super().has_permission(principal) and user.is_active and user.is_staff)


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
        return bool(principal.user.has_perm(self.codename))


class InGroups(BasePermission):
    """Allows users who are in one of the named groups, and superusers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def __str__(self) -> str:
        return f"group {' or '.join(sorted(self.names))}"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the user is in one of the groups; one query for each user object."""
        user = principal.user
        if not user.is_authenticated or not user.is_active:
            return False
        if user.is_superuser:
            return True
        known = getattr(user, "_mcp_group_names", None)
        if known is None:
            # Cached on the user object, as Django caches permissions.
            known = user._mcp_group_names = frozenset(user.groups.values_list("name", flat=True))
        return not self.names.isdisjoint(known)


def parse_permissions(declared: Any) -> tuple[BasePermission, ...]:
    """Return what was declared as permission objects; ``None`` requires no permission.

    Raises:
        ImproperlyConfigured: something other than a permission class or codename was declared.
    """
    if declared is None:
        return ()
    if isinstance(declared, Sequence) and not isinstance(declared, str):
        return tuple(permission for one in declared for permission in parse_permissions(one))
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
    """Return the codenames among what was declared; anything but a permission has none."""
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, HasCodename):
        return [declared.codename]
    if isinstance(declared, Sequence):
        return [codename for one in declared for codename in find_codenames(one)]
    return []


# Permission to connect ----------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")

Rule = Callable[[Any, Any, str], bool]


def can_connect(user: Any, server: Any, client_id: str) -> bool:
    """Return whether the server's permission and the site's rule let a user connect a client.

    Checked before the user is asked for consent, and on every request with a token. So a rejection
    takes effect immediately, for clients that were connected before as well. Overrides made in the
    admin apply as they are now, in whichever process they were made. A permission or rule that
    raises an exception rejects; the exception is in the log ``mcp_django``.

    Raises:
        Busy: the overrides are not known, and cannot be loaded.
    """
    server.refresh()
    catalog = server.catalog
    principal = principal_for(user, client_id=client_id)
    try:
        guards = (*parse_permissions(server.permission), *catalog.extra_permissions)
        may_enter = catalog.is_enabled and all(guard.has_permission(principal) for guard in guards)
    except Exception:
        logger.exception("A permission of the server %r raised an exception.", server.name)
        return False
    return may_enter and passes_site_rule(user, server, client_id)


def passes_site_rule(user: Any, server: Any, client_id: str) -> bool:
    """Return the result of the site's rule (``OAUTH["CAN_CONNECT"]``); without a rule, true.

    Raises:
        ImproperlyConfigured: the setting does not name a callable.
    """
    path = get_settings().oauth.can_connect
    if not path:
        return True
    rule = find_rule(path)
    try:
        return bool(rule(user, server, client_id))
    except Exception:
        logger.exception("OAUTH['CAN_CONNECT'] raised an exception, so the client is rejected.")
        return False


@cache
def find_rule(path: str) -> Rule:
    """Return the function at a dotted path.

    Raises:
        ImproperlyConfigured: the function does not exist.
    """
    try:
        rule: Rule = import_string(path)
    except ImportError as exc:
        raise ImproperlyConfigured(
            f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] names {path!r}, which cannot be imported ({exc})."
        ) from exc
    if not callable(rule):
        raise ImproperlyConfigured(
            f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] names {path!r}; write the dotted path of a "
            "function (user, server, client_id) -> bool."
        )
    return rule
