"""The ``MCP_DJANGO`` setting as a typed, frozen object.

One dictionary; every key has a default. ``get_settings()`` reads it once, and again whenever
Django signals that the setting changed, so ``override_settings`` works in tests.

Mistakes in it are reported by the check ``mcp_django.E002``, and nothing may fail before that
check: other checks are silent meanwhile (``with_settings``), and code that runs before the
checks, or inside those of other packages, reads the defaults (``defaults_while_wrong``). Code
that serves requests raises.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le, MinLen
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from mcp_django.protocol.content import Icon
from mcp_django.protocol.revisions import REVISIONS

# Issuers and OAuth --------------------------------------------------------------------------------

# The shapes of ``MCP_DJANGO["JWT"]``, ``["INTROSPECTION"]`` and ``["OAUTH"]``. Keys are written
# in capitals. An address has to be https; plain http is for a loopback host, and then only under
# ``DEBUG`` (``auth.outbound``). Scopes, users and groups of an issuer mean nothing here unless an
# entry says what they stand for.

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


# Rates and quotas ---------------------------------------------------------------------------------

Of = Literal["user", "client", "all"]
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
# The longest time that a cache can be asked to keep a number for without surprises (memcached).
MAX_SECONDS = 30 * 24 * 3600
_RATE = re.compile(
    r"(?:(?P<of>user|client|all)\s*:\s*)?(?P<count>[0-9]{1,9})\s*/\s*(?P<length>[0-9]{0,7})(?P<unit>[smhd])"
)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` uses within ``seconds``, by each user, each client of a user, or by all.

    Written ``"100/h"``: a hundred times an hour by each user. ``"client: 10/30s"`` counts each
    client of a user separately, ``"all: 10000/d"`` counts all callers together. A quota is a rate
    with a long period.
    """

    count: int
    seconds: int
    of: Of = "user"

    def __str__(self) -> str:
        unit, size = next(
            (unit, size) for unit, size in reversed(UNITS.items()) if self.seconds % size == 0
        )
        length = self.seconds // size
        whose = "" if self.of == "user" else f"{self.of}: "
        return f"{whose}{self.count}/{'' if length == 1 else length}{unit}"


