"""Where a provider's endpoints are: as configured, else as it says itself (OpenID Connect Discovery
1.0, RFC 8414).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp_django.auth import outbound
from mcp_django.oauth.upstream.conf import ProviderSettings
from mcp_django.oauth.upstream.errors import UpstreamUnavailable
from mcp_django.oauth.upstream.http import fetch_json

CACHE_SECONDS = 600
ENDPOINTS = (
    "authorization_endpoint",
    "token_endpoint",
    "jwks_uri",
    "userinfo_endpoint",
    "introspection_endpoint",
    "revocation_endpoint",
)


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
        said = _fetch(settings)
        outbound.put("upstream-metadata", place, said, seconds=CACHE_SECONDS)
    return dict(said)


def _fetch(settings: ProviderSettings) -> dict[str, Any]:
    failure = UpstreamUnavailable("The provider has no metadata.")
    for url in _places(settings):
        try:
            said = fetch_json("GET", url, headers={"Accept": "application/json"})
        except UpstreamUnavailable as exc:
            failure = exc
            continue
        if settings.issuer and said.get("issuer") != settings.issuer:
            raise UpstreamUnavailable("The provider's metadata names another issuer.")
        return said
    raise failure


def _places(settings: ProviderSettings) -> list[str]:
    if settings.metadata_url:
        return [settings.metadata_url]
    parts = urlsplit(settings.issuer)
    path = parts.path.rstrip("/")
    inserted = parts._replace(path=f"/.well-known/oauth-authorization-server{path}").geturl()
    return [f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration", inserted]
