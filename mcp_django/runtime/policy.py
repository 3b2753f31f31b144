"""Who may see and use what: the one place that decides it.

``visible`` answers for lists, completion and subscriptions, ``admit`` for use. A component that
the caller may not see answers exactly like one that does not exist.
"""

from __future__ import annotations

import logging

from mcp_django.auth.permissions import AllowAny, permissions
from mcp_django.auth.principal import Principal
from mcp_django.auth.scopes import missing
from mcp_django.components.component import Component
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired, ConnectionRefused, InsufficientScope
from mcp_django.runtime.ports import Server

logger = logging.getLogger("mcp_django")


def admit_connection(server: Server, principal: Principal) -> None:
    """Let a caller in at the door of a server.

    Raises:
        AuthenticationRequired: the server wants to know who is calling.
        ConnectionRefused: it knows, and this caller may not come in.
    """
    if all(one.has_permission(principal) for one in permissions(server.permission)):
        return
    if not principal.is_authenticated:
        raise AuthenticationRequired(
            "This server needs credentials: send 'Authorization: Bearer TOKEN'."
        )
    raise ConnectionRefused("You may not use this server.")


def visible(principal: Principal, component: Component) -> bool:
    """Whether the caller may know that the component exists."""
    if not all(one.has_permission(principal) for one in permissions(component.permission)):
        return False
    hides = get_settings().list_filter == "scopes"
    return not (hides and missing(principal.scopes, component.scopes))


def admit(principal: Principal, component: Component) -> bool:
    """Whether the caller may use the component; ``False`` means: answer as if it did not exist.

    Raises:
        AuthenticationRequired: nobody is known yet, and a known caller might be let in.
        InsufficientScope: the caller may, the credential may not; names every scope needed.
    """
    guards = permissions(component.permission)
    refusing = next((one for one in guards if not one.has_permission(principal)), None)
    if refusing is not None:
        # The caller must not learn of it; the owner, who wonders why, may.
        logger.info("The %s is hidden from %s by %s.", component, principal.key, refusing)
        if not principal.is_authenticated:
            raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
        return False
    lacking = missing(principal.scopes, component.scopes)
    if lacking and not principal.is_authenticated:
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
    if lacking:
        raise InsufficientScope(
            f"This needs the scope {' and '.join(lacking)}.", scopes=component.scopes
        )
    return True


def is_open(server: Server) -> bool:
    """Whether the server lets in everybody, and asks no database about it."""
    return all(type(guard) is AllowAny for guard in permissions(server.permission))


def depends_on_caller(server: Server, component: Component) -> bool:
    """Whether an answer may differ between callers, and so must not be cached publicly (CCH-3)."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)
