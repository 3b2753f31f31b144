"""The caller of a process that serves one client: whoever its environment says (IO-9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.http import HttpRequest

from mcp_django.auth.authentication import authenticate
from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, anonymous, principal_for, user_named
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers

BACKEND = "mcp_django.auth.local.LocalBackend"


class LocalBackend(BaseBackend):
    """Says of an open stream whether the user of the process is still active.

    It finds nobody in a request, so listing it in ``AUTH`` lets nobody in.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCaller:
    """A user by name, the owner of an access token, or nobody."""

    username: str = ""
    token: str = field(default="", repr=False)
    server: str = ""
    """The name of the server that the process serves; a token may be for others."""

    def principal(self) -> Principal:
        """The caller as of now; a user or token is looked up anew each time.

        Raises:
            AuthenticationRequired: there is no such user, or no longer, or the token does not hold.
        """
        if self.token:
            return authenticate(("tokens",), self._credentials())
        return self._user() if self.username else anonymous()

    def _credentials(self) -> Credentials:
        authorization = f"Bearer {self.token}".encode("latin-1", "replace")
        return Credentials(
            headers=Headers([(b"authorization", authorization)]),
            query="",
            request=HttpRequest,
            server=self.server,
        )

    def _user(self) -> Principal:
        user = user_named(self.username)
        if user is None or not user.is_active:
            raise AuthenticationRequired(
                f"The user {self.username!r} does not exist, or is inactive.", error="invalid_token"
            )
        return principal_for(user, backend=BACKEND)
