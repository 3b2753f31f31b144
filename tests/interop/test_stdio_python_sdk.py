"""The official Python client over stdio, at 2026-07-28: it starts the server itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import PromptReference, ResourceTemplateReference

from tests.interop.demo_site import DemoServer
from tests.interop.sdk import DECLINE, Host, accept, says
from tests.kit.processes import REPOSITORY
from tests.spec import spec

pytestmark = pytest.mark.outside

REVISION = "2026-07-28"
SECONDS = 150
INVALID_PARAMS = -32602
# Minutes of work, unless it is cancelled, with progress from early on.
LONG_SEARCH = {"start": "LHR", "rounds": 5000}
# MCP_DJANGO["THREADS"], which the demo does not set.
WORK_THREADS = 8


@asynccontextmanager
async def started(
    *arguments: str, environ: dict[str, str], script: str = "manage.py", **options: Any
) -> AsyncIterator[Client]:
    """Yield a client of a server that it started; one timeout limits the whole conversation."""
    command = StdioServerParameters(
        command=sys.executable,
        args=[script, *arguments],
        env={**environ, "PYTHONUNBUFFERED": ""},
        cwd=REPOSITORY,
    )
    async with asyncio.timeout(SECONDS), Client(command, **options) as client:
        yield client


@asynccontextmanager
async def at_desk(demo: DemoServer, *arguments: str, **options: Any) -> AsyncIterator[Client]:
    """Yield a client of the demo, which is migrated and loaded already."""
    environ = {"DEMO_VAR": str(demo.var), "DJANGO_SETTINGS_MODULE": "demo_project.settings"}
    async with started("mcp", "stdio", *arguments, environ=environ, **options) as client:
        yield client


@asynccontextmanager
async def asking(host: Host | None = None) -> AsyncIterator[Client]:
    """Yield a client of the site that asks."""
    environ = {"DJANGO_SETTINGS_MODULE": "tests.interop.asking_site.settings"}
    arguments = ("mcp", "stdio", "--server", "asking")
    callbacks = host.callbacks if host else {}
    async with started(*arguments, environ=environ, mode=REVISION, **callbacks) as client:
        yield client


# The demo -----------------------------------------------------------------------------------------


@spec("IO-11", "VER-7", "VER-21")
@pytest.mark.parametrize("mode", ["auto", REVISION])
async def test_client_does_everything(demo_server, mode):
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    template = ResourceTemplateReference(type="ref/resource", uri="airports://{code}")
    prompt = PromptReference(type="ref/prompt", name="diversion_plan")
    async with at_desk(demo_server, "--user", "guest", mode=mode) as client:
        assert client.protocol_version == REVISION
        tools = {tool.name for tool in (await client.list_tools()).tools}
        distance = await client.call_tool(
            "great_circle_distance", {"origin": "JFK", "destination": "LHR"}
        )
        country = await client.call_tool(
            "summarize_country", {"country": "US"}, progress_callback=note
        )
        picture = await client.call_tool("airport_map", {"place": "LHR"})
        (airport,) = (await client.read_resource("airports://VHHH")).contents
        briefing = await client.get_prompt("shift_briefing", {"airport": "ZRH", "shift": "early"})
        codes = await client.complete(template, {"name": "code", "value": "lh"})
        airports = await client.complete(prompt, {"name": "airport", "value": "zrh"})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("publish_notice", {})
    assert {"find_route", "search_airports"} < tools
    assert distance.structured_content["distance_km"] == 5539.6
    assert {total for _, total, _ in heard} == {country.structured_content["airports"]}
    assert all(earlier < later for (earlier, *_), (later, *_) in pairwise(heard))
    assert picture.content[0].mime_type == "image/png"
    assert json.loads(airport.text)["iata"] == "HKG"
    assert "early shift" in briefing.messages[0].content.text
    assert "LHR" in codes.completion.values
    assert airports.completion.values == ["ZRH"]
    assert unknown.value.error.code == INVALID_PARAMS


@spec("IO-9")
async def test_client_is_who_the_environment_says(demo_server):
    environ = {
        "DEMO_VAR": str(demo_server.var),
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "MCP_DJANGO_TOKEN": demo_server.staff_token,
    }
    async with started("mcp", "stdio", "--server", "staff", environ=environ) as client:
        assert "publish_notice" in {tool.name for tool in (await client.list_tools()).tools}


@spec("IO-9")
@pytest.mark.parametrize("mode", ["auto", REVISION])
async def test_client_that_says_nothing_is_told_what_to_say(demo_server, mode):
    with pytest.RaisesGroup(
        pytest.RaisesExc(MCPError, match="--user USERNAME"), flatten_subgroups=True
    ):
        async with at_desk(demo_server, mode=mode) as client:
            await client.list_tools()


@spec("CAN-1", "CAN-9", "IO-5")
async def test_client_that_cancels_long_calls_frees_their_threads(demo_server):
    async with at_desk(demo_server, "--user", "guest") as client:
        begun = [asyncio.Event() for _ in range(WORK_THREADS)]

        async def search(event: asyncio.Event) -> None:
            async def note(*_: Any) -> None:
                event.set()

            try:
                await client.call_tool("grand_tour", LONG_SEARCH, progress_callback=note)
            finally:
                event.set()

        searches = [asyncio.create_task(search(event)) for event in begun]
        # When the last search has reported, every thread that runs tools has one of them.
        await asyncio.gather(*(event.wait() for event in begun))
        for task in searches:
            task.cancel()
        outcomes = await asyncio.gather(*searches, return_exceptions=True)
        # If eight threads share a slow core, one may reach the limit of its query first.
        assert asyncio.CancelledError in {type(outcome) for outcome in outcomes}
        result = await client.call_tool(
            "great_circle_distance", {"origin": "JFK", "destination": "LHR"}
        )
    assert result.structured_content["distance_km"] == 5539.6


@spec("IO-7", "SUB-7", "SUB-8", "SUB-14")
async def test_client_listens_and_works_on_one_channel(demo_server):
    host = Host([accept(confirmed=True)])
    uri = "notices://EKCH"
    async with at_desk(
        demo_server, "--server", "staff", "--user", "desk", mode=REVISION, **host.callbacks
    ) as client:
        async with (
            client.listen(resource_subscriptions=[uri]) as changes,
            client.listen(tools_list_changed=True) as others,
        ):
            assert changes.honored.resource_subscriptions == [uri]
            assert others.honored.tools_list_changed is True
            published = await client.call_tool(
                "publish_notice", {"airport": "CPH", "title": "Ice", "text": "Brakes are poor."}
            )
            assert await anext(changes) == ResourceUpdated(uri=uri)
            number = published.structured_content["number"]
            await client.call_tool("close_notice", {"number": number})
            assert await anext(changes) == ResourceUpdated(uri=uri)
        async with client.listen(resource_subscriptions=[uri]) as changes:
            assert changes.honored.resource_subscriptions == [uri]


# Runs `manage.py`, and sends it SIGTERM as a process manager does, when the gate is closed.
STOPPED = """
import os, runpy, signal, sys, threading

