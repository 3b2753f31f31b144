"""Validated settings: providers of ``OAUTH["UPSTREAM"]`` and keys of ``OAUTH["FIELD_KEYS"]``.

The exceptions for a provider's errors are also here, so that they can be imported without Authlib,
which is an optional dependency.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Gt
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mcp_django.conf import docs_url, get_settings, is_loopback
from mcp_django.process import on_settings_change

# The length of the column, and the characters of a URL segment.
NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
KEY_HINT = (
    "Make one with: python -c 'from cryptography.fernet import Fernet; "
    "print(Fernet.generate_key().decode())'."
)
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoints:
    """The endpoint URLs of a provider, empty for those it does not have."""

    authorization_endpoint: str = ""
    token_endpoint: str = ""
    jwks_uri: str = ""
    userinfo_endpoint: str = ""
    introspection_endpoint: str = ""
    revocation_endpoint: str = ""


ENDPOINTS = tuple(endpoint.name for endpoint in fields(ProviderEndpoints))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings(ProviderEndpoints):
    """The settings of one provider; the keys in ``UPSTREAM`` are in upper case.

    The endpoints come from the metadata of ``issuer`` (or ``metadata_url``), or are set one by one,
    which takes precedence. With ``openid`` in ``scopes``, the provider has to send an ID token.
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    client_id: Annotated[str, Gt("")]
    client_secret: str = field(default="", repr=False)
    issuer: str = ""
    title: str = ""
    """The name shown to users; if empty, the host of the provider."""
    scopes: tuple[str, ...] = ("openid",)
    metadata_url: str = ""
    token_auth: Literal["client_secret_basic", "client_secret_post", "none"] | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    authorize_parameters: dict[str, str] = field(default_factory=dict)
    """Extra parameters of the authorization request, such as ``{"access_type": "offline"}``."""
    probe: Literal["introspection", "userinfo"] | None = None
    """How to check that the access is still valid; ``None``: only a refresh detects its end."""
    probe_seconds: Annotated[float, Gt(0)] = 300

    @property
    def is_openid(self) -> bool:
        """Return whether the provider sends an ID token with the access token."""
        return "openid" in self.scopes

    @property
    def label(self) -> str:
        """Return the name of the provider that is shown to users."""
        place = self.issuer or self.metadata_url or self.authorization_endpoint
        return self.title or urlsplit(place).hostname or self.client_id


_adapter = TypeAdapter(ProviderSettings)


def is_safe_url(url: str) -> bool:
    """Return whether secrets may be sent to the URL: it is HTTPS, or on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if "@" in parts.netloc or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


@cache
def provider_settings(name: str) -> ProviderSettings:
    """Return the settings of one provider.

    Raises:
        ImproperlyConfigured: if the provider is not configured, or its settings are not valid.
    """
    configured = get_settings().oauth.upstream
    if name not in configured:
        names = ", ".join(map(repr, configured)) or "none"
        raise ImproperlyConfigured(
            f"The upstream provider {name!r} is not in MCP_DJANGO['OAUTH']['UPSTREAM']; "
            f"configured: {names}."
        )
    problems = [*_provider_problems(name, configured[name]), *_key_problems()]
    if problems:
        raise ImproperlyConfigured(" ".join(f"{message} {hint}" for message, hint in problems))
    return _adapter.validate_python(configured[name])


def find_problems() -> list[tuple[str, str]]:
    """Return the errors in providers and keys, as (message, hint) pairs for the system checks."""
    configured = get_settings().oauth.upstream
    problems = [
        problem
        for name, values in configured.items()
        for problem in _provider_problems(name, values)
    ]
    return problems + (_key_problems() if configured else [])


def _provider_problems(name: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    place = f"MCP_DJANGO['OAUTH']['UPSTREAM'][{name!r}]"
    if not NAME.fullmatch(name):
        return [(f"{place}: the name is not valid in a URL.", "Use at most 50 of A-Z a-z 0-9 _ -.")]
    try:
        provider = _adapter.validate_python(values)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        hint = f"See {docs_url('topics/identity#upstream-providers-third-party-apis')}."
        problems = []
        for error in errors:
            keys = "".join(f"[{str(part).upper()!r}]" for part in error["loc"])
            problems.append((f"{place}{keys}: {error['msg']}.", hint))
        return problems
    problems = [
        (f"{place}[{key.upper()!r}] is {getattr(provider, key)!r}.", "Write an https:// URL.")
        for key in ("issuer", "metadata_url", *ENDPOINTS)
        if getattr(provider, key) and not is_safe_url(getattr(provider, key))
    ]
    discovers = provider.issuer or provider.metadata_url
    if not discovers and not (provider.authorization_endpoint and provider.token_endpoint):
        problems.append((f"{place} has neither ISSUER nor the endpoints.", "Set ISSUER."))
    if provider.is_openid and not provider.issuer:
        problems.append(
            (f"{place} asks for 'openid' without ISSUER.", "Set ISSUER, or remove the scope.")
        )
    return problems


def _key_problems() -> list[tuple[str, str]]:
    keys = get_settings().oauth.field_keys
    if not keys:
        return [("MCP_DJANGO['OAUTH']['FIELD_KEYS'] is empty.", KEY_HINT)]
    problems = []
    for number, key in enumerate(keys):
        try:
            Fernet(key)
        except ValueError:
            place = f"MCP_DJANGO['OAUTH']['FIELD_KEYS'][{number}]"
            problems.append((f"{place} is not a key of 32 bytes in URL-safe base64.", KEY_HINT))
    return problems


@on_settings_change("MCP_DJANGO")
def _reload() -> None:
    provider_settings.cache_clear()


RETRY_SECONDS = 10


class UpstreamRefused(Exception):
    """The provider rejects the access permanently: it was revoked, expired or never granted."""


class UpstreamUnavailable(Exception):
    """The provider gave no usable response; try again after ``retry_after`` seconds."""

    retry_after = RETRY_SECONDS
