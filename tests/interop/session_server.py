"""Starts the site of sessions: one process on SQLite, or several on PostgreSQL and Redis."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.shared import DATABASE_SERVER, existing_database, redis_url
from tests.interop.session_site import HANDSHAKES
from tests.kit.processes import REPOSITORY, serving

SITE = "tests.interop.session_site"
MIGRATE_SECONDS = 180
# Revisions whose events have ids, with which a client can resume a stream.
RESUMABLE = tuple(version for version in HANDSHAKES if version != "2024-11-05")


@contextmanager
def session_site(directory: Path, *, workers: int = 1) -> Iterator[str]:
    """Yield the address of the site; requests of one session may reach different processes."""
    marks = directory / "marks"
    marks.mkdir()
    environ = {"MCP_TEST_MARKS": str(marks), "WEB_CONCURRENCY": str(workers)}
    with ExitStack() as stack:
        if workers > 1:
            name = f"mcp_interop_{os.getpid()}"
            url = f"{DATABASE_SERVER}/{name}"
            stack.enter_context(existing_database(url))
            environ |= {"MCP_TEST_DATABASE_URL": url, "MCP_TEST_REDIS_URL": redis_url()}
            environ["MCP_TEST_REDIS_PREFIX"] = name
        else:
            environ["MCP_TEST_DATABASE"] = str(directory / "db.sqlite3")
        _migrate(environ)
        server = stack.enter_context(
            serving(
                "uvicorn",
                f"{SITE}.asgi:application",
                directory,
                settings=f"{SITE}.settings",
                **environ,
            )
        )
        yield server.url


def _migrate(environ: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity", "0"],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": f"{SITE}.settings", **environ},
        timeout=MIGRATE_SECONDS,
        check=True,
    )


def targets(site: str, who: str) -> dict[str, dict[str, Any]]:
    """Return the targets of a client: each revision and mount, HTTP+SSE, and interrupted answers.

    At a server of one revision, a client that also knows 2026-07-28 has to detect that the server
    does not; at the others, it is configured to use the handshake.
    """
    targets_by_key: dict[str, dict[str, Any]] = {
        version: {"url": f"{site}/lane/{version}/mcp", "mode": "auto"} for version in HANDSHAKES
    }
    for mount in ("raw", "view"):
        targets_by_key[mount] = {"url": f"{site}/{mount}/mcp"}
    targets_by_key["sse"] = {"url": f"{site}/lane/old/mcp/sse", "is_legacy": True}
    for version in RESUMABLE:
        url = f"{site}/breaking/{version}/mcp"
        targets_by_key[f"broken at {version}"] = {"url": url, "kind": "interruption"}
    # Only at this revision may the server close the connection.
    targets_by_key["closed"] = {"url": f"{site}/lane/2025-11-25/mcp", "kind": "interruption"}
    usual = {"kind": "journey", "is_legacy": False, "mode": "legacy"}
    return {
        key: {**usual, "mark": f"{who} {key}", **target} for key, target in targets_by_key.items()
    }
