"""The providers of ``OAUTH["UPSTREAM"]`` and the keys of ``OAUTH["FIELD_KEYS"]``, checked once.

The errors of a provider are here as well: the library that asks one is an extra of its own, and
whoever catches them may have to do without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Gt
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mcp_django.conf import get_settings
from mcp_django.oauth.redirects import LOOPBACK

# As long as the column, and what a URL holds.
NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
KEY_HINT = (
    "Make one with: python -c 'from cryptography.fernet import Fernet; "
    "print(Fernet.generate_key().decode())'."
)
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
ENDPOINTS = (
    "authorization_endpoint",
    "token_endpoint",
    "jwks_uri",
    "userinfo_endpoint",
    "introspection_endpoint",
    "revocation_endpoint",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One provider; the keys are written in capitals.

    Either ``issuer`` (or ``metadata_url``) tells the endpoints, or they are given one by one; what
    is given wins. With ``openid`` among the ``scopes`` the provider has to prove who signed in.
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    client_id: Annotated[str, Gt("")]
    client_secret: str = field(default="", repr=False)
    issuer: str = ""
    title: str = ""
    """The name that users read; empty: the host of the provider."""
    scopes: tuple[str, ...] = ("openid",)
    metadata_url: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    jwks_uri: str = ""
    userinfo_endpoint: str = ""
    introspection_endpoint: str = ""
    revocation_endpoint: str = ""
    token_auth: Literal["client_secret_basic", "client_secret_post", "none"] | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    authorize_parameters: dict[str, str] = field(default_factory=dict)
    """More parameters of the authorization request, such as ``{"access_type": "offline"}``."""
    probe: Literal["introspection", "userinfo"] | None = None
    """How to ask whether the access is still good; ``None``: only a refresh tells."""
    probe_seconds: Annotated[float, Gt(0)] = 300

    @property
    def is_openid(self) -> bool:
        """Whether an ID token comes with the access token."""
        return "openid" in self.scopes

    @property
    def label(self) -> str:
        """What users call the provider."""
        place = self.issuer or self.metadata_url or self.authorization_endpoint
        return self.title or urlsplit(place).hostname or self.client_id


_adapter = TypeAdapter(ProviderSettings)


def is_safe(url: str) -> bool:
    """Whether secrets may be sent there: HTTPS, or this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if "@" in parts.netloc or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


@cache
def provider_settings(name: str) -> ProviderSettings:
    """The settings of one provider.

    Raises:
        ImproperlyConfigured: there is no such provider, or its settings do not hold.
    """
    configured = get_settings().oauth.upstream
    if name not in configured:
        known = ", ".join(map(repr, configured)) or "none"
        raise ImproperlyConfigured(
            f"There is no upstream provider {name!r} in MCP_DJANGO['OAUTH']['UPSTREAM']; "
            f"configured: {known}."
        )
    found = [*_provider_problems(name, configured[name]), *_key_problems()]
    if found:
        raise ImproperlyConfigured(" ".join(f"{what} {hint}" for what, hint in found))
    return _adapter.validate_python(configured[name])


def problems() -> list[tuple[str, str]]:
    """Everything wrong with the providers and keys, as (what, hint) pairs for the system checks."""
    configured = get_settings().oauth.upstream
    found = [one for name, values in configured.items() for one in _provider_problems(name, values)]
    return found + (_key_problems() if configured else [])


def _provider_problems(name: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    place = f"MCP_DJANGO['OAUTH']['UPSTREAM'][{name!r}]"
    if not NAME.fullmatch(name):
        return [(f"{place}: the name is part of a URL.", "Use at most 50 of A-Z a-z 0-9 _ -.")]
    try:
        provider = _adapter.validate_python(values)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        return [
            (f"{place}{_path(error['loc'])}: {error['msg']}.", "See docs/upstream.md.")
            for error in errors
        ]
    found = [
        (f"{place}[{key.upper()!r}] is {getattr(provider, key)!r}.", "Write an https:// address.")
        for key in ("issuer", "metadata_url", *ENDPOINTS)
        if getattr(provider, key) and not is_safe(getattr(provider, key))
    ]
    discovers = provider.issuer or provider.metadata_url
    if not discovers and not (provider.authorization_endpoint and provider.token_endpoint):
        found.append((f"{place} says not where the provider is.", "Set ISSUER."))
    if provider.is_openid and not provider.issuer:
        found.append((f"{place} asks for 'openid' without ISSUER.", "Set it, or drop the scope."))
    return found


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{str(one).upper()!r}]" for one in location)


def _key_problems() -> list[tuple[str, str]]:
    keys = get_settings().oauth.field_keys
    if not keys:
        return [("MCP_DJANGO['OAUTH']['FIELD_KEYS'] is empty.", KEY_HINT)]
    found = []
    for number, key in enumerate(keys):
        try:
            Fernet(key)
        except ValueError:
            place = f"MCP_DJANGO['OAUTH']['FIELD_KEYS'][{number}]"
            found.append((f"{place} is no key of 32 bytes in URL-safe base64.", KEY_HINT))
    return found


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        provider_settings.cache_clear()


setting_changed.connect(_reload, dispatch_uid="mcp_django.oauth.upstream.conf")


# Errors of a provider -----------------------------------------------------------------------------

RETRY_SECONDS = 10


class UpstreamRefused(Exception):
    """The provider said no for good: the access was revoked, expired or never given."""


class UpstreamUnavailable(Exception):
    """The provider gave no usable answer; it may after ``retry_after`` seconds."""

    retry_after = RETRY_SECONDS
