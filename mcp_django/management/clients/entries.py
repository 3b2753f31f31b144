"""What the configuration of each client has for one server."""

from __future__ import annotations

from typing import Any

from mcp_django.management.clients.target import DEFAULT_VARIABLE, PLACEHOLDER, Target

Entry = dict[str, Any]


def with_headers(entry: Entry, authorization: str | None) -> Entry:
    """The entry, with the header if there is one."""
    return {**entry, "headers": {"Authorization": authorization}} if authorization else entry


def typed_http(target: Target, authorization: str | None) -> Entry:
    """An address, with the transport named: Claude Code, VS Code."""
    return with_headers({"type": "http", "url": target.url}, authorization)


def untyped_http(target: Target, authorization: str | None) -> Entry:
    """An address that is tried as Streamable HTTP first: Cursor."""
    return with_headers({"url": target.url}, authorization)


def gemini_http(target: Target, authorization: str | None) -> Entry:
    """An address under a name of its own, since ``url`` means the old transport there."""
    return with_headers({"httpUrl": target.url}, authorization)


def inspector_http(target: Target, authorization: str | None) -> Entry:
    """An address; unless told otherwise the Inspector begins with a handshake."""
    return with_headers({"type": "http", "url": target.url, "protocolEra": "modern"}, authorization)


def codex_http(target: Target, authorization: str | None) -> Entry:
    """An address, with the name of the variable that holds the bare token."""
    entry: Entry = {"url": target.url}
    if target.credential is None:
        return entry
    if target.credential.token:
        return {**entry, "http_headers": {"Authorization": authorization}}
    return {**entry, "bearer_token_env_var": target.credential.variable or DEFAULT_VARIABLE}


def bridged_http(target: Target, authorization: str | None) -> Entry:
    """A local bridge to the address, for Claude Desktop, whose file knows commands alone."""
    arguments = ["-y", "mcp-remote", target.url, "--transport", "http-only"]
    if target.url.startswith("http://"):
        arguments.append("--allow-http")
    entry: Entry = {"command": "npx", "args": arguments}
    if authorization is None:
        return entry
    # Without a space: on Windows the bridge would get the argument in two pieces.
    arguments += ["--header", "Authorization:${AUTHORIZATION}"]
    return {**entry, "env": {"AUTHORIZATION": authorization}}


def untyped_stdio(target: Target) -> Entry:
    """A command with its arguments and environment."""
    program, *arguments = target.command
    entry: Entry = {"command": program, "args": arguments}
    return {**entry, "env": dict(target.environment)} if target.environment else entry


def typed_stdio(target: Target) -> Entry:
    """The same, with the transport named."""
    return {"type": "stdio", **untyped_stdio(target)}


def inspector_stdio(target: Target) -> Entry:
    """The same, for the revision without a handshake."""
    return {**untyped_stdio(target), "protocolEra": "modern"}


def authorization_of(target: Target, reference: str) -> str | None:
    """The value of the header, ``None`` where no credential is asked for.

    ``reference`` is how the client names an environment variable, with ``NAME`` for its name; it
    is empty for a client that cannot.
    """
    credential = target.credential
    if credential is None:
        return None
    if credential.token:
        return f"Bearer {credential.token}"
    if not reference:
        return f"Bearer {PLACEHOLDER}"
    return f"Bearer {reference.replace('NAME', credential.variable or DEFAULT_VARIABLE)}"
