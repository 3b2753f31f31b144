"""The demo's model, viewset, page, form and admin as components, used by the official client.

Each test has airports to itself, as all of them share one server.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated
from mcp_types import PromptReference, ResourceTemplateReference

from tests.interop.demo_site import DemoServer, run_manage
from tests.interop.sdk import connected
from tests.spec import spec

pytestmark = pytest.mark.outside

INVALID_PARAMS = -32602
TEMPLATE = ResourceTemplateReference(type="ref/resource", uri="notices://notice/{id}")


@pytest.fixture(scope="module")
def admin_token(demo_server):
    return new_token(demo_server, "admin")


@pytest.fixture(scope="module")
def trainee_token(demo_server):
    return new_token(demo_server, "trainee")


def new_token(demo_server: DemoServer, username: str) -> str:
    done = run_manage(demo_server.var, "mcp", "token", "create", username)
    done.check_returncode()
    (token,) = (word for word in done.stdout.split() if word.startswith("mcp_"))
    return token


# The model as tools -------------------------------------------------------------------------------


async def test_client_pages_through_what_it_searches_and_filters(demo_server):
    async with at_desk(demo_server) as desk:
        notices = [
            await create(desk, "BIKF", f"Ash cloud {number}", severity=severity)
            for number, severity in enumerate(["warning", "caution", "warning", "warning"])
        ]
        await create(desk, "BIKF", "Strong wind", severity="warning")
        wanted = {"search": "cloud ASH", "severity__in": ["warning"], "limit": 2}
        first = await answer(desk, "list_notices", **wanted)
        second = await answer(desk, "list_notices", **wanted, cursor=first["next_cursor"])
        other = await desk.call_tool(
            "list_notices", wanted | {"search": "wind", "cursor": first["next_cursor"]}
        )
    assert [notice["title"] for notice in first["items"]] == ["Ash cloud 3", "Ash cloud 2"]
    assert second["items"] == [notices[0]]
    assert first["total"] == 3
    assert second.keys() == {"items"}
    # A cursor is valid for the list that it was issued for, and for no other.
    assert other.is_error


async def test_client_that_misspells_a_filter_is_told_the_right_one(demo_server):
    async with at_desk(demo_server) as desk:
        misspelled = await desk.call_tool("list_notices", {"severity__inn": ["warning"]})
        hidden = await desk.call_tool(
            "list_notices", {"created_by__password__startswith": "pbkdf2"}
        )
    assert misspelled.is_error
    assert '"severity__inn"' in misspelled.content[0].text
    assert " severity__in," in misspelled.content[0].text
    assert hidden.is_error
    assert 'unknown argument "created_by__password__startswith"' in hidden.content[0].text


@pytest.mark.parametrize(("mode", "airport"), [("auto", "ENAT"), ("legacy", "ENBO")])
async def test_client_creates_what_it_saw_in_a_preview(demo_server, mode, airport):
    given = {"airport": airport, "title": "Snow", "text": "Ploughs are out.", "severity": "caution"}
    async with at_desk(demo_server, mode=mode) as desk:
        preview = await answer(desk, "create_notice", **given, preview=True)
        nothing = await answer(desk, "list_notices", airport__icao=airport)
        made = await answer(desk, "create_notice", **given)
        got = await answer(desk, "get_notice", id=made["id"])
    assert preview["preview"] is True
    assert preview["changes"]["airport"] == {"from": None, "to": {"icao": airport}}
    assert preview["changes"]["severity"] == {"from": None, "to": "caution"}
    assert nothing == {"items": [], "total": 0}
    assert got == made
    assert (made["title"], made["airport"], made["closed_at"]) == ("Snow", {"icao": airport}, None)


async def test_client_reads_what_the_form_refuses(demo_server):
    async with at_desk(demo_server) as desk:
        refused = await desk.call_tool(
            "create_notice", {"airport": "QQQ", "title": "Snow", "text": "", "severity": "bad"}
        )
        kept = await create(desk, "EGPH", "Haar")
        moved = await desk.call_tool("update_notice", {"id": kept["id"], "airport": "EGPF"})
        same = await answer(desk, "update_notice", id=kept["id"], airport="EDI", title="Fog")
    assert moved.is_error
    assert moved.content[0].text.startswith("airport: A notice cannot change its airport; publish")
    assert same == kept | {"title": "Fog"}
    assert refused.is_error
    airport, text, severity = refused.content[0].text.splitlines()
    assert airport.startswith("airport: No airport has the code 'QQQ'")
    assert text == 'text: is required (got "")'
    assert severity == ('severity: must be one of "information", "caution", "warning" (got "bad")')


@spec("SUB-7", "SUB-8")
async def test_listening_client_hears_of_an_update_and_not_of_a_preview(demo_server):
    async with at_desk(demo_server) as desk, at_desk(demo_server) as other:
        kept, changed = [await create(other, "EFHK", title) for title in ("Fog", "Mist")]
        uris = [f"notices://notice/{notice['id']}" for notice in (kept, changed)]
        async with desk.listen(resource_subscriptions=uris) as changes:
            preview = await answer(
                other, "update_notice", id=kept["id"], severity="warning", preview=True
            )
            updated = await answer(other, "update_notice", id=changed["id"], severity="warning")
            # A notification about the preview would have arrived first.
            assert await anext(changes) == ResourceUpdated(uri=uris[1])
        (contents,) = (await desk.read_resource(uris[1])).contents
        unchanged = await answer(desk, "get_notice", id=kept["id"])
    assert preview == {
        "preview": True,
        "changes": {"severity": {"from": "information", "to": "warning"}},
    }
    assert unchanged == kept
    assert updated == changed | {"severity": "warning"}
    assert json.loads(contents.text) == updated


async def test_only_who_may_delete_is_offered_it_and_sees_what_goes(demo_server, admin_token):
    async with (
        at_desk(demo_server) as desk,
        connected(demo_server.staff_url, admin_token) as admin,
    ):
        number = (await create(desk, "LPPT", "Balloon"))["id"]
        with pytest.raises(MCPError) as unknown:
            await desk.call_tool("delete_notice", {"id": number})
        preview = await answer(admin, "delete_notice", id=number, preview=True)
        still = await answer(desk, "get_notice", id=number)
        deleted = await answer(admin, "delete_notice", id=number)
        gone = await admin.call_tool("delete_notice", {"id": number})
    assert unknown.value.error.code == INVALID_PARAMS
    assert preview == {"preview": True, "cascade": {"desk.Notice": 1}}
    assert still["id"] == number
    assert deleted == {"deleted": {"desk.Notice": 1}}
    assert gone.is_error


@spec("TOOL-6")
async def test_client_of_a_trainee_sees_none_of_the_writing_tools(demo_server, trainee_token):
    async with connected(demo_server.staff_url, trainee_token) as trainee:
        tools = {tool.name: tool for tool in (await trainee.list_tools()).tools}
        listed = await trainee.call_tool("list_notices", {})
        for name in ("create_notice", "replace_notice", "report_problem", "close_notices"):
            with pytest.raises(MCPError) as unknown:
                await trainee.call_tool(name, {})
            assert unknown.value.error.code == INVALID_PARAMS
    assert set(tools) == {"current_notices", "get_notice", "list_notices"}
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    assert not listed.is_error


# The model as resources and prompts ---------------------------------------------------------------


@spec("CMP-2", "PRM-2")
async def test_client_is_prompted_about_a_notice_that_it_completed(demo_server):
    async with at_desk(demo_server) as desk:
        number = str((await create(desk, "EKCH", "Swans"))["id"])
        prompt = PromptReference(type="ref/prompt", name="explain_notice")
        completed = [
            (await desk.complete(reference, {"name": "id", "value": number})).completion.values
            for reference in (TEMPLATE, prompt)
        ]
        ask, attached = (await desk.get_prompt("explain_notice", {"id": number})).messages
    assert number in completed[0]
    assert completed[0] == completed[1]
    assert ask.content.text.startswith(f"Explain notice Swans (notices://notice/{number}) to ")
    assert attached.content.resource.uri == f"notices://notice/{number}"
    assert json.loads(attached.content.resource.text)["title"] == "Swans"


@spec("PAG-1", "PAG-2", "RSC-2", "RSC-7")
async def test_client_lists_every_country_page_by_page(demo_server):
    async with connected(demo_server.url, demo_server.token) as guest:
        pages = [await guest.list_resources()]
        while pages[-1].next_cursor is not None:
            pages.append(await guest.list_resources(cursor=pages[-1].next_cursor))
        (country,) = (await guest.read_resource("countries://NZ")).contents
        codes = await guest.complete(
            ResourceTemplateReference(type="ref/resource", uri="countries://{code}"),
            {"name": "code", "value": "nz"},
        )
    listed = [resource for page in pages for resource in page.resources]
    about, *countries = [resource for resource in listed if not resource.uri.startswith("ui://")]
    assert len(pages) > 1
    assert about.uri == "airports://about"
    uris = [resource.uri for resource in countries]
    assert uris == sorted(set(uris))
    assert len(uris) > 200
    assert {resource.uri: resource.title for resource in countries}["countries://FJ"] == "Fiji"
    assert json.loads(country.text) == {"code": "NZ", "name": "New Zealand"}
    assert codes.completion.values == ["NZ"]


async def test_client_counts_airports_in_groups(demo_server):
    filters = {"elevation_ft__gte": 10_000, "group_by": "country", "max_of": "elevation_ft"}
    async with connected(demo_server.url, demo_server.token) as guest:
        counted = await answer(guest, "count_airports", **filters)
        some = await answer(guest, "count_airports", country__in=["NZ", "FJ"])
    groups = counted["groups"]
    assert counted["count"] == sum(group["count"] for group in groups)
    assert counted["max"] == max(group["max"] for group in groups)
    assert {"id": "BO", "label": "Bolivia"} in [group["group"] for group in groups]
    assert 0 < some["count"] < 1000


# The viewset, the page, the form and the admin ----------------------------------------------------


async def test_client_reads_the_same_list_as_a_screen_over_rest(demo_server):
    async with at_desk(demo_server) as desk:
        for title in ("Deer north", "Deer south"):
            await create(desk, "EETN", title)
    async with connected(demo_server.url, demo_server.token) as guest:
        listed = await answer(guest, "list_notices", search="deer TLL", limit=1)
    address = f"{demo_server.site}/api/notices/"
    query = {"search": "deer TLL", "limit": 1}
    who = ("guest", "airports-guest")
    async with httpx.AsyncClient(params=query, trust_env=False) as screen:
        shown = await screen.get(address, auth=who)
        nobody = await screen.get(address)
    assert listed == shown.json()
    assert listed["count"] == 2
    assert [notice["title"] for notice in listed["results"]] == ["Deer south"]
    assert nobody.status_code in {401, 403}


async def test_client_replaces_a_notice_through_the_viewset(demo_server):
    async with at_desk(demo_server) as desk:
        old = await create(desk, "EVRA", "Ice", severity="caution")
        wrong = await desk.call_tool("replace_notice", {"id": old["id"], "title": "", "text": "x"})
        kept = await answer(desk, "get_notice", id=old["id"])
        given = {"title": "Deep ice", "text": "Brakes are poor.", "severity": "warning"}
        new = await answer(desk, "replace_notice", id=old["id"], **given)
        closed = await answer(desk, "get_notice", id=old["id"])
        again = await desk.call_tool("replace_notice", {"id": old["id"], **given})
    assert wrong.is_error
    assert wrong.content[0].text.startswith("title: ")
    assert kept == old
    assert (new["airport"], new["title"], new["severity"]) == ("EVRA", "Deep ice", "warning")
    assert closed["closed_at"] is not None
    assert again.is_error


async def test_client_reads_the_board_that_people_have_to_sign_in_for(demo_server):
    async with at_desk(demo_server) as desk:
        await create(desk, "EYVI", "Hot-air balloons", severity="caution")
        # Its neighbor, 92 km away.
        await create(desk, "EYKA", "Runway | closed")
    async with connected(demo_server.url, demo_server.token) as guest:
        board = await guest.call_tool("notice_board", {"airport": "vno"})
        missing = await guest.call_tool("notice_board", {"airport": "QQQ"})
    async with httpx.AsyncClient(trust_env=False) as browser:
        page = await browser.get(f"{demo_server.site}/board/VNO/")
    (text,) = (block.text for block in board.content)
    heading, *_ = lines = text.splitlines()
    assert heading == "# Vilnius International Airport (EYVI/VNO)"
    assert "## Caution: Hot-air balloons" in lines
    assert r"| EYKA/KUN | Information | Runway \| closed |" in lines
    assert "<" not in text
    assert missing.is_error
    assert missing.content[0].text.startswith("No airport has the code 'QQQ'")
    assert (page.status_code, page.headers["location"]) == (302, "/login/?next=/board/VNO/")


async def test_client_fills_in_a_form_that_mails(demo_server):
    report = {
        "airport": "tls",
        "place": "Taxiway W 7\nBcc: everybody@localhost",
        "problem": "Lamp is out.",
        "is_urgent": True,
    }
    async with at_desk(demo_server) as desk:
        refused = await desk.call_tool("report_problem", report | {"airport": "QQQ"})
        sent = await desk.call_tool("report_problem", report)
    mails = [path.read_text(encoding="utf-8") for path in (demo_server.var / "mail").iterdir()]
    (mail,) = (text for text in mails if "Taxiway W 7" in text)
    assert refused.is_error
    assert refused.content[0].text.startswith("airport: No airport has the code 'QQQ'")
    assert not sent.is_error
    assert sent.content[1].text == (
        "Message: Reported to Toulouse-Blagnac Airport (LFBO/TLS) maintenance."
    )
    assert "\nSubject: URGENT: LFBO, Taxiway W 7 Bcc: everybody@localhost\n" in mail
    assert mail.count("Subject:") == 1
    assert "Lamp is out.\n\nReported by desk." in mail


async def test_client_runs_an_action_of_the_admin(demo_server):
    async with at_desk(demo_server) as desk:
        numbers = [(await create(desk, "LOWW", title))["id"] for title in ("Rain", "Hail")]
        missing = await desk.call_tool("close_notices", {"keys": [numbers[0], 10**9]})
        kept = await answer(desk, "list_notices", airport__icao="LOWW", closed_at__isnull=True)
        closed = await desk.call_tool("close_notices", {"keys": numbers})
        left = await answer(desk, "list_notices", airport__icao="LOWW", closed_at__isnull=True)
    assert missing.is_error
    assert kept["total"] == 2
    assert [block.text for block in closed.content] == ["2 closed."]
    assert left["items"] == []


def at_desk(demo_server: DemoServer, **options: Any) -> Any:
    """Return the client of a member of staff."""
    return connected(demo_server.staff_url, demo_server.staff_token, **options)


async def create(desk: Client, airport: str, title: str, **given: Any) -> dict[str, Any]:
    """Create a notice, and return the answer of the tool."""
    text = "Until further notice."
    return await answer(desk, "create_notice", airport=airport, title=title, text=text, **given)


async def answer(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that has to succeed, and return its result, which is also its text."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return dict(result.structured_content)
