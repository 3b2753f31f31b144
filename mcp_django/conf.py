"""The ``MCP_DJANGO`` setting as a typed, frozen object.

The setting is one dictionary; every key has a default. ``get_settings()`` caches it until Django
sends ``setting_changed``, so ``override_settings`` works in tests.

The check ``mcp_django.E002`` reports invalid settings, and nothing may fail before that check:
other checks then return no messages (``skip_if_settings_invalid``), and code that runs before the
checks, or in checks of other packages, uses the defaults (``use_defaults_if_invalid``). Code that
serves requests raises an exception.
"""

from __future__ import annotations

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
from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from mcp_django.process import on_settings_change
from mcp_django.protocol.content import Icon
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.protocol.text import nearest

DOCUMENTATION = "https://django-mcp-provider.readthedocs.io/en/stable/"


def docs_url(page: str) -> str:
    """Return the URL of a page such as ``ref/settings#who-may``, for hints and errors."""
    path, sign, anchor = page.partition("#")
    return f"{DOCUMENTATION}{path}.html{sign}{anchor}"


# The scope that makes an access token an initial access token (RFC 7591, section 3).
REGISTER_SCOPE = "register"

# The types of ``MCP_DJANGO["JWT"]``, ``["INTROSPECTION"]`` and ``["OAUTH"]``. Keys are in upper
# case. URLs must be https; plain http is allowed only for loopback hosts, and then only under
# ``DEBUG`` (``auth.outbound``). Users and groups of an issuer have no meaning on this site unless
# an entry maps them.

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
MAX_ISSUER_LENGTH = 255


