"""The load generator: build requests, and send one repeatedly on persistent connections.

This process must not be slower than the measured server, so it parses only as much HTTP as it
needs to find the end of a response.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any

# Requests -----------------------------------------------------------------------------------------

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
    params = dict(params or {})
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": envelope}}
    return post(path, body, headers)


def call(path: str, tool: str, *, bearer: str = "", **arguments: Any) -> bytes:
    """Return a ``tools/call`` of 2026-07-28."""
    params = {"name": tool, "arguments": arguments}
    return request_2026(path, "tools/call", params, bearer=bearer)


# Requests in a session of 2025-11-25 --------------------------------------------------------------

SESSION_VERSION = "2025-11-25"
# After this number of requests, the ids are used again from the first.
IDS = 100
_ID = re.compile(rb"\r\nmcp-session-id: *([!-~]+)\r\n", re.IGNORECASE)


def initialize_request(path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the request that opens a session."""
    info = {"protocolVersion": SESSION_VERSION, "capabilities": {}, "clientInfo": CLIENT}
    return post(path, _request("initialize", info), headers)


def initialized_request(
    path: str, answer: bytes, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the notification that follows the response to ``initialize``."""
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return post(path, ready, {**_headers_of(answer), **(headers or {})})


def open_session(port: int, path: str, *, bearer: str = "") -> dict[str, str]:
    """Initialize a session; return the headers of every further request of the session."""
    extra = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    answer = send_once(port, initialize_request(path, extra), expects=b'"serverInfo"')
    send_once(port, initialized_request(path, answer, extra), expects=b"", status=202)
    return {**_headers_of(answer), **extra}


def _headers_of(answer: bytes) -> dict[str, str]:
    match = _ID.search(answer)
    assert match is not None, answer
    return {"Mcp-Session-Id": match[1].decode(), "MCP-Protocol-Version": SESSION_VERSION}


def session_requests(
    port: int, path: str, method: str, *, bearer: str = "", **params: Any
) -> Sequence[bytes]:
    """Open a session and return requests in it, each with an id of its own."""
    headers = open_session(port, path, bearer=bearer)
    return [post(path, _request(method, params, id=n + 1), headers) for n in range(IDS)]


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


def _request(method: str, params: dict[str, Any], *, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


# Sending ------------------------------------------------------------------------------------------

CONNECTIONS = 16
TIMEOUT_SECONDS = 30
CHUNK = 256 * 1024
HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
FOLLOWED = b"HTTP/1.1 202 "
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)


Follow = Callable[[bytes], bytes]
"""Builds a second request, which is answered with 202, from the response to the first one."""


class UnexpectedResponse(Exception):
    """The response is not the one that the row expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The duration of a load, and the latency of each request in seconds, sorted."""

    seconds: float
    latencies: list[float]


class Connection:
    """A connection that sends its next request once it has the response.

    With ``follow`` it sends a second request after each response; the latency is that of both.
    """

    def __init__(
        self,
        port: int,
        requests: Sequence[bytes],
        *,
        status: int = 200,
        follow: Follow | None = None,
    ) -> None:
        self.socket = socket.create_connection((HOST, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = cycle(requests)
        self._status = status
        self._begins = b"HTTP/1.1 %d " % status
        self._follow = follow
        self._answer = bytearray()
        self._started = 0.0

    def send(self) -> None:
        """Send the next request; after the last one, start again with the first."""
        self._started = time.perf_counter()
        self._send(next(self._requests), self._status)

    def _send(self, request: bytes, status: int) -> None:
        self._answer.clear()
        self._begins = b"HTTP/1.1 %d " % status
        self.socket.sendall(request)

    def receive(self) -> float | None:
        """Read available bytes; return the latency in seconds once the response is complete.

        Raises:
            UnexpectedResponse: the status is not expected, or the server closed the connection.
        """
        part = self.socket.recv(CHUNK)
        self._answer += part
        if not part or not self._answer.startswith(self._begins[: len(self._answer)]):
            raise UnexpectedResponse(bytes(self._answer[:2000]).decode("latin-1") or "closed")
        if not is_complete(self._answer):
            return None
        if self._follow is not None and self._begins != FOLLOWED:
            self._send(self._follow(bytes(self._answer)), 202)
            return None
        return time.perf_counter() - self._started

    @property
    def answer(self) -> bytes:
        """The last response."""
        return bytes(self._answer)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def is_complete(answer: bytes | bytearray) -> bool:
    """Return whether these bytes are one complete HTTP response."""
    end = answer.find(HEAD_END)
    if end < 0:
        return False
    head = bytes(answer[: end + 2])
    length = _LENGTH.search(head)
    if length is not None:
        return len(answer) >= end + len(HEAD_END) + int(length[1])
    return _CHUNKED.search(head) is not None and answer.endswith(LAST_CHUNK)


def send_once(port: int, request: bytes, *, expects: bytes, status: int = 200) -> bytes:
    """Send one request and return the response.

    Raises:
        UnexpectedResponse: the expected text is not in the response.
    """
    connection = Connection(port, [request], status=status)
    try:
        connection.send()
        while connection.receive() is None:
            pass
    finally:
        connection.close()
    if expects not in connection.answer:
        raise UnexpectedResponse(
            f"The response does not contain {expects!r}: {connection.answer[:2000]!r}"
        )
    return connection.answer


def send_load(
    port: int,
    requests: Sequence[Sequence[bytes]],
    *,
    seconds: float,
    connections: int = CONNECTIONS,
    follow: Follow | None = None,
) -> Burst:
    """Keep every connection busy for a number of seconds, and wait for the last responses.

    ``requests`` has the requests of each connection, or one list for all connections.

    Raises:
        UnexpectedResponse: a response does not have the status 200.
        TimeoutError: the server stopped responding.
    """
    with ExitStack() as stack:
        request_lists = cycle(requests)
        opened = [Connection(port, next(request_lists), follow=follow) for _ in range(connections)]
        for connection in opened:
            stack.callback(connection.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        for connection in opened:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        return _send_load(selector, opened, seconds)


def _send_load(
    selector: selectors.BaseSelector, opened: Iterable[Connection], seconds: float
) -> Burst:
    latencies: list[float] = []
    started = time.perf_counter()
    ends = started + seconds
    busy = 0
    for connection in opened:
        connection.send()
        busy += 1
    while busy:
        ready = selector.select(TIMEOUT_SECONDS)
        if not ready:
            raise TimeoutError(f"No response within {TIMEOUT_SECONDS} seconds.")
        for key, _ in ready:
            latency = key.data.receive()
            if latency is None:
                continue
            latencies.append(latency)
            if time.perf_counter() < ends:
                key.data.send()
            else:
                busy -= 1
    took = time.perf_counter() - started
    latencies.sort()
    return Burst(seconds=took, latencies=latencies)
