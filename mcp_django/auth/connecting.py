"""Whether the site lets a user connect a server with a client at all (``OAUTH["CAN_CONNECT"]``).

Asked twice: before the user is asked for consent, and on every request with a token. So a no takes
effect at once, for clients that were let in before as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.auth.permissions import permissions
from mcp_django.auth.principal import principal_for
from mcp_django.conf import get_settings

logger = logging.getLogger("mcp_django")

Rule = Callable[[Any, Any, str], bool]


def can_connect(user: Any, server: Any, client_id: str) -> bool:
    """Whether a user may give a client access to a server: its permission, then the site's rule.

    What the owner of the site decided counts as it is now, whatever process he decided it in. A
    permission or rule that fails is a no; the reason is in the log ``mcp_django``.

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
    """What the site's rule says; without one everybody may.

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
