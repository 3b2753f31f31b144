"""The known MCP clients as data: configuration files, commands and next steps.

Clients change often. Only the printed text depends on this data; correct a row here when it is out
of date. Source: the vendors' documentation as of November 2026.

Steps and places are translated in the admin; the names of a client's menus and commands are not
translated. This module does not depend on a request or the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils.translation import gettext_lazy as _, pgettext_lazy

from mcp_django.protocol.revisions import V2025_06_18, V2025_11_25, V2026_07_28

ConfigEntry = dict[str, Any]


HttpEntry = Callable[["ConnectionTarget", str | None], ConfigEntry]
URL = "{url}"


def _http(**members: str) -> HttpEntry:
    """Return a function that builds an entry with these members, one of which is the URL.

    It adds an Authorization header if there is one.
    """

    def build(target: ConnectionTarget, authorization: str | None) -> ConfigEntry:
        headers = {"headers": {"Authorization": authorization}} if authorization else {}
        config_entry = {
            name: target.url if value == URL else value for name, value in members.items()
        }
        return {**config_entry, **headers}

    return build


def _codex_http(target: ConnectionTarget, authorization: str | None) -> ConfigEntry:
    """Return an entry with a URL and the name of the variable with the bare token, for Codex."""
    config_entry: ConfigEntry = {"url": target.url}
    if target.credential is None:
        return config_entry
    if target.credential.token:
        return {**config_entry, "http_headers": {"Authorization": authorization}}
    return {**config_entry, "bearer_token_env_var": target.credential.variable or DEFAULT_VARIABLE}


def _bridged_http(target: ConnectionTarget, authorization: str | None) -> ConfigEntry:
    """Return an entry that starts a local bridge to the URL.

    For Claude Desktop, whose configuration file supports only commands.
    """
    arguments = ["-y", "mcp-remote", target.url, "--transport", "http-only"]
    if target.url.startswith("http://"):
        arguments.append("--allow-http")
    config_entry: ConfigEntry = {"command": "npx", "args": arguments}
    if authorization is None:
        return config_entry
    # No space after the colon: on Windows the argument would be split in two.
    arguments += ["--header", "Authorization:${AUTHORIZATION}"]
    return {**config_entry, "env": {"AUTHORIZATION": authorization}}


def _untyped_stdio(target: ConnectionTarget) -> ConfigEntry:
    """Return an entry with a command, its arguments and its environment."""
    program, *arguments = target.command
    config_entry: ConfigEntry = {"command": program, "args": arguments}
    return {**config_entry, "env": dict(target.environment)} if target.environment else config_entry


def _typed_stdio(target: ConnectionTarget) -> ConfigEntry:
    """Return an entry with a command and the transport's name."""
    return {"type": "stdio", **_untyped_stdio(target)}


def authorization_header(target: ConnectionTarget, reference: str) -> str | None:
    """Return the value of the Authorization header, or ``None`` if no credential is needed.

    ``reference`` is the client's syntax for an environment variable, with ``NAME`` in place of its
    name; it is empty for a client that cannot read one.
    """
    credential = target.credential
    if credential is None:
        return None
    if credential.token:
        return f"Bearer {credential.token}"
    if not reference:
        return f"Bearer {PLACEHOLDER}"
    return f"Bearer {reference.replace('NAME', credential.variable or DEFAULT_VARIABLE)}"


