"""Permission classes for servers and components, in the manner of REST framework.

A permission is a class or instance of ``BasePermission``, a codename (``"shop.refund_order"``) or
a list of them, all of which must hold. ``can_connect`` says whether a user may give a client
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
    """Says yes or no for one caller; subclass it and override ``has_permission``."""

    def __str__(self) -> str:
        return type(self).__name__

    def has_permission(self, principal: Principal) -> bool:
        """Whether this caller may use what the permission guards."""
        return True


class AllowAny(BasePermission):
    """Everybody, also without credentials."""


class IsAuthenticated(BasePermission):
    """Whoever presented a valid credential."""

    def has_permission(self, principal: Principal) -> bool:
        """Whether the caller is known."""
        return principal.is_authenticated


class IsStaff(IsAuthenticated):
    """Users who may enter the admin."""

    def has_permission(self, principal: Principal) -> bool:
        """Whether the caller is an active member of staff."""
        user = principal.user
        return bool(super().has_permission(principal) and user.is_active and user.is_staff)


class HasCodename(BasePermission):
    """Users who hold a Django permission (``app_label.codename``)."""

    def __init__(self, codename: str) -> None:
        if codename.count(".") != 1:
            raise ImproperlyConfigured(
                f"{codename!r} is no permission: write 'app_label.codename', "
                "a permission class or a list of both."
            )
        self.codename = codename

    def __str__(self) -> str:
        return self.codename

    def has_permission(self, principal: Principal) -> bool:
        """Whether the user's permissions hold the codename."""
        return bool(principal.user.has_perm(self.codename))


class InGroups(BasePermission):
    """Users who are in one of these groups, named; a superuser needs to be in none."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def __str__(self) -> str:
        return f"group {' or '.join(sorted(self.names))}"

    def has_permission(self, principal: Principal) -> bool:
        """Whether the user is in one of them; asked once for each user of a request."""
        user = principal.user
        if not user.is_authenticated or not user.is_active:
            return False
        if user.is_superuser:
            return True
        known = getattr(user, "_mcp_group_names", None)
        if known is None:
            # As permissions are kept on a user, too, for as long as the object lives.
            known = user._mcp_group_names = frozenset(user.groups.values_list("name", flat=True))
        return not self.names.isdisjoint(known)


def permissions(declared: Any) -> tuple[BasePermission, ...]:
    """What was declared, as permission objects; nothing declared guards nothing.

    Raises:
        ImproperlyConfigured: something else than a permission class or codename was declared.
    """
    if declared is None:
        return ()
    if isinstance(declared, Sequence) and not isinstance(declared, str):
        return tuple(permission for one in declared for permission in permissions(one))
    if isinstance(declared, BasePermission):
        return (declared,)
    if isinstance(declared, (str, type)):
        return (_permission(declared),)
    raise _none(declared)


@cache
def _permission(declared: str | type) -> BasePermission:
    if isinstance(declared, str):
        return HasCodename(declared)
    if issubclass(declared, BasePermission):
        return declared()
    raise _none(declared)


def _none(declared: object) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"{declared!r} is no permission: use a subclass of BasePermission or 'app_label.codename'."
    )


def codenames(declared: Any) -> list[str]:
    """The codenames among what was declared; what is no permission at all has none."""
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, HasCodename):
        return [declared.codename]
    if isinstance(declared, Sequence):
        return [codename for one in declared for codename in codenames(one)]
    return []


# Permission to connect ----------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")

Rule = Callable[[Any, Any, str], bool]


def can_connect(user: Any, server: Any, client_id: str) -> bool:
    """Whether a user may give a client access to a server: its permission, then the site's rule.

    Asked before the user is asked for consent, and on every request with a token. So a refusal
    takes effect at once, for clients that were connected before as well. What the owner of the site
    decided counts as it is now, whatever process he decided it in. A permission or rule that fails
    is a no; the reason is in the log ``mcp_django``.

    Raises:
        Busy: what he decided is not known, and cannot be read.
    """
    server.refresh()
    offered = server.offered
    principal = principal_for(user, client_id=client_id)
    try:
        guards = (*permissions(server.permission), *offered.guards)
        may_enter = offered.is_enabled and all(guard.has_permission(principal) for guard in guards)
    except Exception:
        logger.exception("A permission of the server %r failed.", server.name)
        return False
    return may_enter and approves(user, server, client_id)


def approves(user: Any, server: Any, client_id: str) -> bool:
    """What the site's rule says (``OAUTH["CAN_CONNECT"]``); without one everybody may.

    Raises:
        ImproperlyConfigured: the setting names nothing that can be called.
    """
    path = get_settings().oauth.can_connect
    if not path:
        return True
    rule = find_rule(path)
    try:
        return bool(rule(user, server, client_id))
    except Exception:
        logger.exception("OAUTH['CAN_CONNECT'] failed, so nobody is let in.")
        return False


@cache
def find_rule(path: str) -> Rule:
    """The function at a dotted path.

    Raises:
        ImproperlyConfigured: there is none.
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
