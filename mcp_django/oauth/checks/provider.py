"""Checks of ``OAUTH2_PROVIDER``: what of the toolkit is ours, and what of it is off."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error

from mcp_django.conf import get_settings
from mcp_django.oauth.checks.readiness import when_ready

HINT = "Write OAUTH2_PROVIDER = provider_settings(…) in settings.py (mcp_django.oauth)."
OURS = {
    "OAUTH2_VALIDATOR_CLASS": "mcp_django.oauth.validator.Validator",
    "SCOPES_BACKEND_CLASS": "mcp_django.oauth.scopes.Scopes",
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


@when_ready
def check_classes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003: the toolkit is not told to ask us, so tokens are bound to nothing."""
    return [
        Error(
            f"OAUTH2_PROVIDER[{key!r}] is not {path}, nor a subclass of it.",
            hint=HINT,
            id="mcp_oauth.E003",
        )
        for key, path in OURS.items()
        if not _is_ours(key, path)
    ]


def _is_ours(key: str, path: str) -> bool:
    from django.utils.module_loading import import_string
    from oauth2_provider.settings import oauth2_settings

    try:
        found = getattr(oauth2_settings, key)
    except ImportError:
        return False
    classes = found if isinstance(found, (list, tuple)) else [found]
    ours = import_string(path)
    return any(isinstance(one, type) and issubclass(one, ours) for one in classes)


@when_ready
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


@when_ready
def check_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W009: a key that the toolkit does not know, which it passes over without a word."""
    from oauth2_provider.settings import DEFAULTS

    given = getattr(settings, "OAUTH2_PROVIDER", {})
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


@when_ready
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


@when_ready
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


@when_ready
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
