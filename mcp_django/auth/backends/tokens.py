"""Access tokens of the site's own: issued once, stored as a digest, looked up on every request."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth.addresses import client_ip
from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.models import TOKEN_PREFIX, AccessToken, digest

# Writing the time of last use on every request would make every read a write.
LAST_USED_RESOLUTION = timedelta(minutes=1)


class TokenBackend(BaseBackend):
    """Looks a bearer up among the access tokens: one query."""

    @sensitive_variables("bearer")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The token's user, with the token's scopes; ``None`` for an unknown bearer.

        An unknown bearer may belong to a later backend, so only the last word refuses it.
        """
        bearer = credentials.bearer
        if bearer is None or not bearer.startswith(TOKEN_PREFIX):
            return None
        token = AccessToken.objects.select_related("user").filter(digest=digest(bearer)).first()
        if token is None or not token.is_usable:
            return None
        if (token.servers or token.networks) and not token.allows(
            server=credentials.server, address=client_ip(credentials.request())
        ):
            return None
        self._touch(token)
        return principal_for(
            token.user,
            # One token is one client: the session of another, with other scopes, is not its own.
            key=f"{key_of(token.user)}@token:{token.pk}",
            backend="tokens",
            scopes=frozenset(token.scopes),
            client_id=f"token:{token.pk}",
            credential=token.credential,
            expires_at=token.expires_at,
        )

    def is_current(self, principal: Principal) -> bool:
        """Whether the token still holds."""
        token = AccessToken.objects.select_related("user").filter(pk=principal.credential).first()
        return token is not None and token.is_usable

    def _touch(self, token: AccessToken) -> None:
        now = timezone.now()
        if token.last_used_at is None or now - token.last_used_at >= LAST_USED_RESOLUTION:
            AccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
