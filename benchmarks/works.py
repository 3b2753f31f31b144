"""The rows to measure: blocks of works, done by this package, by its peers and by a floor.

A block is one server with the same middleware for all. Its *floor* is the least that a site could
do there: a plain view or ASGI application that reads the request and sends the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
WSGI_APP = "benchmarks.site.wsgi:application"

# Blocks.
GUNICORN = "gunicorn with threads, startproject's middleware"
MIDDLEWARE = "uvicorn, startproject's middleware"
RAW = "uvicorn, no middleware"
# Added to the name of a block.
ON_POSTGRES = ", PostgreSQL"

# Columns of the tables: who does the work.
OWN, FLOOR = "this package", "floor"
MCPZ, MCPZ_GUNICORN = "django-mcpz", "django-mcpz, gunicorn"
SDK, FASTMCP, BOLT = "official SDK", "FastMCP", "bolt-mcp"

ADD = "add"
TOKEN = "add, with a token"
SESSION = "add, in a session"
BOTH = "add, in a session, with a token"
SYNC = "add, a sync function"
WRITING = "add, a tool that may write"
DISCOVER = "server/discover"
LIST = "list of 50 tools"
OPENING = "initialize and initialized"
ROWS = "50 rows through the ORM"
BIG = "a text of 100 KB"
SLOW = "a call that waits 100 ms"
STREAM = "open a GET stream"
EVENT = "one change to all streams, for each"

# In the order of the tables.
WORKS = (
    *(ADD, TOKEN, SESSION, BOTH, SYNC, WRITING),
    *(ROWS, LIST, DISCOVER, BIG, SLOW, OPENING, STREAM, EVENT),
)


class Goal(NamedTuple):
    """The CPU that a work of this package may cost, as a multiple of the cost in another column."""

    times: float
    of: str


GOALS = {
    (GUNICORN, ADD): Goal(1.2, MCPZ),
    (GUNICORN, SYNC): Goal(1.1, MCPZ),
    (GUNICORN, ROWS): Goal(1.1, MCPZ),
    (MIDDLEWARE, ADD): Goal(0.75, MCPZ_GUNICORN),
    (MIDDLEWARE, ROWS): Goal(0.65, MCPZ_GUNICORN),
    (RAW, ADD): Goal(4, FLOOR),
    (RAW, SESSION): Goal(6, FLOOR),
    (RAW, LIST): Goal(2.5, FLOOR),
    (RAW, ROWS): Goal(1.35, BOLT),
    (RAW, STREAM): Goal(12, FLOOR),
    (RAW, EVENT): Goal(2.5, FLOOR),
}

ADDING: dict[str, Any] = {"method": "tools/call", "name": "add", "arguments": {"a": 2, "b": 3}}
SUM, LAST_ROW, LAST_TOOL = b'"5"', b"row 0049", b"filler_43"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One work of one column of a block: a request that is sent repeatedly.

    Every response must contain the text ``expects``.
    """

    block: str
    work: str
    column: str
    process: str
    """The name of the running server that gets the request."""
    request: bytes | Callable[[int], Sequence[bytes]]
    """The request, or a function that builds those of one connection from the server's port."""
    expects: bytes
    follow: Follow | None = None
    """Builds a second request, answered with 202, from the response; both count as one."""
    comes_last: bool = False
    """Whether the row is measured after all rounds of the other rows."""

    def prepared(self, port: int) -> Sequence[Sequence[bytes]]:
        """Return the requests of each connection to this port, or one list for all connections."""
        if isinstance(self.request, bytes):
            return [[self.request]]
        # Requests of a session have different ids, so each connection has a session of its own.
        return [self.request(port) for _ in range(CONNECTIONS)]

    def __str__(self) -> str:
        return f"{self.block}: {self.work}, {self.column}"


class Processes(NamedTuple):
    """The names of the running servers of this package: one database has one of each."""

    gunicorn: str
    uvicorn: str