def parse(text: str) -> Rate:
    """A rate as it is written.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    found = _RATE.fullmatch(text.strip())
    seconds = int(found["length"] or 1) * UNITS[found["unit"]] if found else 0
    if found is None or not 0 < seconds <= MAX_SECONDS:
        raise ValueError(
            f"{text!r} is no rate: write '100/h', 'client: 10/30s' or 'all: 10000/d', with a "
            "period of 1s to 30d"
        )
    return Rate(int(found["count"]), seconds, cast(Of, found["of"] or "user"))


def parse_all(texts: str | Iterable[str]) -> tuple[Rate, ...]:
    """Several rates: a list of them, or one text with commas in between; empty for none.

    Raises:
        ValueError: one of them is none.
    """
    each = texts.split(",") if isinstance(texts, str) else texts
    return tuple(parse(text) for text in each if text.strip())


# The settings -------------------------------------------------------------------------------------

Check: TypeAlias = Callable[..., list[CheckMessage]]

SERVED_VERSIONS = tuple(REVISIONS)
DEFAULT_LAYER = "default"
Seconds = Annotated[float, Gt(0)]


def _site(url: str) -> str:
    """The address of a site; what it has beside scheme, host and port is ignored.

    Raises:
        ValueError: it has no scheme or no host, so nothing could be found by it.
    """
    parts = urlsplit(url)
    if url and (parts.scheme.lower() not in ("http", "https") or not parts.hostname):
        raise ValueError(f"{url!r} has no scheme or no host; write https://shop.example")
    return url


def _trace_url(url: str) -> str:
    if url and ("{trace_id}" not in url or not _site(url)):
        raise ValueError(f"{url!r} has no {{trace_id}}; write https://traces.example/{{trace_id}}")
    return url


def _scope(name: str) -> str:
    if not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", name):
        raise ValueError(
            f"{name!r} is no scope: write ASCII without spaces, quotes and backslashes "
            "(RFC 6749, section 3.3)"
        )
    return name


def _rates(value: Any) -> Any:
    """Rates as they are written, one or several.

    Raises:
        ValueError: it is neither a text nor a list of texts, or one of them is no rate.
    """
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(one, str) for one in texts):
        raise ValueError(f"{value!r} is no list of rates; write ['100/h']")
    return parse_all(value)


Scope = Annotated[str, AfterValidator(_scope)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many seconds rows are kept that nobody needs to serve a request."""

    # A misspelled member is told, like a misspelled key.
    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    streams: Seconds = 300
    """After a stream has ended: how late a client may come back for the rest of it."""
    inbox: Seconds = 600
    workers: Seconds = 3600
    security_events: Seconds = 180 * 24 * 3600
    calls: Seconds = 90 * 24 * 3600
    approvals: Seconds = 90 * 24 * 3600
    """After it was decided, or could have been no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of the database one call of a read-only component may use."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    rows: Annotated[int, Ge(1)] = 10_000
    statements: Annotated[int, Ge(1)] = 100
    seconds: Seconds = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. Times are seconds, sizes are bytes; docs/settings.md explains each."""

    title: str = ""
    instructions: str = ""
    icons: tuple[Icon, ...] = ()
    protocol_versions: Annotated[tuple[str, ...], MinLen(1)] = SERVED_VERSIONS
    base_url: Annotated[str, AfterValidator(_site)] = ""
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: Annotated[int, Gt(0)] = 4 * 1024 * 1024
    body_seconds: Seconds = 30
    """How long a body may take to come, where this package reads it."""

    auth: tuple[ImportPath, ...] = ()
    """Empty: ``tokens``, and ``oauth`` where its app is installed."""
    scopes: dict[Scope, str] = field(default_factory=lambda: {"mcp": "Use the tools of this site"})
    scope_implies: dict[str, tuple[str, ...]] | None = None
    list_filter: Literal["permissions", "scopes"] = "permissions"
    challenge_scopes: Literal["needed", "granted"] = "needed"
    """Whether a challenge for more scopes repeats those that the token has."""
    token_cache_seconds: Annotated[float, Ge(0)] = 0
    proxies: Annotated[int, Ge(0)] = 0
    """How many proxies of the site's own stand before it and append to ``X-Forwarded-For``."""
    oauth: OAuth = OAuth()
    jwt: tuple[JWTIssuer, ...] = ()
    introspection: tuple[IntrospectionIssuer, ...] = ()
    drf: tuple[ImportPath, ...] = ()
    """Dotted paths; empty: REST framework's ``DEFAULT_AUTHENTICATION_CLASSES``."""

    threads: Annotated[int, Ge(1)] = 8
    queue: Annotated[int, Ge(0)] = 64
    queue_seconds: Seconds = 10
    call_timeout: Seconds = 300
    question_timeout: Seconds = 600
    max_result_bytes: Annotated[int, Ge(1000)] = 100_000
    page_size: Annotated[int, Ge(1)] = 100
    limits: Limits = Limits()
    rate: Annotated[tuple[Rate, ...], BeforeValidator(_rates)] = ()
    """How often anything of a server may be used."""
    throttle_as: Literal["error", "result"] = "error"

    channel_layer: str = DEFAULT_LAYER
    poll_seconds: Seconds | None = None
    keepalive_seconds: Seconds = 15
    ping_seconds: Annotated[float, Ge(0)] = 60
    drain_seconds: Seconds = 25

    session_idle: Seconds = 3600
    session_max_age: Seconds = 24 * 3600
    sessions_per_principal: Annotated[int, Ge(1)] = 100
    session_rate: Annotated[tuple[Rate, ...], BeforeValidator(_rates)] = parse_all("60/m")
    """How often callers without credentials may open a session from one address."""
    streams_per_principal: Annotated[int, Ge(1)] = 100
    streams_per_user: Annotated[int, Ge(1)] | None = None
    """``None``: twice as many as ``streams_per_principal``."""
    anonymous_factor: Annotated[int, Ge(1)] = 100
    """How many times as much as one address all callers without credentials may have together."""
    retention: Retention = Retention()

    task_backend: str = ""
    """An alias of Django's ``TASKS``; empty: in threads of this process, which survive nothing."""
    task_threads: Annotated[int, Ge(1)] = 4
    """How many tasks run at once in this process, where no backend is named."""
    task_ttl: Seconds = 3600
    task_max_ttl: Seconds = 24 * 3600
    task_poll_seconds: Seconds = 2
    tasks_per_principal: Annotated[int, Ge(1)] = 100

    log_calls: bool = True
    log_arguments: bool = False
    audit_strict: bool = True
    """Whether a writing tool is refused when the call log cannot be written."""
    telemetry: bool = True
    """Whether requests are told of to OpenTelemetry, where its API is installed."""
    trace_url: Annotated[str, AfterValidator(_trace_url)] = ""
    approval_seconds: Seconds = 3600
    """How long a call waits for a person, and how long a yes is good for."""
    health: bool = False
    """Whether ``GET <mount>/health`` answers."""
    admin_base_class: ImportPath = "django.contrib.admin.ModelAdmin"

    @property
    def backends(self) -> tuple[str, ...]:
        """The authentication backends in force."""
        if self.auth:
            return self.auth
        return ("tokens", "oauth") if apps.is_installed("mcp_django.oauth") else ("tokens",)


def _capitals(shape: Any) -> tuple[str, ...]:
    return tuple(one.name.upper() for one in fields(shape))


KEYS = _capitals(Settings)
# What else can be misspelled: the members of a key.
_MEMBERS = {
    "OAUTH": _capitals(OAuth),
    "TRUSTED_ISSUERS": _capitals(TrustedIssuer),
    "JWT": _capitals(JWTIssuer),
    "INTROSPECTION": _capitals(IntrospectionIssuer),
    "LIMITS": tuple(one.name for one in fields(Limits)),
    "RETENTION": tuple(one.name for one in fields(Retention)),
}
_adapter = TypeAdapter(Settings)


