"""The hosts that ``mcp doctor`` simulates, as data: their discovery order and registrations.

Hosts change often; correct a row here when it is out of date. Sources: the vendors' documentation
and reports of users, as of November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mcp_django.protocol.revisions import V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28

MARCH = V2025_03_26.version
JUNE = V2025_06_18.version
NOVEMBER = V2025_11_25.version
JULY = V2026_07_28.version

Form = Literal["rfc8414", "oidc-inserted", "oidc-appended", "root"]
SDK_FORMS: tuple[Form, ...] = ("rfc8414", "oidc-inserted", "oidc-appended")
REFRESHING = ["authorization_code", "refresh_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """One host.

    ``forms`` are the well-known URLs at which the host looks for the authorization server's
    metadata, in order. ``client_id`` is the URL of its client ID metadata document, if it has one;
    ``redirects`` and the rest of its registration are used if the site does not accept the
    document. ``sends_token`` says whether a user can configure a token instead of signing in. A
    host without ``reads_resource`` does not implement RFC 9728 and looks for the metadata at the
    root of the endpoint's host.
    """

    slug: str
    title: str
    revision: str
    forms: tuple[Form, ...] = SDK_FORMS
    redirects: tuple[str, ...]
    client_id: str = ""
    grants: tuple[str, ...] = tuple(REFRESHING)
    auth_method: str = "none"
    scopes: tuple[str, ...] = ()
    registration: tuple[tuple[str, Any], ...] = ()
    sends_token: bool = True
    reads_resource: bool = True
    is_cloud: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        """The client metadata that the host sends to register itself (RFC 7591, section 2)."""
        return {
            "client_name": self.title,
            "redirect_uris": list(self.redirects),
            "grant_types": list(self.grants),
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
            **dict(self.registration),
        }


_ALL = (
    HostProfile(
        slug="claude",
        title="Claude",
        revision=NOVEMBER,
        redirects=(
            "https://claude.ai/api/mcp/auth_callback",
            "https://claude.com/api/mcp/auth_callback",
        ),
        auth_method="client_secret_post",
        sends_token=False,
        is_cloud=True,
    ),
    HostProfile(
        slug="claude-code",
        title="Claude Code",
        revision=JULY,
        redirects=("http://localhost:54321/callback",),
        client_id="https://claude.ai/oauth/claude-code-client-metadata",
        scopes=("offline_access",),
    ),
    HostProfile(
        slug="chatgpt",
        title="ChatGPT",
        revision=JUNE,
        redirects=("https://chatgpt.com/connector_platform_oauth_redirect",),
        sends_token=False,
        is_cloud=True,
    ),
    HostProfile(
        slug="vscode",
        title="VS Code",
        revision=NOVEMBER,
        redirects=(
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ),
        grants=(*REFRESHING, "urn:ietf:params:oauth:grant-type:device_code"),
        registration=(("application_type", "native"),),
    ),
    HostProfile(
        slug="cursor",
        title="Cursor",
        revision=JUNE,
        redirects=(
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "http://localhost:8787/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
        ),
    ),
    HostProfile(
        slug="gemini-cli",
        title="Gemini CLI",
        revision=JUNE,
        forms=(*SDK_FORMS, "root"),
        redirects=("http://localhost:7777/oauth/callback",),
    ),
    HostProfile(
        slug="codex",
        title="Codex",
        revision=JUNE,
        redirects=("http://127.0.0.1:5555/callback",),
    ),
    HostProfile(
        slug="copilot-studio",
        title="Microsoft Copilot Studio",
        revision=JUNE,
        redirects=("https://global.consent.azure-apim.net/redirect/mcp",),
        auth_method="client_secret_post",
        is_cloud=True,
    ),
    HostProfile(
        slug="mcp-remote",
        title="mcp-remote",
        revision=JUNE,
        forms=("root",),
        redirects=("http://localhost:3334/oauth/callback",),
    ),
    HostProfile(
        slug="python-sdk",
        title="Python SDK",
        revision=JULY,
        redirects=("http://localhost:3030/callback",),
        scopes=("offline_access",),
    ),
    HostProfile(
        slug="typescript-sdk",
        title="TypeScript SDK",
        revision=JULY,
        redirects=("http://localhost:8090/callback",),
        auth_method="client_secret_post",
    ),
    HostProfile(
        slug="revision-2025-03-26",
        title="Any client of 2025-03-26",
        revision=MARCH,
        forms=("root",),
        redirects=("http://localhost:3030/callback",),
        reads_resource=False,
    ),
)
HOSTS = {host.slug: host for host in _ALL}
