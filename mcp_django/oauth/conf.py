"""``provider_settings()``: the toolkit settings that this app needs, for ``settings.py``.

``MCP_DJANGO`` cannot be read while ``settings.py`` runs. The scopes and the redirect URI schemes
depend on it, so the toolkit gets them as lazy containers that read ``MCP_DJANGO`` on access. Each
is thus configured only once. ``app_redirect_problem`` is the rule for ``APP_REDIRECTS``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcp_django.conf import Settings, get_settings, use_defaults_if_invalid


class RedirectSchemes(Sequence[str]):
    """``http``, ``https`` and the schemes of ``OAUTH["APP_REDIRECTS"]``.

    ``http`` is for loopback addresses; clients that register themselves can use it only for these
    (``oauth.clients``).
    """

    def _names(self) -> list[str]:
        # Not urlsplit(), which raises for some invalid URIs; the system check E011 reports them.
        uris = _read_settings().oauth.app_redirects
        apps = (uri.partition(":")[0].lower() for uri in uris if ":" in uri)
        return list(dict.fromkeys(["https", "http", *apps]))

    def __getitem__(self, index: Any) -> Any:
        return self._names()[index]

    def __len__(self) -> int:
        return len(self._names())


class DeclaredScopes(Mapping[str, str]):
    """``MCP_DJANGO["SCOPES"]``: each scope with its description."""

    def _declared(self) -> dict[str, str]:
        return _read_settings().scopes

    def __getitem__(self, name: str) -> str:
        return self._declared()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared())

    def __len__(self) -> int:
        return len(self._declared())


def provider_settings(**overrides: Any) -> dict[str, Any]:
    """Return the value of ``OAUTH2_PROVIDER``; keyword arguments override single keys.

    Codes require PKCE with S256, refresh tokens rotate and their reuse revokes the token family,
    tokens are stored as digests (RFC 9700), and the toolkit's own client registration is off, since
    this app has its own. The admin classes check for whom a staff user may create access. One
    RFC 9700 option stays off: ``COMPLIANT_BCP_RFC9700_REDIRECT_URI_SCHEME`` would reject the
    loopback redirect URIs of native clients (RFC 8252).
    """
    return {
        "APPLICATION_ADMIN_CLASS": "mcp_django.oauth.toolkit_admin.ApplicationAdmin",
        "ACCESS_TOKEN_ADMIN_CLASS": "mcp_django.oauth.toolkit_admin.AccessTokenAdmin",
        "GRANT_ADMIN_CLASS": "mcp_django.oauth.toolkit_admin.GrantAdmin",
        "ID_TOKEN_ADMIN_CLASS": "mcp_django.oauth.toolkit_admin.IDTokenAdmin",
        "REFRESH_TOKEN_ADMIN_CLASS": "mcp_django.oauth.toolkit_admin.RefreshTokenAdmin",
        "OAUTH2_VALIDATOR_CLASS": "mcp_django.oauth.validator.Validator",
        "SCOPES_BACKEND_CLASS": "mcp_django.oauth.clients.Scopes",
        "SCOPES": DeclaredScopes(),
        "AUTHORIZATION_CODE_EXPIRE_SECONDS": 60,
        "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
        "REFRESH_TOKEN_EXPIRE_SECONDS": 30 * 24 * 3600,
        "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "ROTATE_REFRESH_TOKEN": True,
        "REQUEST_APPROVAL_PROMPT": "force",
        "PKCE_REQUIRED": True,
        "ALLOWED_REDIRECT_URI_SCHEMES": RedirectSchemes(),
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "ALLOW_URI_WILDCARDS": False,
        "OIDC_ENABLED": False,
        "DCR_ENABLED": False,
        "CIMD_ENABLED": True,
        "CIMD_METADATA_FETCHER": "mcp_django.oauth.cimd.Fetcher",
        "CIMD_REGISTRATION_PERMISSION_CLASSES": ("mcp_django.oauth.cimd.SignedInOnly",),
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": [
            "none",
            "client_secret_basic",
            "client_secret_post",
        ],
        "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
        "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
        "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
        "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
        "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
        "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": True,
        "COMPLIANT_BCP_RFC9700_REFRESH_TOKEN": True,
        "COMPLIANT_BCP_RFC9700_REDIRECT_URI_MATCHING": True,
        "COMPLIANT_BCP_RFC9700_PKCE_REQUIRED": True,
        **overrides,
    }


def _read_settings() -> Settings:
    # Also called by the toolkit's system checks, where ``MCP_DJANGO`` may not be valid.
    with use_defaults_if_invalid():
        return get_settings()


MAX_REDIRECT = 2000
# Schemes that the browser handles itself, or that do not belong to an application.
FORBIDDEN_SCHEMES = frozenset(
    (
        *("about", "blob", "chrome", "data", "file", "filesystem", "ftp", "http", "https"),
        *("intent", "jar", "javascript", "mailto", "tel", "vbscript", "view-source", "ws", "wss"),
    )
)
# The characters of RFC 3986 without the number sign: no space, control character or backslash.
REDIRECT = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_APP_REDIRECT = re.compile(r"[a-z][a-z0-9+.\-]*:/[^#]*")


def app_redirect_problem(uri: str) -> str:
    """Return why an entry of ``APP_REDIRECTS`` is not valid, as a sentence, or an empty string."""
    scheme = uri.partition(":")[0].lower()
    if scheme in FORBIDDEN_SCHEMES:
        return f"{scheme!r} is not an application's own scheme."
    if not REDIRECT.fullmatch(uri) or not _APP_REDIRECT.fullmatch(uri) or len(uri) > MAX_REDIRECT:
        return "It is not an absolute URI such as 'com.example.app:/callback'."
    return ""
