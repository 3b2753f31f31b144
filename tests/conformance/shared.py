"""The database servers and the Redis of this machine, or those that environment variables name."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

DATABASE_SERVER = "postgres://postgres@127.0.0.1:5432"
REDIS = "redis://127.0.0.1:6379/0"
MARIADB = "mysql://root@127.0.0.1:3306"


def database_url(port: int) -> str:
    """Return the URL of a fixture's database: from the environment, or one for its port."""
    return os.environ.get("MCP_TEST_DATABASE_URL") or f"{DATABASE_SERVER}/mcp_conformance_{port}"


def redis_url() -> str:
    """Return the URL of the Redis server: from the environment, or that of this machine."""
    return os.environ.get("MCP_TEST_REDIS_URL") or REDIS


def mariadb_url() -> str:
    """Return the URL of the MariaDB server: from the environment, or that of this machine."""
    return os.environ.get("MCP_TEST_MARIADB_URL") or MARIADB


def database(url: str) -> dict[str, Any]:
    """Return the database of a URL as Django's settings describe it."""
    parts = urlsplit(url)
    kind = "mysql" if parts.scheme == "mysql" else "postgresql"
    return {
        "ENGINE": f"django.db.backends.{kind}",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }


def channel_layer(url: str, *, prefix: str) -> dict[str, Any]:
    """Return a channel layer on a Redis server, separate from those with another prefix."""
    return {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [url], "prefix": prefix},
    }


def why_missing() -> str | None:
    """Return why several workers cannot share a database and Redis here, or None if they can."""
    return _silence("PostgreSQL", database_url(0), 5432) or _silence("Redis", redis_url(), 6379)


def why_no_mariadb() -> str | None:
    """Return why there is no MariaDB server here, or None if there is one."""
    return _silence("MariaDB", mariadb_url(), 3306)


def _silence(name: str, url: str, usual: int) -> str | None:
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or usual)
    with closing(socket.socket()) as probe:
        probe.settimeout(5)
        if probe.connect_ex(place) != 0:
            return f"{name} does not answer at {place[0]}:{place[1]}"
    return None


def connect(url: str) -> Any:
    """Connect to the server of a database; the database itself may not exist yet."""
    # Imported here, since a server of one worker needs no PostgreSQL driver.
    import psycopg

    wanted = database(url)
    return psycopg.connect(
        host=wanted["HOST"] or None,
        port=wanted["PORT"] or None,
        user=wanted["USER"] or None,
        password=wanted["PASSWORD"] or None,
        dbname="postgres",
        # Databases can be neither created nor dropped within a transaction.
        autocommit=True,
    )


@contextmanager
def existing_database(url: str, *, template: str = "template1") -> Iterator[None]:
    """Create the database if it does not exist; drop it at the end if it was created here.

    A new database is a copy of the database named `template`.
    """
    from psycopg.sql import SQL, Identifier

    wanted = database(url)
    name = Identifier(wanted["NAME"])
    with connect(url) as connection:
        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        is_there = connection.execute(query, [wanted["NAME"]]).fetchone() is not None
        if not is_there:
            copied = SQL("CREATE DATABASE {} TEMPLATE {}").format(name, Identifier(template))
            connection.execute(copied)
        try:
            yield
        finally:
            if not is_there:
                connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))
