"""Compare peers in the same rounds: one tool that adds two numbers, one worker process each.

The rows of this package are the same call in several ways, and the bare ASGI answer, so that one
run shows each of them and each peer as a multiple of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from benchmarks.peers.environments import FASTMCP, MCPZ, SDK, Environment
from benchmarks.process import Process, free_port, run_server, serve_asgi
from benchmarks.rounds import Plan, RowResult, measure_rows
from benchmarks.rows import APP, BARE, SERVERS, SUM, Row, rows
from benchmarks.wire import HOST, call

RAW = "raw, async tool"
FAST_HANDLER = "fast handler, sync tool"
OWN = frozenset(
    {
        BARE,
        RAW,
        "raw, sync tool in the pool",
        "raw with a bearer, async tool",
        "raw in a session, async tool",
        FAST_HANDLER,
    }
)


def own_rows(bearer: str) -> Sequence[Row]:
    """Return the rows of this package, in the order in which a round measures them."""
    return [row for row in rows(bearer) if row.name in OWN]


def peer_rows() -> Mapping[str, Row]:
    """Return the row of each peer by server name; a ratio below 1 means that the peer is slower."""
    path = "/mcp"
    return {
        "sdk": Row(
            name="official SDK, async tool",
            server="sdk",
            request=call(path, "add", a=2, b=3),
            expects=SUM,
            against=RAW,
            target="at most 0.25",
        ),
        "fastmcp": Row(
            name="FastMCP, async tool",
            server="fastmcp",
            request=call(path, "add", a=2, b=3),
            expects=SUM,
            against=RAW,
            target="at most 0.1",
        ),
        "mcpz": Row(
            name="django-mcpz on uvicorn, sync tool",
            server="mcpz",
            request=call(path, "add_sync", a=2, b=3),
            expects=SUM,
            against=FAST_HANDLER,
            target="at most 0.125",
        ),
        "mcpz-wsgi": Row(
            name="django-mcpz on gunicorn, sync tool",
            server="mcpz-wsgi",
            request=call(path, "add_sync", a=2, b=3),
            expects=SUM,
            against=FAST_HANDLER,
            target="at most 0.67",
        ),
    }


def peer_starters() -> Mapping[
    str, tuple[Environment, Callable[[], AbstractContextManager[Process]]]
]:
    """Return the environment of each peer and a function that starts its server."""
    return {
        "sdk": (SDK, lambda: _uvicorn(SDK, "python_sdk")),
        "fastmcp": (FASTMCP, lambda: _uvicorn(FASTMCP, "fastmcp_server")),
        "mcpz": (MCPZ, lambda: _uvicorn(MCPZ, "mcpz_site")),
        "mcpz-wsgi": (MCPZ, lambda: _gunicorn(MCPZ, "mcpz_site")),
    }


def _uvicorn(environment: Environment, module: str) -> AbstractContextManager[Process]:
    app = f"benchmarks.peers.{module}:application"
    return serve_asgi(app, {}, python=str(environment.python))


def _gunicorn(environment: Environment, module: str) -> AbstractContextManager[Process]:
    """Start one worker with one thread per persistent connection."""
    port = free_port()
    options = ["-b", f"{HOST}:{port}", "-w", "1", "-k", "gthread", "--threads", "16"]
    quiet = ["--log-level", "error", "--keep-alive", "30"]
    command = [str(environment.python), "-m", "gunicorn", *options, *quiet]
    return run_server([*command, f"benchmarks.peers.{module}:wsgi"], {}, port=port)


def compare_peers(
    plan: Plan, database: str, bearer: str, *, say: Callable[[str], None]
) -> tuple[list[RowResult], dict[str, str]]:
    """Measure this package and every peer that can be installed; return results and versions."""
    versions: dict[str, str] = {}
    wanted = [*own_rows(bearer)]
    with ExitStack() as stack:
        own = serve_asgi(APP, {"BENCH_DB": database, **SERVERS["default"]})
        servers = {"default": stack.enter_context(own)}
        for name, (environment, start) in peer_starters().items():
            say(f"preparing {name}")
            try:
                versions[environment.distribution] = environment.make()
            except (OSError, subprocess.CalledProcessError):
                say(f"{environment.distribution} cannot be installed here and is skipped")
                continue
            servers[name] = stack.enter_context(start())
            wanted.append(peer_rows()[name])
        return measure_rows(wanted, servers, plan, say=say), versions
