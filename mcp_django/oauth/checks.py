"""System checks for an incomplete or insecure setup of the authorization server.

Errors and warnings have the ids ``mcp_oauth.E001`` … and ``mcp_oauth.W001`` …. Each mistake is
reported once, by its own check: if the toolkit is not installed or ``MCP_DJANGO`` is not valid,
the other checks report nothing. The toolkit is therefore imported inside the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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
from mcp_django.auth.pages import SIGN_IN_HINT, has_sign_in_page
from mcp_django.conf import Check, get_settings, is_loopback, skip_if_settings_invalid
from mcp_django.oauth.conf import app_redirect_problem
from mcp_django.protocol.text import nearest
from mcp_django.server import all_servers

TAG = "mcp_oauth"


def _check(*tags: str, **options: Any) -> Callable[[Callable[..., Iterator[CheckMessage]]], Check]:
    """Return a decorator that registers a check, which yields its messages.

    It is skipped if the toolkit is not installed or ``MCP_DJANGO`` is not valid.
    """

    def decorate(find: Callable[..., Iterator[CheckMessage]]) -> Check:
        @checks.register(TAG, *tags, **options)
        @skip_if_settings_invalid
        @wraps(find)
        def check(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
            return list(find(**kwargs)) if apps.is_installed("oauth2_provider") else []

        return check

    return decorate


@_check()
def check_app_redirects(**kwargs: Any) -> Iterator[CheckMessage]:
    """E011: an entry of ``APP_REDIRECTS`` is not a valid application redirect URI."""
    for uri in get_settings().oauth.app_redirects:
        if problem := app_redirect_problem(uri):
            yield Error(
                f"MCP_DJANGO['OAUTH']['APP_REDIRECTS'] lists {uri!r}: {problem}",
                hint="List private-use addresses such as 'com.example.app:/callback', each in "
                "full; https and loopback addresses need no entry.",
                id="mcp_oauth.E011",
            )


@_check(checks.Tags.database)
def check_clients(*, databases: list[str] | None = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """E013: a client registered itself for a grant type without user consent."""
    from oauth2_provider.models import get_application_model

    model = get_application_model()
    alias = router.db_for_read(model)
    if alias not in (databases or ()):
        return
    sources = model.RegistrationSource
    wrong = (
        model._default_manager.using(alias)
        .filter(registration_source__in=[sources.DCR, sources.CIMD])
        .exclude(authorization_grant_type=model.GRANT_AUTHORIZATION_CODE)
    )
    rows = []
    # ``migrate`` runs this check before it creates the tables.
    with suppress(DatabaseError):
        rows = list(wrong.values_list("client_id", "authorization_grant_type")[:5])
    for client_id, grant in rows:
        yield Error(
            f"The client {client_id!r} registered itself for the grant type {grant!r}.",
            hint="Delete it in the admin, or set its registration source to manual if you know it; "
            "remove DCR_ENABLED from OAUTH2_PROVIDER.",
            id="mcp_oauth.E013",
        )


# ``OAUTH2_PROVIDER`` ------------------------------------------------------------------------------

PROVIDER_HINT = "Write OAUTH2_PROVIDER = provider_settings(…) in settings.py (mcp_django.oauth)."
REQUIRED_CLASSES = {
    "OAUTH2_VALIDATOR_CLASS": "mcp_django.oauth.validator.Validator",
    "SCOPES_BACKEND_CLASS": "mcp_django.oauth.clients.Scopes",
    "CIMD_METADATA_FETCHER": "mcp_django.oauth.cimd.Fetcher",
    "CIMD_REGISTRATION_PERMISSION_CLASSES": "mcp_django.oauth.cimd.SignedInOnly",
}
# Other keys of ``provider_settings`` that have to be true, and the consequence if one is not.
SECURITY_SETTINGS = {
    "PKCE_REQUIRED": "an intercepted code can be redeemed",
    "ALLOW_LOCALHOST_LOOPBACK": "assistants that listen on a port of localhost cannot connect",
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": "tokens may be sent in the URL fragment",
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": "clients may collect passwords",
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": "the PKCE method plain is accepted",
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": "tokens are accepted in URLs",
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": "the toolkit's own redirects have no iss",
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": "tokens are stored in plain text",
}


@checks.register(TAG)
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


@_check()
def check_classes(**kwargs: Any) -> Iterator[CheckMessage]:
    """E003: the toolkit does not use the classes of this app, so tokens have no audience."""
    from oauth2_provider.settings import oauth2_settings

    for key, path in REQUIRED_CLASSES.items():
        try:
            value = getattr(oauth2_settings, key)
        except ImportError:
            value = None
        classes = value if isinstance(value, (list, tuple)) else [value]
        if not any(
            isinstance(cls, type) and issubclass(cls, import_string(path)) for cls in classes
        ):
            message = f"OAUTH2_PROVIDER[{key!r}] is not {path}, nor a subclass of it."
            yield Error(message, hint=PROVIDER_HINT, id="mcp_oauth.E003")


@_check()
def check_refresh_tokens(**kwargs: Any) -> Iterator[CheckMessage]:
    """E004: reuse of a stolen refresh token is not detected (OAuth 2.1, section 4.3.1)."""
    from oauth2_provider.settings import oauth2_settings

    for key in ("ROTATE_REFRESH_TOKEN", "REFRESH_TOKEN_REUSE_PROTECTION"):
        if not getattr(oauth2_settings, key):
            yield Error(
                f"OAUTH2_PROVIDER[{key!r}] is off, so reuse of a stolen refresh token is not "
                "detected.",
                hint=f"Remove {key} from the arguments of provider_settings(); "
                "MCP_DJANGO['OAUTH']['REFRESH_REPLAY_SECONDS'] lets a client retry a refresh.",
                id="mcp_oauth.E004",
            )


@_check()
def check_keys(**kwargs: Any) -> Iterator[CheckMessage]:
    """W009: ``OAUTH2_PROVIDER`` has an unknown key, which the toolkit silently ignores."""
    from oauth2_provider.settings import DEFAULTS

    configured = getattr(django_settings, "OAUTH2_PROVIDER", {})
    for key in (name for name in configured if name not in DEFAULTS):
        near = nearest(key, DEFAULTS)
        yield checks.Warning(
            f"OAUTH2_PROVIDER has the unknown key {key!r}, which the toolkit ignores.",
            hint=f"Did you mean {near!r}?"
            if near
            else "Remove it; settings of mcp_django.oauth belong in MCP_DJANGO['OAUTH'].",
            id="mcp_oauth.W009",
        )


@_check()
def check_security_settings(**kwargs: Any) -> Iterator[CheckMessage]:
    """W005: a security setting of the toolkit is weaker than in ``provider_settings()``."""
    from oauth2_provider.settings import oauth2_settings

    risks = {
        key: risk for key, risk in SECURITY_SETTINGS.items() if not getattr(oauth2_settings, key)
    }
    if oauth2_settings.ALLOW_URI_WILDCARDS:
        risks["ALLOW_URI_WILDCARDS"] = "a redirect URI may have a wildcard subdomain"
    for key, risk in risks.items():
        yield checks.Warning(
            f"OAUTH2_PROVIDER[{key!r}] differs from provider_settings(): {risk}.",
            hint=f"Remove {key} from its arguments, unless an old client of the site needs it.",
            id="mcp_oauth.W005",
        )


@_check()
def check_toolkit_registration(**kwargs: Any) -> Iterator[CheckMessage]:
    """W007: the toolkit also registers clients, with any grant and tokens that never expire."""
    from oauth2_provider.settings import oauth2_settings

    if oauth2_settings.DCR_ENABLED:
        yield checks.Warning(
            "OAUTH2_PROVIDER['DCR_ENABLED'] is on, so the toolkit's own views register clients "
            "too, by weaker rules.",
            hint="Remove it: /oauth/register is a view of mcp_django.oauth and does not need it.",
            id="mcp_oauth.W007",
        )


@_check()
def check_documents(**kwargs: Any) -> Iterator[CheckMessage]:
    """W008: the metadata announces client metadata documents, but the toolkit has them off."""
    from oauth2_provider.settings import oauth2_settings

    if get_settings().oauth.cimd and not oauth2_settings.CIMD_ENABLED:
        yield checks.Warning(
            "OAUTH2_PROVIDER['CIMD_ENABLED'] is off, but the server metadata announces it.",
            hint="Remove it from the arguments of provider_settings(), or set "
            "MCP_DJANGO = {'OAUTH': {'CIMD': False}}.",
            id="mcp_oauth.W008",
        )


# The site -----------------------------------------------------------------------------------------

ORIGIN_ROOT_ONLY = "2025-03-26"
PAGES = tuple(f"mcp_django/oauth/{name}.html" for name in ("authorize", "connections", "error"))


@_check()
def check_urls(**kwargs: Any) -> Iterator[CheckMessage]:
    """E005: URLs not included. E006, E007: not at the root, or hidden by other patterns."""
    try:
        reverse("mcp_oauth:token")
    except NoReverseMatch:
        yield Error(
            "The URLs of the authorization server are not included.",
            hint='Add path("", include("mcp_django.oauth.urls")) to the root of the URLconf.',
            id="mcp_oauth.E005",
        )
        return
    from mcp_django.oauth.metadata import authorization_server

    hint = (
        'Put path("", include("mcp_django.oauth.urls")) first, at the root of the URLconf: without '
        "a prefix, outside of i18n_patterns, and before any pattern that matches everything."
    )
    issuer = get_settings().oauth.issuer
    # An issuer that is not valid (E010) has no path.
    path = urlsplit(issuer).path.rstrip("/") if _is_valid_issuer(issuer) else ""
    address = f"/.well-known/oauth-authorization-server{path}"
    if _view(address) is not authorization_server:
        yield Error(f"{address} is not routed to its view.", hint=hint, id="mcp_oauth.E006")
    address = "/.well-known/oauth-protected-resource/mcp"
    if _view(address) is not protected_resource:
        yield Error(f"{address} is not routed to its view.", hint=hint, id="mcp_oauth.E007")


def _view(path: str) -> Any:
    try:
        return resolve(path).func
    except Resolver404:
        return None


@_check()
def check_login(**kwargs: Any) -> Iterator[CheckMessage]:
    """E008: ``LOGIN_URL`` does not resolve to a view."""
    if not has_sign_in_page():
        yield Error(
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which no URL of the site matches, "
            "so users cannot sign in to approve an assistant.",
            hint=SIGN_IN_HINT,
            id="mcp_oauth.E008",
        )


@_check()
def check_middleware(**kwargs: Any) -> Iterator[CheckMessage]:
    """E009: session or auth middleware missing. W006: CSRF middleware missing."""
    for needed in (SessionMiddleware, AuthenticationMiddleware):
        if not _has_middleware(needed):
            yield Error(
                f"MIDDLEWARE has no {needed.__name__}, so users cannot be signed in.",
                hint=f'Add "{needed.__module__}.{needed.__name__}".',
                id="mcp_oauth.E009",
            )
    if not _has_middleware(CsrfViewMiddleware):
        yield checks.Warning(
            "MIDDLEWARE has no CsrfViewMiddleware: the pages of mcp_django.oauth have CSRF "
            "protection without it, but the login page may not.",
            hint='Add "django.middleware.csrf.CsrfViewMiddleware".',
            id="mcp_oauth.W006",
        )


def _has_middleware(base: type) -> bool:
    for path in django_settings.MIDDLEWARE:
        with suppress(ImportError):
            middleware = import_string(path)
            if isinstance(middleware, type) and issubclass(middleware, base):
                return True
    return False


@_check()
def check_issuer(**kwargs: Any) -> Iterator[CheckMessage]:
    """E010: the issuer is not valid. W002: clients of 2025-03-26 do not find it if it has a path.

    W010: the site is below a prefix, and the issuer is not.
    """
    settings = get_settings()
    issuer = settings.oauth.issuer
    prefix = (django_settings.FORCE_SCRIPT_NAME or "").rstrip("/")
    if issuer and not _is_valid_issuer(issuer):
        yield Error(
            f"MCP_DJANGO['OAUTH']['ISSUER'] is {issuer!r}, which is not a valid issuer URL.",
            hint="Write an origin such as https://shop.example, with a path if needed and "
            "without a trailing slash; or leave it out to use the site's own origin.",
            id="mcp_oauth.E010",
        )
    elif issuer and urlsplit(issuer).path and ORIGIN_ROOT_ONLY in settings.protocol_versions:
        yield checks.Warning(
            f"The issuer {issuer!r} has a path, and clients of {ORIGIN_ROOT_ONLY} look only at the "
            "root of its host.",
            hint="Leave ISSUER out, unless the site is below a prefix or clients know this issuer.",
            id="mcp_oauth.W002",
        )
    elif prefix and not issuer:
        yield checks.Warning(
            f"The site is below {prefix!r} (FORCE_SCRIPT_NAME) and its issuer is the root of "
            "the host, where the site cannot serve its metadata.",
            hint="Set MCP_DJANGO = {'OAUTH': {'ISSUER': 'https://shop.example"
            f"{prefix}'}}}}, with your host.",
            id="mcp_oauth.W010",
        )


def _is_valid_issuer(issuer: str) -> bool:
    try:
        parts = urlsplit(issuer)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        return False
    is_clean = not any(character in issuer for character in "?#@ \\") and not issuer.endswith("/")
    return parts.scheme in ("http", "https") and bool(host) and is_clean and issuer.isprintable()


@_check(deploy=True)
def check_scheme(**kwargs: Any) -> Iterator[CheckMessage]:
    """W001 (``--deploy``): codes and tokens are sent over plain HTTP."""
    settings = get_settings()
    urls = {"BASE_URL": settings.base_url, "OAUTH']['ISSUER": settings.oauth.issuer}
    for key, url in urls.items() if not django_settings.DEBUG else ():
        if url.startswith("http://") and not is_loopback(urlsplit(url).hostname):
            yield checks.Warning(
                f"MCP_DJANGO['{key}'] is {url!r}, so codes and tokens are sent over plain HTTP.",
                hint="Serve the site over HTTPS and write https:// here.",
                id="mcp_oauth.W001",
            )


@_check()
def check_hosts(**kwargs: Any) -> Iterator[CheckMessage]:
    """W003: the Host header of a request determines the issuer."""
    hosts = [host for host in django_settings.ALLOWED_HOSTS if host.startswith(("*", "."))]
    if hosts and not get_settings().base_url:
        yield checks.Warning(
            f"ALLOWED_HOSTS has {hosts[0]!r} and BASE_URL is not set, so the Host header of "
            "a request determines the issuer and the URLs of the resources.",
            hint="Set MCP_DJANGO = {'BASE_URL': 'https://shop.example'}.",
            id="mcp_oauth.W003",
        )


@_check()
def check_templates(**kwargs: Any) -> Iterator[CheckMessage]:
    """E016: the template of a page cannot be loaded."""
    for name in PAGES:
        try:
            get_template(name)
        except (TemplateDoesNotExist, TemplateSyntaxError, ImproperlyConfigured) as exc:
            problem = "does not exist" if isinstance(exc, TemplateDoesNotExist) else f"fails: {exc}"
            hint = (
                "Configure Django's template engine with APP_DIRS = True in TEMPLATES, and fix the "
                "site's own version of the template if it has one."
            )
            yield Error(f"The template {name} {problem}.", hint=hint, id="mcp_oauth.E016")


@_check()
def check_use(**kwargs: Any) -> Iterator[CheckMessage]:
    """W004: no server accepts the issued tokens. W011: no server that accepts them has a URL."""
    taking = [server for server in all_servers() if "oauth" in server.auth]
    mounted = list(_mounted_servers(get_resolver().url_patterns))
    if not taking:
        yield checks.Warning(
            "mcp_django.oauth is installed, but no server accepts its tokens.",
            hint="Add \"oauth\" to MCP_DJANGO['AUTH'], or leave AUTH out.",
            id="mcp_oauth.W004",
        )
    elif not any(server.resource_url or server in mounted for server in taking):
        yield checks.Warning(
            f"The server {taking[0].name!r} accepts tokens, but no URL leads to it, so no "
            "token can be issued for it.",
            hint='Add path("mcp", mcp.urls) to the URLconf; for a server mounted elsewhere, '
            "set MCPServer(resource_url=…).",
            id="mcp_oauth.W011",
        )


def _mounted_servers(patterns: Iterable[Any]) -> Iterator[Any]:
    """Yield the server of each view in the URLconf, ``None`` for views without one."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _mounted_servers(pattern.url_patterns)
        else:
            yield getattr(pattern.callback, "mcp_server", None)


