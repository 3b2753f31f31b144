"""The load generator: send one request repeatedly on a number of persistent connections.

This process must not be slower than the measured server, so it parses only as much HTTP as it
needs to find the end of a response.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.wire import HOST

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
    """A connection that sends its request again once it has the response.

    With ``follow`` it sends a second one after each; the latency is that of both.
    """

    def __init__(
        self, port: int, request: bytes, *, status: int = 200, follow: Follow | None = None
    ) -> None:
        self.socket = socket.create_connection((HOST, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._status = status
        self._begins = b"HTTP/1.1 %d " % status
        self._follow = follow
        self._answer = bytearray()
        self._started = 0.0

    def send(self) -> None:
        """Send the request again."""
        self._started = time.perf_counter()
        self._send(self._request, self._status)

    def _send(self, request: bytes, status: int) -> None:
        self._answer.clear()
        self._begins = b"HTTP/1.1 %d " % status
        self.socket.sendall(request)

    def receive(self) -> float | None:
        """Read available bytes; return the latency in seconds once the response is complete.

        Raises:
            UnexpectedAnswer: the status is another one, or the server closed the connection.
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
        UnexpectedAnswer: the expected text is not in the response.
    """
    connection = Connection(port, request, status=status)
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
    request: bytes,
    *,
    seconds: float,
    connections: int = CONNECTIONS,
    follow: Follow | None = None,
) -> Burst:
    """Keep every connection busy for a number of seconds, and wait for the last responses.

    Raises:
        UnexpectedAnswer: a response does not have the status 200.
        TimeoutError: the server stopped responding.
    """
    with ExitStack() as stack:
        opened = [Connection(port, request, follow=follow) for _ in range(connections)]
        for one in opened:
            stack.callback(one.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        for one in opened:
            selector.register(one.socket, selectors.EVENT_READ, one)
        return _send_load(selector, opened, seconds)


def _send_load(
    selector: selectors.BaseSelector, opened: Iterable[Connection], seconds: float
) -> Burst:
    latencies: list[float] = []
    started = time.perf_counter()
    ends = started + seconds
    busy = 0
    for one in opened:
        one.send()
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
