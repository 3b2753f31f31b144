"""Events arrive one by one and uncompressed through a real server and the middleware of a site.

The tests use sockets, because they test what servers and client libraries do with the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_django.protocol import envelope, sse
from tests.kit.drivers import headers_for, message
from tests.kit.processes import Server, serving
from tests.spec import spec

pytestmark = pytest.mark.outside

APPS = ("view", "lane", "raw", "consumer")
TARGETS = {
    "view": "plain",
    "lane": "application",
    "raw": "raw",
    "consumer": "consumer",
}


@pytest.fixture(scope="module", params=APPS)
def server(request, tmp_path_factory):
    directory: Path = tmp_path_factory.mktemp("server")
    with serving(
        "uvicorn",
        f"tests.transports.asgi:{TARGETS[request.param]}",
        directory,
        settings="tests.transports.middleware_settings",
    ) as running:
        yield running


def call(name: str, arguments: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": arguments}, **extra)


def post(client: httpx.Client, server: Server, body: dict[str, Any]) -> Any:
    return client.stream(
        "POST", f"{server.url}/stage/mcp", json=body, headers=headers_for(body, host=None)
    )


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    decoder = sse.EventDecoder()
    for part in response.iter_bytes():
        for event in decoder.feed(part):
            yield json.loads(event.data)


@spec("HTTP-5", "HTTP-6", "HTTP-7", "HTTP-33", "PRG-3")
@pytest.mark.parametrize("tool", ["walk", "walk_later"])
def test_events_arrive_before_the_tool_ends(server, tool):
    body = call(tool, {"gate": tool}, **{envelope.PROGRESS_TOKEN: 7, envelope.LOG_LEVEL: "debug"})
    opening = call("open_gate", {"name": tool}, id=2)
    with httpx.Client(timeout=60) as client, post(client, server, body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers
        assert "content-length" not in response.headers
        assert "set-cookie" not in response.headers
        received = events(response)
        first, logged = next(received), next(received)
        assert first["params"] == {
            "progressToken": 7,
            "progress": 1,
            "total": 2,
            "message": "before",
        }
        assert logged["params"] == {"level": "warning", "data": "at the gate"}
        # Only now may the tool go on: the messages read so far were sent while it ran.
        with httpx.Client(timeout=60) as other, post(other, server, opening) as opened:
            opened.read()
            assert opened.status_code == 200
        second, answer = list(received)
    assert second["params"]["progress"] == 2
    assert answer["id"] == 1
    assert answer["result"]["content"] == [{"type": "text", "text": "walked"}]
    assert "Traceback" not in server.output


def test_a_document_is_readable_behind_compressing_middleware(server):
    body = message("tools/list")
    with httpx.Client(timeout=60) as client, post(client, server, body) as response:
        listed = json.loads(response.read())
    assert "knock" in [tool["name"] for tool in listed["result"]["tools"]]
    assert "set-cookie" not in response.headers


@spec("HTTP-26", "CAN-5")
@pytest.mark.parametrize("tool", ["stay", "stay_later_with_context"])
def test_a_closed_connection_cancels_the_call(server, tool):
    body = call(tool, {"gate": f"left-{tool}"}, **{envelope.PROGRESS_TOKEN: 1})
    with httpx.Client(timeout=60) as client:
        with post(client, server, body) as response:
            # Keep a reference: the connection is closed when the iterator is garbage-collected.
            parts = response.iter_bytes()
            assert next(parts).startswith(b":")
            while text_of(client, server, "knock", f"left-{tool}") != "true":
                pass
        assert text_of(client, server, "outcome", f"left-{tool}") == "cancelled"


def text_of(client: httpx.Client, server: Server, tool: str, name: str) -> str:
    with post(client, server, call(tool, {"name": name})) as response:
        text: str = json.loads(response.read())["result"]["content"][0]["text"]
        return text
