"""The demo starts as documented, authorizes the right callers, and knows its airports."""

from __future__ import annotations

import base64
import io
import json
import shlex
from socket import socket
from typing import Any

import httpx
import pytest
from PIL import Image

from mcp_django.management.doctor_hosts import HOSTS
from tests.interop.demo_site import run_manage, running_demo
from tests.interop.wire import Wire
from tests.kit.drivers import headers_for, message
from tests.oauth.live.browser import Browser
from tests.oauth.live.host import Connection
from tests.spec import spec

pytestmark = pytest.mark.outside


def test_printed_curl_command_finds_the_nearest_airports(demo_server):
    response = _send_curl(demo_server.output)
    assert response.status_code == 200
    rows = response.json()["result"]["structuredContent"]
    assert [row["airport"]["icao"] for row in rows] == ["EGLC", "EGWU", "EGTR"]


def test_printed_configurations_are_json_with_the_address_alone(demo_server):
    for heading, key in [
        ("VS Code", "servers"),
        ("Cursor", "mcpServers"),
        ("MCP Inspector", "mcpServers"),
    ]:
        servers = _json_after(heading, demo_server.output)[key]
        assert servers["airports"]["url"] == demo_server.url
        assert servers["airports-staff"]["url"] == demo_server.staff_url
        # These clients sign in, so they need no token.
        assert "headers" not in servers["airports"]
        assert "headers" not in servers["airports-staff"]


@pytest.mark.parametrize(("username", "path"), [("guest", "mcp"), ("desk", "staff/mcp")])
def test_a_client_signs_in_and_calls(demo_server, username, path):
    with Browser(username, password=f"airports-{username}") as browser, httpx.Client() as http:
        connection = Connection(
            host=HOSTS["mcp-remote"], url=f"{demo_server.site}/{path}", browser=browser, http=http
        )
        connection.discover()
        connection.register()
        connection.authorize()
        connection.refresh()
        answer = connection.request("tools/list")
        assert answer.status_code == 200
        assert answer.json()["result"]["tools"]


def test_the_address_is_the_first_that_it_says(demo_server):
    assert demo_server.output.startswith("Preparing the demo, which will be served on a free port.")


def test_it_complains_of_nothing_before_it_prints_the_addresses(demo_server):
    lines = demo_server.errors.splitlines()
    assert [line for line in lines if not line.startswith("Loading airports ")] == []


def test_second_start_adds_nothing_and_prints_the_same_tokens(demo_server):
    with running_demo(demo_server.var) as again:
        assert "Airports: 0 added, 28," in again.output
        assert (again.token, again.staff_token) == (demo_server.token, demo_server.staff_token)
        with Wire(again.url, token=demo_server.token) as guest:
            assert guest.call("search_airports", query="LHR")["structuredContent"]


def test_demo_refuses_to_run_without_debug(tmp_path):
    done = run_manage(tmp_path, "demo", "--port", "0", DEMO_DEBUG="0")
    assert done.returncode == 1
    assert "needs DEBUG" in done.stderr


@spec("HTTP-3")
def test_demo_listens_on_loopback_only_and_wants_a_token(demo_server):
    host, _, port = demo_server.site.removeprefix("http://").partition(":")
    assert host == "127.0.0.1"
    with socket() as elsewhere:
        elsewhere.settimeout(5)
        # Another address of this machine, which would answer if the demo listened on all of them.
        assert elsewhere.connect_ex(("127.0.0.2", int(port))) != 0
    for url in (demo_server.url, demo_server.staff_url):
        body = message("tools/list")
        refused = httpx.post(url, json=body, headers=headers_for(body, host=None), trust_env=False)
        assert refused.status_code == 401


def test_demo_says_that_its_port_is_taken(demo_server):
    port = demo_server.site.rpartition(":")[2]
    done = run_manage(demo_server.var, "demo", "--port", port)
    assert done.returncode == 1
    assert f"Cannot listen on 127.0.0.1, port {port}. Choose another" in done.stderr


def test_loading_goes_on_where_it_stopped(tmp_path):
    run_manage(tmp_path, "migrate", "-v0").check_returncode()
    outputs = [
        run_manage(tmp_path, "load_airports", "--limit", limit).stdout.strip()
        for limit in ("200", "200", "500")
    ]
    assert outputs == [
        "Airports: 200 added, 0 already there.",
        "Airports: 0 added, 200 already there.",
        "Airports: 300 added, 200 already there.",
    ]


