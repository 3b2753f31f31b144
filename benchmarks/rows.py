"""The rows to measure: one for each request, with the row that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.load import Follow
from benchmarks.sessions import initialize_request, initialized_request, session_request
from benchmarks.wire import call, get, post, request_2026

APP = "benchmarks.site.asgi:application"

# The environment variables of each server that the rows need; all servers run side by side.
SERVERS: dict[str, dict[str, str]] = {
    "default": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "10"},
    "none": {"BENCH_MIDDLEWARE": "none", "BENCH_TOOLS": "10"},
    "many": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "100"},
    "layer": {
        "BENCH_MIDDLEWARE": "default",
        "BENCH_TOOLS": "10",
        "BENCH_CONN_MAX_AGE": "600",
        "BENCH_LAYER": "memory",
    },
    "channel_layer": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "10", "BENCH_LAYER": "memory"},
    "remembering": {"BENCH_TOOLS": "10", "BENCH_CONFIRM_SECONDS": "1"},
    "unlogged": {"BENCH_TOOLS": "10", "BENCH_LOG_CALLS": "0"},
    "kept": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "10", "BENCH_CONN_MAX_AGE": "600"},
}

BARE = "bare ASGI answer"
VIEW = "Django async view, one query"
LIST_VIEW = "Django view, list of 50 rows"
ROW_VIEW = "Django view, one row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request, sent repeatedly; every response must contain the text ``expects``."""

    name: str
    request: bytes | Callable[[int], bytes]
    """The request, or a function that builds it from the port of the running server."""
    expects: bytes
    follow: Follow | None = None
    """Builds a second request, answered with 202, from the response; both count as one."""
    server: str = "default"
    against: str = BARE
    """Name of the row that it is compared with (its baseline); empty for none."""
    target: str = ""
    """The target of the ratio, in words; empty for none."""

    def prepared(self, port: int) -> bytes:
        """Return the request for the server on this port."""
        return self.request if isinstance(self.request, bytes) else self.request(port)


SUM = b'"5"'
TENTH_ROW = b"row 0009"


def rows(bearer: str, oauth: str = "", signed: str = "") -> Sequence[Row]:
    """Return all rows in the order in which a round measures them.

    The bearer tokens are an access token of the site, one of its authorization server, and a JWT.
    """
    return (
        Row(name=BARE, request=post("/bare", {"jsonrpc": "2.0"}), expects=SUM),
        *_raw_mount(bearer),
        *_fast_handler(bearer),
        *_bearers(oauth, signed),
        *_queries(),
        *_generated(),
        *_sessions(),
        *_logged(),
        *_other_rows(),
    )


