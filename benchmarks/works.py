"""What is measured: the works, and the requests by which this package and its peers do them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.load import (
    CONNECTIONS,
    Follow,
    call,
    initialize_request,
    initialized_request,
    post,
    request_2026,
    session_requests,
)

APP = "benchmarks.site.asgi:application"

BARE = "bare ASGI response"
OWN, OWN_POSTGRES = "this package", "this package, PostgreSQL"

ADD = "add"
TOKEN = "add, with a token"
SESSION = "add, in a session"
BOTH = "add, in a session, with a token"
SYNC = "add, a sync function"
WRITING = "add, a tool that may write"
MIDDLEWARE = "add, through startproject's middleware"
DISCOVER = "server/discover"
LIST = "list of 50 tools"
OPENING = "initialize and initialized"
ROWS = "50 rows through the ORM"
BIG = "a text of 100 KB"
SLOW = "a call that waits 100 ms"
STREAM = "open a GET stream"
EVENT = "one change to all streams, for each"

# All of them, with how many times the CPU of the bare response they are to cost at most.
GOALS: dict[str, float | None] = {
    ADD: 2,
    TOKEN: 2.3,
    SESSION: 2.5,
    BOTH: None,
    SYNC: None,
    WRITING: None,
    MIDDLEWARE: 6,
    DISCOVER: None,
    LIST: 2,
    OPENING: 15,
    ROWS: 12,
    BIG: 3,
    SLOW: None,
    STREAM: 12,
    EVENT: 2.5,
}

ADDING: dict[str, Any] = {"method": "tools/call", "name": "add", "arguments": {"a": 2, "b": 3}}
SUM, LAST_ROW, LAST_TOOL = b'"5"', b"row 0049", b"filler_43"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One work of one server: a request that is sent repeatedly.

    Every response must contain the text ``expects``.
    """

    work: str
    server: str
    """The name of the server, which is a column of the table."""
    request: bytes | Callable[[int], Sequence[bytes]]
    """The request, or a function that builds those of one connection from the server's port."""
    expects: bytes
    follow: Follow | None = None
    """Builds a second request, answered with 202, from the response; both count as one."""
    comes_last: bool = False
    """Whether it is measured after all rounds of the others."""

    def prepared(self, port: int) -> Sequence[Sequence[bytes]]:
        """Return the requests of each connection to this port, or those of all of them."""
        if isinstance(self.request, bytes):
            return [[self.request]]
        # Requests of a session have different ids, so each connection has a session of its own.
        return [self.request(port) for _ in range(CONNECTIONS)]


def bare_row() -> Row:
    """Return the row that all others are compared with."""
    return Row(work=BARE, server=OWN, request=post("/bare", {"jsonrpc": "2.0"}), expects=SUM)


def own_rows(bearer: str, server: str = OWN) -> Sequence[Row]:
    """Return the rows of this package; the token is one of the site's own access tokens."""
    add = partial(call, tool="add", a=2, b=3)
    members = partial(session_requests, path="/members/raw", bearer=bearer, **ADDING)
    row = partial(Row, server=server)
    return (
        row(work=ADD, request=add("/raw"), expects=SUM),
        row(work=TOKEN, request=add("/members/raw", bearer=bearer), expects=SUM),
        row(
            work=SESSION,
            request=partial(session_requests, path="/raw", **ADDING),
            expects=SUM,
        ),
        row(work=BOTH, request=members, expects=SUM),
        row(work=SYNC, request=call("/raw", "add_sync", a=2, b=3), expects=SUM),
        row(work=WRITING, request=add("/writing/raw"), expects=SUM),
        row(work=MIDDLEWARE, request=add("/mcp"), expects=SUM),
        row(
            work=DISCOVER,
            request=request_2026("/raw", "server/discover"),
            expects=b'"supportedVersions"',
        ),
        *shared_rows(server, "/raw"),
        opening_row(server, "/raw"),
    )


def shared_rows(server: str, path: str) -> Sequence[Row]:
    """Return the rows of all servers, whose tools are at a path."""
    row = partial(Row, server=server)
    return (
        row(work=LIST, request=request_2026(path, "tools/list"), expects=LAST_TOOL),
        row(work=ROWS, request=call(path, "list_rows", limit=50), expects=LAST_ROW),
        row(work=BIG, request=call(path, "big", kb=100), expects=b"x" * 102_400),
        row(work=SLOW, request=call(path, "slow", ms=100), expects=b'"done"'),
    )


def peer_rows(server: str, *, through_middleware: bool = False) -> Sequence[Row]:
    """Return the rows of a peer, whose tools are at ``/mcp``, and with sessions at ``/session``."""
    if through_middleware:
        adding = call("/mcp", "add", a=2, b=3)
        return (
            Row(work=MIDDLEWARE, server=server, request=adding, expects=SUM),
            *shared_rows(server, "/mcp"),
        )
    return (
        Row(work=ADD, server=server, request=call("/mcp", "add", a=2, b=3), expects=SUM),
        *shared_rows(server, "/mcp"),
        Row(
            work=SESSION,
            server=server,
            request=partial(session_requests, path="/session", **ADDING),
            expects=SUM,
        ),
        opening_row(server, "/session"),
    )


def opening_row(server: str, path: str) -> Row:
    """Return the row that opens a session again and again."""
    return Row(
        work=OPENING,
        server=server,
        request=initialize_request(path),
        expects=b'"serverInfo"',
        follow=partial(initialized_request, path),
        # A server may not survive so many sessions.
        comes_last=True,
    )
