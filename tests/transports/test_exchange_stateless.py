"""Each request stands for itself: nothing is remembered from one to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_django.protocol import envelope
from tests.kit.drivers import headers_for, message, send
from tests.kit.processes import serving
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask
from tests.transports.stage import gates

PATH = "/stage/mcp"
ALIAS = {envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"}
DISCOVER = message("server/discover")


@spec("VER-2")
async def test_nothing_is_taken_from_an_earlier_request(mount, token):
    whoami = {"name": "whoami", "arguments": {}}
    tester = {envelope.CLIENT_INFO: {"name": "tester", "version": "1"}}
    seen = [
        (await ask(mount, "/mcp", message("tools/call", whoami, **extra), authorization=token))
        for extra in ({**tester, **ALIAS}, {})
    ]
    first, second = (answer.json()["result"]["structuredContent"] for answer in seen)
    assert (first["client"], first["protocol_version"]) == (
        "tester",
        ALIAS[envelope.PROTOCOL_VERSION],
    )
    assert (second["client"], second["protocol_version"]) == (None, "2026-07-28")


@spec("VER-2", "LOG-4")
@pytest.mark.outside
async def test_a_log_level_is_good_for_one_request(app, gate):
    gates[gate].opened.set()
    walk = {"name": "walk", "arguments": {"gate": gate}}
    loud = await send(app, PATH, message("tools/call", walk, **{envelope.LOG_LEVEL: "debug"}))
    quiet = await send(app, PATH, message("tools/call", walk))
    assert len(loud.messages()) == 2
    assert len(quiet.messages()) == 1


@spec("VER-2")
async def test_capabilities_are_good_for_one_request(app):
    wanted = {"notifications": {"taskIds": ["1"], "toolsListChanged": "no"}}
    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    declared = message("subscriptions/listen", wanted, **{envelope.CLIENT_CAPABILITIES: tasks})
    assert (await send(app, PATH, declared)).status == 200
    wanted["notifications"].pop("toolsListChanged")
    assert (await send(app, PATH, message("subscriptions/listen", wanted))).status == 400


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The stage in another process."""
    directory: Path = tmp_path_factory.mktemp("server")
    app, settings = "tests.transports.asgi:application", "tests.transports.settings"
    with serving("uvicorn", app, directory, settings=settings) as server:
        yield f"{server.url}{PATH}"


def post(client: httpx.Client, url: str, body: dict[str, Any]) -> httpx.Response:
    return client.post(url, json=body, headers=headers_for(body, host=None))


@spec("VER-20", "SES-9", "TOOL-4", "RSC-9")
@pytest.mark.outside
async def test_a_list_begun_in_one_process_goes_on_in_another(url, monkeypatch):
    # A page of this process has one tool, whatever its size.
    monkeypatch.setattr("mcp_django.execution.handlers.listing.max_page_bytes", lambda: 1)
    first = (await send(MOUNTS["raw"], PATH, message("tools/list"))).json()["result"]
    go_on = message("tools/list", {"cursor": first["nextCursor"]})
    with httpx.Client(timeout=60) as client, httpx.Client(timeout=10) as other:
        rest = post(client, url, go_on).json()["result"]
        whole = post(other, url, message("tools/list")).json()["result"]
    assert len(first["tools"]) == 1
    assert first["tools"] + rest["tools"] == whole["tools"]


@spec("VER-2", "VER-20", "RPC-4", "SES-9")
@pytest.mark.outside
def test_one_connection_carries_many_conversations(url):
    used = set()
    with httpx.Client(timeout=60) as client:
        for _ in range(2):
            draft = post(client, url, message("server/discover", **ALIAS))
            dated = post(client, url, DISCOVER)
            wrong = post(client, url, message("tools/call", {"name": "nothing"}))
            assert "serverInfo" in draft.json()["result"]
            assert "serverInfo" not in dated.json()["result"]
            assert wrong.json()["error"]["code"] == -32602
            for response in (draft, dated, wrong):
                assert "mcp-session-id" not in response.headers
                stream = response.extensions["network_stream"]
                used.add(stream.get_extra_info("client_addr"))
    assert len(used) == 1