def _raw_mount(bearer: str) -> Sequence[Row]:
    return (
        Row(
            name="raw, async tool",
            request=call("/raw", "add", a=2, b=3),
            expects=SUM,
            target="at least 0.5",
        ),
        Row(
            name="raw, sync tool in the pool",
            request=call("/raw", "add_sync", a=2, b=3),
            expects=SUM,
            target="at least 0.33",
        ),
        Row(
            name="raw in a URLRouter, async tool",
            request=call("/routed", "add", a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="raw with a bearer, async tool",
            request=call("/members/raw", "add", bearer=bearer, a=2, b=3),
            expects=SUM,
        ),
    )


def _fast_handler(bearer: str) -> Sequence[Row]:
    return (
        Row(name="fast handler, async tool", request=call("/mcp", "add", a=2, b=3), expects=SUM),
        Row(
            name="fast handler, sync tool",
            request=call("/mcp", "add_sync", a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="fast handler with a bearer, sync tool",
            request=call("/members/mcp", "add_sync", bearer=bearer, a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="fast handler without middleware, async tool",
            server="none",
            request=call("/mcp", "add", a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="fast handler without middleware, sync tool",
            server="none",
            request=call("/mcp", "add_sync", a=2, b=3),
            expects=SUM,
        ),
    )


def _bearers(oauth: str, signed: str) -> Sequence[Row]:
    """Return the same call with other bearer tokens, compared with the anonymous call."""
    anonymous = "raw, async tool"
    by_oauth = call("/connected/raw", "add", bearer=oauth, a=2, b=3)
    return (
        Row(name="raw with an OAuth bearer", request=by_oauth, expects=SUM, against=anonymous),
        Row(
            name="raw with an OAuth bearer, connection kept",
            server="kept",
            request=by_oauth,
            expects=SUM,
            against=anonymous,
        ),
        Row(
            name="raw with an OAuth bearer, CONFIRM_SECONDS",
            server="remembering",
            request=by_oauth,
            expects=SUM,
            against=anonymous,
        ),
        Row(
            name="raw with a JWT as bearer",
            request=call("/signed/raw", "add", bearer=signed, a=2, b=3),
            expects=SUM,
            against=anonymous,
        ),
        Row(
            name="fast handler with an OAuth bearer, sync tool",
            request=call("/connected/mcp", "add_sync", bearer=oauth, a=2, b=3),
            expects=SUM,
            against="fast handler, sync tool",
        ),
    )


def _queries() -> Sequence[Row]:
    query = call("/mcp", "list_rows", limit=10)
    return (
        Row(name=VIEW, request=get("/view?limit=10"), expects=TENTH_ROW),
        Row(
            name="fast handler, sync tool, one query",
            request=query,
            expects=TENTH_ROW,
            against=VIEW,
            target="at least 4",
        ),
        Row(
            name="fast handler, async tool, one query",
            request=call("/mcp", "list_rows_async", limit=10),
            expects=TENTH_ROW,
            against=VIEW,
        ),
        Row(
            name="fast handler, sync tool, one query, connection kept",
            server="kept",
            request=query,
            expects=TENTH_ROW,
            against=VIEW,
        ),
        Row(
            name="fast handler without middleware, sync tool, one query",
            server="none",
            request=query,
            expects=TENTH_ROW,
            against=VIEW,
        ),
        Row(
            name="raw, sync tool, one query",
            request=call("/raw", "list_rows", limit=10),
            expects=TENTH_ROW,
            against=VIEW,
        ),
    )


def _generated() -> Sequence[Row]:
    """Return generated tools, compared with views that make the same queries."""
    last, one = b"row 0049", b"row 0041"
    return (
        Row(name=LIST_VIEW, request=get("/rows?limit=50"), expects=last),
        Row(
            name="fast handler, generated list of 50 rows",
            request=call("/exposed/mcp", "list_rows", limit=50),
            expects=last,
            against=LIST_VIEW,
        ),
        Row(
            name="raw, generated list of 50 rows",
            request=call("/exposed/raw", "list_rows", limit=50),
            expects=last,
            against=LIST_VIEW,
        ),
        Row(name=ROW_VIEW, request=get("/rows/42"), expects=one),
        Row(
            name="fast handler, generated get of one row",
            request=call("/exposed/mcp", "get_row", id=42),
            expects=one,
            against=ROW_VIEW,
        ),
        Row(
            name="raw, generated get of one row",
            request=call("/exposed/raw", "get_row", id=42),
            expects=one,
            against=ROW_VIEW,
        ),
    )


def _sessions() -> Sequence[Row]:
    """Return calls in a session of 2025-11-25, compared with the same calls of 2026-07-28."""
    adding = {"method": "tools/call", "name": "add", "arguments": {"a": 2, "b": 3}}
    querying = {"method": "tools/call", "name": "list_rows", "arguments": {"limit": 10}}
    query = "raw, sync tool, one query"
    return (
        Row(
            name="raw in a session, async tool",
            request=partial(session_request, path="/raw", **adding),
            expects=SUM,
            against="raw, async tool",
        ),
        Row(
            name="raw in a session, async tool, layer and connection kept",
            server="layer",
            request=partial(session_request, path="/raw", **adding),
            expects=SUM,
            against="raw, async tool",
            target="at least 0.7",
        ),
        Row(
            name="raw in a session, sync tool, one query",
            request=partial(session_request, path="/raw", **querying),
            expects=TENTH_ROW,
            against=query,
        ),
        Row(
            name="fast handler in a session, sync tool, one query",
            request=partial(session_request, path="/mcp", **querying),
            expects=TENTH_ROW,
            against="fast handler, sync tool, one query",
        ),
        *(
            Row(
                name=f"{mount}, initialize and initialized",
                request=initialize_request(path),
                expects=b'"serverInfo"',
                follow=partial(initialized_request, path),
            )
            for mount, path in (("raw", "/raw"), ("fast handler", "/mcp"))
        ),
    )


def _logged() -> Sequence[Row]:
    """Return calls that show the cost of the call log; other rows are logged as read-only calls."""
    on_loop, in_pool = "raw, async tool", "raw, sync tool in the pool"
    return (
        Row(
            name="raw, async tool, no call log",
            server="unlogged",
            request=call("/raw", "add", a=2, b=3),
            expects=SUM,
            against=on_loop,
        ),
        Row(
            name="raw, sync tool, no call log",
            server="unlogged",
            request=call("/raw", "add_sync", a=2, b=3),
            expects=SUM,
            against=in_pool,
        ),
        Row(
            name="raw, async tool that may write, call log",
            server="kept",
            request=call("/writing/raw", "add", a=2, b=3),
            expects=SUM,
            against=on_loop,
        ),
        Row(
            name="raw, sync tool that may write, call log",
            server="kept",
            request=call("/writing/raw", "add_sync", a=2, b=3),
            expects=SUM,
            against=in_pool,
        ),
    )


def _other_rows() -> Sequence[Row]:
    tools = b'"tools"'
    return (
        Row(
            name="raw, tools/list, 10 tools",
            request=request_2026("/raw", "tools/list"),
            expects=tools,
        ),
        Row(
            name="raw, tools/list, 100 tools",
            server="many",
            request=request_2026("/raw", "tools/list"),
            expects=tools,
        ),
        Row(
            name="fast handler, tools/list, 100 tools",
            server="many",
            request=request_2026("/mcp", "tools/list"),
            expects=tools,
        ),
        Row(
            name="raw, server/discover",
            request=request_2026("/raw", "server/discover"),
            expects=b'"supportedVersions"',
        ),
        Row(name="raw, big(100)", request=call("/raw", "big", kb=100), expects=b"x" * 102_400),
        Row(
            name="raw, 16 concurrent slow(100)",
            request=call("/raw", "slow", ms=100),
            expects=b"waited 100 ms",
            against="",
        ),
    )
