"""Build requests as the bytes that are sent over the socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HOST = "127.0.0.1"
VERSION = "2026-07-28"
META = "io.modelcontextprotocol"
CLIENT = {"name": "benchmarks", "version": "1"}


def post(path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """Return a POST of a JSON document on a persistent connection."""
    raw = json.dumps(body).encode()
    lines = {
        "Host": HOST,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **(headers or {}),
        "Content-Length": str(len(raw)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + raw


def get(path: str) -> bytes:
    """Return a GET on a persistent connection."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: */*\r\n\r\n".encode()


def request_2026(
    path: str, method: str, params: Mapping[str, Any] | None = None, *, bearer: str = ""
) -> bytes:
    """Return a request of 2026-07-28, with its envelope and the headers that repeat it."""
    envelope = {
        f"{META}/protocolVersion": VERSION,
        f"{META}/clientCapabilities": {},
        f"{META}/clientInfo": CLIENT,
    }
    given = dict(params or {})
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    if "name" in given:
        headers["Mcp-Name"] = given["name"]
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**given, "_meta": envelope}}
    return post(path, body, headers)


def call(path: str, tool: str, *, bearer: str = "", **arguments: Any) -> bytes:
    """Return a ``tools/call`` of 2026-07-28."""
    params = {"name": tool, "arguments": arguments}
    return request_2026(path, "tools/call", params, bearer=bearer)