def stop():
    open(gate).read()
    os.kill(os.getpid(), signal.SIGTERM)

gate = sys.argv.pop(1)
threading.Thread(target=stop, daemon=True).start()
runpy.run_path("manage.py", run_name="__main__")
"""


@spec("SUB-12", "SUB-13")
async def test_client_takes_the_leave_of_a_stopping_server_for_what_it_is(tmp_path, demo_server):
    script, gate = tmp_path / "stopped.py", tmp_path / "gate"
    script.write_text(STOPPED)
    os.mkfifo(gate)
    # Opened for reading and writing, so that neither side waits for the other.
    closing = os.open(gate, os.O_RDWR)
    environ = {
        "DEMO_VAR": str(demo_server.var),
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "PYTHONPATH": str(REPOSITORY),
    }
    arguments = [str(gate), "mcp", "stdio", "--user", "guest"]
    async with (
        started(*arguments, script=str(script), environ=environ, mode=REVISION) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        os.close(closing)
        # A graceful end only ends the iteration; any other one raises.
        assert [event async for event in changes] == []


# The site that asks -------------------------------------------------------------------------------


@spec("IO-3", "ASK-9", "MRT-1")
async def test_user_fills_in_a_form():
    host = Host([accept(confirmed=True, reason="late"), DECLINE])
    async with asking(host) as client:
        done = await client.call_tool("refund", {"order": 7})
        declined = await client.call_tool("refund", {"order": 8})
    assert done.content[0].text == "7: refunded, late"
    assert host.messages == ["Refund order 7?", "Refund order 8?"]
    assert declined.is_error


@spec("IO-3", "MRT-1")
async def test_model_of_the_client_is_asked():
    host = Host(samples=[says("Short.")])
    async with asking(host) as client:
        result = await client.call_tool("summarize", {"text": "Long."})
    assert result.structured_content == {"text": "Short.", "model": "small", "stop": "endTurn"}


@spec("IO-3", "IO-8", "MRT-1")
async def test_one_thing_is_asked_after_the_other():
    host = Host([accept(value="Ada"), accept(value="metric")], samples=[says("Welcome")])
    async with asking(host) as client:
        result = await client.call_tool("onboard", {})
    assert result.content[0].text == "Welcome Ada, metric, Papers"


@spec("PRG-3", "LOG-4")
@pytest.mark.parametrize("tool", ["pack", "pack_later"])
async def test_progress_is_heard_once_in_all_rounds(tool):
    heard: list[float] = []

    async def note(progress: float, *_: Any) -> None:
        heard.append(progress)

    async with asking(Host([accept(value="large")])) as client:
        result = await client.call_tool(tool, {}, progress_callback=note)
    assert result.content[0].text == "packed the large box"
    assert heard == [1, 2, 3, 4]


@spec("MRT-1")
async def test_client_that_cannot_be_asked_is_told_so():
    async with asking() as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("refund", {"order": 7})
    assert caught.value.error.code == -32021
