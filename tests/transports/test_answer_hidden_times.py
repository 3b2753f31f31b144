"""A call of a hidden tool takes as long as one of an absent tool, measured over a real server.

Calls of the two alternate, so that whatever slows the machine down slows both. With
`pytest -s -n 0`, the test prints the medians.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import pytest

from mcp_django.models.tokens import TOKEN_PREFIX
from tests.kit import databases
from tests.kit.drivers import headers_for, message
from tests.kit.processes import HOST, serving
from tests.transports.hidden_site import ABSENT, HIDDEN, SECRET

pytestmark = pytest.mark.outside

SETTINGS = "tests.transports.hidden_settings"
PAIRS, WARMING = 200, 20
RESAMPLES = 2000
# How many resamples are left out at each end: one failure in 500 is due to chance.
EXTREME = 2
# A relative difference below this is within the noise of a network, even if it is significant.
SMALL = 0.05
CALLERS = {"anonymous": ("public", None), "member": ("members", f"Bearer {TOKEN_PREFIX}{SECRET}")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The servers with hidden tools, in a process of their own."""
    directory: Path = tmp_path_factory.mktemp("server")
    app = "tests.transports.hidden_site:application"
    with databases.shared("sqlite", directory) as shared:
        environ = {"MCP_TEST_DATABASE": shared["MCP_TEST_DATABASE"]}
        databases.run(
            {**environ, "DJANGO_SETTINGS_MODULE": SETTINGS}, "tests.transports.hidden_site"
        )
        with serving("uvicorn", app, directory, settings=SETTINGS, **environ) as running:
            yield running


class Stopwatch:
    """Calls tools on one connection, and measures how long each call takes."""

    def __init__(self, connection: HTTPConnection, path: str, authorization: str | None) -> None:
        self._connection = connection
        self._path = path
        self._authorization = authorization

    def time(self, tool: str) -> float:
        """Call a tool that is refused; return the seconds until the whole answer is there."""
        body = message("tools/call", {"name": tool, "arguments": {"a": 1}})
        headers = headers_for(body, host=None, authorization=self._authorization)
        raw = json.dumps(body).encode()
        started = time.perf_counter()
        self._connection.request("POST", self._path, raw, headers)
        answer = self._connection.getresponse().read()
        took = time.perf_counter() - started
        assert b"No tool named" in answer, answer
        return took


def differences(samples: Sequence[tuple[float, float]]) -> list[float]:
    """Return the differences of the medians in resamples of the pairs, sorted (bootstrap)."""
    chosen = random.Random(0)
    deltas = []
    for _ in range(RESAMPLES):
        first, second = zip(*chosen.choices(samples, k=len(samples)), strict=True)
        deltas.append(median(first) - median(second))
    return sorted(deltas)


@pytest.mark.parametrize("tool", ["hidden_now", "hidden_later"])
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("mount", ["raw", "lane"])
def test_a_hidden_tool_takes_as_long_as_an_absent_one(server, mount, caller, tool, capsys):
    (name,) = (candidate for candidate in HIDDEN if candidate.startswith(tool))
    place, authorization = CALLERS[caller]
    path = f"/raw/{place}/mcp" if mount == "raw" else f"/{place}/mcp"
    samples: list[tuple[float, float]] = []
    with closing(HTTPConnection(HOST, server.port, timeout=60)) as connection:
        stopwatch = Stopwatch(connection, path, authorization)
        for number in range(WARMING + PAIRS):
            # Each tool is first as often as the other.
            if number % 2:
                absent, hidden = stopwatch.time(ABSENT), stopwatch.time(name)
            else:
                hidden, absent = stopwatch.time(name), stopwatch.time(ABSENT)
            if number >= WARMING:
                samples.append((hidden, absent))
    hidden, absent = (median(times) for times in zip(*samples, strict=True))
    resampled = differences(samples)
    low, high = resampled[EXTREME], resampled[-EXTREME - 1]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{mount}, {caller}, {tool}: hidden {hidden * 1e3:.3f} ms, "
            f"absent {absent * 1e3:.3f} ms, difference {low * 1e6:.0f} to {high * 1e6:.0f} µs"
        )
    assert low <= 0 <= high or abs(hidden - absent) < SMALL * absent