def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine: ``localhost`` or a loopback address.

    IPv6 addresses are without brackets, as in the ``hostname`` of ``urlsplit``.
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _validate_endpoint(url: str) -> str:
    """Validate the URL of an issuer's endpoint, which handles secrets or keys.

    Raises:
        ValueError: the URL is neither https nor loopback, or has a user or a fragment.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not safe or not host or "@" in parts.netloc or parts.fragment or not url.isprintable():
        raise ValueError(
            "write an https URL without a user and a fragment (http only for a loopback host)"
        )
    return url


def _validate_issuer(url: str) -> str:
    if len(url) > MAX_ISSUER_LENGTH or urlsplit(url).query:
        raise ValueError(
            f"write an issuer of at most {MAX_ISSUER_LENGTH} characters without a query"
        )
    return _validate_endpoint(url)


Endpoint = Annotated[str, AfterValidator(_validate_endpoint)]
Issuer = Annotated[str, MinLen(1), AfterValidator(_validate_issuer)]


def _validate_import_path(path: str) -> str:
    # For a relative path, ``import_string`` raises other exceptions than ImportError.
    if path and not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(f"{path!r} is not a dotted path; write 'package.module.name'")
    return path


ImportPath = Annotated[str, AfterValidator(_validate_import_path)]
"""May be empty."""


def _validate_optional_endpoint(url: str) -> str:
    return _validate_endpoint(url) if url else url


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalIssuer:
    """The options of every issuer: its tokens, the servers, and the mapping to scopes and users."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: Issuer
    """The exact ``iss`` of the tokens."""
    servers: tuple[str, ...] = ()
    """The names of the servers that the entry applies to; empty: all."""
    audiences: tuple[str, ...] = ()
    """Accepted values of ``aud``, in addition to the URL of the endpoint."""
    scope_claim: str = ""
    """The claim with the scopes; empty: ``scope``, or else ``scp``."""
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps the issuer's scopes to scopes of this site; other scopes are not changed."""
    user: ImportPath = ""
    """The dotted path of ``(claims, issuer) -> user | None``, called for an unknown subject."""
    unknown_users: Literal["refuse", "link", "create", "link-or-create"] = "refuse"
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    """The claim with group names; dots access nested objects, as in ``realm_access.roles``."""
    groups: dict[str, str] = field(default_factory=dict)
    """Maps names of the claim to Django groups; other groups of the user are not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JWTIssuer(ExternalIssuer):
    """An issuer of JWTs, which are verified with its published keys."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    jwks_url: Annotated[str, AfterValidator(_validate_optional_endpoint)] = ""
    """The URL of the key set; empty: from the issuer's metadata."""
    algorithms: Annotated[tuple[Algorithm, ...], MinLen(1)] = ALGORITHMS
    strict_typ: bool = False
    """Whether only tokens with ``typ`` ``at+jwt`` are accepted (RFC 9068)."""
    leeway: Annotated[float, Ge(0), Le(300)] = 30
    """The allowed clock skew in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrospectionIssuer(ExternalIssuer):
    """An issuer whose tokens are verified by introspection (RFC 7662)."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    url: Endpoint
    client_id: Annotated[str, MinLen(1)]
    client_secret: str = field(repr=False)
    auth_method: Literal["basic", "post"] = "basic"
    prefix: str = ""
    """The prefix of its tokens; other bearer tokens are never sent to it."""
    cache_seconds: Annotated[float, Ge(0), Le(300)] = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """An identity provider of ``OAUTH["TRUSTED_ISSUERS"]``.

    Its assertions about its users are accepted (Identity Assertion Authorization Grant).
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: Issuer
    """The exact ``iss`` of the assertions."""
    jwks: dict[str, Any] | None = None
    """Its public keys (RFC 7517), instead of fetching them."""
    jwks_url: Annotated[str, AfterValidator(_validate_optional_endpoint)] = ""
    """The URL of the key set; if it and ``jwks`` are empty: from the issuer's metadata."""
    algorithms: Annotated[tuple[Algorithm, ...], MinLen(1)] = ALGORITHMS
    leeway: Annotated[float, Ge(0), Le(300)] = 30
    """The allowed clock skew in seconds."""
    tenant: str = ""
    """The required ``tenant`` of assertions, if the issuer serves several organizations."""
    email_authoritative: bool = False
    """Whether an unknown subject is mapped to the only user with the assertion's email address.
    Enable it only if the issuer controls these addresses: it then decides who signs in as whom.
    """
    unknown_users: Literal["refuse", "link", "create", "link-or-create"] = "refuse"
    username_claim: str = "preferred_username"
    user: ImportPath = ""
    """The dotted path of ``(claims, issuer) -> user | None``, called for an unknown subject."""

    @property
    def user_mapping(self) -> ExternalIssuer:
        """The options that map its subjects to users, as an ``ExternalIssuer``."""
        return ExternalIssuer(
            issuer=self.issuer,
            unknown_users=self.unknown_users,
            username_claim=self.username_claim,
            user=self.user,
        )


