"""What an authentication backend is."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth import get_user_model
from django.http import HttpRequest

from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal


class BaseBackend:
    """Finds the caller of a request. Runs in a worker thread and may use the database."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The caller, or ``None`` when the request carries nothing this backend looks at.

        Raises:
            AuthenticationRequired: it carries something of this backend's that does not hold.
        """
        return None

    def issuers(self, request: HttpRequest, server: str = "") -> Sequence[str]:
        """Who issues the tokens that this backend takes on the server of this name.

        They are the ``authorization_servers`` of the endpoint's metadata (RFC 9728). None, unless a
        backend knows better: then no client is sent anywhere for a token. Uses no database.
        """
        return ()

    def is_current(self, principal: Principal) -> bool:
        """Whether a principal of this backend would be let in again; open streams ask this.

        Unless a backend knows better: as long as the user is active.
        """
        users = get_user_model()._default_manager.filter(pk=principal.user.pk)
        return any(user.is_active for user in users)