def test_pages_and_their_styles_are_served(demo_server):
    with httpx.Client(base_url=demo_server.site, trust_env=False) as browser:
        assert demo_server.staff_url in browser.get("/").text
        assert browser.get("/admin/login/").status_code == 200
        assert browser.get("/static/admin/css/base.css").status_code == 200


def test_people_sign_in_and_publish_what_assistants_read(demo_server, guest):
    with httpx.Client(base_url=demo_server.site, trust_env=False, follow_redirects=True) as browser:
        assert browser.get("/publish/").url.path == "/login/"
        account = {"username": "desk", "password": "airports-desk"}
        form = _send_form(browser, "/login/?next=/publish/", **account, next="/publish/")
        assert form.url.path == "/publish/"
        notice = {"title": "Crane <60 m>", "text": "West of the stand.", "severity": "caution"}
        refused = _send_form(browser, "/publish/", airport="QQQ", **notice)
        assert "No airport has the code" in refused.text
        board = _send_form(browser, "/publish/", airport="prg", **notice)
    assert board.url.path == "/board/LKPR/"
    assert "Caution: Crane &lt;60 m&gt;" in board.text
    (text,) = guest.call("notice_board", airport="PRG")["content"]
    assert "## Caution: Crane" in text["text"]
    assert "West of the stand." in text["text"]


def test_nobody_enters_without_a_token(demo_server):
    with Wire(demo_server.url) as nobody, Wire(demo_server.url, token="mcp_wrong") as wrong:
        assert nobody.post("tools/list").status_code == 401
        assert wrong.post("tools/list").status_code == 401


def test_guest_is_refused_at_the_staff_server(demo_server):
    with Wire(demo_server.staff_url, token=demo_server.token) as guest:
        assert guest.post("tools/list").status_code == 403


def test_public_server_only_reads(guest):
    tools = guest.result("tools/list")["tools"]
    assert {tool["name"] for tool in tools} == {
        "airport_map",
        "count_airports",
        "current_notices",
        "find_route",
        "grand_tour",
        "great_circle_distance",
        "list_notices",
        "nearest_airports",
        "notice_board",
        "search_airports",
        "summarize_country",
    }
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)


def test_distance_agrees_in_text_and_structure(guest):
    result = guest.call("great_circle_distance", origin="jfk", destination="EGLL")
    assert result["structuredContent"] == {
        "origin": "KJFK",
        "destination": "EGLL",
        "distance_km": 5539.6,
        "distance_nm": 2991.2,
        "bearing_degrees": 51.4,
    }
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_nearest_airports_reach_across_the_antimeridian(guest):
    result = guest.call("nearest_airports", latitude=-17, longitude=-179.99, count=2)
    assert [row["airport"]["icao"] for row in result["structuredContent"]] == ["NFNM", "NFNH"]


def test_nearest_airport_of_the_south_pole_is_there(guest):
    result = guest.call("nearest_airports", latitude=-90, longitude=77, count=1)
    (nearest,) = result["structuredContent"]
    assert (nearest["airport"]["icao"], nearest["distance_km"]) == ("NZSP", 0.0)


def test_unknown_code_is_an_answer_that_says_what_to_do(guest):
    result = guest.call("great_circle_distance", origin="QQQ", destination="EGLL")
    assert result["isError"] is True
    assert result["content"][0]["text"] == (
        "No airport has the code 'QQQ'; ICAO codes have four letters or digits (EGLL), "
        "IATA codes three letters (LHR). Find one by name with search_airports."
    )


def test_search_does_not_mind_accents_and_keeps_to_a_country(guest):
    accented = guest.call("search_airports", query="ZÜRICH", limit=1)["structuredContent"]
    everywhere = guest.call("search_airports", query="santiago", limit=100)["structuredContent"]
    chile = guest.call("search_airports", query="santiago", country="cl", limit=100)
    assert [airport["icao"] for airport in accented] == ["LSZH"]
    assert {airport["country"] for airport in everywhere} > {"CL"}
    assert {airport["country"] for airport in chile["structuredContent"]} == {"CL"}


