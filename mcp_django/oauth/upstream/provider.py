"""OAuth 2.1 client of an upstream provider, with PKCE and optional OpenID Connect.

Authlib implements the protocol; requests use the HTTP client of this module. It follows no
redirects, and limits the total time and the size of a response. The URLs are configured by the
site owner, so private networks are allowed.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from httpx import HTTPStatusError

from mcp_django.auth import outbound
from mcp_django.auth.backends.external import is_external_id
from mcp_django.models import token_digest
from mcp_django.oauth.upstream.conf import (
    ENDPOINTS,
    ProviderEndpoints,
    ProviderSettings,
    UpstreamRefused,
    UpstreamUnavailable,
    is_safe_url,
    provider_settings,
)
from mcp_django.protocol.headers import JSON
from mcp_django.protocol.text import storable

# 100 years; a longer lifetime could overflow ``datetime``.
MAX_SECONDS = 100 * 365 * 24 * 3600
# Errors that are permanent (RFC 6749, section 5.2); others may be caused by the configuration.
FINAL_ERRORS = frozenset({"invalid_grant", "access_denied", "unauthorized_client"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens in a response of a token endpoint."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    scopes: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    refresh_expires_at: datetime | None = None


class Provider:
    """One provider of ``OAUTH["UPSTREAM"]``.

    Every method may take up to ten seconds and raises ``UpstreamUnavailable`` if it gets no usable
    response, except ``authorize_url`` if the endpoints are configured.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: ProviderSettings = provider_settings(name)

    def __repr__(self) -> str:
        return f"<Provider {self.name!r}>"

    @cached_property
    def endpoints(self) -> Endpoints:
        """Return the provider's endpoints."""
        return endpoints_of(self.settings)

    @sensitive_variables()
    def authorize_url(self, *, state: str, nonce: str, verifier: str, redirect_uri: str) -> str:
        """Return the URL where the user authorizes this site."""
        extra: dict[str, Any] = dict(self.settings.authorize_parameters)
        if self.settings.is_openid:
            extra["nonce"] = nonce
        url, _ = self._client(redirect_uri).create_authorization_url(
            self._require_endpoint("authorization_endpoint"),
            state=state,
            code_verifier=verifier,
            **extra,
        )
        return str(url)

    @sensitive_variables()
    def exchange(self, *, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """Exchange a code for tokens.

        Raises:
            UpstreamRefused: if the code is not valid.
        """
        client, url = self._client(redirect_uri), self._require_endpoint("token_endpoint")
        return self._request_tokens(
            lambda: client.fetch_token(
                url, grant_type="authorization_code", code=code, code_verifier=verifier
            )
        )

    @sensitive_variables()
    def identify(self, tokens: Tokens, *, nonce_digest: str) -> Mapping[str, Any]:
        """Return the claims of the ID token, empty without the scope ``openid``.

        Raises:
            UpstreamRefused: if the ID token is missing, or not valid for this sign-in and client.
            UpstreamUnavailable: if the provider's keys cannot be fetched.
        """
        # OpenID Connect Core 1.0, section 3.1.3.7.
        settings = self.settings
        if not settings.is_openid:
            return {}
        required = ["iss", "aud", "exp", "iat", "sub"]
        claims = _verify_claims(settings, tokens.id_token, required=required)
        if not is_external_id(claims["sub"]):
            raise UpstreamRefused("The subject of the ID token is empty, too long or not a text.")
        if "events" in claims:
            raise UpstreamRefused("The token is a logout token or another security event.")
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(token_digest(nonce), nonce_digest):
            raise UpstreamRefused("The ID token was issued for another sign-in.")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise UpstreamRefused("The ID token was issued to another client.")
        return claims

    @sensitive_variables()
    def refresh(self, refresh_token: str) -> Tokens:
        """Exchange a refresh token for new tokens.

        Raises:
            UpstreamRefused: if the access was revoked or has expired.
        """
        # Without a scope parameter, a refresh keeps the granted scopes.
        client, url = self._client(scope=None), self._require_endpoint("token_endpoint")
        return self._request_tokens(lambda: client.refresh_token(url, refresh_token=refresh_token))

    @sensitive_variables()
    def probe(self, access_token: str) -> bool:
        """Return whether an access token is still valid; ``True`` without a configured probe."""
        if self.settings.probe == "introspection":
            response = self._client().introspect_token(
                self._require_endpoint("introspection_endpoint"),
                token=access_token,
                token_type_hint="access_token",
            )
            return _json_of(response).get("active") is True
        if self.settings.probe == "userinfo":
            headers = {"Authorization": f"Bearer {access_token}", "Accept": JSON}
            response = fetch("GET", self._require_endpoint("userinfo_endpoint"), headers=headers)
            if response.status_code == 401:
                return False
            _json_of(response)
        return True

    @sensitive_variables()
    def revoke(self, token: str, *, hint: str) -> None:
        """Revoke a token at the provider (RFC 7009), if it has a revocation endpoint."""
        url = self.endpoints.revocation_endpoint
        if url:
            self._client().revoke_token(url, token=token, token_type_hint=hint)

    def _client(self, redirect_uri: str = "", scope: str | None = "") -> OAuth2Client:
        settings = self.settings
        return OAuth2Client(
            session=FormSession(),
            client_id=settings.client_id,
            client_secret=settings.client_secret or None,
            token_endpoint_auth_method=settings.token_auth,
            revocation_endpoint_auth_method=settings.token_auth,
            scope=" ".join(settings.scopes) if scope == "" else scope,
            redirect_uri=redirect_uri or None,
            code_challenge_method="S256",
        )

    def _require_endpoint(self, name: str) -> str:
        url: str = getattr(self.endpoints, name)
        if not url:
            raise UpstreamUnavailable(f"The provider {self.name!r} has no {name}.")
        return url

    @sensitive_variables()
    def _request_tokens(self, ask: Callable[[], Any]) -> Tokens:
        """Return the tokens in a response of a token endpoint.

        Raises:
            UpstreamRefused: if the access was denied, or has ended.
            UpstreamUnavailable: if the response has no bearer token.
        """
        try:
            response = ask()
        except OAuth2Error as exc:
            if exc.error in FINAL_ERRORS:
                raise UpstreamRefused(f"The provider responded with {exc.error!r}.") from None
            # The description may repeat values of the request.
            raise UpstreamUnavailable("The provider rejects this client.") from None
        except (HTTPStatusError, ValueError, OverflowError) as exc:
            raise UpstreamUnavailable(
                f"The provider sent no tokens ({type(exc).__name__})."
            ) from None
        token, kind = response.get("access_token"), response.get("token_type", "bearer")
        if not isinstance(token, str) or not token or str(kind).lower() != "bearer":
            raise UpstreamUnavailable("The provider sent no bearer token.")
        if response != storable(response):
            raise UpstreamUnavailable("The provider sent tokens that cannot be stored.")
        names = ("scope", "refresh_token", "id_token")
        scope, refresh, signed = (response.get(name) for name in names)
        return Tokens(
            access_token=token,
            refresh_token=refresh if isinstance(refresh, str) else "",
            id_token=signed if isinstance(signed, str) else "",
            scopes=tuple(scope.split()) if isinstance(scope, str) else None,
            expires_at=_expires_in(response.get("expires_in")),
            # Not standardized; Keycloak and Microsoft use these names.
            refresh_expires_at=_expires_in(
                response.get("refresh_expires_in") or response.get("refresh_token_expires_in")
            ),
        )


def _expires_in(seconds: Any) -> datetime | None:
    try:
        lifetime = int(seconds)
    except (TypeError, ValueError, OverflowError):
        return None
    if not 0 < lifetime < MAX_SECONDS:
        return None
    return timezone.now() + timedelta(seconds=lifetime)


TOTAL_SECONDS = 10
MAX_BYTES = 512 * 1024


def open_client() -> httpx.Client:
    """Return a client for one request that follows no redirects and ignores environment proxies."""
    return httpx.Client(follow_redirects=False, timeout=TOTAL_SECONDS / 2, trust_env=False)


@sensitive_variables()
def fetch(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, content: str = ""
) -> httpx.Response:
    """Send a request and return the complete response.

    Raises:
        UpstreamUnavailable: if no response arrives in time, it is too large, or the URL is not
            safe.
    """
    if not is_safe_url(url):
        raise UpstreamUnavailable("A URL of the provider is not https.")
    deadline = time.monotonic() + TOTAL_SECONDS
    body = bytearray()
    try:
        with (
            open_client() as client,
            client.stream(method, url, headers=dict(headers or {}), content=content) as response,
        ):
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or time.monotonic() > deadline:
                    raise UpstreamUnavailable("The provider's response is too large or too slow.")
            # The body is already decoded, so headers such as Content-Encoding are dropped.
            response_headers = [
                (name, value)
                for name, value in response.headers.items()
                if name.lower() == "content-type"
            ]
            return httpx.Response(
                response.status_code,
                headers=response_headers,
                content=bytes(body),
                request=response.request,
            )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise UpstreamUnavailable(f"The provider does not respond ({type(exc).__name__}).") from exc


def _json_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in a response with status 200.

    Raises:
        UpstreamUnavailable: if the response is anything else.
    """
    if response.status_code != 200:
        raise UpstreamUnavailable(f"The provider responded with HTTP {response.status_code}.")
    try:
        document = response.json()
    except ValueError as exc:
        raise UpstreamUnavailable("The provider's response is not valid JSON.") from exc
    if not isinstance(document, dict):
        raise UpstreamUnavailable("The provider's response is not a JSON object.")
    return document


class FormSession:
    """The HTTP session through which Authlib's client sends its forms."""

    @sensitive_variables()
    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any
    ) -> httpx.Response:
        """Send a form with the client's authentication.

        Raises:
            UpstreamUnavailable: if no response arrives.
        """
        url, prepared, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return fetch("POST", url, headers=prepared, content=body)


