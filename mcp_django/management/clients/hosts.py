"""The clients that are known here, as data: what each reads, where, and what to do then.

Hosts change every month. Nothing depends on these rows but the text that is printed, and a row
that aged is corrected here. Seen in the vendors' documentation in November 2026.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mcp_django.management.clients import entries
from mcp_django.management.clients.entries import Entry
from mcp_django.management.clients.target import Target
from mcp_django.protocol.revisions import V2025_06_18, V2025_11_25, V2026_07_28

JUNE = V2025_06_18.version
NOVEMBER = V2025_11_25.version
JULY = V2026_07_28.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One client.

    ``files`` are (where, path) pairs; ``reference`` is how an environment variable is written in
    a header, with ``NAME`` for its name; ``revisions`` are those it was seen to speak over HTTP,
    ``stdio_revisions`` those over stdio where they differ. A client in a vendor's cloud reaches
    public HTTPS only, and signs in instead of sending a token; another one that ``signs_in`` does
    so where the site offers it and no token is given.
    """

    slug: str
    title: str
    summary: str
    revisions: tuple[str, ...]
    stdio_revisions: tuple[str, ...] = ()
    next_steps: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    format: Literal["json", "toml", "claude", "curl", "url"] = "json"
    root: str = "mcpServers"
    reference: str = ""
    prompts_for_token: bool = False
    is_cloud: bool = False
    signs_in: bool = True
    http: Callable[[Target, str | None], Entry] | None = None
    stdio: Callable[[Target], Entry] | None = None


CLAUDE_CODE = Host(
    slug="claude-code",
    title="Claude Code",
    summary="a command for its terminal, or .mcp.json",
    revisions=(NOVEMBER, JULY),
    stdio_revisions=(NOVEMBER,),
    files=(("project", ".mcp.json"), ("user", "~/.claude.json")),
    next_steps=(
        "Run the command in the directory of the project.",
        "Start claude there and type /mcp to see that it is connected.",
        "As a file: manage.py mcp connect claude-code --json prints what .mcp.json holds.",
    ),
    format="claude",
    reference="${NAME}",
    http=entries.typed_http,
    stdio=entries.typed_stdio,
)
CLAUDE_DESKTOP = Host(
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
        "Settings, Developer, Edit Config opens the file. Merge this into it.",
        "Quit Claude Desktop wholly, and start it again.",
        "The bridge to a remote server needs Node.js, for npx. One with OAuth is better added in",
        "Settings, Connectors; the vendor's cloud then calls it.",
    ),
    http=entries.bridged_http,
    stdio=entries.untyped_stdio,
)
VSCODE = Host(
    slug="vscode",
    title="VS Code",
    summary="with GitHub Copilot; .vscode/mcp.json",
    revisions=(NOVEMBER,),
    files=(
        ("workspace", ".vscode/mcp.json"),
        ("macOS", "~/Library/Application Support/Code/User/mcp.json"),
        ("Windows", r"%APPDATA%\Code\User\mcp.json"),
        ("Linux", "~/.config/Code/User/mcp.json"),
    ),
    next_steps=(
        "Open the file and click Start above the entry. The command MCP: Open User Configuration",
        "opens the file of the user.",
        "MCP: List Servers shows the state and the output.",
    ),
    root="servers",
    reference="${env:NAME}",
    prompts_for_token=True,
    http=entries.typed_http,
    stdio=entries.typed_stdio,
)
CURSOR = Host(
    slug="cursor",
    title="Cursor",
    summary="the editor; .cursor/mcp.json",
    revisions=(JUNE,),
    files=(
        ("project", ".cursor/mcp.json"),
        ("macOS, Linux", "~/.cursor/mcp.json"),
        ("Windows", r"%USERPROFILE%\.cursor\mcp.json"),
    ),
    next_steps=(
        "Restart Cursor, and look for the entry among the MCP servers in its settings.",
        "Started from the desktop, Cursor knows no variables of a shell.",
    ),
    reference="${env:NAME}",
    http=entries.untyped_http,
    stdio=entries.untyped_stdio,
)
GEMINI_CLI = Host(
    slug="gemini-cli",
    title="Gemini CLI",
    summary="Google's agent; .gemini/settings.json",
    revisions=(JUNE,),
    files=(
        ("project", ".gemini/settings.json"),
        ("macOS, Linux", "~/.gemini/settings.json"),
        ("Windows", r"%USERPROFILE%\.gemini\settings.json"),
    ),
    next_steps=(
        "Merge this into the file, which has other settings too.",
        "Start gemini and type /mcp to see that it is connected.",
    ),
    reference="${NAME}",
    http=entries.gemini_http,
    stdio=entries.untyped_stdio,
)
CODEX = Host(
    slug="codex",
    title="Codex",
    summary="OpenAI's agent; ~/.codex/config.toml",
    revisions=(JUNE, NOVEMBER),
    files=(
        ("macOS, Linux", "~/.codex/config.toml"),
        ("Windows", r"%USERPROFILE%\.codex\config.toml"),
        ("trusted project", ".codex/config.toml"),
    ),
    next_steps=(
        "Append this to the file.",
        "Start codex and type /mcp to see that it is connected.",
    ),
    format="toml",
    root="mcp_servers",
    reference="${NAME}",
    http=entries.codex_http,
    stdio=entries.untyped_stdio,
)
INSPECTOR = Host(
    slug="inspector",
    title="MCP Inspector",
    summary="to look at a server; any file",
    revisions=(JUNE, NOVEMBER, JULY),
    files=(("anywhere", "inspector.json"),),
    next_steps=(
        "Save this as inspector.json, then:",
        "npx @modelcontextprotocol/inspector --config inspector.json",
    ),
    http=entries.inspector_http,
    stdio=entries.inspector_stdio,
)
CURL = Host(
    slug="curl",
    title="curl",
    summary="one request, to see that it answers",
    revisions=(JULY,),
    next_steps=("Run it in a shell. The answer is one JSON document.",),
    format="curl",
    reference="$NAME",
    signs_in=False,
    http=entries.untyped_http,
)
CHATGPT = Host(
    slug="chatgpt",
    title="ChatGPT",
    summary="an address to give, no file",
    revisions=(JUNE, NOVEMBER),
    next_steps=(
        "Settings, Apps, Advanced settings: turn Developer mode on. Then: Create app.",
        "Give this address, and OAuth (or no authentication, if the server is open to all).",
        "After the tools of the site have changed, press Refresh there.",
    ),
    format="url",
    is_cloud=True,
    http=entries.untyped_http,
)
COPILOT = Host(
    slug="copilot",
    title="Microsoft Copilot Studio",
    summary="an address to give, no file",
    revisions=(JUNE, NOVEMBER),
    next_steps=(
        "In the agent: Tools, Add a tool, New tool, Model Context Protocol. Give this address.",
        "Choose OAuth 2.0, or API key in the header Authorization: 'Bearer' and a token.",
        "GitHub Copilot in an editor is another client: see vscode.",
    ),
    format="url",
    is_cloud=True,
    http=entries.untyped_http,
)

HOSTS = {
    host.slug: host
    for host in (
        CLAUDE_CODE,
        CLAUDE_DESKTOP,
        VSCODE,
        CURSOR,
        GEMINI_CLI,
        CODEX,
        INSPECTOR,
        CURL,
        CHATGPT,
        COPILOT,
    )
}
