"""The official Python client and the demo agree on 2026-07-28."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.demo_site import DemoServer


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def test_client_finds_out_what_it_talks_to(demo_server: DemoServer) -> None:
    async with connected(demo_server.url, demo_server.token) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info.title == "Airport operations desk"
        assert client.instructions is not None
        assert "28 000 airports" in client.instructions


async def test_client_accepts_structured_results_against_their_schemas(
    demo_server: DemoServer,
) -> None:
    async with connected(demo_server.url, demo_server.token) as client:
        assert "nearest_airports" in [tool.name for tool in (await client.list_tools()).tools]
        nearest = await client.call_tool("nearest_airports", {"latitude": 1, "longitude": 2})
        assert len(nearest.structured_content) == 5
        summary = await client.call_tool("summarize_country", {"country": "FJ"})
        assert summary.structured_content["name"] == "Fiji"


async def test_client_hears_progress_before_the_route(demo_server: DemoServer) -> None:
    heard: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with connected(demo_server.url, demo_server.token) as client:
        route = await client.call_tool(
            "find_route",
            {"origin": "JFK", "destination": "NZSP", "max_leg_km": 3000},
            progress_callback=note,
        )
    assert len(route.structured_content["legs"]) == 6
    assert len(heard) == 5
    assert heard == sorted(heard)


async def test_client_reads_a_refused_argument_as_an_answer(demo_server: DemoServer) -> None:
    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.call_tool("nearest_airports", {"latitude": 100, "longitude": 0})
    assert result.is_error
    assert result.content[0].text == "latitude: must be at most 90 (got 100)"


async def test_client_reads_what_staff_published(demo_server: DemoServer) -> None:
    async with (
        connected(demo_server.staff_url, demo_server.staff_token) as staff,
        connected(demo_server.url, demo_server.token) as guest,
    ):
        await staff.call_tool(
            "publish_notice", {"airport": "CDG", "title": "Strike", "text": "Expect delays."}
        )
        notices = await guest.read_resource("notices://LFPG")
        assert '"title": "Strike"' in notices.contents[0].text
        map_of_fiji = await guest.call_tool("airport_map", {"place": "FJ"})
        assert map_of_fiji.content[0].type == "image"


async def test_client_gets_prompts_and_completions(demo_server: DemoServer) -> None:
    async with connected(demo_server.url, demo_server.token) as client:
        prompt = await client.get_prompt("diversion_plan", {"airport": "LHR"})
        assert "the runway is closed" in prompt.messages[0].content.text
        names = [one.name for one in (await client.list_prompts()).prompts]
        assert names == ["diversion_plan", "shift_briefing"]
