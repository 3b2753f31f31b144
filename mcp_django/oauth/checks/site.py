"""Checks of the site: URLs, sign-in, middleware, and what it says that it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.middleware.csrf import CsrfViewMiddleware
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import (
    NoReverseMatch,
    Resolver404,
    URLResolver,
    get_resolver,
    resolve,
    reverse,
)
from django.utils.module_loading import import_string

from mcp_django.auth.challenges import protected_resource
from mcp_django.auth.pages import HINT, has_sign_in_page
from mcp_django.conf import get_settings
from mcp_django.oauth.checks.readiness import when_ready
from mcp_django.oauth.redirects import LOOPBACK
from mcp_django.server import all_servers

ORIGIN_ROOT_ONLY = "2025-03-26"
PAGES = tuple(f"mcp_django/oauth/{one}.html" for one in ("authorize", "connections", "error"))


@when_ready
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
    from mcp_django.oauth.views.metadata import authorization_server

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


@when_ready
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


@when_ready
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


@when_ready
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


@when_ready
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


@when_ready
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


@when_ready
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


@when_ready
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
