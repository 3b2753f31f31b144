"""Who may see and use what: the one place that decides it.

``visible`` answers for lists, completion and subscriptions, ``admit`` for use. A component that
the caller may not see answers exactly like one that does not exist, and asks the database the same:
of both, the permissions of all components of the kind are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mcp_django.auth.permissions import AllowAny, permissions
from mcp_django.auth.principal import Principal, missing
from mcp_django.core.catalog import Server
from mcp_django.core.component import Component
from mcp_django.exceptions import (
    AuthenticationRequired,
    ConnectionRefused,
    InsufficientScope,
)
from mcp_django.runtime.journal.entry import Entry
from mcp_django.runtime.reasons import Verdicts, barriers, hindrances

logger = logging.getLogger("mcp_django")


def admit_connection(server: Server, principal: Principal) -> None:
    """Let a caller in at the door of a server.

    Who comes with an OAuth token has to have the server's own scopes as well; other credentials
    know nothing of them.

    Raises:
        AuthenticationRequired: the server wants to know who is calling.
        ConnectionRefused: it knows, and this caller may not come in; or its owner switched it off.
        InsufficientScope: the caller may, the token may not; names all scopes of the server.
    """
    reason = next(barriers(server, principal), None)
    if reason is None:
        return
    if reason.kind == "disabled":
        raise ConnectionRefused("This server is switched off.")
    if reason.kind == "rule":
        raise ConnectionRefused("You may not use this server with this client.")
    if reason.kind == "scopes":
        raise _too_few(principal, reason.scopes, server.scopes)
    if principal.is_authenticated:
        raise ConnectionRefused("You may not use this server.")
    raise AuthenticationRequired(
        "This server needs credentials: send 'Authorization: Bearer TOKEN'."
    )


def _too_few(
    principal: Principal, lacking: Iterable[str], needed: Iterable[str]
) -> InsufficientScope:
    return InsufficientScope(
        f"This needs the scope {' and '.join(lacking)}.",
        scopes=needed,
        granted=principal.scopes or (),
    )


def visible(
    principal: Principal, component: Component, *, verdicts: Verdicts | None = None
) -> bool:
    """Whether the caller may know that the component exists."""
    return next(hindrances(principal, component, verdicts=verdicts), None) is None


def admit(
    principal: Principal,
    component: Component | None,
    *,
    among: Iterable[Component] = (),
    entry: Entry | None = None,
    verdicts: Verdicts | None = None,
) -> bool:
    """Whether the caller may use the component; ``False`` means: answer as if it did not exist.

    ``None`` stands for one that does not. Neither is told from the other by its time, as the
    permissions of all ``among`` which the caller looked are asked then. The ``entry`` in the call
    log learns why.

    Raises:
        AuthenticationRequired: the caller has no credentials, and one might be let in with them.
        InsufficientScope: the caller may, the credential may not; names every scope needed.
    """
    verdicts = verdicts or Verdicts(principal)
    if component is None:
        verdicts.ask_all(among)
        logger.info("%s asked for something that is not there.", principal.key)
        return False
    guards = permissions(component.permission)
    refusing = next((one for one in guards if not verdicts.holds(one, component)), None)
    if refusing is not None:
        verdicts.ask_all(among)
        # The caller must not learn of it; the owner, who wonders why, may.
        logger.info("The %s is hidden from %s by %s.", component, principal.key, refusing)
        if entry is not None:
            entry.hidden_by(refusing)
        if not principal.is_authenticated and principal.may_sign_in:
            raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
        return False
    lacking = missing(principal.scopes, component.scopes)
    if lacking and not principal.is_authenticated:
        if not principal.may_sign_in:
            verdicts.ask_all(among)
            return False
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
    if lacking:
        raise _too_few(principal, lacking, component.scopes)
    return True


def is_open(server: Server) -> bool:
    """Whether the server lets in everybody, and asks no database about it."""
    guards = (*permissions(server.permission), *server.offered.guards)
    return all(type(guard) is AllowAny for guard in guards)


def depends_on_caller(server: Server, component: Component) -> bool:
    """Whether an answer may differ between callers, and so must not be cached publicly (CCH-3)."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)
