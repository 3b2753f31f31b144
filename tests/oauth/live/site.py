"""Starts the live site, and changes its database where a test cannot wait."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.processes import REPOSITORY, START_SECONDS, Server, free_port, serving

SETTINGS = "tests.oauth.live.settings"
APPLICATION = "tests.oauth.live.asgi:application"
# A user for each test, because rate limits also count by user.
GUESTS = tuple(f"guest{number}" for number in range(100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running site; `base` is its address with the prefix."""

    server: Server
    base: str
    database: Path

    @property
    def mcp(self) -> str:
        return f"{self.base}/mcp"

    @property
    def issuer(self) -> str:
        return self.base

    def expire_access_tokens(self) -> None:
        """Set the expiry of all access tokens to a minute ago."""
        self._execute(
            "UPDATE oauth2_provider_accesstoken SET expires = datetime('now', '-1 minute')"
        )

    def deactivate(self, username: str) -> None:
        """Deactivate a user."""
        self._execute("UPDATE auth_user SET is_active = 0 WHERE username = ?", username)

    def tables(self) -> str:
        """Return a dump of the database, as SQL."""
        with closing(sqlite3.connect(self.database, timeout=20)) as connection:
            return "\n".join(connection.iterdump())

    def _execute(self, statement: str, *values: str) -> None:
        with closing(sqlite3.connect(self.database, timeout=20)) as connection, connection:
            connection.execute(statement, values)


@contextmanager
def running_site(
    directory: Path,
    *,
    prefix: str = "",
    revision: str = "",
    kind: str = "uvicorn",
    oauth: dict[str, Any] | None = None,
) -> Iterator[Site]:
    """Run the site with a database of its own, under a prefix or not, with one revision or all.

    `oauth` has further keys of `MCP_DJANGO["OAUTH"]`.
    """
    port = free_port()
    database = directory / "live.sqlite3"
    environ = {
        "MCP_TEST_DATABASE": str(database),
        "MCP_TEST_PREFIX": prefix,
        "MCP_TEST_REVISION": revision,
        "MCP_TEST_OAUTH": json.dumps(oauth or {}),
        "MCP_TEST_ORIGIN": f"http://127.0.0.1:{port}",
    }
    subprocess.run(
        [sys.executable, "-m", "tests.oauth.live.prepare"],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS, **environ},
        check=True,
        timeout=START_SECONDS,
    )
    with serving(kind, APPLICATION, directory, settings=SETTINGS, port=port, **environ) as server:
        yield Site(server=server, base=f"{server.url}{prefix}", database=database)
