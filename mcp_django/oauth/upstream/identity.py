"""What a provider signs: ID tokens (OpenID Connect Core 1.0, section 3.1.3.7) and logout tokens
(OpenID Connect Back-Channel Logout 1.0, section 2.6).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import jwt
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import outbound
from mcp_django.oauth.upstream.conf import ProviderSettings
from mcp_django.oauth.upstream.discovery import endpoints_of
from mcp_django.oauth.upstream.errors import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.http import fetch_json

LEEWAY_SECONDS = 30
KEYS_SECONDS = 600
# A stranger who makes up key ids is not to make us fetch as often.
REFETCH_SECONDS = 30
MAX_LENGTH = 16_384
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@sensitive_variables()
def read_id_token(settings: ProviderSettings, token: str, *, nonce_digest: str) -> dict[str, Any]:
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
