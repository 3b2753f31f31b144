"""A provider as its client sees it: OAuth 2.1 with PKCE, and OpenID Connect where it is asked for.

The protocol is Authlib's; the bytes go through ``http``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from httpx import HTTPStatusError

from mcp_django.oauth.upstream.conf import ProviderSettings, provider_settings
from mcp_django.oauth.upstream.discovery import Endpoints, endpoints_of
from mcp_django.oauth.upstream.errors import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.http import Session, fetch, json_of
from mcp_django.oauth.upstream.identity import read_id_token

# A century: further on, dates end.
MAX_SECONDS = 100 * 365 * 24 * 3600
# What says that asking again is useless (RFC 6749, section 5.2); the rest may be our configuration.
FINAL_ERRORS = frozenset({"invalid_grant", "access_denied", "unauthorized_client"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a token endpoint answered."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    scopes: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    refresh_expires_at: datetime | None = None


class Provider:
    """One provider of ``OAUTH["UPSTREAM"]``.

    Every method but ``authorize_url`` of a provider with configured endpoints may take up to ten
    seconds and raises ``UpstreamUnavailable`` when it gets no usable answer.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: ProviderSettings = provider_settings(name)

    def __repr__(self) -> str:
        return f"<Provider {self.name!r}>"

    @cached_property
    def endpoints(self) -> Endpoints:
        """Where to ask for what."""
        return endpoints_of(self.settings)

    @sensitive_variables()
    def authorize_url(self, *, state: str, nonce: str, verifier: str, redirect_uri: str) -> str:
        """Where the user goes to let us in."""
        extra: dict[str, Any] = dict(self.settings.authorize_parameters)
        if self.settings.is_openid:
            extra["nonce"] = nonce
        url, _ = self._client(redirect_uri).create_authorization_url(
            self._need("authorization_endpoint"), state=state, code_verifier=verifier, **extra
        )
        return str(url)

    @sensitive_variables()
    def exchange(self, *, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """The tokens for a code.

        Raises:
            UpstreamRefused: the code does not hold.
        """
        client, url = self._client(redirect_uri), self._need("token_endpoint")
        return self._tokens(
            lambda: client.fetch_token(
                url, grant_type="authorization_code", code=code, code_verifier=verifier
            )
        )

    @sensitive_variables()
    def identify(self, tokens: Tokens, *, nonce_digest: str) -> Mapping[str, Any]:
        """Who signed in, as claims; empty where the provider is not asked to say.

        Raises:
            UpstreamRefused: the ID token is missing or does not hold.
        """
        if not self.settings.is_openid:
            return {}
        return read_id_token(self.settings, tokens.id_token, nonce_digest=nonce_digest)

    @sensitive_variables()
    def refresh(self, refresh_token: str) -> Tokens:
        """New tokens.

        Raises:
            UpstreamRefused: the access was revoked or has expired.
        """
        # Without scopes the refresh keeps those that were granted.
        client, url = self._client(scope=None), self._need("token_endpoint")
        return self._tokens(lambda: client.refresh_token(url, refresh_token=refresh_token))

    @sensitive_variables()
    def probe(self, access_token: str) -> bool:
        """Whether an access token is still good; ``True`` where the provider cannot be asked."""
        if self.settings.probe == "introspection":
            answer = self._client().introspect_token(
                self._need("introspection_endpoint"),
                token=access_token,
                token_type_hint="access_token",
            )
            return json_of(answer).get("active") is True
        if self.settings.probe == "userinfo":
            headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
            answer = fetch("GET", self._need("userinfo_endpoint"), headers=headers)
            if answer.status_code == 401:
                return False
            json_of(answer)
        return True

    @sensitive_variables()
    def revoke(self, token: str, *, hint: str) -> None:
        """End a token there (RFC 7009); nothing where the provider has no such endpoint."""
        url = self.endpoints.revocation_endpoint
        if url:
            self._client().revoke_token(url, token=token, token_type_hint=hint)

    def _client(self, redirect_uri: str = "", scope: str | None = "") -> OAuth2Client:
        settings = self.settings
        return OAuth2Client(
            session=Session(),
            client_id=settings.client_id,
            client_secret=settings.client_secret or None,
            token_endpoint_auth_method=settings.token_auth,
            revocation_endpoint_auth_method=settings.token_auth,
            scope=" ".join(settings.scopes) if scope == "" else scope,
            redirect_uri=redirect_uri or None,
            code_challenge_method="S256",
        )

    def _need(self, name: str) -> str:
        url: str = getattr(self.endpoints, name)
        if not url:
            raise UpstreamUnavailable(f"The provider {self.name!r} has no {name}.")
        return url

    @sensitive_variables()
    def _tokens(self, ask: Any) -> Tokens:
        try:
            return _read(ask())
        except OAuth2Error as exc:
            if exc.error in FINAL_ERRORS:
                raise UpstreamRefused(f"The provider answers {exc.error!r}.") from None
            # The description may repeat what was sent.
            raise UpstreamUnavailable("The provider refuses this client.") from None
        except (HTTPStatusError, ValueError) as exc:
            raise UpstreamUnavailable(
                f"The provider gives no tokens ({type(exc).__name__})."
            ) from None


@sensitive_variables()
def _read(answer: Mapping[str, Any]) -> Tokens:
    """Tokens from an answer of a token endpoint.

    Raises:
        UpstreamUnavailable: there is no bearer token in it.
    """
    token, kind = answer.get("access_token"), answer.get("token_type", "bearer")
    if not isinstance(token, str) or not token or str(kind).lower() != "bearer":
        raise UpstreamUnavailable("The provider gives no bearer token.")
    scope, refresh, signed = (answer.get(name) for name in ("scope", "refresh_token", "id_token"))
    return Tokens(
        access_token=token,
        refresh_token=refresh if isinstance(refresh, str) else "",
        id_token=signed if isinstance(signed, str) else "",
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
        expires_at=_after(answer.get("expires_in")),
        # Not in a standard; Keycloak and Microsoft say it by these names.
        refresh_expires_at=_after(
            answer.get("refresh_expires_in") or answer.get("refresh_token_expires_in")
        ),
    )


def _after(seconds: Any) -> datetime | None:
    try:
        left = int(seconds)
    except (TypeError, ValueError):
        return None
    if not 0 < left < MAX_SECONDS:
        return None
    return timezone.now() + timedelta(seconds=left)
