"""The shapes of ``MCP_DJANGO["JWT"]``, ``["INTROSPECTION"]`` and ``["OAUTH"]``: who says who calls.

Keys are written in capitals. An address has to be https; plain http is for a loopback host, and
then only under ``DEBUG`` (``auth.fetching``). Scopes, users and groups of an issuer mean nothing
here unless an entry says what.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator, ConfigDict

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
MAX_ISSUER_LENGTH = 255


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by name or by number."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _endpoint(url: str) -> str:
    """An address that a secret or a key may travel from.

    Raises:
        ValueError: it is neither https nor loopback, or has a user or a fragment.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not safe or not host or "@" in parts.netloc or parts.fragment or not url.isprintable():
        raise ValueError(
            "write an https address without a user and a fragment (http for a loopback host only)"
        )
    return url


def _issuer(url: str) -> str:
    if len(url) > MAX_ISSUER_LENGTH or urlsplit(url).query:
        raise ValueError(f"an issuer has at most {MAX_ISSUER_LENGTH} characters and no query")
    return _endpoint(url)


Endpoint = Annotated[str, AfterValidator(_endpoint)]
Issuer = Annotated[str, MinLen(1), AfterValidator(_issuer)]


def _import_path(path: str) -> str:
    # Python raises anything but an ImportError for one that is relative.
    if path and not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(f"{path!r} is not a dotted path; write 'package.module.name'")
    return path


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""May be empty."""


def _endpoint_or_none(url: str) -> str:
    return _endpoint(url) if url else url


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalIssuer:
    """What every entry says: whose tokens, for what, and who their subjects are here."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: Issuer
    """As the tokens write it, character by character."""
    servers: tuple[str, ...] = ()
    """The names of the servers that the entry is for; empty: all."""
    audiences: tuple[str, ...] = ()
    """What the ``aud`` of a token may be beside the address of the endpoint."""
    scope_claim: str = ""
    """Empty: ``scope``, else ``scp``."""
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What a scope of the issuer means here; one that is not named means itself."""
    user: ImportPath = ""
    """The dotted path of ``(claims, issuer) -> user | None``, asked about an unknown subject."""
    unknown_users: Literal["refuse", "link", "create", "link-or-create"] = "refuse"
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    """A claim of group names; dots lead into objects, as in ``realm_access.roles``."""
    groups: dict[str, str] = field(default_factory=dict)
    """Names of the claim to names of Django groups; no other group is given or taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JWTIssuer(ExternalIssuer):
    """An issuer whose tokens are verified here, by its published keys."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    jwks_url: Annotated[str, AfterValidator(_endpoint_or_none)] = ""
    """Empty: what the issuer's metadata says."""
    algorithms: Annotated[tuple[Algorithm, ...], MinLen(1)] = ALGORITHMS
    strict_typ: bool = False
    """Whether only ``at+jwt`` is taken (RFC 9068)."""
    leeway: Annotated[float, Ge(0), Le(300)] = 30
    """How many seconds clocks may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrospectionIssuer(ExternalIssuer):
    """An issuer that is asked about its tokens (RFC 7662)."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    url: Endpoint
    client_id: Annotated[str, MinLen(1)]
    client_secret: str = field(repr=False)
    auth_method: Literal["basic", "post"] = "basic"
    prefix: str = ""
    """What its tokens begin with; a bearer that begins otherwise is never sent there."""
    cache_seconds: Annotated[float, Ge(0), Le(300)] = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """An identity provider of ``OAUTH["TRUSTED_ISSUERS"]``, whose word for its users is taken here
    (Identity Assertion Authorization Grant).
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: Issuer
    """As the assertions write it, character by character."""
    jwks: dict[str, Any] | None = None
    """Its public keys (RFC 7517), where they are not to be fetched."""
    jwks_url: Annotated[str, AfterValidator(_endpoint_or_none)] = ""
    """Empty, and no ``jwks``: what the issuer's metadata says."""
    algorithms: Annotated[tuple[Algorithm, ...], MinLen(1)] = ALGORITHMS
    leeway: Annotated[float, Ge(0), Le(300)] = 30
    """How many seconds clocks may differ."""
    tenant: str = ""
    """What the assertions' ``tenant`` has to be, of an issuer that serves several companies."""
    email_authoritative: bool = False
    """Whether an unknown subject is the one user who has the assertion's email address. Only for a
    company whose own addresses these are: it decides who is whom here.
    """
    unknown_users: Literal["refuse", "link", "create", "link-or-create"] = "refuse"
    username_claim: str = "preferred_username"
    user: ImportPath = ""
    """The dotted path of ``(claims, issuer) -> user | None``, asked about an unknown subject."""

    @property
    def people(self) -> ExternalIssuer:
        """What it says about who its subjects are here."""
        return ExternalIssuer(
            issuer=self.issuer,
            unknown_users=self.unknown_users,
            username_claim=self.username_claim,
            user=self.user,
        )


def repeated(entries: Iterable[ExternalIssuer]) -> list[str]:
    """The issuers that are listed twice for one server: which entry is meant, nobody could tell."""
    places = Counter(
        (entry.issuer, server) for entry in entries for server in entry.servers or ("",)
    )
    return sorted({issuer for (issuer, _), count in places.items() if count > 1})


def _host(name: str) -> str:
    if name != "*" and not re.fullmatch(r"\.?[\w-]+(\.[\w-]+)*", name):
        raise ValueError(
            f"{name!r} is no host: write 'vendor.example', '.vendor.example' for all below it, "
            "or '*' for any"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """How the site's own authorization server behaves; the keys are written in capitals."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: str = ""
    """Empty: the origin of the site."""
    cimd: bool = True
    cimd_hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = ("*",)
    dcr: Literal["open", "initial-token", "off"] = "open"
    app_redirects: tuple[str, ...] = ("cursor://anysphere.cursor-mcp/oauth/callback",)
    missing_resource: Literal["bind", "reject"] = "bind"
    remember_consent: Annotated[float, Ge(0)] = 0
    refresh_replay_seconds: Annotated[float, Ge(0)] = 60
    can_connect: ImportPath = ""
    """The dotted path of ``(user, server, client_id) -> bool``."""
    client_credentials: bool = False
    trusted_issuers: tuple[TrustedIssuer, ...] = ()
    upstream: dict[str, dict[str, Any]] = field(default_factory=dict)
    field_keys: tuple[str, ...] = ()
    upstream_max_age: Annotated[float, Gt(0)] = 30 * 24 * 3600