def own_rows(bearer: str, processes: Processes, suffix: str = "") -> Sequence[Row]:
    """Return the rows of this package and the floors.

    The token is one of the site's own access tokens; ``suffix`` is added to the names of blocks.
    """
    add = partial(call, tool="add", a=2, b=3)
    rows: list[Row] = []
    for block, process, view in (
        (GUNICORN, processes.gunicorn, "/floor/add_sync"),
        (MIDDLEWARE, processes.uvicorn, "/floor/add"),
    ):
        row = partial(Row, block=block + suffix, process=process)
        own, floor = partial(row, column=OWN), partial(row, column=FLOOR)
        rows += (
            own(work=ADD, request=add("/mcp"), expects=SUM),
            own(work=TOKEN, request=add("/members/mcp", bearer=bearer), expects=SUM),
            own(work=SYNC, request=call("/mcp", "add_sync", a=2, b=3), expects=SUM),
            *shared_rows(own, "/mcp"),
            floor(work=ADD, request=add(view), expects=SUM),
            floor(work=SYNC, request=add("/floor/add_sync"), expects=SUM),
            floor(work=ROWS, request=add("/floor/rows"), expects=LAST_ROW),
        )
    row = partial(Row, block=RAW + suffix, process=processes.uvicorn)
    own = partial(row, column=OWN)
    adding = partial(session_requests, path="/raw", **ADDING)
    members = partial(session_requests, path="/members/raw", bearer=bearer, **ADDING)
    discover = request_2026("/raw", "server/discover")
    return (
        *rows,
        bare_row(processes.uvicorn, suffix),
        row(column=FLOOR, work=ROWS, request=add("/bare/rows"), expects=LAST_ROW),
        own(work=ADD, request=add("/raw"), expects=SUM),
        own(work=TOKEN, request=add("/members/raw", bearer=bearer), expects=SUM),
        own(work=SESSION, request=adding, expects=SUM),
        own(work=BOTH, request=members, expects=SUM),
        own(work=SYNC, request=call("/raw", "add_sync", a=2, b=3), expects=SUM),
        own(work=WRITING, request=add("/writing/raw"), expects=SUM),
        own(work=DISCOVER, request=discover, expects=b'"supportedVersions"'),
        *shared_rows(own, "/raw"),
        own(work=SLOW, request=call("/raw", "slow", ms=100), expects=b'"done"'),
        opening_row(own, "/raw"),
    )


def bare_row(process: str, suffix: str = "") -> Row:
    """Return the floor without middleware: an application that reads the body and sends bytes."""
    request = post("/bare", {"jsonrpc": "2.0"})
    return Row(
        block=RAW + suffix, work=ADD, column=FLOOR, process=process, request=request, expects=SUM
    )


def shared_rows(row: Callable[..., Row], path: str) -> Sequence[Row]:
    """Return the rows that every column has, for tools at a path."""
    return (
        row(work=ROWS, request=call(path, "list_rows", limit=50), expects=LAST_ROW),
        row(work=LIST, request=request_2026(path, "tools/list"), expects=LAST_TOOL),
        row(work=BIG, request=call(path, "big", kb=100), expects=b"x" * 102_400),
    )


def mcpz_rows(process: str, *, on_gunicorn: bool, suffix: str = "") -> Sequence[Row]:
    """Return the rows of django-mcpz, whose tools are sync: both works send the same request."""
    adding = call("/mcp", "add", a=2, b=3)
    rows: list[Row] = []
    places = [(MIDDLEWARE, MCPZ)]
    if on_gunicorn:
        # Users who choose a server compare both, so each block has the figures of gunicorn.
        places = [(GUNICORN, MCPZ), (MIDDLEWARE, MCPZ_GUNICORN)]
    for block, column in places:
        row = partial(Row, block=block + suffix, column=column, process=process)
        works = [row(work=work, request=adding, expects=SUM) for work in (ADD, SYNC)]
        rows += (*works, *shared_rows(row, "/mcp"))
    return rows


def peer_rows(column: str, process: str, suffix: str = "") -> Sequence[Row]:
    """Return the rows of a peer without middleware.

    Its tools are at ``/mcp``, and with sessions at ``/session``.
    """
    row = partial(Row, block=RAW + suffix, column=column, process=process)
    adding = partial(session_requests, path="/session", **ADDING)
    return (
        row(work=ADD, request=call("/mcp", "add", a=2, b=3), expects=SUM),
        row(work=SESSION, request=adding, expects=SUM),
        row(work=SYNC, request=call("/mcp", "add_sync", a=2, b=3), expects=SUM),
        *shared_rows(row, "/mcp"),
        row(work=SLOW, request=call("/mcp", "slow", ms=100), expects=b'"done"'),
        opening_row(row, "/session"),
    )


def opening_row(row: Callable[..., Row], path: str) -> Row:
    """Return the row that opens a session again and again."""
    return row(
        work=OPENING,
        request=initialize_request(path),
        expects=b'"serverInfo"',
        follow=partial(initialized_request, path),
        # A server may not survive so many sessions.
        comes_last=True,
    )
