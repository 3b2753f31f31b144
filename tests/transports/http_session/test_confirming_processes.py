"""How soon real processes notice that another process changes what they have cached.

The bounds are three times the documented times: 0.2 seconds with a channel layer, for processes
with an event loop; the interval of confirmations without a layer, and for changes that send no
signal.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit import databases
from tests.kit.drivers import headers_for, message
from tests.kit.processes import Server, serving
from tests.spec import spec
from tests.transports.http_session.handshakes import D, initialize

pytestmark = pytest.mark.outside

SETTINGS = "tests.transports.http_session.settings_keys"
FAST, PLAIN, WSGI = (
    "tests.transports.http_session.asgi:application",
    *(f"tests.transports.http_session.plain:{name}" for name in ("asgi", "wsgi")),
)
# With a layer, processes confirm rarely: what they notice in time, the layer delivered.
SECONDS = {True: 5, False: 1}
PATIENCE = 60
# This many answers in a row include answers of every worker.
ALL = 20

_names = (f"user-{number}" for number in itertools.count())
_addresses = (f"198.18.{high}.{low}" for high, low in itertools.product(range(256), repeat=2))


@dataclass(frozen=True, slots=True)
class Site:
    """Two servers: `here` has cached what changes `there`."""

    here: Server
    there: Server
    tool: str
    has_layer: bool

    def bound(self, way: str) -> float:
        """Return the seconds within which a change has to be noticed here."""
        return 0.6 if self.has_layer and way != "update" else 3 * SECONDS[self.has_layer]

    def call(self, at: Server, tool: str, token: str = "", **arguments: Any) -> httpx.Response:
        """Call a tool over a connection of its own, which any worker accepts."""
        body = message("tools/call", {"name": tool, "arguments": arguments})
        headers = headers_for(body, authorization=f"Bearer {token}" if token else None)
        return post(at, body, headers)

    def text(self, at: Server, tool: str, **arguments: Any) -> str:
        answer = self.call(at, tool, **arguments)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["result"]["content"][0]["text"]
        return text

    def caller(self) -> tuple[str, str]:
        """Return a user and a token that every worker here has cached."""
        name = next(_names)
        token = self.text(self.there, "issue", username=name)
        before = self.hits()
        with patience():
            while self.hits() - before < ALL:
                assert self.call(self.here, self.tool, token).status_code == 200
        return name, token

    def hits(self) -> int:
        """Return how often one of the workers here had a caller in its cache."""
        health = httpx.get(f"{self.here.url}/mcp/health", trust_env=False, timeout=PATIENCE).json()
        assert health["callers"] == "cached"
        hits: int = health["cache"]["callers"]["hits"]
        return hits

    def seconds_until_refused(self, token: str) -> float:
        """Return the seconds until no worker here accepts a token."""
        began = time.monotonic()
        refused, noticed = 0, began
        with patience():
            while refused < ALL:
                status = self.call(self.here, self.tool, token).status_code
                assert status in (200, 401), status
                if status == 200:
                    refused, noticed = 0, time.monotonic()
                else:
                    refused += 1
        return noticed - began


@contextmanager
def patience() -> Iterator[None]:
    """Fail if the block takes too long."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE


def post(at: Server, body: Any, headers: dict[str, str | None]) -> httpx.Response:
    fields = {name: value for name, value in headers.items() if value is not None}
    fields["x-forwarded-for"] = next(_addresses)
    return httpx.post(f"{at.url}/mcp", json=body, headers=fields, trust_env=False, timeout=PATIENCE)


def servers(turn: int, kind: str, app: str, *, has_layer: bool) -> Any:
    marks = [pytest.mark.heavy(turn=turn), *has_layer * [pytest.mark.requires("shared")]]
    return pytest.param((kind, app, has_layer), marks=marks)


@pytest.fixture(
    scope="module",
    params=[
        servers(1, "uvicorn", FAST, has_layer=True),
        servers(2, "uvicorn", PLAIN, has_layer=True),
        servers(3, "gunicorn, preloaded", FAST, has_layer=True),
        servers(2, "uvicorn", FAST, has_layer=False),
        servers(1, "gunicorn, preloaded", FAST, has_layer=False),
        servers(3, "gunicorn, threads", WSGI, has_layer=False),
        servers(1, "gunicorn, greenlets", WSGI, has_layer=False),
    ],
    ids=lambda param: f"{param[0]}, {param[1].partition(':')[2]}, {'' if param[2] else 'no '}layer",
)
def site(request, tmp_path_factory):
    kind, app, has_layer = request.param
    directory: Path = tmp_path_factory.mktemp("keys")
    confirming = {"MCP_TEST_CONFIRM_SECONDS": str(SECONDS[has_layer])}
    with (
        databases.shared("sqlite", directory, redis=has_layer) as shared,
        serving(kind, app, directory, settings=SETTINGS, **shared, **confirming) as here,
        serving("uvicorn", FAST, directory, settings=SETTINGS, **shared, **confirming) as there,
    ):
        yield Site(here, there, "plain_in_thread" if app == WSGI else "plain", has_layer)
        for server in (here, there):
            assert "Traceback" not in server.output, server.output
            assert "never retrieved" not in server.output, server.output


@spec("AUT-1", "AUT-11")
@pytest.mark.parametrize("way", ["revoke", "deactivate", "update"])
def test_a_caller_whose_access_ends_elsewhere_is_refused_in_time(site, way):
    # More than once: a confirmation may notice a change early by chance.
    for _ in range(3):
        name, token = site.caller()
        assert site.text(site.there, "end", username=name, way=way) == "ended"
        assert site.seconds_until_refused(token) < site.bound(way)


@spec("SES-6")
def test_a_session_that_is_deleted_at_one_process_has_ended_at_all(site):
    for _ in range(2):
        opened = post(site.there, initialize(D), dict(HANDSHAKE))
        assert opened.status_code == 200, opened.text
        headers = {
            **HANDSHAKE,
            "mcp-session-id": opened.headers["mcp-session-id"],
            "mcp-protocol-version": D,
        }
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for _ in range(ALL):
            assert post(site.here, ping, headers).status_code == 200
        ended = httpx.delete(
            f"{site.there.url}/mcp", headers=headers, trust_env=False, timeout=PATIENCE
        )
        assert ended.status_code == 204
        assert {post(site.here, ping, headers).status_code for _ in range(ALL)} == {404}


HANDSHAKE = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
