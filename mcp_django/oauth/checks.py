"""System checks of the authorization server: each state in which it is set up only in part.

Errors and warnings have the ids ``mcp_oauth.E001`` … and ``mcp_oauth.W001`` …. One mistake is
reported once, by its own check: the others are silent as long as the toolkit is missing, which is
therefore imported only where it is asked, or ``MCP_DJANGO`` cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, router
from django.middleware.csrf import CsrfViewMiddleware
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import NoReverseMatch, Resolver404, URLResolver, get_resolver, resolve, reverse
from django.utils.module_loading import import_string

from mcp_django.auth.challenges import protected_resource
from mcp_django.auth.pages import HINT, has_sign_in_page
from mcp_django.conf import Check, get_settings, with_settings
from mcp_django.oauth.redirects import LOOPBACK, app_problem
from mcp_django.server import all_servers


def _when_ready(check: Check) -> Check:
    """The check, silent as long as the toolkit is missing or ``MCP_DJANGO`` cannot be read."""

    @with_settings
    @wraps(check)
    def ready(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        if not apps.is_installed("oauth2_provider"):
            return []
        return check(app_configs, **kwargs)

    return ready


# Clients ------------------------------------------------------------------------------------------


@_when_ready
def check_app_redirects(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E011: an address of an application that no client could use."""
    return [
        Error(
            f"MCP_DJANGO['OAUTH']['APP_REDIRECTS'] lists {uri!r}: {problem}",
            hint="List private-use addresses such as 'com.example.app:/callback', each in full; "
            "https and loopback addresses need no entry.",
            id="mcp_oauth.E011",
        )
        for uri in get_settings().oauth.app_redirects
        if (problem := app_problem(uri))
    ]