# The provider's endpoints come from the settings, or from its metadata (OpenID Connect Discovery
# 1.0, RFC 8414).

CACHE_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints(ProviderEndpoints):
    """The endpoints of a provider, from its settings and its metadata."""

    sends_issuer: bool = False
    """Whether the provider announces ``iss`` in its authorization responses (RFC 9207)."""


def endpoints_of(settings: ProviderSettings) -> Endpoints:
    """Return the endpoints; metadata is fetched at most every ten minutes.

    Raises:
        UpstreamUnavailable: if the metadata is needed and cannot be fetched, or names another
            issuer.
    """
    configured = {name: value for name in ENDPOINTS if (value := getattr(settings, name))}
    needed = {"authorization_endpoint", "token_endpoint"}
    if settings.is_openid:
        needed.add("jwks_uri")
    is_complete = not settings.metadata_url and needed <= set(configured)
    if not (settings.issuer or settings.metadata_url) or is_complete:
        return Endpoints(**configured)
    metadata = _metadata(settings)
    discovered = {name: metadata[name] for name in ENDPOINTS if isinstance(metadata.get(name), str)}
    promised = metadata.get("authorization_response_iss_parameter_supported") is True
    return Endpoints(**{**discovered, **configured}, sends_issuer=promised)


def _metadata(settings: ProviderSettings) -> dict[str, Any]:
    source = settings.metadata_url or settings.issuer
    cached = outbound.get_signed("upstream-metadata", source)
    if cached is not None:
        return dict(cached)
    failure = UpstreamUnavailable("The provider has no metadata.")
    urls = (settings.metadata_url,) if settings.metadata_url else None
    for url in urls or outbound.metadata_urls(settings.issuer):
        try:
            metadata = _json_of(fetch("GET", url, headers={"Accept": JSON}))
        except UpstreamUnavailable as exc:
            failure = exc
            continue
        if settings.issuer and metadata.get("issuer") != settings.issuer:
            raise UpstreamUnavailable("The provider's metadata names another issuer.")
        outbound.put_signed("upstream-metadata", source, metadata, seconds=CACHE_SECONDS)
        return metadata
    raise failure


