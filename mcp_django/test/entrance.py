"""How the user of a test enters over HTTP: by a bearer that means something in this process alone.

The door (``permission``), scopes and the permissions of components are asked as for everybody.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from weakref import WeakValueDictionary

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.server import MCPServer
from mcp_django.test.under_test import ServerUnderTest

BACKEND = "mcp_django.test.entrance.EntranceBackend"


class Entrance(ServerUnderTest):
    """A server that knows the bearer of one client besides all that it knows itself."""

    def __init__(self, server: MCPServer, principal: Principal) -> None:
        super().__init__(server)
        self.bearer = ""
        self.principal = principal
        if principal.is_authenticated:
            self.bearer = secrets.token_urlsafe(16)
            self.principal = replace(principal, backend=BACKEND)
            _entrances[self.bearer] = self

    @property
    def auth(self) -> tuple[str, ...]:
        """The server's own backends, after the one of this client."""
        return (BACKEND, *self._server.auth)


class EntranceBackend(BaseBackend):
    """Knows the bearers of the clients of this process; in use for their servers alone."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The user of the client that the bearer belongs to."""
        entrance = _entrances.get(credentials.bearer or "")
        return entrance.principal if entrance is not None else None


_entrances: WeakValueDictionary[str, Entrance] = WeakValueDictionary()
