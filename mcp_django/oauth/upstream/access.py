"""``ctx.upstream("acme")``: the caller's own access at a provider, for a running call.

The provider's API gets the token that the provider issued to this site, never the token that the
MCP client sent (no token passthrough).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
from asgiref.sync import sync_to_async
from django.db import DatabaseError
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth.endpoints import origin_of
from mcp_django.conf import get_settings
from mcp_django.exceptions import ElicitationUnavailable, ToolError, UpstreamNotConnected
from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream import grants
from mcp_django.oauth.upstream.conf import UpstreamRefused, UpstreamUnavailable, provider_settings

if TYPE_CHECKING:
    from mcp_django.components.context import Context


def upstream_of(ctx: Context, name: str) -> Upstream:
    """Return the caller's access at a provider; ask the user to connect if there is none.

    Raises:
        UpstreamNotConnected: if the caller is anonymous, or is not connected and cannot be sent to
            the page to connect: the client does not support URL elicitation, or the URL of the site
            is unknown.
        ImproperlyConfigured: if the provider is not configured.
    """
    label, user = provider_settings(name).label, ctx.user
    if not user.is_authenticated:
        raise UpstreamNotConnected(f"Sign in first: access to {label} belongs to a user.")
    if grants.live_grant(user, name) is None:
        page = reverse("mcp_oauth:upstream_connect", kwargs={"provider": name})
        if ctx.request is not None:
            base = origin_of(ctx.request)
        else:
            parts = urlsplit(get_settings().base_url)
            base = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
        invitation = (
            f"Your account at {label} is not connected. Open {base}{page}, then call again."
        )
        if not base:
            raise UpstreamNotConnected(invitation)
        try:
            ctx.elicit_url(
                f"Connect your account at {label}.",
                f"{base}{page}?interaction={ctx.interaction_id}",
                done=lambda: grants.live_grant(user, name) is not None,
                key=f"upstream_{name}",
            )
        except ElicitationUnavailable:
            raise UpstreamNotConnected(invitation) from None
    return Upstream(user.pk, name, label)


class Upstream(httpx.Auth):
    """The access of one user at one provider. It has no cache: each use reads the database."""

    def __init__(self, user_id: Any, name: str, label: str) -> None:
        self._user_id = user_id
        self.name = name
        self.label = label

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}>"

    def token(self) -> str:
        """Return an access token, renewed first if it expires within 30 seconds.

        Raises:
            UpstreamNotConnected: if the access has ended.
            ToolError: if the provider does not respond.
        """
        # A renewal has to be committed even if the call fails or is read-only.
        return grants.run_outside_transaction(self._token)

    async def atoken(self) -> str:
        """Async version of ``token``."""
        return await sync_to_async(self.token)()

    def headers(self) -> dict[str, str]:
        """Return the token as request headers."""
        return {"Authorization": f"Bearer {self.token()}"}

    async def aheaders(self) -> dict[str, str]:
        """Async version of ``headers``."""
        return {"Authorization": f"Bearer {await self.atoken()}"}

    @property
    def auth(self) -> httpx.Auth:
        """Return an ``httpx`` authentication for ``httpx.get(url, auth=…)`` and clients.

        The token is sent to any URL requested with it: use it only for the provider's own URLs.
        """
        return self

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token to a request of ``httpx``."""
        request.headers.update(self.headers())
        yield request

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Add the token to a request of ``httpx.AsyncClient``."""
        request.headers.update(await self.aheaders())
        yield request

    @sensitive_variables()
    def _token(self) -> str:
        ended = f"The access to {self.label} has ended. Connect the account again."
        grant = UpstreamGrant.objects.filter(user_id=self._user_id, provider=self.name).first()
        if grant is None or grant.status != UpstreamGrant.Status.LIVE:
            raise UpstreamNotConnected(ended)
        try:
            return grants.decrypt(grants.renew_grant(grant).access_cipher)
        except UpstreamRefused:
            raise UpstreamNotConnected(ended) from None
        except UpstreamUnavailable:
            raise ToolError(f"{self.label} does not respond. Try again in a moment.") from None
        except DatabaseError as exc:
            # SQLite allows only one writer, and the transaction of the call already is the writer.
            raise ToolError(
                f"The access to {self.label} could not be renewed. The tool has to request it "
                "before it writes to the database."
            ) from exc