# ID tokens and logout tokens ----------------------------------------------------------------------

# The validation of logout tokens (OpenID Connect Back-Channel Logout 1.0, section 2.6), and what it
# shares with that of ID tokens, which is in ``Provider.identify``.

LEEWAY_SECONDS = 30
KEYS_SECONDS = 600
# For unknown key ids, the keys are fetched again at most this often: a token may invent an id.
REFETCH_SECONDS = 30
MAX_LENGTH = 16_384
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@sensitive_variables()
def read_logout_token(settings: ProviderSettings, token: str) -> dict[str, Any]:
    """Validate a logout token and return its claims.

    A ``sub`` or ``sid`` that cannot be stored is left out. A session with such a ``sid`` is stored
    without one, so the logout of its subject ends it.

    Raises:
        UpstreamRefused: if it is not a valid logout token.
        UpstreamUnavailable: if the provider's keys cannot be fetched.
    """
    claims = _verify_claims(settings, token, required=["iss", "aud", "exp", "iat", "jti"])
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(LOGOUT_EVENT), Mapping):
        raise UpstreamRefused("The token has no back-channel logout event.")
    if "nonce" in claims:
        raise UpstreamRefused("The token is an ID token.")
    for name in ("sub", "sid"):
        if not is_external_id(claims.get(name)):
            claims.pop(name, None)
    if claims.keys().isdisjoint({"sub", "sid"}):
        raise UpstreamRefused("The token has neither a sub nor a sid that can be stored.")
    return claims