# Upstream providers -------------------------------------------------------------------------------


@_check()
def check_field_keys(**kwargs: Any) -> Iterator[CheckMessage]:
    """E012: ``FIELD_KEYS`` is empty, so upstream tokens cannot be encrypted."""
    oauth = get_settings().oauth
    if oauth.upstream and not oauth.field_keys:
        yield Error(
            "MCP_DJANGO['OAUTH'] has UPSTREAM but no FIELD_KEYS, so the tokens of the upstream "
            "providers cannot be encrypted.",
            hint="python -c 'from cryptography.fernet import Fernet; "
            "print(Fernet.generate_key().decode())' makes a key; store it like SECRET_KEY.",
            id="mcp_oauth.E012",
        )


@_check()
def check_providers(**kwargs: Any) -> Iterator[CheckMessage]:
    """E014: an upstream provider or a key is not valid."""
    oauth = get_settings().oauth
    if oauth.upstream and find_spec("authlib") is None:
        yield Error(
            "MCP_DJANGO['OAUTH']['UPSTREAM'] needs Authlib, which is not installed.",
            hint="pip install 'django-mcp-provider[upstream]'",
            id="mcp_oauth.E014",
        )
    elif oauth.upstream:
        # Imported here since it needs an optional dependency.
        from mcp_django.oauth.upstream.conf import find_problems

        for message, hint in find_problems():
            # Missing keys are reported by E012.
            if oauth.field_keys or "FIELD_KEYS" not in message:
                yield Error(message, hint=hint, id="mcp_oauth.E014")


@_check()
def check_servers(**kwargs: Any) -> Iterator[CheckMessage]:
    """E015: a server needs an upstream provider that is not configured."""
    configured = get_settings().oauth.upstream
    names = ", ".join(map(repr, configured))
    for server in all_servers():
        if server.upstream and server.upstream not in configured:
            yield Error(
                f"The server {server.name!r} has upstream={server.upstream!r}, which is not "
                "in MCP_DJANGO['OAUTH']['UPSTREAM'].",
                hint=f"Configure it{names and f', or use one of: {names}'}.",
                id="mcp_oauth.E015",
            )
