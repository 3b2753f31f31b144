"""A provider as its client sees it: OAuth 2.1 with PKCE, and OpenID Connect where it is asked for.

The protocol is Authlib's; requests go through the HTTP client of this module. It follows no
redirects, and has a total deadline and a limit for the size of an answer. The addresses are the
site owner's own configuration, so private networks are allowed.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import jwt
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from httpx import HTTPStatusError

from mcp_django.auth import outbound
from mcp_django.oauth.upstream.conf import (
    ENDPOINTS,
    ProviderSettings,
    UpstreamRefused,
    UpstreamUnavailable,
    is_safe,
    provider_settings,
)

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
        return _read_id_token(self.settings, tokens.id_token, nonce_digest=nonce_digest)

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
            return _json_of(answer).get("active") is True
        if self.settings.probe == "userinfo":
            headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
            answer = fetch("GET", self._need("userinfo_endpoint"), headers=headers)
            if answer.status_code == 401:
                return False
            _json_of(answer)
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
    def _tokens(self, ask: Callable[[], Any]) -> Tokens:
        try:
            return _tokens_in(ask())
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
def _tokens_in(answer: Mapping[str, Any]) -> Tokens:
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


# HTTP requests to a provider ----------------------------------------------------------------------

TOTAL_SECONDS = 10
MAX_BYTES = 512 * 1024


def open_client() -> httpx.Client:
    """A client for one exchange; it follows nothing and trusts no proxy of the environment."""
    return httpx.Client(follow_redirects=False, timeout=TOTAL_SECONDS / 2, trust_env=False)


@sensitive_variables()
def fetch(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, content: str = ""
) -> httpx.Response:
    """The whole answer.

    Raises:
        UpstreamUnavailable: there was none in time, it is too long, or the address is not safe.
    """
    if not is_safe(url):
        raise UpstreamUnavailable("The provider names an address that is not https.")
    deadline = time.monotonic() + TOTAL_SECONDS
    body = bytearray()
    try:
        with (
            open_client() as client,
            client.stream(method, url, headers=dict(headers or {}), content=content) as answer,
        ):
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or time.monotonic() > deadline:
                    raise UpstreamUnavailable("The provider's answer is too long or too slow.")
            # What was decoded is not to be decoded again.
            kept = [(k, v) for k, v in answer.headers.items() if k.lower() == "content-type"]
            return httpx.Response(
                answer.status_code, headers=kept, content=bytes(body), request=answer.request
            )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise UpstreamUnavailable(f"The provider does not answer ({type(exc).__name__}).") from exc


def fetch_json(method: str, url: str, **options: Any) -> dict[str, Any]:
    """The JSON object of a successful answer.

    Raises:
        UpstreamUnavailable: the answer is anything else.
    """
    return _json_of(fetch(method, url, **options))


def _json_of(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in an answer with status 200.

    Raises:
        UpstreamUnavailable: it is something else.
    """
    if answer.status_code != 200:
        raise UpstreamUnavailable(f"The provider answers with HTTP {answer.status_code}.")
    try:
        found = answer.json()
    except ValueError as exc:
        raise UpstreamUnavailable("The provider's answer is no JSON.") from exc
    if not isinstance(found, dict):
        raise UpstreamUnavailable("The provider's answer is no JSON object.")
    return found


class Session:
    """What Authlib's client sends its forms through."""

    @sensitive_variables()
    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: Any
    ) -> httpx.Response:
        """Send a form with the client's own authentication added.

        Raises:
            UpstreamUnavailable: there is no answer.
        """
        url, prepared, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return fetch("POST", url, headers=prepared, content=body)


# The provider's endpoints -------------------------------------------------------------------------

# As configured, else as the provider says itself (OpenID Connect Discovery 1.0, RFC 8414).