@_when_ready
def check_clients(
    app_configs: Any, *, databases: list[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """E013: a client registered itself for a grant in which no user is asked."""
    from oauth2_provider.models import get_application_model

    model = get_application_model()
    alias = router.db_for_read(model)
    if alias not in (databases or ()):
        return []
    sources = model.RegistrationSource
    wrong = (
        model._default_manager.using(alias)
        .filter(registration_source__in=[sources.DCR, sources.CIMD])
        .exclude(authorization_grant_type=model.GRANT_AUTHORIZATION_CODE)
    )
    try:
        found = list(wrong.values_list("client_id", "authorization_grant_type")[:5])
    except DatabaseError:
        # The tables come with the migrations, which run this check first.
        return []
    return [
        Error(
            f"The client {client_id!r} registered itself for the grant {grant!r}.",
            hint="Delete it in the admin, or mark it as registered by hand if you know it; take "
            "DCR_ENABLED out of OAUTH2_PROVIDER.",
            id="mcp_oauth.E013",
        )
        for client_id, grant in found
    ]


# ``OAUTH2_PROVIDER`` ------------------------------------------------------------------------------

PROVIDER_HINT = "Write OAUTH2_PROVIDER = provider_settings(…) in settings.py (mcp_django.oauth)."
OURS = {
    "OAUTH2_VALIDATOR_CLASS": "mcp_django.oauth.validator.Validator",
    "SCOPES_BACKEND_CLASS": "mcp_django.oauth.clients.Scopes",
    "CIMD_METADATA_FETCHER": "mcp_django.oauth.cimd.Fetcher",
    "CIMD_REGISTRATION_PERMISSION_CLASSES": "mcp_django.oauth.cimd.SignedInOnly",
}
# What else ``provider_settings`` says, and what is lost where a site says otherwise.
WEAKER = {
    "PKCE_REQUIRED": "codes can be redeemed by whoever intercepts them",
    "ALLOW_LOCALHOST_LOOPBACK": "assistants that listen on a port of localhost cannot connect",
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": "tokens may be sent through the browser's address",
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": "clients may collect passwords",
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": "PKCE without a digest is accepted",
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": "tokens are accepted in addresses",
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": "the toolkit's own answers do not name the issuer",
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": "tokens are stored as they are",
}


def check_toolkit(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E001: the toolkit is not installed."""
    if apps.is_installed("oauth2_provider"):
        return []
    return [
        Error(
            "mcp_django.oauth is installed without django-oauth-toolkit.",
            hint="pip install 'django-mcp-provider[oauth]', and add \"oauth2_provider\" to "
            "INSTALLED_APPS.",
            id="mcp_oauth.E001",
        )
    ]


@_when_ready
def check_classes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003: the toolkit is not told to ask us, so tokens are bound to nothing."""
    return [
        Error(
            f"OAUTH2_PROVIDER[{key!r}] is not {path}, nor a subclass of it.",
            hint=PROVIDER_HINT,
            id="mcp_oauth.E003",
        )
        for key, path in OURS.items()
        if not _is_ours(key, path)
    ]


def _is_ours(key: str, path: str) -> bool:
    from oauth2_provider.settings import oauth2_settings

    try:
        found = getattr(oauth2_settings, key)
    except ImportError:
        return False
    classes = found if isinstance(found, (list, tuple)) else [found]
    ours = import_string(path)
    return any(isinstance(one, type) and issubclass(one, ours) for one in classes)


@_when_ready
def check_refresh_tokens(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E004: a stolen refresh token of a public client would go unnoticed (OAuth 2.1, 4.3.1)."""
    from oauth2_provider.settings import oauth2_settings

    return [
        Error(
            f"OAUTH2_PROVIDER[{key!r}] is off, so a stolen refresh token goes unnoticed.",
            hint=f"Take {key} out of what provider_settings() is given; "
            "OAUTH['REFRESH_REPLAY_SECONDS'] lets a client ask twice.",
            id="mcp_oauth.E004",
        )
        for key in ("ROTATE_REFRESH_TOKEN", "REFRESH_TOKEN_REUSE_PROTECTION")
        if not getattr(oauth2_settings, key)
    ]


@_when_ready
def check_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W009: a key that the toolkit does not know, which it passes over without a word."""
    from oauth2_provider.settings import DEFAULTS

    given = getattr(django_settings, "OAUTH2_PROVIDER", {})
    return [
        checks.Warning(
            f"OAUTH2_PROVIDER has {key!r}, which the toolkit does not know.",
            hint=f"Did you mean {near[0]!r}?"
            if (near := get_close_matches(str(key), DEFAULTS, n=1))
            else "Take it out; what is ours is in MCP_DJANGO['OAUTH'].",
            id="mcp_oauth.W009",
        )
        for key in given
        if key not in DEFAULTS
    ]


@_when_ready
def check_gates(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W005: the toolkit is laxer than it could be, which an older client of the site may need."""
    from oauth2_provider.settings import oauth2_settings

    found = {key: lost for key, lost in WEAKER.items() if not getattr(oauth2_settings, key)}
    if oauth2_settings.ALLOW_URI_WILDCARDS:
        found["ALLOW_URI_WILDCARDS"] = "a redirect address may have any subdomain"
    return [
        checks.Warning(
            f"OAUTH2_PROVIDER[{key!r}] is not as provider_settings() has it: {lost}.",
            hint=f"Take {key} out of what it is given, unless an old client of the site needs it.",
            id="mcp_oauth.W005",
        )
        for key, lost in found.items()
    ]


@_when_ready
def check_toolkit_registration(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W007: the toolkit registers clients too, with any grant and tokens that never expire."""
    from oauth2_provider.settings import oauth2_settings

    if not oauth2_settings.DCR_ENABLED:
        return []
    return [
        checks.Warning(
            "OAUTH2_PROVIDER['DCR_ENABLED'] is on, so the toolkit's own views register clients "
            "by rules of their own.",
            hint="Take it out: /oauth/register is a view of ours and does not need it.",
            id="mcp_oauth.W007",
        )
    ]


@_when_ready
def check_documents(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W008: clients are told that their metadata documents are read, and they are not."""
    from oauth2_provider.settings import oauth2_settings

    if not get_settings().oauth.cimd or oauth2_settings.CIMD_ENABLED:
        return []
    return [
        checks.Warning(
            "OAUTH2_PROVIDER['CIMD_ENABLED'] is off, while the metadata offers it.",
            hint="Take it out of what provider_settings() is given, or say "
            "MCP_DJANGO = {'OAUTH': {'CIMD': False}}.",
            id="mcp_oauth.W008",
        )
    ]


# The site -----------------------------------------------------------------------------------------

ORIGIN_ROOT_ONLY = "2025-03-26"
PAGES = tuple(f"mcp_django/oauth/{one}.html" for one in ("authorize", "connections", "error"))


@_when_ready
def check_urls(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E005: no URLs. E006, E007: not at the root, or others stand before them."""
    try:
        reverse("mcp_oauth:token")
    except NoReverseMatch:
        return [
            Error(
                "The URLs of the authorization server are not included.",
                hint='Add path("", include("mcp_django.oauth.urls")) to the root of the URLconf.',
                id="mcp_oauth.E005",
            )
        ]
    return list(_hidden())


def _hidden() -> Iterator[CheckMessage]:
    from mcp_django.oauth.metadata import authorization_server

    hint = (
        'Put path("", include("mcp_django.oauth.urls")) first, at the root of the URLconf: under '
        "no prefix, no i18n_patterns, and before any pattern that matches everything."
    )
    issuer = get_settings().oauth.issuer
    # What E010 complains of has no path to look at.
    path = urlsplit(issuer).path.rstrip("/") if _is_identifier(issuer) else ""
    address = f"/.well-known/oauth-authorization-server{path}"
    if _view(address) is not authorization_server:
        yield Error(f"{address} does not lead to its view.", hint=hint, id="mcp_oauth.E006")
    address = "/.well-known/oauth-protected-resource/mcp"
    if _view(address) is not protected_resource:
        yield Error(f"{address} does not lead to its view.", hint=hint, id="mcp_oauth.E007")


def _view(path: str) -> Any:
    try:
        return resolve(path).func
    except Resolver404:
        return None


@_when_ready
def check_login(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E008: users are sent to sign in where there is nothing."""
    if has_sign_in_page():
        return []
    return [
        Error(
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which no URL of the site answers, "
            "so nobody can sign in to approve an assistant.",
            hint=HINT,
            id="mcp_oauth.E008",
        )
    ]


@_when_ready
def check_middleware(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E009: without sessions nobody is signed in. W006: other forms of the site are unguarded."""
    found: list[CheckMessage] = [
        Error(
            f"MIDDLEWARE has no {needed.__name__}, so nobody can be signed in.",
            hint=f'Add "{needed.__module__}.{needed.__name__}".',
            id="mcp_oauth.E009",
        )
        for needed in (SessionMiddleware, AuthenticationMiddleware)
        if not _has_middleware(needed)
    ]
    if not _has_middleware(CsrfViewMiddleware):
        found.append(
            checks.Warning(
                "MIDDLEWARE has no CsrfViewMiddleware: the pages here guard themselves, and the "
                "sign-in page may not.",
                hint='Add "django.middleware.csrf.CsrfViewMiddleware".',
                id="mcp_oauth.W006",
            )
        )
    return found


def _has_middleware(wanted: type) -> bool:
    for path in django_settings.MIDDLEWARE:
        with suppress(ImportError):
            found = import_string(path)
            if isinstance(found, type) and issubclass(found, wanted):
                return True
    return False


@_when_ready
def check_issuer(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E010: the issuer is no identifier. W002: the oldest clients do not find one with a path.

    W010: the site is below a prefix, and the issuer is not.
    """
    settings = get_settings()
    issuer = settings.oauth.issuer
    prefix = (django_settings.FORCE_SCRIPT_NAME or "").rstrip("/")
    if prefix and not issuer:
        return [
            checks.Warning(
                f"The site is below {prefix!r} (FORCE_SCRIPT_NAME) and its issuer is the root of "
                "the host, where the site cannot serve its metadata.",
                hint="Set MCP_DJANGO = {'OAUTH': {'ISSUER': 'https://shop.example"
                f"{prefix}'}}}}, with your host.",
                id="mcp_oauth.W010",
            )
        ]
    if not issuer:
        return []
    if not _is_identifier(issuer):
        return [
            Error(
                f"MCP_DJANGO['OAUTH']['ISSUER'] is {issuer!r}, which identifies no issuer.",
                hint="Write an origin such as https://shop.example, with a path if need be and no "
                "slash at the end; leave it out, and it is the site's own origin.",
                id="mcp_oauth.E010",
            )
        ]
    if not urlsplit(issuer).path or ORIGIN_ROOT_ONLY not in settings.protocol_versions:
        return []
    return [
        checks.Warning(
            f"The issuer {issuer!r} has a path, where clients of {ORIGIN_ROOT_ONLY} do not look.",
            hint="Leave ISSUER out, unless the site is below a prefix or is known by it elsewhere.",
            id="mcp_oauth.W002",
        )
    ]


def _is_identifier(issuer: str) -> bool:
    try:
        parts = urlsplit(issuer)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        return False
    is_clean = not any(one in issuer for one in "?#@ \\") and not issuer.endswith("/")
    return parts.scheme in ("http", "https") and bool(host) and is_clean and issuer.isprintable()


@_when_ready
def check_scheme(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W001 (``--deploy``): what is issued can be read on its way."""
    settings = get_settings()
    named = {"BASE_URL": settings.base_url, "OAUTH']['ISSUER": settings.oauth.issuer}
    if django_settings.DEBUG:
        return []
    return [
        checks.Warning(
            f"MCP_DJANGO['{key}'] is {url!r}: codes and tokens go over plain http.",
            hint="Serve the site by https and write https:// here.",
            id="mcp_oauth.W001",
        )
        for key, url in named.items()
        if url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK
    ]


@_when_ready
def check_hosts(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W003: whoever calls decides what the issuer is."""
    hosts = [one for one in django_settings.ALLOWED_HOSTS if one.startswith(("*", "."))]
    if not hosts or get_settings().base_url:
        return []
    return [
        checks.Warning(
            f"ALLOWED_HOSTS has {hosts[0]!r} and BASE_URL is not set, so the issuer and the "
            "resources are called what the Host header of a request says.",
            hint="Set MCP_DJANGO = {'BASE_URL': 'https://shop.example'}.",
            id="mcp_oauth.W003",
        )
    ]


@_when_ready
def check_templates(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E016: a page that users are shown cannot be loaded."""
    found: list[CheckMessage] = []
    for name in PAGES:
        try:
            get_template(name)
        except (TemplateDoesNotExist, TemplateSyntaxError, ImproperlyConfigured) as exc:
            problem = "is not found" if isinstance(exc, TemplateDoesNotExist) else f"fails: {exc}"
            hint = (
                "Let TEMPLATES have Django's engine with APP_DIRS = True, and mend what the site "
                "has in its place."
            )
            found.append(Error(f"The template {name} {problem}.", hint=hint, id="mcp_oauth.E016"))
    return found


@_when_ready
def check_use(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W004: no server takes the tokens that are issued. W011: none of those has an address."""
    taking = [server for server in all_servers() if "oauth" in server.auth]
    mounted = list(_mounted(get_resolver().url_patterns))
    if any(server.resource_url or server in mounted for server in taking):
        return []
    if taking:
        return [
            checks.Warning(
                f"The server {taking[0].name!r} takes tokens and no URL leads to it, so none can "
                "be issued for it.",
                hint='Add path("mcp", mcp.urls) to the URLconf; for a mount elsewhere, say '
                "MCPServer(resource_url=…).",
                id="mcp_oauth.W011",
            )
        ]
    return [
        checks.Warning(
            "mcp_django.oauth is installed, and no server takes its tokens.",
            hint="Add \"oauth\" to MCP_DJANGO['AUTH'], or leave AUTH out.",
            id="mcp_oauth.W004",
        )
    ]


def _mounted(patterns: Iterable[Any]) -> Iterator[Any]:
    """The servers whose endpoints the URLconf has, and None for every other view."""
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from _mounted(one.url_patterns)
        else:
            yield getattr(one.callback, "mcp_server", None)


# Upstream providers -------------------------------------------------------------------------------


@_when_ready
def check_field_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E012: there is nothing to encrypt a third party's tokens with."""
    oauth = get_settings().oauth
    if not oauth.upstream or oauth.field_keys:
        return []
    return [
        Error(
            "MCP_DJANGO['OAUTH'] has UPSTREAM and no FIELD_KEYS, so there is nothing to encrypt "
            "the third party's tokens with.",
            hint="python -c 'from cryptography.fernet import Fernet; "
            "print(Fernet.generate_key().decode())' makes a key; keep it where SECRET_KEY is.",
            id="mcp_oauth.E012",
        )
    ]


@_when_ready
def check_providers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014: a provider, or a key, that cannot be used."""
    configured = get_settings().oauth.upstream
    if not configured:
        return []
    if find_spec("authlib") is None:
        return [
            Error(
                "MCP_DJANGO['OAUTH']['UPSTREAM'] needs a client library that is not installed.",
                hint="pip install 'django-mcp-provider[upstream]'",
                id="mcp_oauth.E014",
            )
        ]
    # An extra of its own.
    from mcp_django.oauth.upstream.conf import problems

    keys = get_settings().oauth.field_keys
    # Their absence is told by E012.
    return [
        Error(what, hint=hint, id="mcp_oauth.E014")
        for what, hint in problems()
        if keys or "FIELD_KEYS" not in what
    ]


@_when_ready
def check_servers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E015: a server stands on a provider that is not configured, so nobody could use it."""
    configured = get_settings().oauth.upstream
    known = ", ".join(map(repr, configured))
    return [
        Error(
            f"The server {server.name!r} has upstream={server.upstream!r}, which "
            "MCP_DJANGO['OAUTH']['UPSTREAM'] does not have.",
            hint=f"Configure it{known and f', or use one of: {known}'}.",
            id="mcp_oauth.E015",
        )
        for server in all_servers()
        if server.upstream and server.upstream not in configured
    ]


# All of them --------------------------------------------------------------------------------------

TAG = "mcp_oauth"

ALL = (
    check_toolkit,
    check_classes,
    check_keys,
    check_refresh_tokens,
    check_gates,
    check_toolkit_registration,
    check_documents,
    check_urls,
    check_login,
    check_middleware,
    check_issuer,
    check_hosts,
    check_templates,
    check_use,
    check_app_redirects,
    check_field_keys,
    check_providers,
    check_servers,
)


def register_all() -> None:
    """Register every check; called when the app is ready."""
    for check in ALL:
        checks.register(check, TAG)
    checks.register(check_scheme, TAG, deploy=True)
    checks.register(check_clients, TAG, checks.Tags.database)