def problems(values: object) -> list[tuple[str, str]]:
    """Everything wrong with a value of ``MCP_DJANGO``, as (what, hint) pairs for the checks."""
    if not isinstance(values, Mapping):
        return [("MCP_DJANGO is not a dictionary.", "Write MCP_DJANGO = {}.")]
    found = [_unknown_key(str(key)) for key in values if key not in KEYS]
    try:
        read = _read({key: value for key, value in values.items() if key in KEYS})
        found += _repeated_issuers(read)
    except ValidationError as exc:
        found += [_wrong_value(error) for error in exc.errors(include_url=False)]
    unserved = [v for v in _versions(values) if v not in SERVED_VERSIONS]
    if unserved:
        found.append(
            (
                f"MCP_DJANGO['PROTOCOL_VERSIONS'] names {', '.join(map(repr, unserved))}.",
                f"This release serves {', '.join(SERVED_VERSIONS)}.",
            )
        )
    return found


def _wrong_value(error: Any) -> tuple[str, str]:
    key, *within = (one for one in error["loc"] if one != "[key]")
    key = str(key).upper()
    place = f"MCP_DJANGO[{key!r}]" + "".join(f"[{one!r}]" for one in within)
    message, hint = error["msg"].removeprefix("Value error, "), "See docs/settings.md."
    if error["type"] == "unexpected_keyword_argument":
        inner = next((one for one in reversed(within) if one in _MEMBERS), key)
        return f"{place}: there is no such member.", _nearest(str(within[-1]), _MEMBERS[inner])
    if error["type"] == "tuple_type":
        message = f"Input should be a list or a tuple, not {type(error['input']).__name__}"
    if error["type"] == "literal_error":
        message += f", not {error['input']!r}"
    return f"{place}: {message}.", hint


def _repeated_issuers(settings: Settings) -> list[tuple[str, str]]:
    listed = {"JWT": _repeated(settings.jwt), "INTROSPECTION": _repeated(settings.introspection)}
    hint = "Keep one entry, or give each its own SERVERS."
    return [
        (f"MCP_DJANGO[{key!r}] lists the issuer {issuer!r} twice.", hint)
        for key, issuers in listed.items()
        for issuer in issuers
    ]


def _repeated(entries: Iterable[ExternalIssuer]) -> list[str]:
    """The issuers that are listed twice for one server: which entry is meant, nobody could tell."""
    places = Counter(
        (entry.issuer, server) for entry in entries for server in entry.servers or ("",)
    )
    return sorted({issuer for (issuer, _), count in places.items() if count > 1})


def _versions(values: Mapping[Any, Any]) -> list[str]:
    versions = values.get("PROTOCOL_VERSIONS", ())
    return [str(v) for v in versions] if isinstance(versions, (list, tuple)) else []


def _unknown_key(key: str) -> tuple[str, str]:
    hint = _nearest(key, KEYS)
    if key.upper() in _MEMBERS["OAUTH"]:
        hint = f"Write MCP_DJANGO = {{'OAUTH': {{{key.upper()!r}: …}}}}."
    return f"MCP_DJANGO has no key {key!r}.", hint


def _nearest(key: str, known: tuple[str, ...]) -> str:
    spelled = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(key.lower(), spelled, n=1)
    return f"Did you mean {spelled[nearest[0]]!r}?" if nearest else f"Known: {', '.join(known)}."


def _read(values: Mapping[str, Any]) -> Settings:
    return _adapter.validate_python({key.lower(): value for key, value in values.items()})


_defaults_stand_in: ContextVar[bool] = ContextVar("defaults_stand_in", default=False)


def get_settings() -> Settings:
    """The settings in force.

    Raises:
        ImproperlyConfigured: a key is unknown or has a value of the wrong kind.
    """
    try:
        return _in_force()
    except ImproperlyConfigured:
        if _defaults_stand_in.get():
            return Settings()
        raise


@cache
def _in_force() -> Settings:
    values = getattr(django_settings, "MCP_DJANGO", {})
    found = problems(values)
    if found:
        raise ImproperlyConfigured(" ".join(f"{what} {hint}" for what, hint in found))
    return _read(values)


@contextmanager
def defaults_while_wrong() -> Iterator[None]:
    """Within it, and in functions that it decorates, the defaults replace wrong settings.

    For code that runs before E002 has told what is wrong, and serves nothing.
    """
    token = _defaults_stand_in.set(True)
    try:
        yield
    finally:
        _defaults_stand_in.reset(token)


def with_settings(check: Check) -> Check:
    """A system check that says nothing while the settings are wrong, which E002 says then."""

    @wraps(check)
    def inner(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        if problems(getattr(django_settings, "MCP_DJANGO", {})):
            return []
        return check(app_configs, **kwargs)

    return inner


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        _in_force.cache_clear()


setting_changed.connect(_reload, dispatch_uid="mcp_django.conf")
