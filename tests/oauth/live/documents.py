"""The metadata documents of clients, as their hosts publish them."""

from __future__ import annotations

from typing import Any

CLAUDE = "https://claude.ai/oauth/mcp-oauth-client-metadata"
CLAUDE_CODE = "https://claude.ai/oauth/claude-code-client-metadata"
CHATGPT = "https://chatgpt.com/oauth/client.json"
SDK = "https://client.example/metadata.json"

_ALL: dict[str, dict[str, Any]] = {
    CLAUDE: {
        "client_name": "Claude",
        "redirect_uris": [
            "https://claude.ai/api/mcp/auth_callback",
            "https://claude.com/api/mcp/auth_callback",
        ],
        "token_endpoint_auth_method": "none",
    },
    CLAUDE_CODE: {
        "client_name": "Claude Code",
        # Without a port, because the client listens on any free one (RFC 8252, section 7.3).
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "token_endpoint_auth_method": "none",
    },
    CHATGPT: {
        "client_name": "ChatGPT",
        "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"],
        "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
    },
    SDK: {
        "client_name": "SDK client",
        "redirect_uris": ["http://localhost:3030/callback"],
        "token_endpoint_auth_method": "none",
    },
}
DOCUMENTS = {
    url: {
        "client_id": url,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        **document,
    }
    for url, document in _ALL.items()
}
