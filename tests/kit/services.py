"""Services that tests require from the machine, and checks whether they are available.

`@pytest.mark.requires("node")` skips a test if the service is missing. With the environment
variable `MCP_TEST_REQUIRE=all`, the test fails instead, so that a complete run skips nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from tests.kit.processes import CACHE

NODE_MAJOR = 22


def demand() -> str:
    """Return the value of `MCP_TEST_REQUIRE`: `all`, or an empty string.

    Raises:
        pytest.UsageError: the variable has another value.
    """
    value = os.environ.get("MCP_TEST_REQUIRE", "")
    if value not in {"", "all"}:
        raise pytest.UsageError(f"MCP_TEST_REQUIRE is {value!r}: write 'all', or leave it unset.")
    return value


def do_without(reason: str) -> NoReturn:
    """Skip the running test, or fail it if all services are required."""
    if demand():
        pytest.fail(f"{reason} (MCP_TEST_REQUIRE=all)", pytrace=False)
    pytest.skip(reason)


@cache
def missing(service: str) -> str | None:
    """Return why `service` is not available, or None if it is.

    Raises:
        LookupError: the service is unknown.
    """
    if service not in SERVICES:
        raise LookupError(f"No service named {service!r}; known: {', '.join(SERVICES)}.")
    return SERVICES[service]()


def chromium() -> str | None:
    """Return the path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def axe() -> Path | None:
    """Return the path of the source of axe-core, or None."""
    place = CACHE / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    return place if place.is_file() else None


def themes() -> Path | None:
    """Return the directory of the admin's themes, outside the virtual environment, or None."""
    place = CACHE / "themes"
    return place if all((place / name).is_dir() for name in ("unfold", "jazzmin")) else None


def _node() -> str | None:
    program = shutil.which("node")
    if program is None:
        return f"node {NODE_MAJOR} or newer is not on PATH"
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < NODE_MAJOR:
        return f"node {NODE_MAJOR} or newer is needed, {version} is on PATH"
    return None


def _npm() -> str | None:
    return None if shutil.which("npm") else "npm is not on PATH"


def _postgres() -> str | None:
    # Debian does not put the server programs of PostgreSQL on PATH.
    if shutil.which("initdb") or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]:
        return None
    return "initdb of PostgreSQL is not installed"


def _redis() -> str | None:
    return None if shutil.which("redis-server") else "redis-server is not on PATH"


def _chromium() -> str | None:
    if not find_spec("playwright"):
        return "playwright is not installed"
    return None if chromium() else "Chromium is not on PATH"


def _axe() -> str | None:
    # Checks the accessibility of pages; .ci/browser.sh installs it.
    return None if axe() else f"axe-core is not in {CACHE}"


def _themes() -> str | None:
    # Themes of the admin; .ci/browser.sh installs them.
    return None if themes() else f"django-unfold and django-jazzmin are not in {CACHE}"


def _nginx() -> str | None:
    return None if shutil.which("nginx") else "nginx is not on PATH"


def _conformance() -> str | None:
    # This module defines the path of the suite and the required release.
    from tests.conformance.suite import why_missing

    return why_missing()


def _clients() -> str | None:
    # This module defines the path of each client and the required releases.
    from tests.interop.clients import CLIENTS, why_missing

    return why_missing(CLIENTS)


def _frameworks() -> str | None:
    # The same module, for the frameworks whose requirements are large.
    from tests.interop.clients import FRAMEWORKS, why_missing

    return why_missing(FRAMEWORKS)


def _shared() -> str | None:
    # Two environment variables name the PostgreSQL and Redis that worker processes share.
    from tests.conformance.shared import why_missing

    return why_missing()


def _mariadb() -> str | None:
    # An environment variable names the server; the driver is a requirement of the outside ring.
    from tests.conformance.shared import why_no_mariadb

    return why_no_mariadb() if find_spec("pymysql") else "pymysql is not installed"


SERVICES: Mapping[str, Callable[[], str | None]] = {
    "node": _node,
    "npm": _npm,
    "postgres": _postgres,
    "redis": _redis,
    "chromium": _chromium,
    "axe": _axe,
    "themes": _themes,
    "nginx": _nginx,
    "conformance": _conformance,
    "clients": _clients,
    "frameworks": _frameworks,
    "shared": _shared,
    "mariadb": _mariadb,
}