def test_route_is_found_with_progress_that_grows(guest):
    arguments = {"origin": "JFK", "destination": "NZSP", "max_leg_km": 3000}
    params = {"name": "find_route", "arguments": arguments, "_meta": {"progressToken": "route"}}
    with guest.stream("tools/call", params) as messages:
        *notifications, response = messages
    route = response["result"]["structuredContent"]
    progress = [notification["params"]["progress"] for notification in notifications]
    assert {notification["method"] for notification in notifications} == {"notifications/progress"}
    assert {notification["params"]["progressToken"] for notification in notifications} == {"route"}
    assert progress == sorted(set(progress))
    assert [stop["icao"] for stop in (route["stops"][0], route["stops"][-1])] == ["KJFK", "NZSP"]
    assert len(route["legs"]) == 6
    assert max(leg["distance_km"] for leg in route["legs"]) <= 3000


def test_impossible_route_says_how_near_it_came(guest):
    result = guest.call("find_route", origin="JFK", destination="NZSP", max_leg_km=900)
    assert result["isError"] is True
    assert result["content"][0]["text"] == (
        "No route from KJFK to NZSP has legs of at most 900 km: the closest airport within "
        "reach is SCGZ, 3,899 km short. Allow longer legs or stops='any'."
    )


@pytest.mark.parametrize("place", ["LHR", "FJ", "AQ"])
def test_map_is_an_image(guest, place):
    (block,) = guest.call("airport_map", place=place)["content"]
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    with Image.open(io.BytesIO(base64.b64decode(block["data"]))) as image:
        assert image.format == "PNG"


def test_country_is_summed_up_by_an_async_tool_with_progress(guest):
    params = {
        "name": "summarize_country",
        "arguments": {"country": "ca"},
        "_meta": {"progressToken": 7},
    }
    with guest.stream("tools/call", params) as messages:
        *notifications, response = messages
    summary = response["result"]["structuredContent"]
    assert [notification["params"]["progress"] for notification in notifications] == [500, 1000]
    assert (summary["code"], summary["northernmost"]["icao"]) == ("CA", "CYLT")
    assert summary["airports"] > summary["with_iata_code"] > 300


def test_airports_are_read_under_both_codes(guest):
    airport = guest.read_json("airports://EGLL")
    assert airport == guest.read_json("airports://LHR")
    assert (airport["name"], airport["country"]) == ("London Heathrow Airport", "GB")
    assert guest.read_json("airports://countries/FJ")["name"] == "Fiji"


def test_text_about_the_data_is_listed_and_read(guest):
    about = guest.result("resources/list")["resources"][0]
    assert about["uri"] == "airports://about"
    (contents,) = guest.result("resources/read", {"uri": about["uri"]})["contents"]
    assert contents["mimeType"] == "text/markdown"
    assert contents["text"].startswith("# Airports")


def test_templates_are_listed(guest):
    templates = guest.result("resources/templates/list")["resourceTemplates"]
    assert {template["uriTemplate"] for template in templates} == {
        "airports://{code}",
        "airports://countries/{country}",
        "countries://{code}",
        "notices://{code}",
    }


def test_missing_airport_is_a_missing_resource(guest):
    error = guest.post("resources/read", {"uri": "airports://QQQ"}).json()["error"]
    assert (error["code"], error["data"]) == (-32602, {"uri": "airports://QQQ"})


def _send_form(browser: httpx.Client, path: str, **values: str) -> httpx.Response:
    """Fill in the form of a page."""
    browser.get(path).raise_for_status()
    token = {"csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    return browser.post(path, data=values | token).raise_for_status()


def _send_curl(output: str) -> httpx.Response:
    """Send the request of the printed command, without needing curl."""
    command = output[output.index("curl -sS") : output.index("Claude Code")].replace("\\\n", "")
    words = shlex.split(command)
    url, options = words[2], words[3:]
    given = list(zip(options[::2], options[1::2], strict=True))
    headers = [tuple(value.split(": ", 1)) for option, value in given if option == "-H"]
    (body,) = (value for option, value in given if option == "--data")
    with httpx.Client(trust_env=False) as client:
        return client.post(url, headers=headers, content=body)


def _json_after(heading: str, output: str) -> Any:
    """Return the JSON document that follows a heading."""
    text = output[output.index(heading) :]
    return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
