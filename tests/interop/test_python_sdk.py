"""The official Python client against the demo, at 2026-07-28."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import PromptReference, ReadResourceResult, ResourceTemplateReference

from tests.interop.sdk import REVISION, Host, Statuses, accept, connected
from tests.spec import spec

pytestmark = pytest.mark.outside

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
# Every airfield, and short legs between them: seconds of work with progress from early on.
LONG_SEARCH = {"origin": "LHR", "destination": "SYD", "max_leg_km": 900, "stops": "any"}
# Fewer seconds of work, with an answer.
SEARCH = {**LONG_SEARCH, "max_leg_km": 300}
# Half of MCP_DJANGO["THREADS"], which the demo does not set: what one caller may use.
WORK_THREADS = 4


@spec("VER-7")
@pytest.mark.parametrize("options", [{}, {"mode": "auto"}])
async def test_client_discovers_whom_it_talks_to(demo_server, options):
    statuses: Statuses = []
    async with connected(
        demo_server.url, demo_server.token, statuses=statuses, **options
    ) as client:
        assert client.protocol_version == REVISION
        assert client.server_info is not None
        assert client.server_info.title == "Airport operations desk"
        assert "28 000 airports" in (client.instructions or "")
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.prompts is not None
        assert capabilities.completions is not None
        assert capabilities.logging is not None
        assert capabilities.resources is not None
        assert capabilities.resources.subscribe is True
    # One request was enough: no handshake, no session to close.
    assert statuses == [(200, None)]


@spec("SES-9")
async def test_client_that_pins_the_revision_needs_no_introduction(demo_server):
    statuses: Statuses = []
    async with connected(
        demo_server.url, demo_server.token, mode=REVISION, statuses=statuses
    ) as client:
        result = await client.call_tool("search_airports", {"query": "Heathrow", "country": "GB"})
        assert "EGLL" in [airport["icao"] for airport in result.structured_content]
    # The call, and the list whose schema the client checks its result with.
    assert statuses == [(200, None), (200, None)]


@spec("TOOL-2", "PAG-1", "PAG-2")
async def test_client_lists_all_pages(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        tools = await every_page(client.list_tools, "tools")
        resources = await every_page(client.list_resources, "resources")
        templates = await every_page(client.list_resource_templates, "resource_templates")
        prompts = await every_page(client.list_prompts, "prompts")
    assert {
        "airport_map",
        "find_route",
        "great_circle_distance",
        "nearest_airports",
        "search_airports",
        "summarize_country",
    } < {tool.name for tool in tools}
    assert all(tool.description for tool in tools)
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert "airports://about" in {resource.uri for resource in resources}
    assert {"airports://{code}", "airports://countries/{country}", "notices://{code}"} <= {
        template.uri_template for template in templates
    }
    arguments = {prompt.name: prompt.arguments for prompt in prompts}
    assert [
        (argument.name, bool(argument.required)) for argument in arguments["diversion_plan"]
    ] == [
        ("airport", True),
        ("reason", False),
    ]


@spec("OUT-1", "OUT-2")
async def test_client_accepts_structured_output_against_the_listed_schema(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["great_circle_distance"].output_schema["type"] == "object"
        result = await client.call_tool(
            "great_circle_distance", {"origin": "JFK", "destination": "LHR"}
        )
    assert not result.is_error
    assert result.structured_content["destination"] == "EGLL"
    (block,) = result.content
    assert json.loads(block.text) == result.structured_content


@spec("PRG-1", "PRG-2", "PRG-3")
async def test_client_hears_progress_of_an_async_tool(demo_server):
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.call_tool(
            "summarize_country", {"country": "US"}, progress_callback=note
        )
    airports = result.structured_content["airports"]
    assert heard
    assert {total for _, total, _ in heard} == {airports}
    assert all(earlier < later for (earlier, *_), (later, *_) in pairwise(heard))
    assert heard[0][2] == f"{heard[0][0]:.0f} of {airports} airports"


@spec("TOOL-13")
async def test_client_receives_an_image(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.call_tool("airport_map", {"place": "LHR"})
    (block,) = result.content
    assert (block.type, block.mime_type) == ("image", "image/png")
    assert base64.b64decode(block.data, validate=True).startswith(b"\x89PNG\r\n")


@spec("TOOL-10", "OUT-9")
async def test_client_reads_a_failed_search_as_an_answer(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.call_tool(
            "find_route", {"origin": "JFK", "destination": "NZSP", "max_leg_km": 500}
        )
    assert result.is_error
    assert result.content[0].text.startswith("No route from KJFK to NZSP has legs of at most 500")
    assert result.structured_content is None


@spec("TOOL-8", "TOOL-9")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"latitude": 91, "longitude": 0}, "latitude: must be at most 90 (got 91)"),
        ({"latitude": "north", "longitude": 0}, "latitude: "),
        ({"latitude": 0}, "longitude: "),
    ],
)
async def test_client_reads_refused_arguments_as_an_answer(demo_server, arguments, complaint):
    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.call_tool("nearest_airports", arguments)
    assert result.is_error
    assert result.content[0].text.startswith(complaint)


@spec("TOOL-6", "HTTP-25")
async def test_client_raises_for_a_tool_of_the_other_server(demo_server):
    statuses: Statuses = []
    async with connected(demo_server.url, demo_server.token, statuses=statuses) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("publish_notice", {})
    assert caught.value.error.code == INVALID_PARAMS
    assert {status for status, _ in statuses} == {200}


@spec("RSC-2", "RSC-7")
async def test_client_reads_a_resource_and_one_of_a_template(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        (about,) = (await client.read_resource("airports://about")).contents
        (country,) = (await client.read_resource("airports://countries/NZ")).contents
    assert (about.uri, about.mime_type) == ("airports://about", "text/markdown")
    assert about.text.startswith("# Airports")
    assert (country.uri, country.mime_type) == ("airports://countries/NZ", "application/json")
    assert "AKL" in json.loads(country.text)["iata_codes"]


@spec("RSC-4")
async def test_client_raises_for_a_resource_that_is_not_there(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("airports://QQQ")
    assert (caught.value.error.code, caught.value.error.data) == (
        INVALID_PARAMS,
        {"uri": "airports://QQQ"},
    )


@spec("CCH-1", "RSC-11")
async def test_client_keeps_reference_data_and_asks_again_for_notices(demo_server):
    statuses: Statuses = []
    async with connected(
        demo_server.url, demo_server.token, mode=REVISION, statuses=statuses
    ) as client:
        first = await client.read_resource("airports://VHHH")
        assert await client.read_resource("airports://VHHH") == first
        assert len(statuses) == 1
        await client.read_resource("notices://VHHH")
        await client.read_resource("notices://VHHH")
        assert len(statuses) == 3


@spec("PRM-2")
async def test_client_gets_a_prompt_with_an_embedded_resource(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        result = await client.get_prompt("shift_briefing", {"airport": "ZRH", "shift": "early"})
    ask, attached = (message.content for message in result.messages)
    assert "early shift" in ask.text
    assert attached.resource.uri == "notices://LSZH"
    assert json.loads(attached.resource.text)["airport"] == "LSZH"


@spec("PRM-3")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("lullaby", {}),
        ("shift_briefing", {"airport": "ZRH"}),
        ("shift_briefing", {"airport": "ZRH", "shift": "lunch"}),
    ],
)
async def test_client_raises_for_a_prompt_that_cannot_be_had(demo_server, name, arguments):
    async with connected(demo_server.url, demo_server.token) as client:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)
    assert caught.value.error.code == INVALID_PARAMS


@spec("CMP-2", "CMP-6")
async def test_client_completes_arguments_of_templates_and_prompts(demo_server):
    template = ResourceTemplateReference(type="ref/resource", uri="airports://{code}")
    prompt = PromptReference(type="ref/prompt", name="diversion_plan")
    async with connected(demo_server.url, demo_server.token) as client:
        codes = await client.complete(template, {"name": "code", "value": "lh"})
        airports = await client.complete(prompt, {"name": "airport", "value": "zrh"})
        reasons = await client.complete(prompt, {"name": "reason", "value": "fo"})
    assert "LHR" in codes.completion.values
    assert airports.completion.values == ["ZRH"]
    assert reasons.completion.values == []


@spec("LOG-4")
async def test_client_that_names_a_log_level_is_served_with_it(demo_server):
    logged: list[Any] = []

    async def note(params: Any) -> None:
        logged.append(params)

    async with connected(
        demo_server.url, demo_server.token, log_level="emergency", logging_callback=note
    ) as client:
        result = await client.call_tool("nearest_airports", {"latitude": 0, "longitude": 0})
    assert not result.is_error
    assert logged == []


@spec("LOG-6")
async def test_client_cannot_set_a_log_level_for_later(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        with pytest.warns(MCPDeprecationWarning), pytest.raises(MCPError) as caught:
            await client.set_logging_level("debug")
    assert caught.value.error.code == METHOD_NOT_FOUND


@spec("SUB-7", "SUB-8", "SUB-11")
async def test_listening_client_hears_what_another_one_changed(demo_server):
    host = Host([accept(confirmed=True)])
    async with (
        connected(demo_server.url, demo_server.token) as guest,
        connected(demo_server.staff_url, demo_server.staff_token, **host.callbacks) as desk,
        guest.listen(resource_subscriptions=["notices://ENGM"]) as changes,
    ):
        assert changes.honored.resource_subscriptions == ["notices://ENGM"]
        before = await guest.read_resource("notices://ENGM")
        published = await desk.call_tool(
            "publish_notice", {"airport": "OSL", "title": "Ice", "text": "Brakes are poor."}
        )
        assert await anext(changes) == ResourceUpdated(uri="notices://ENGM")
        after = await guest.read_resource("notices://ENGM")
        closed = await desk.call_tool(
            "close_notice", {"number": published.structured_content["number"]}
        )
        assert await anext(changes) == ResourceUpdated(uri="notices://ENGM")
    assert numbers(before) == []
    number = published.structured_content["number"]
    assert numbers(after) == [number]
    assert closed.structured_content["closed_at"] is not None
    assert host.messages == [f'Close notice {number}, "ENGM: Ice", permanently?']


@spec("SUB-14")
async def test_client_listens_again_after_it_stopped(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        for _ in range(3):
            async with client.listen(tools_list_changed=True) as changes:
                assert changes.honored.tools_list_changed is True
                assert (await client.list_tools()).tools


@spec("AUT-1", "AUT-3")
@pytest.mark.parametrize("mode", ["auto", REVISION])
@pytest.mark.parametrize(
    ("token", "challenge"),
    [(None, r"Bearer(?!.*error=)"), ("mcp_wrong", r'Bearer .*error="invalid_token"')],
)
async def test_client_without_a_token_is_turned_away(demo_server, mode, token, challenge):
    statuses: Statuses = []
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True):
        async with connected(demo_server.url, token, mode=mode, statuses=statuses) as client:
            await client.list_tools()
    assert statuses
    for status, header in statuses:
        assert status == 401
        assert re.match(challenge, header or "")


async def test_client_of_a_guest_is_turned_away_by_staff(demo_server):
    statuses: Statuses = []
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True):
        async with connected(demo_server.staff_url, demo_server.token, statuses=statuses):
            pass
    assert {status for status, _ in statuses} == {403}


async def test_client_is_served_while_another_one_waits(demo_server):
    begun = asyncio.Event()

    async def note(*_: Any) -> None:
        begun.set()

    async with (
        connected(demo_server.url, demo_server.token) as slow,
        connected(demo_server.url, demo_server.token) as quick,
    ):
        route = asyncio.create_task(slow.call_tool("find_route", SEARCH, progress_callback=note))
        # The search has begun and has further to go.
        await begun.wait()
        assert await distance(quick) == 5539.6
        assert not route.done()
        result = await route
    assert result.structured_content["stops"][-1]["icao"] == "YSSY"


async def distance(client: Client) -> float:
    result = await client.call_tool(
        "great_circle_distance", {"origin": "JFK", "destination": "LHR"}
    )
    return result.structured_content["distance_km"]


@spec("CAN-5", "CAN-9", "HTTP-26")
async def test_client_that_leaves_long_calls_frees_their_threads(demo_server):
    async with connected(demo_server.url, demo_server.token) as client:
        begun = [asyncio.Event() for _ in range(WORK_THREADS)]

        async def search(event: asyncio.Event) -> None:
            async def note(*_: Any) -> None:
                event.set()

            await client.call_tool("find_route", LONG_SEARCH, progress_callback=note)

        searches = [asyncio.create_task(search(event)) for event in begun]
        # When the last search has reported, every thread that runs tools has one of them.
        await asyncio.gather(*(event.wait() for event in begun))
        for task in searches:
            task.cancel()
        outcomes = await asyncio.gather(*searches, return_exceptions=True)
        # On a slow machine, one search may have ended before the last began.
        assert asyncio.CancelledError in {type(outcome) for outcome in outcomes}
        assert await distance(client) == 5539.6


def numbers(notices: ReadResourceResult) -> list[int]:
    (contents,) = notices.contents
    return [notice["number"] for notice in json.loads(contents.text)["notices"]]


async def every_page(list_page: Any, member: str) -> list[Any]:
    """Return the entries of a list, page by page until there is no next cursor."""
    page = await list_page()
    components = list(getattr(page, member))
    while page.next_cursor is not None:
        page = await list_page(cursor=page.next_cursor)
        components += getattr(page, member)
    return components