@sensitive_variables()
def _verify_claims(
    settings: ProviderSettings, token: str, *, required: list[str]
) -> dict[str, Any]:
    if len(token) > MAX_LENGTH:
        raise UpstreamRefused("The token is too long.")
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = _select_key(_keys(settings), kid)
        # The provider may have a new key, which is not in the cache yet.
        if key is None and outbound.mark_first(
            "upstream-refetched", settings.issuer, seconds=REFETCH_SECONDS
        ):
            key = _select_key(_keys(settings, refetch=True), kid)
        if key is None:
            raise UpstreamRefused("The token is signed with a key that the provider does not have.")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=list(settings.algorithms),
            audience=settings.client_id,
            issuer=settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": required},
        )
    except (jwt.InvalidTokenError, jwt.InvalidKeyError, ValueError, OverflowError) as exc:
        raise UpstreamRefused(f"The token is not valid ({type(exc).__name__}).") from exc
    return claims


def _select_key(keys: list[jwt.PyJWK], kid: Any) -> jwt.PyJWK | None:
    if kid is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == kid), None)


def _keys(settings: ProviderSettings, *, refetch: bool = False) -> list[jwt.PyJWK]:
    """Return the provider's signing keys, from a cache of ten minutes unless ``refetch``."""
    cached = None if refetch else outbound.get_signed("upstream-keys", settings.issuer)
    if cached is None:
        address = endpoints_of(settings).jwks_uri
        cached = _json_of(fetch("GET", address, headers={"Accept": JSON}))
        outbound.put_signed("upstream-keys", settings.issuer, cached, seconds=KEYS_SECONDS)
    listed = cached.get("keys")
    try:
        keys = jwt.PyJWKSet.from_dict({"keys": listed if isinstance(listed, list) else []}).keys
    except (jwt.PyJWKSetError, jwt.PyJWKError, TypeError) as exc:
        raise UpstreamUnavailable("The provider has no usable signing keys.") from exc
    return [key for key in keys if key.public_key_use in (None, "sig")]