CACHE_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses; empty for what the provider does not have."""

    authorization_endpoint: str = ""
    token_endpoint: str = ""
    jwks_uri: str = ""
    userinfo_endpoint: str = ""
    introspection_endpoint: str = ""
    revocation_endpoint: str = ""
    sends_issuer: bool = False
    """Whether the provider promises ``iss`` in its authorization responses (RFC 9207)."""


def endpoints_of(settings: ProviderSettings) -> Endpoints:
    """The endpoints, looked up at most every ten minutes.

    Raises:
        UpstreamUnavailable: the provider has to be asked and does not answer, or says that it is
            somebody else.
    """
    given = {name: value for name in ENDPOINTS if (value := getattr(settings, name))}
    if not (settings.issuer or settings.metadata_url) or _is_complete(settings, given):
        return Endpoints(**given)
    said = _metadata(settings)
    found = {name: said[name] for name in ENDPOINTS if isinstance(said.get(name), str)}
    promised = said.get("authorization_response_iss_parameter_supported") is True
    return Endpoints(**{**found, **given}, sends_issuer=promised)


def _is_complete(settings: ProviderSettings, given: dict[str, str]) -> bool:
    """Whether an issuer is configured beside everything that it would tell."""
    needed = {"authorization_endpoint", "token_endpoint"}
    if settings.is_openid:
        needed.add("jwks_uri")
    return not settings.metadata_url and needed <= set(given)


def _metadata(settings: ProviderSettings) -> dict[str, Any]:
    place = settings.metadata_url or settings.issuer
    said = outbound.get("upstream-metadata", place)
    if said is None:
        said = _fetch_metadata(settings)
        outbound.put("upstream-metadata", place, said, seconds=CACHE_SECONDS)
    return dict(said)


def _fetch_metadata(settings: ProviderSettings) -> dict[str, Any]:
    failure = UpstreamUnavailable("The provider has no metadata.")
    for url in _metadata_urls(settings):
        try:
            said = fetch_json("GET", url, headers={"Accept": "application/json"})
        except UpstreamUnavailable as exc:
            failure = exc
            continue
        if settings.issuer and said.get("issuer") != settings.issuer:
            raise UpstreamUnavailable("The provider's metadata names another issuer.")
        return said
    raise failure


def _metadata_urls(settings: ProviderSettings) -> list[str]:
    if settings.metadata_url:
        return [settings.metadata_url]
    parts = urlsplit(settings.issuer)
    path = parts.path.rstrip("/")
    inserted = parts._replace(path=f"/.well-known/oauth-authorization-server{path}").geturl()
    return [f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration", inserted]


# ID tokens and logout tokens ----------------------------------------------------------------------

# What a provider signs: ID tokens (OpenID Connect Core 1.0, section 3.1.3.7) and logout tokens
# (OpenID Connect Back-Channel Logout 1.0, section 2.6).

LEEWAY_SECONDS = 30
KEYS_SECONDS = 600
# A stranger who makes up key ids is not to make us fetch as often.
REFETCH_SECONDS = 30
MAX_LENGTH = 16_384
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@sensitive_variables()
def _read_id_token(settings: ProviderSettings, token: str, *, nonce_digest: str) -> dict[str, Any]:
    """The claims of an ID token that was made for this sign-in.

    Raises:
        UpstreamRefused: it is none, or somebody else's.
        UpstreamUnavailable: the provider's keys cannot be had.
    """
    claims = _claims(settings, token, required=["iss", "aud", "exp", "iat", "sub"])
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(digest_of(nonce), nonce_digest):
        raise UpstreamRefused("The ID token was made for another sign-in.")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (several or "azp" in claims) and claims.get("azp") != settings.client_id:
        raise UpstreamRefused("The ID token was made for another client.")
    return claims


@sensitive_variables()
def read_logout_token(settings: ProviderSettings, token: str) -> dict[str, Any]:
    """The claims of a logout token.

    Raises:
        UpstreamRefused: it is none.
        UpstreamUnavailable: the provider's keys cannot be had.
    """
    claims = _claims(settings, token, required=["iss", "aud", "exp", "iat", "jti"])
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(LOGOUT_EVENT), Mapping):
        raise UpstreamRefused("The token tells of no logout.")
    if "nonce" in claims:
        raise UpstreamRefused("The token is an ID token.")
    names = [claims.get("sub"), claims.get("sid")]
    if not any(isinstance(one, str) and one for one in names):
        raise UpstreamRefused("The token says not whose session ended.")
    return claims


@sensitive_variables()
def digest_of(text: str) -> str:
    """What is kept of a state or nonce."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@sensitive_variables()
def _claims(settings: ProviderSettings, token: str, *, required: list[str]) -> dict[str, Any]:
    if len(token) > MAX_LENGTH:
        raise UpstreamRefused("That is no token.")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            _key_for(settings, token).key,
            algorithms=list(settings.algorithms),
            audience=settings.client_id,
            issuer=settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": required},
        )
    except (jwt.InvalidTokenError, jwt.InvalidKeyError, ValueError) as exc:
        raise UpstreamRefused(f"The token does not hold ({type(exc).__name__}).") from exc
    return claims


@sensitive_variables()
def _key_for(settings: ProviderSettings, token: str) -> jwt.PyJWK:
    kid = jwt.get_unverified_header(token).get("kid")
    found = _pick(_keys(settings), kid)
    if found is None and outbound.is_first(
        "upstream-refetched", settings.issuer, seconds=REFETCH_SECONDS
    ):
        found = _pick(_keys(settings, anew=True), kid)
    if found is None:
        raise UpstreamRefused("The token is signed with a key that the provider does not have.")
    return found


def _pick(keys: list[jwt.PyJWK], kid: Any) -> jwt.PyJWK | None:
    if kid is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == kid), None)


def _keys(settings: ProviderSettings, *, anew: bool = False) -> list[jwt.PyJWK]:
    """The provider's signing keys, fetched at most every ten minutes unless a new one turns up."""
    cached = None if anew else outbound.get("upstream-keys", settings.issuer)
    if cached is None:
        address = endpoints_of(settings).jwks_uri
        cached = fetch_json("GET", address, headers={"Accept": "application/json"})
        outbound.put("upstream-keys", settings.issuer, cached, seconds=KEYS_SECONDS)
    listed = cached.get("keys")
    try:
        known = jwt.PyJWKSet.from_dict({"keys": listed if isinstance(listed, list) else []}).keys
    except (jwt.PyJWKSetError, jwt.PyJWKError, TypeError) as exc:
        raise UpstreamUnavailable("The provider publishes no usable keys.") from exc
    return [key for key in known if key.public_key_use in (None, "sig")]
