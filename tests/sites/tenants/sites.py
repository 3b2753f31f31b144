"""The databases of the sites, made once by each process of tests, and the servers over them."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from tests.conformance.shared import DATABASE_SERVER, connect, existing_database
from tests.kit.databases import run
from tests.kit.processes import Server, serving

# Sites on which no call may see another tenant's rows.
SITES = ("schemas", "rows", "files")

MOUNTS = {
    "fast handler": ("uvicorn", "fast"),
    "view under ASGI": ("uvicorn", "plain"),
    "WSGI": ("gunicorn, threads", "wsgi"),
    "raw": ("uvicorn", "raw"),
    "consumer": ("uvicorn", "consumer"),
}
# The mounts on which the middleware of the site runs.
HTTP_MOUNTS = ("fast handler", "view under ASGI", "WSGI")


def settings_of(site: str) -> str:
    return f"tests.sites.tenants.settings_{site}"


@cache
def environ_of(site: str, use: str = "served") -> Mapping[str, str]:
    """Return the environment of processes that serve a site; create and fill its database.

    Each `use` of a site has a database of its own: tests that delete rows do not share one with
    tests that read them.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    own = {"DJANGO_SETTINGS_MODULE": settings_of(site)}
    if site == "files":
        directory = stack.enter_context(TemporaryDirectory(prefix="mcp-tenants-"))
        own["MCP_TEST_DATABASES"] = directory
        run({**own, "MCP_TEST_SITE": site}, "tests.sites.tenants.fill")
        return own
    name = f"mcp_tenants_{site}_{use}_{os.getpid()}"
    place = urlsplit(os.environ.get("MCP_TEST_DATABASE_URL") or DATABASE_SERVER)
    url = place._replace(path=f"/{name}").geturl()
    if site == "rows":
        # Policies hold for every role but the one that made the database.
        stack.enter_context(_role(url, name))
    stack.enter_context(existing_database(url))
    filling = {"MCP_TEST_SITE": site, "MCP_TEST_ROLE": name, "MCP_TEST_DATABASE_URL": url}
    run({**own, **filling}, "tests.sites.tenants.fill")
    if site == "rows":
        address = place.netloc.rpartition("@")[2]
        url = place._replace(netloc=f"{name}:{name}@{address}", path=f"/{name}").geturl()
    return {**own, "MCP_TEST_DATABASE_URL": url}


@contextmanager
def _role(url: str, name: str) -> Iterator[None]:
    # Imported here, since the fast ring collects this file and does not have the driver.
    from psycopg.sql import SQL, Identifier

    with connect(url) as connection:
        connection.execute(
            SQL("CREATE ROLE {} LOGIN NOSUPERUSER PASSWORD {}").format(Identifier(name), name)
        )
    yield
    with connect(url) as connection:
        connection.execute(SQL("DROP ROLE {}").format(Identifier(name)))


@contextmanager
def served(site: str, mount: str, directory: Path, **environ: str) -> Iterator[Server]:
    """Yield a server of a site at one mount; `environ` is added to its environment."""
    kind, app = MOUNTS[mount]
    own = {**environ_of(site), **environ}
    settings = own.pop("DJANGO_SETTINGS_MODULE")
    with serving(
        kind, f"tests.sites.tenants.mounts:{app}", directory, settings=settings, **own
    ) as server:
        yield server