def _validate_host(name: str) -> str:
    if name != "*" and not re.fullmatch(r"\.?[\w-]+(\.[\w-]+)*", name):
        raise ValueError(
            f"{name!r} is not a valid host; write 'vendor.example', '.vendor.example' for its "
            "subdomains too, or '*' for any host"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """The options of the site's own authorization server; the keys are in upper case."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "alias_generator": str.upper}

    issuer: str = ""
    """The issuer; empty: the origin of the site."""
    cimd: bool = True
    cimd_hosts: tuple[Annotated[str, AfterValidator(_validate_host)], ...] = ("*",)
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

RateScope = Literal["user", "client", "all"]
RATE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
# The maximum timeout of memcached; a greater number would be taken as a timestamp.
MAX_RATE_SECONDS = 30 * 24 * 3600
_RATE = re.compile(
    r"(?:(?P<of>user|client|all)\s*:\s*)?(?P<count>[0-9]{1,9})\s*/\s*(?P<length>[0-9]{0,7})(?P<unit>[smhd])"
)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` uses within ``seconds``, per user, per client of a user, or in total.

    ``"100/h"`` is 100 uses per hour and user. ``"client: 10/30s"`` counts each client of a user
    separately, ``"all: 10000/d"`` counts all callers together. A quota is a rate with a long
    period.
    """

    count: int
    seconds: int
    of: RateScope = "user"

    def __str__(self) -> str:
        unit, size = next(
            (unit, size) for unit, size in reversed(RATE_UNITS.items()) if self.seconds % size == 0
        )
        length = self.seconds // size
        whose = "" if self.of == "user" else f"{self.of}: "
        return f"{whose}{self.count}/{'' if length == 1 else length}{unit}"


def parse_rate(text: str) -> Rate:
    """Return the ``Rate`` of a string such as ``"100/h"``.

    Raises:
        ValueError: the string is invalid; the message says what to write.
    """
    match = _RATE.fullmatch(text.strip())
    seconds = int(match["length"] or 1) * RATE_UNITS[match["unit"]] if match else 0
    if match is None or not 0 < seconds <= MAX_RATE_SECONDS:
        raise ValueError(
            f"{text!r} is not a valid rate; write '100/h', 'client: 10/30s' or 'all: 10000/d', "
            "with a period of 1s to 30d"
        )
    return Rate(int(match["count"]), seconds, cast(RateScope, match["of"] or "user"))


def parse_rates(texts: str | Iterable[str]) -> tuple[Rate, ...]:
    """Return the rates of a list of strings, or of one string separated by commas; may be empty.

    Raises:
        ValueError: one of them is invalid.
    """
    parts = texts.split(",") if isinstance(texts, str) else texts
    return tuple(parse_rate(text) for text in parts if text.strip())


# The settings -------------------------------------------------------------------------------------

Check: TypeAlias = Callable[..., list[CheckMessage]]

SERVED_VERSIONS = tuple(REVISIONS)
DEFAULT_LAYER = "default"
Seconds = Annotated[float, Gt(0)]


def _validate_site_url(url: str) -> str:
    """Validate the URL of a site, of which only scheme, host and port are used.

    Raises:
        ValueError: it has no scheme or no host.
    """
    parts = urlsplit(url)
    if url and (parts.scheme.lower() not in ("http", "https") or not parts.hostname):
        raise ValueError(f"{url!r} has no scheme or no host; write https://shop.example")
    return url


def _validate_trace_url(url: str) -> str:
    if url and ("{trace_id}" not in url or not _validate_site_url(url)):
        raise ValueError(f"{url!r} has no {{trace_id}}; write https://traces.example/{{trace_id}}")
    return url


def _validate_scope(name: str) -> str:
    if not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", name):
        raise ValueError(
            f"{name!r} is not a valid scope; write printable ASCII without spaces, quotes and "
            "backslashes (RFC 6749, section 3.3)"
        )
    return name


def _validate_rates(value: Any) -> Any:
    """Return the rates of a setting, a string or a list of strings.

    Raises:
        ValueError: the value is neither, or one of the rates is invalid.
    """
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{value!r} is not a list of rates; write ['100/h']")
    return parse_rates(value)


Scope = Annotated[str, AfterValidator(_validate_scope)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how many seconds rows are kept after they were last needed to serve requests."""

    # Misspelled members are reported, like misspelled keys.
    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    streams: Seconds = 300
    """After the end of a stream; within this time a client can resume it."""
    inbox: Seconds = 600
    workers: Seconds = 3600
    security_events: Seconds = 180 * 24 * 3600
    calls: Seconds = 90 * 24 * 3600
    approvals: Seconds = 90 * 24 * 3600
    """After an approval is decided or has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The read-only limits: how much of the database one call of a read-only component may use."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    rows: Annotated[int, Ge(1)] = 10_000
    statements: Annotated[int, Ge(1)] = 100
    seconds: Seconds = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The current settings. Times are in seconds, sizes in bytes."""

    title: str = ""
    instructions: str = ""
    icons: tuple[Icon, ...] = ()
    protocol_versions: Annotated[tuple[str, ...], MinLen(1)] = SERVED_VERSIONS
    base_url: Annotated[str, AfterValidator(_validate_site_url)] = ""
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: Annotated[int, Gt(0)] = 4 * 1024 * 1024
    body_seconds: Seconds = 30
    """The time limit for reading a request body, where this package reads it."""

    auth: tuple[ImportPath, ...] = ()
    """Empty: ``tokens``, and ``oauth`` if its app is installed."""
    scopes: dict[Scope, str] = field(default_factory=lambda: {"mcp": "Use the tools of this site"})
    scope_implies: dict[str, tuple[str, ...]] | None = None
    list_filter: Literal["permissions", "scopes"] = "permissions"
    challenge_scopes: Literal["needed", "granted"] = "needed"
    """Whether a challenge for more scopes also lists the scopes that the token has."""
    proxies: Annotated[int, Ge(0)] = 0
    """The number of the site's own reverse proxies, which append to ``X-Forwarded-For``."""
    oauth: OAuth = OAuth()
    jwt: tuple[JWTIssuer, ...] = ()
    introspection: tuple[IntrospectionIssuer, ...] = ()
    drf: tuple[ImportPath, ...] = ()
    """Dotted paths; empty: REST framework's ``DEFAULT_AUTHENTICATION_CLASSES``."""

    threads: Annotated[int, Ge(1)] = 8
    queue: Annotated[int, Ge(0)] = 64
    queue_seconds: Seconds = 10
    keep_connections: bool | None = None
    """``None``: threads keep their database connections, except with ``background`` at
    ``"inline"`` and on sites with tenants (``mcp_django.tenants``)."""
    background: Literal["threads", "inline"] | None = None
    """Where background work, which no request waits for, runs: in threads of the process, or in the
    thread of the request (``storage.databases.is_inline``). ``None``: ``"threads"``, and
    ``"inline"`` under a test runner."""
    thread_context: ImportPath | Literal[False] | None = None
    """The class that enters the tenant of a request in another thread (``mcp_django.tenants``).
    ``None``: that of django-tenants, if it is used; ``False``: the site has no tenants, even
    if a package for tenants is installed."""
    call_timeout: Seconds = 300
    client_request_timeout: Seconds = 600
    max_result_bytes: Annotated[int, Ge(1000)] = 100_000
    large_keys: bool = False
    """Whether the keys of a ``BigAutoField`` may be beyond 2^53-1."""
    max_event_bytes: Annotated[int, Ge(65_536)] | None = 1024 * 1024
    """The maximum size of a server-sent event, which the Python SDK 2.3 limits. ``None``: any."""
    page_size: Annotated[int, Ge(1)] = 100
    limits: Limits = Limits()
    rate: Annotated[tuple[Rate, ...], BeforeValidator(_validate_rates)] = ()
    """The rate limits of each whole server."""
    throttle_as: Literal["error", "result"] = "error"

    channel_layer: str = DEFAULT_LAYER
    poll_seconds: Seconds | None = None
    keepalive_seconds: Seconds = 15
    ping_seconds: Annotated[float, Ge(0)] = 60
    drain_seconds: Seconds = 25

    confirm_seconds: Annotated[float, Ge(0), Le(10)] | None = None
    """How long a process uses what the database has confirmed; 0: each request queries it. The
    maximum is 10, since other processes rely on the heartbeat of the process for as long
    (``storage.inbox``). ``None``: 1, and 0 with ``background`` at ``"inline"``."""
    session_idle: Seconds = 3600
    session_max_age: Seconds = 24 * 3600
    sessions_per_principal: Annotated[int, Ge(1)] = 100
    session_rate: Annotated[tuple[Rate, ...], BeforeValidator(_validate_rates)] = parse_rates(
        "60/m"
    )
    """How often anonymous callers may open a session from one address."""
    streams_per_principal: Annotated[int, Ge(1)] = 100
    streams_per_user: Annotated[int, Ge(1)] | None = None
    """``None``: twice ``streams_per_principal``."""
    anonymous_factor: Annotated[int, Ge(1)] = 100
    """The limit of all anonymous callers together, as a multiple of the limit of one address."""
    retention: Retention = Retention()

    task_backend: str = ""
    """An alias of Django's ``TASKS``; empty: tasks run in the web process, and end with it."""
    task_threads: Annotated[int, Ge(1)] = 4
    """The maximum number of tasks that run concurrently in a process, without a backend."""
    task_ttl: Seconds = 3600
    task_max_ttl: Seconds = 24 * 3600
    task_poll_seconds: Seconds = 2
    tasks_per_principal: Annotated[int, Ge(1)] = 100

    log_calls: bool = True
    log_arguments: bool = False
    audit_strict: bool = True
    """Whether calls of writing tools are rejected when the call log cannot be written."""
    audit_context: ImportPath = ""
    """The dotted path of ``(user, request) -> context manager``, entered around each function."""
    telemetry: bool = True
    """Whether requests are reported to OpenTelemetry, if its API is installed."""
    trace_url: Annotated[str, AfterValidator(_validate_trace_url)] = ""
    approval_seconds: Seconds = 3600
    """How long a call waits for an approval, and how long an approval is valid."""
    health: bool = False
    """Whether ``GET <mount>/health`` is served."""
    admin_base_class: ImportPath = "django.contrib.admin.ModelAdmin"

    @property
    def backends(self) -> tuple[str, ...]:
        """The authentication backends in use."""
        if self.auth:
            return self.auth
        return ("tokens", "oauth") if apps.is_installed("mcp_django.oauth") else ("tokens",)


def _upper_case_names(shape: Any) -> tuple[str, ...]:
    return tuple(member.name.upper() for member in fields(shape))


KEYS = _upper_case_names(Settings)
# The members of the keys that are dictionaries, which can be misspelled too.
_MEMBERS = {
    "OAUTH": _upper_case_names(OAuth),
    "TRUSTED_ISSUERS": _upper_case_names(TrustedIssuer),
    "JWT": _upper_case_names(JWTIssuer),
    "INTROSPECTION": _upper_case_names(IntrospectionIssuer),
    "LIMITS": tuple(member.name for member in fields(Limits)),
    "RETENTION": tuple(member.name for member in fields(Retention)),
}
_adapter = TypeAdapter(Settings)


def find_problems(values: object) -> list[tuple[str, str]]:
    """Return all errors in a value of ``MCP_DJANGO``, as (message, hint) pairs for the checks."""
    if not isinstance(values, Mapping):
        return [("MCP_DJANGO is not a dictionary.", "Write MCP_DJANGO = {}.")]
    problems = []
    for key in (str(key) for key in values if key not in KEYS):
        hint = _suggest_key(key, KEYS)
        if key.upper() == "TOKEN_CACHE_SECONDS":
            hint = (
                "Write 'CONFIRM_SECONDS', for how long a process uses what the database confirmed."
            )
        if key.upper() in _MEMBERS["OAUTH"]:
            hint = f"Write MCP_DJANGO = {{'OAUTH': {{{key.upper()!r}: …}}}}."
        problems.append((f"MCP_DJANGO has no key {key!r}.", hint))
    try:
        settings = _parse_settings({key: value for key, value in values.items() if key in KEYS})
        for key, issuers in (("JWT", settings.jwt), ("INTROSPECTION", settings.introspection)):
            # An issuer that is listed more than once for the same server is ambiguous.
            places = Counter(
                (external.issuer, server)
                for external in issuers
                for server in external.servers or ("",)
            )
            problems += [
                (
                    f"MCP_DJANGO[{key!r}] lists the issuer {issuer!r} twice.",
                    "Keep one entry, or give each its own SERVERS.",
                )
                for issuer in sorted({issuer for (issuer, _), count in places.items() if count > 1})
            ]
    except ValidationError as exc:
        problems += [_describe_error(error) for error in exc.errors(include_url=False)]
    versions = values.get("PROTOCOL_VERSIONS", ())
    listed = map(str, versions if isinstance(versions, (list, tuple)) else ())
    unserved = [version for version in listed if version not in SERVED_VERSIONS]
    if unserved:
        names = ", ".join(map(repr, unserved))
        message = f"Unsupported MCP_DJANGO['PROTOCOL_VERSIONS']: {names}."
        problems.append((message, f"Supported: {', '.join(SERVED_VERSIONS)}."))
    return problems


def _describe_error(error: Any) -> tuple[str, str]:
    key, *within = (part for part in error["loc"] if part != "[key]")
    key = str(key).upper()
    place = f"MCP_DJANGO[{key!r}]" + "".join(f"[{part!r}]" for part in within)
    message, hint = error["msg"].removeprefix("Value error, "), f"See {docs_url('ref/settings')}."
    if error["type"] == "unexpected_keyword_argument":
        inner = next((part for part in reversed(within) if part in _MEMBERS), key)
        return f"{place}: unknown key.", _suggest_key(str(within[-1]), _MEMBERS[inner])
    if error["type"] == "tuple_type":
        message = f"Input should be a list or a tuple, not {type(error['input']).__name__}"
    if error["type"] == "literal_error":
        message += f", not {error['input']!r}"
    return f"{place}: {message}.", hint


def _suggest_key(key: str, names: tuple[str, ...]) -> str:
    spellings = {name.lower(): name for name in names}
    close = nearest(key.lower(), spellings)
    return f"Did you mean {spellings[close]!r}?" if close else f"Known: {', '.join(names)}."


def _parse_settings(values: Mapping[str, Any]) -> Settings:
    return _adapter.validate_python({key.lower(): value for key, value in values.items()})


_use_defaults: ContextVar[bool] = ContextVar("defaults_stand_in", default=False)


@cache
def get_settings() -> Settings:
    """Return the current settings: the same object until a setting of the site changes.

    Values that are derived from settings may be cached as long as this object is the same. Only
    changes that send ``setting_changed`` count, as those of Django's test helpers do.

    Raises:
        ImproperlyConfigured: a key is unknown, or a value is invalid.
    """
    values = getattr(django_settings, "MCP_DJANGO", {})
    problems = find_problems(values)
    if problems and _use_defaults.get():
        return Settings()
    if problems:
        raise ImproperlyConfigured(" ".join(f"{what} {hint}" for what, hint in problems))
    return _parse_settings(values)


@cache
def get_host_settings() -> tuple[tuple[str, ...], bool, bool]:
    """Return Django's ``ALLOWED_HOSTS``, ``DEBUG`` and ``USE_X_FORWARDED_HOST``."""
    django = django_settings
    return tuple(django.ALLOWED_HOSTS), django.DEBUG, django.USE_X_FORWARDED_HOST


@contextmanager
def use_defaults_if_invalid() -> Iterator[None]:
    """Context manager and decorator: use the default settings while the settings are invalid.

    For code that runs before the check E002 and does not serve requests.
    """
    token = _use_defaults.set(True)
    try:
        yield
    finally:
        _use_defaults.reset(token)
        if find_problems(getattr(django_settings, "MCP_DJANGO", {})):
            # The defaults may be cached.
            get_settings.cache_clear()


def skip_if_settings_invalid(check: Check) -> Check:
    """Decorate a system check to return nothing while the settings are invalid (see E002)."""

    @wraps(check)
    def inner(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        if find_problems(getattr(django_settings, "MCP_DJANGO", {})):
            return []
        return check(app_configs, **kwargs)

    return inner


@on_settings_change()
def _clear_settings_cache() -> None:
    # Also for Django's own settings, on which cached values depend: ROOT_URLCONF, DATABASES.
    get_settings.cache_clear()
    get_host_settings.cache_clear()
