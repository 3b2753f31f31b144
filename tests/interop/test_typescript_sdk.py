"""The official TypeScript client against the demo, at 2026-07-28.

`typescript/client.mjs` does everything once, in Node; each test checks a part of what it saw.
"""

import base64
import json
from itertools import pairwise

import pytest

from tests.interop import node
from tests.spec import spec

REVISION = "2026-07-28"
INVALID_PARAMS = -32602

pytestmark = [
    pytest.mark.requires("node", "npm"),
    # The first test waits for the installation, the demo and the script.
    pytest.mark.timeout(node.INSTALL_SECONDS + 2 * node.SCRIPT_SECONDS),
]


@pytest.fixture(scope="session")
def seen(installed, demo_server):
    """Return what the script printed."""
    demo = {
        "url": demo_server.url,
        "token": demo_server.token,
        "staff_url": demo_server.staff_url,
        "staff_token": demo_server.staff_token,
    }
    return node.run("client.mjs", demo)


@spec("VER-7")
@pytest.mark.parametrize("mode", ["auto", "pinned"])
def test_client_discovers_whom_it_talks_to(seen, mode):
    report = seen[mode]
    assert (report["version"], report["era"]) == (REVISION, "modern")
    assert report["server"]["title"] == "Airport operations desk"
    assert "28 000 airports" in report["instructions"]
    assert {"completions", "logging", "prompts", "resources", "tools"} <= set(
        report["capabilities"]
    )
    # One request was enough: no handshake, no session to close.
    assert report["statuses"] == [[200, None]]


@spec("TOOL-2", "PAG-1", "PAG-2")
def test_client_lists_everything(seen):
    lists = seen["list"]
    tools = {tool["name"]: tool for tool in lists["tools"]}
    assert {
        "airport_map",
        "find_route",
        "great_circle_distance",
        "nearest_airports",
        "search_airports",
        "summarize_country",
    } < set(tools)
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())
    assert tools["great_circle_distance"]["outputSchema"]["type"] == "object"
    assert "airports://about" in {resource["uri"] for resource in lists["resources"]}
    assert {"airports://{code}", "airports://countries/{country}", "notices://{code}"} <= {
        template["uriTemplate"] for template in lists["templates"]
    }
    assert {"diversion_plan", "shift_briefing"} <= {prompt["name"] for prompt in lists["prompts"]}


@spec("OUT-1", "OUT-2")
def test_client_accepts_structured_output_against_the_listed_schema(seen):
    distance = seen["call"]["distance"]
    assert distance["structuredContent"]["distance_km"] == 5539.6
    (block,) = distance["content"]
    assert json.loads(block["text"]) == distance["structuredContent"]


@spec("PRG-1", "PRG-2", "PRG-3")
def test_client_hears_progress_of_an_async_tool(seen):
    airports = seen["call"]["country"]["structuredContent"]["airports"]
    heard = seen["call"]["progress"]
    assert heard
    assert {event["total"] for event in heard} == {airports}
    assert all(earlier["progress"] < later["progress"] for earlier, later in pairwise(heard))
    assert heard[0]["message"] == f"{heard[0]['progress']} of {airports} airports"


@spec("TOOL-13")
def test_client_receives_an_image(seen):
    (block,) = seen["call"]["image"]["content"]
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(block["data"], validate=True).startswith(b"\x89PNG\r\n")


@spec("TOOL-8", "TOOL-10", "OUT-9")
def test_client_reads_failures_of_tools_as_answers(seen):
    failed, refused = seen["call"]["failed"], seen["call"]["refused"]
    assert failed["isError"] is True
    assert failed["content"][0]["text"].startswith("No route from KJFK to NZSP has legs of at most")
    assert "structuredContent" not in failed
    assert refused["isError"] is True
    assert refused["content"][0]["text"] == "latitude: must be at most 90 (got 91)"


@spec("TOOL-6")
def test_client_throws_for_a_tool_of_the_other_server(seen):
    unknown = seen["call"]["unknown"]
    assert (unknown["name"], unknown["code"]) == ("ProtocolError", INVALID_PARAMS)


@spec("LOG-4")
def test_client_that_names_a_log_level_is_served_with_it(seen):
    airports = seen["call"]["logged"]["structuredContent"]
    assert "EGLL" in {airport["icao"] for airport in airports}


@spec("RSC-2", "RSC-4", "RSC-7")
def test_client_reads_resources(seen):
    (about,) = seen["read"]["about"]["contents"]
    (airport,) = seen["read"]["airport"]["contents"]
    assert (about["uri"], about["mimeType"]) == ("airports://about", "text/markdown")
    assert json.loads(airport["text"])["iata"] == "HKG"
    missing = seen["read"]["missing"]
    assert (missing["code"], missing["data"]) == (INVALID_PARAMS, {"uri": "airports://QQQ"})


@spec("CCH-1", "RSC-11")
def test_client_keeps_reference_data(seen):
    assert seen["read"]["again"] == seen["read"]["airport"]
    assert seen["read"]["requests"] == 1


@spec("PRM-2", "PRM-3")
def test_client_gets_prompts(seen):
    prompt = seen["prompt"]
    ask, attached = (message["content"] for message in prompt["briefing"]["messages"])
    assert "early shift" in ask["text"]
    assert attached["resource"]["uri"] == "notices://LSZH"
    assert prompt["unknown"]["code"] == INVALID_PARAMS
    assert prompt["incomplete"]["code"] == INVALID_PARAMS


@spec("CMP-2")
def test_client_completes_arguments_of_templates_and_prompts(seen):
    assert "LHR" in seen["complete"]["template"]
    assert seen["complete"]["prompt"] == ["ZRH"]


@spec("SUB-7", "SUB-8", "SUB-11", "SUB-14")
def test_listening_client_hears_what_another_one_changed(seen):
    heard = seen["listen"]
    assert heard["honored"] == {"resourceSubscriptions": ["notices://ESSA"]}
    assert heard["uri"] == "notices://ESSA"
    assert heard["published"]["number"] in [notice["number"] for notice in heard["notices"]]
    assert heard["closed"] == "local"


def test_client_is_served_while_another_one_waits(seen):
    assert seen["interleave"] == {
        "finished": ["distance", "search"],
        "measured": 5539.6,
        "last": "YSSY",
    }


@spec("CAN-5", "HTTP-26")
def test_client_leaves_a_long_call_and_goes_on(seen):
    assert seen["leave"]["left"]["message"] == "enough"
    assert seen["leave"]["next"] == 5539.6


@spec("AUT-1", "AUT-3")
def test_client_is_told_why_it_is_turned_away(seen):
    nobody, stranger, guest = (seen["turned_away"][who] for who in ("nobody", "stranger", "guest"))
    assert nobody["message"].endswith("the server requires authorization (HTTP 401)")
    assert [status for status, _ in nobody["statuses"]] == [401]
    assert "error=" not in nobody["statuses"][0][1]
    assert json.loads(stranger["data"]["text"])["error"] == "invalid_token"
    assert 'error="invalid_token"' in stranger["statuses"][0][1]
    assert guest["message"].endswith("the server denied access (HTTP 403)")


@spec("HTTP-30")
def test_client_met_no_other_errors(seen):
    assert seen["errors"] == []
    # The client also ends a subscription with a notification, which is accepted and does nothing.
    statuses = [status for status, _ in seen["statuses"]]
    assert set(statuses) == {200, 202}
    assert statuses.count(202) == 1
