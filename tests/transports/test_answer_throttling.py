"""The answers to a client over a rate limit: on every mount, at every revision, in batches."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.auth import limits
from mcp_django.protocol.errors import INVALID_PARAMS, RATE_LIMITED
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session import legacy
from tests.transports.http_session.handshakes import (
    STAGE,
    VERSIONS,
    B,
    call,
    encoded,
    initialize,
    opened,
    request,
)
from tests.transports.mounts import ask, wsgi
from tests.transports.stage import gates
from tests.transports.stdio_process import stdio

START = 1_800_000_000.0
TOLD = "The limit of {} on the server 'stage' is reached; call again in 3590 seconds."
ERROR = {
    "code": RATE_LIMITED,
    "message": TOLD.format("1/h"),
    "data": {"retryAfter": 3590},
}
ECHO = {"name": "open_gate", "arguments": {"name": "wire"}}


@pytest.fixture(autouse=True)
def _clock(monkeypatch, settings):
    """Set the clock to ten seconds into an hour, and the limit to one use per hour."""
    fake = SimpleNamespace(time=lambda: START + 10, monotonic=lambda: 0.0)
    monkeypatch.setattr(limits, "time", fake)
    settings.MCP_DJANGO = {"RATE": "1/h"}


@spec("TOOL-11")
@pytest.mark.django_db(transaction=True)
async def test_one_too_many_is_429_with_an_error_that_says_how_long(mount):
    first = await ask(mount, STAGE, message("tools/call", ECHO))
    assert first.status == 200
    answer = await ask(mount, STAGE, message("tools/call", ECHO, id="late"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "3590")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"jsonrpc": "2.0", "id": "late", "error": ERROR}


@spec("TOOL-11")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_is_told_the_same(mount, version):
    peer = await opened(mount, STAGE, version=version)
    assert (await peer.send(call("open_gate", name="wire"))).status == 200
    # The stream that the client asked for is not opened for the error.
    answer = await peer.send(call("open_gate", id=9, progress="p", name="wire"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "3590")
    assert answer.json() == {"jsonrpc": "2.0", "id": 9, "error": ERROR}
    # Only uses of components are limited.
    assert (await peer.send(request("tools/list"))).status == 200


@pytest.mark.django_db(transaction=True)
async def test_a_model_may_be_told_instead(mount, settings):
    settings.MCP_DJANGO = {"RATE": "1/h", "THROTTLE_AS": "result"}
    assert (await ask(mount, STAGE, message("tools/call", ECHO))).status == 200
    answer = await ask(mount, STAGE, message("tools/call", ECHO))
    assert answer.status == 200
    result = answer.json()["result"]
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": TOLD.format("1/h")}]


# Batches --------------------------------------------------------------------------------------


def batch(*names: str) -> list[dict[str, Any]]:
    calls = [call("open_gate", id=n, name=name) for n, name in enumerate(names)]
    return [*calls, request("ping", id="ping")]


@spec("BAT-7", "TOOL-11")
@pytest.mark.django_db(transaction=True)
async def test_of_a_batch_that_is_over_the_limit_nothing_runs(mount, settings, gate):
    settings.MCP_DJANGO = {"RATE": "2/h"}
    peer = await opened(mount, STAGE, version=B)
    refused = await peer.send(batch(gate, gate, gate))
    assert (refused.status, refused.headers["retry-after"]) == (429, "3590")
    entries = refused.json()
    assert [response["id"] for response in entries] == [0, 1, 2, "ping"]
    assert {json.dumps(response["error"]) for response in entries} == {
        json.dumps({**ERROR, "message": TOLD.format("2/h")})
    }
    assert gate not in gates
    # The rejected batch was not counted, either.
    assert (await peer.send(batch(gate, gate))).status == 200
    assert gates[gate].opened.is_set()
    assert (await peer.send(batch(gate))).status == 429


@pytest.mark.django_db(transaction=True)
async def test_the_tools_of_a_batch_may_be_told_in_band(mount, settings):
    settings.MCP_DJANGO = {"RATE": "1/h", "THROTTLE_AS": "result"}
    peer = await opened(mount, STAGE, version=B)
    answer = await peer.send(batch("wire", "wire"))
    assert answer.status == 200
    first, second, ping = answer.json()
    assert first["result"]["isError"] is second["result"]["isError"] is True
    assert ping["error"] == ERROR


@spec("BAT-3")
@pytest.mark.django_db(transaction=True)
async def test_a_member_with_an_error_of_its_own_keeps_it(mount, settings):
    settings.MCP_DJANGO = {"RATE": "1/h", "THROTTLE_AS": "result"}
    peer = await opened(mount, STAGE, version=B)
    wrong = call("open_gate", id="wrong", name="wire")
    wrong["params"]["_meta"] = {"progressToken": [1]}
    answer = await peer.send([*batch("wire", "wire"), call("unknown", id="none"), wrong])
    assert answer.status == 200
    first, second, ping, unknown, failed = answer.json()
    assert first["result"]["isError"] is second["result"]["isError"] is True
    assert ping["error"] == ERROR
    assert unknown["error"]["code"] == failed["error"]["code"] == INVALID_PARAMS
    assert (unknown["id"], failed["id"]) == ("none", "wrong")


# Without HTTP ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mount", MOUNTS)
async def test_http_sse_says_it_on_its_stream(mount):
    async with legacy.opened(MOUNTS[mount], f"{STAGE}/sse") as stream:
        await stream.ask(initialize("2024-11-05"))
        assert "result" in await stream.ask(call("open_gate", id=1, name="wire"))
        answer = await stream.ask(call("open_gate", id=2, name="wire"))
        assert answer == {"jsonrpc": "2.0", "id": 2, "error": ERROR}


@pytest.mark.outside
def test_stdio_says_it_in_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("MCP_TEST_RATE", "2/30d")
    with stdio(tmp_path, "--server", "noisy") as process:
        process.send(initialize(B))
        assert "result" in process.response()
        repeat = {"text": "a", "times": 1}
        process.write(encoded([call("repeat", id=n, **repeat) for n in range(3)]) + b"\n")
        refused: Any = process.line()
        assert [response["error"]["code"] for response in refused] == [RATE_LIMITED] * 3
        assert refused[0]["error"]["data"].keys() == {"retryAfter"}
        process.write(encoded([call("repeat", id=n, **repeat) for n in range(2)]) + b"\n")
        served: Any = process.line()
        assert [{*response} for response in served] == [{"jsonrpc", "id", "result"}] * 2, served
        process.send(message("tools/call", {"name": "repeat", "arguments": repeat}, id="late"))
        late = process.response()
        assert (late["id"], late["error"]["code"]) == ("late", RATE_LIMITED)


# Whose address --------------------------------------------------------------------------------


def status_for(address: str) -> int:
    """Return the status for a caller whose address a proxy reports."""
    body = message("tools/call", ECHO)
    return wsgi(STAGE, body, x_forwarded_for=address).status


@pytest.mark.django_db
def test_anonymous_callers_are_counted_by_their_address(settings):
    settings.MCP_DJANGO = {"RATE": "1/h", "PROXIES": 1}
    assert [status_for("203.0.113.1"), status_for("203.0.113.1")] == [200, 429]
    assert status_for("203.0.113.2") == 200


@pytest.mark.django_db
def test_anonymous_callers_whose_address_nobody_knows_share_one_count():
    """Behind a proxy that PROXIES does not count; any client can claim to be behind a proxy."""
    assert [status_for("203.0.113.1"), status_for("203.0.113.2")] == [200, 429]
