"""Which scopes exist, and which of them a client may ask for (RFC 6749, section 3.3).

Clients that registered themselves see the scopes of ``MCP_DJANGO["SCOPES"]`` alone; clients that
somebody registered by hand may also have what the site's other APIs use. ``offline_access`` is
known to the authorization server, because hosts add it unasked, and grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oauth2_provider.scopes import BaseScopes
from oauth2_provider.settings import oauth2_settings

from mcp_django.conf import get_settings
from mcp_django.oauth.conf import DeclaredScopes
from mcp_django.server import all_servers

OFFLINE_ACCESS = "offline_access"
MANUAL = "manual"


class Scopes(BaseScopes):  # type: ignore[misc]  # has no types
    """What the toolkit asks about scopes; the value of ``SCOPES_BACKEND_CLASS``."""

    def get_all_scopes(self) -> dict[str, str]:
        """Every scope of the site with its description."""
        inert = {OFFLINE_ACCESS: "Stay connected"}
        return inert | site_scopes() | dict(get_settings().scopes)

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """What a client may ask for without being refused."""
        return [*requestable(application), OFFLINE_ACCESS]

    def get_default_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """What a client gets that asks for nothing: what the servers of the site need of everybody.

        A client of the site's other APIs that names no server (RFC 8707) gets what the toolkit is
        configured to give.
        """
        is_other = is_manual(application) and not getattr(request, "resource", None)
        return _site_defaults() if is_other and site_scopes() else baseline(all_servers())


def requestable(application: Any) -> dict[str, str]:
    """What a client may be granted, with the descriptions; never ``offline_access``."""
    declared = dict(get_settings().scopes)
    return site_scopes() | declared if is_manual(application) else declared


def granted(asked: Iterable[str], application: Any) -> list[str]:
    """What a client gets of what it asks for: each known scope once, in the order asked.

    Unknown ones are dropped rather than refused (RFC 6749, section 3.3), since hosts ask for every
    scope that they have ever seen.
    """
    known = requestable(application)
    return [scope for scope in dict.fromkeys(asked) if scope in known]


def baseline(servers: Iterable[Any]) -> list[str]:
    """What some servers need of every caller, as far as it is declared."""
    declared = get_settings().scopes
    needed = (scope for server in servers for scope in server.scopes)
    return [scope for scope in dict.fromkeys(needed) if scope in declared]


def is_manual(application: Any) -> bool:
    """Whether somebody registered the client by hand, and so knows it."""
    return application is not None and application.registration_source == MANUAL


def site_scopes() -> dict[str, str]:
    """The scopes of the site's other APIs: its own ``OAUTH2_PROVIDER["SCOPES"]``."""
    scopes = oauth2_settings.SCOPES
    return {} if isinstance(scopes, DeclaredScopes) else dict(scopes)


def _site_defaults() -> list[str]:
    # Not by the toolkit's own property, which keeps what it saw first.
    names, scopes = oauth2_settings.DEFAULT_SCOPES, site_scopes()
    return list(scopes) if "__all__" in names else [name for name in names if name in scopes]
