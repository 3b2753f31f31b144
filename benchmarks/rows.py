"""What is measured: one row for each request, and which row it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.sessions import in_session
from benchmarks.wire import call, get, modern, post

APP = "benchmarks.site.asgi:application"

# The environment of each server that the rows need; all of them run side by side.
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
    "bell": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "10", "BENCH_LAYER": "memory"},
    "remembering": {"BENCH_TOOLS": "10", "BENCH_TOKEN_CACHE_SECONDS": "60"},
    "unlogged": {"BENCH_TOOLS": "10", "BENCH_LOG_CALLS": "0"},
    "kept": {"BENCH_MIDDLEWARE": "default", "BENCH_TOOLS": "10", "BENCH_CONN_MAX_AGE": "600"},
}

BARE = "bare ASGI answer"
VIEW = "Django async view, one query"
LIST_VIEW = "Django view, list of 50 rows"
ROW_VIEW = "Django view, one row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request, sent over and over; ``expects`` is a text that every answer holds."""

    name: str
    request: bytes | Callable[[int], bytes]
    """What is sent, or what makes it of the port once the server is up."""
    expects: bytes
    server: str = "default"
    against: str = BARE
    """The name of the row that it is compared with; empty for none."""
    target: str = ""
    """What the ratio should be, in words; empty where nothing is aimed at."""

    def prepared(self, port: int) -> bytes:
        """What to send to the server at this port."""
        return self.request if isinstance(self.request, bytes) else self.request(port)


SUM = b'"5"'
TENTH_ROW = b"row 0009"


def rows(bearer: str, oauth: str = "", signed: str = "") -> Sequence[Row]:
    """Every row in the order in which a round goes through them.

    The bearers are an access token of the site, one of its authorization server, and a JWT.
    """
    return (
        Row(name=BARE, request=post("/bare", {"jsonrpc": "2.0"}), expects=SUM),
        *_raw(bearer),
        *_lane(bearer),
        *_bearers(oauth, signed),
        *_queries(),
        *_generated(),
        *_sessions(),
        *_logged(),
        *_other(),
    )


def _raw(bearer: str) -> Sequence[Row]:
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


def _lane(bearer: str) -> Sequence[Row]:
    return (
        Row(name="lane, async tool", request=call("/mcp", "add", a=2, b=3), expects=SUM),
        Row(name="lane, sync tool", request=call("/mcp", "add_sync", a=2, b=3), expects=SUM),
        Row(
            name="lane with a bearer, sync tool",
            request=call("/members/mcp", "add_sync", bearer=bearer, a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="lane without middleware, async tool",
            server="none",
            request=call("/mcp", "add", a=2, b=3),
            expects=SUM,
        ),
        Row(
            name="lane without middleware, sync tool",
            server="none",
            request=call("/mcp", "add_sync", a=2, b=3),
            expects=SUM,
        ),
    )


def _bearers(oauth: str, signed: str) -> Sequence[Row]:
    """The same call on servers that take other bearers, beside the anonymous one."""
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
            name="raw with an OAuth bearer, TOKEN_CACHE_SECONDS",
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
            name="lane with an OAuth bearer, sync tool",
            request=call("/connected/mcp", "add_sync", bearer=oauth, a=2, b=3),
            expects=SUM,
            against="lane, sync tool",
        ),
    )


def _queries() -> Sequence[Row]:
    query = call("/mcp", "list_rows", limit=10)
    return (
        Row(name=VIEW, request=get("/view?limit=10"), expects=TENTH_ROW),
        Row(
            name="lane, sync tool, one query",
            request=query,
            expects=TENTH_ROW,
            against=VIEW,
            target="at least 4",
        ),
        Row(
            name="lane, async tool, one query",
            request=call("/mcp", "list_rows_async", limit=10),
            expects=TENTH_ROW,
            against=VIEW,
        ),
        Row(
            name="lane, sync tool, one query, connection kept",
            server="kept",
            request=query,
            expects=TENTH_ROW,
            against=VIEW,
        ),
        Row(
            name="lane without middleware, sync tool, one query",
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
    """Generated tools beside views that make the same queries: what the layer costs."""
    last, one = b"row 0049", b"row 0041"
    return (
        Row(name=LIST_VIEW, request=get("/rows?limit=50"), expects=last),
        Row(
            name="lane, generated list of 50 rows",
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
            name="lane, generated get of one row",
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
    """Calls in a session of 2025-11-25, each beside the same call of 2026-07-28."""
    adding = {"method": "tools/call", "name": "add", "arguments": {"a": 2, "b": 3}}
    querying = {"method": "tools/call", "name": "list_rows", "arguments": {"limit": 10}}
    query = "raw, sync tool, one query"
    return (
        Row(
            name="raw in a session, async tool",
            request=partial(in_session, path="/raw", **adding),
            expects=SUM,
            against="raw, async tool",
        ),
        Row(
            name="raw in a session, async tool, layer and connection kept",
            server="layer",
            request=partial(in_session, path="/raw", **adding),
            expects=SUM,
            against="raw, async tool",
            target="at least 0.7",
        ),
        Row(
            name="raw in a session, sync tool, one query",
            request=partial(in_session, path="/raw", **querying),
            expects=TENTH_ROW,
            against=query,
        ),
        Row(
            name="lane in a session, sync tool, one query",
            request=partial(in_session, path="/mcp", **querying),
            expects=TENTH_ROW,
            against="lane, sync tool, one query",
        ),
    )


def _logged() -> Sequence[Row]:
    """What the call log costs: all other rows are logged as what only reads."""
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


def _other() -> Sequence[Row]:
    tools = b'"tools"'
    return (
        Row(name="raw, tools/list, 10 tools", request=modern("/raw", "tools/list"), expects=tools),
        Row(
            name="raw, tools/list, 100 tools",
            server="many",
            request=modern("/raw", "tools/list"),
            expects=tools,
        ),
        Row(
            name="lane, tools/list, 100 tools",
            server="many",
            request=modern("/mcp", "tools/list"),
            expects=tools,
        ),
        Row(
            name="raw, server/discover",
            request=modern("/raw", "server/discover"),
            expects=b'"supportedVersions"',
        ),
        Row(name="raw, big(100)", request=call("/raw", "big", kb=100), expects=b"x" * 102_400),
        Row(
            name="raw, 16 times slow(100) at once",
            request=call("/raw", "slow", ms=100),
            expects=b"waited 100 ms",
            against="",
        ),
    )
