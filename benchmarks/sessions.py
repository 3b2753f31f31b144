"""Requests in a session of 2025-11-25, which must be opened first."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.load import send_once
from benchmarks.wire import CLIENT, HOST, post

VERSION = "2025-11-25"
ID = re.compile(rb"\r\nmcp-session-id: *([!-~]+)\r\n", re.IGNORECASE)


def initialize_request(path: str) -> bytes:
    """Return the request that opens a session."""
    info = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": CLIENT}
    return post(path, _request("initialize", info))


def initialized_request(path: str, answer: bytes) -> bytes:
    """Return the notification that follows the response to ``initialize``."""
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return post(path, ready, _headers_of(answer))


def open_session(port: int, path: str) -> dict[str, str]:
    """Initialize a session; return the headers of every further request of the session."""
    answer = send_once(port, initialize_request(path), expects=b'"serverInfo"')
    send_once(port, initialized_request(path, answer), expects=b"", status=202)
    return _headers_of(answer)


def _headers_of(answer: bytes) -> dict[str, str]:
    found = ID.search(answer)
    assert found is not None, answer
    return {"Mcp-Session-Id": found[1].decode(), "MCP-Protocol-Version": VERSION}


def session_request(port: int, path: str, method: str, **params: Any) -> bytes:
    """Open a session and return a request in it."""
    return post(path, _request(method, params), open_session(port, path))


def get_stream_request(path: str, headers: dict[str, str]) -> bytes:
    """Return the request that opens the GET stream of a session."""
    lines = {"Host": HOST, "Accept": "text/event-stream", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()


def subscribe(port: int, path: str, headers: dict[str, str], uri: str) -> None:
    """Subscribe to updates of a resource."""
    send_once(
        port, post(path, _request("resources/subscribe", {"uri": uri}), headers), expects=b"{}"
    )


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