DEFAULT_VARIABLE = "MCP_TOKEN"
PLACEHOLDER = "YOUR_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The source of a client's bearer token.

    ``token`` is the token itself, and ``variable`` the environment variable that contains it. If
    both are empty, the client's safest method is used.
    """

    token: str = field(default="", repr=False)
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTarget:
    """One server, by its URL or by the command that starts it.

    ``name`` is the server's name in the client. Either ``url`` or ``command`` is set;
    ``credential`` is ``None`` if the server needs no credential.
    """

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    credential: Credential | None = None

    @property
    def is_local(self) -> bool:
        """Whether the client starts the server and connects over stdio."""
        return bool(self.command)


JUNE = V2025_06_18.version
NOVEMBER = V2025_11_25.version
JULY = V2026_07_28.version


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """One MCP client (host application).

    ``files`` are (where, path) pairs. ``reference`` is the syntax for an environment variable in a
    header, with ``NAME`` in place of its name. ``revisions`` are the protocol revisions that it is
    known to support over HTTP, ``stdio_revisions`` those over stdio if they differ. A client with
    ``is_cloud`` runs in its vendor's cloud: it connects to public HTTPS URLs only, and signs in
    instead of sending a token. Any other client with ``signs_in`` signs in if the site supports
    that and no token is given.
    """

    slug: str
    title: str
    summary: str
    revisions: tuple[str, ...]
    stdio_revisions: tuple[str, ...] = ()
    next_steps: tuple[Any, ...]
    files: tuple[tuple[Any, str], ...] = ()
    format: Literal["json", "toml", "claude", "curl", "url"] = "json"
    root: str = "mcpServers"
    reference: str = ""
    prompts_for_token: bool = False
    is_cloud: bool = False
    signs_in: bool = True
    http: HttpEntry
    stdio: Callable[[ConnectionTarget], ConfigEntry] | None = None


_ALL = (
    KnownClient(
        slug="claude-code",
        title="Claude Code",
        summary="a command for its terminal, or .mcp.json",
        revisions=(NOVEMBER, JULY),
        stdio_revisions=(NOVEMBER,),
        files=(
            (pgettext_lazy("place of a file", "project"), ".mcp.json"),
            (pgettext_lazy("place of a file", "user"), "~/.claude.json"),
        ),
        next_steps=(
            _("Run the command in the directory of the project."),
            _("Start claude there and type /mcp to check that it is connected."),
            _(
                "As a file: manage.py mcp connect claude-code --json prints the contents of "
                ".mcp.json."
            ),
        ),
        format="claude",
        reference="${NAME}",
        http=_http(type="http", url=URL),
        stdio=_typed_stdio,
    ),
    KnownClient(
        slug="claude",
        title="Claude",
        summary="web, desktop and mobile; a URL to enter, no file",
        revisions=(JUNE, NOVEMBER),
        next_steps=(
            _("Customize, Connectors, Add custom connector. Enter this URL. Claude uses OAuth."),
            _("In an organization, an owner adds the connector in its settings."),
        ),
        format="url",
        is_cloud=True,
        http=_http(url=URL),
    ),
    KnownClient(
        slug="claude-desktop",
        title="Claude Desktop",
        summary="a file, with a bridge to a remote server",
        revisions=(JUNE, NOVEMBER),
        files=(
            ("macOS", "~/Library/Application Support/Claude/claude_desktop_config.json"),
            ("Windows", r"%APPDATA%\Claude\claude_desktop_config.json"),
            ("Linux", "~/.config/Claude/claude_desktop_config.json"),
        ),
        next_steps=(
            _("Settings, Developer, Edit Config opens the file. Merge this into it."),
            _("Quit Claude Desktop completely, and start it again."),
            _(
                "The bridge to a remote server needs Node.js (npx). Add a server with OAuth under "
                "Settings, Connectors instead; the vendor's cloud then connects to it."
            ),
        ),
        http=_bridged_http,
        stdio=_untyped_stdio,
    ),
    KnownClient(
        slug="vscode",
        title="VS Code",
        summary="with GitHub Copilot; .vscode/mcp.json",
        revisions=(NOVEMBER,),
        files=(
            (pgettext_lazy("place of a file", "workspace"), ".vscode/mcp.json"),
            ("macOS", "~/Library/Application Support/Code/User/mcp.json"),
            ("Windows", r"%APPDATA%\Code\User\mcp.json"),
            ("Linux", "~/.config/Code/User/mcp.json"),
        ),
        next_steps=(
            _(
                "Open the file and click Start above the entry. The command MCP: Open User "
                "Configuration opens the user's file."
            ),
            _("The command MCP: List Servers shows the server's status and output."),
        ),
        root="servers",
        reference="${env:NAME}",
        prompts_for_token=True,
        http=_http(type="http", url=URL),
        stdio=_typed_stdio,
    ),
    KnownClient(
        slug="cursor",
        title="Cursor",
        summary="the editor; .cursor/mcp.json",
        revisions=(JUNE,),
        files=(
            (pgettext_lazy("place of a file", "project"), ".cursor/mcp.json"),
            ("macOS, Linux", "~/.cursor/mcp.json"),
            ("Windows", r"%USERPROFILE%\.cursor\mcp.json"),
        ),
        next_steps=(
            _("Restart Cursor, and look for the entry among the MCP servers in its settings."),
            _(
                "When started from the desktop, Cursor does not see environment variables of a "
                "shell."
            ),
        ),
        reference="${env:NAME}",
        http=_http(url=URL),
        stdio=_untyped_stdio,
    ),
    KnownClient(
        slug="gemini-cli",
        title="Gemini CLI",
        summary="Google's agent; .gemini/settings.json",
        revisions=(JUNE,),
        files=(
            (pgettext_lazy("place of a file", "project"), ".gemini/settings.json"),
            ("macOS, Linux", "~/.gemini/settings.json"),
            ("Windows", r"%USERPROFILE%\.gemini\settings.json"),
        ),
        next_steps=(
            _("Merge this into the file, which also contains other settings."),
            _("Start gemini and type /mcp to check that it is connected."),
        ),
        reference="${NAME}",
        # Here ``url`` means the HTTP+SSE transport.
        http=_http(httpUrl=URL),
        stdio=_untyped_stdio,
    ),
    KnownClient(
        slug="codex",
        title="Codex",
        summary="OpenAI's agent; ~/.codex/config.toml",
        revisions=(JUNE, NOVEMBER),
        files=(
            ("macOS, Linux", "~/.codex/config.toml"),
            ("Windows", r"%USERPROFILE%\.codex\config.toml"),
            (pgettext_lazy("place of a file", "trusted project"), ".codex/config.toml"),
        ),
        next_steps=(
            _("Append this to the file."),
            _("If the server uses OAuth, sign in: codex mcp login, with the name of the entry."),
            _("Start codex and type /mcp to check that it is connected."),
        ),
        format="toml",
        root="mcp_servers",
        reference="${NAME}",
        http=_codex_http,
        stdio=_untyped_stdio,
    ),
    KnownClient(
        slug="inspector",
        title="MCP Inspector",
        summary="a server inspection tool; any file",
        revisions=(JUNE, NOVEMBER, JULY),
        files=((pgettext_lazy("place of a file", "anywhere"), "inspector.json"),),
        next_steps=(
            _(
                "Save this as inspector.json, then run: npx @modelcontextprotocol/inspector "
                "--config inspector.json"
            ),
        ),
        # Without the last member it starts with a handshake.
        http=_http(type="http", url=URL, protocolEra="modern"),
        stdio=lambda target: {**_untyped_stdio(target), "protocolEra": "modern"},
    ),
    KnownClient(
        slug="curl",
        title="curl",
        summary="one request, to check that the server responds",
        revisions=(JULY,),
        next_steps=(_("Run it in a shell. The response is one JSON document."),),
        format="curl",
        reference="$NAME",
        signs_in=False,
        http=_http(url=URL),
    ),
    KnownClient(
        slug="chatgpt",
        title="ChatGPT",
        summary="a URL to enter, no file",
        revisions=(JUNE, NOVEMBER),
        next_steps=(
            _("Settings, Apps, Advanced settings: turn on Developer mode. Then: Create app."),
            _(
                "Enter this URL, and choose OAuth (or no authentication, if the server is open to "
                "all)."
            ),
            _("After the site's tools have changed, press Refresh there."),
        ),
        format="url",
        is_cloud=True,
        http=_http(url=URL),
    ),
    KnownClient(
        slug="copilot-studio",
        title="Microsoft Copilot Studio",
        summary="a URL to enter, no file",
        revisions=(JUNE, NOVEMBER),
        next_steps=(
            _("In the agent: Tools, Add a tool, New tool, Model Context Protocol. Enter this URL."),
            _("Choose OAuth 2.0, or API key in the header Authorization: 'Bearer' and a token."),
            _("GitHub Copilot in an editor is a different client: see VS Code."),
        ),
        format="url",
        is_cloud=True,
        http=_http(url=URL),
    ),
)
CLIENTS = {host.slug: host for host in _ALL}
