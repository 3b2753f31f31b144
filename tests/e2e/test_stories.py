"""Changes in the admin reach clients that are connected to another process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult

from tests.e2e import deeds
from tests.e2e.clients import SECONDS, Tell, doing, in_a_session, listening, talking
from tests.interop.sdk import connected
from tests.interop.wire import Wire

pytestmark = [pytest.mark.requires("chromium"), pytest.mark.timeout(600)]
TOOL = "airport_map"


@pytest.fixture
def publish(site):
    """Return a function that publishes a notice about an airport and returns its number."""

    def publish(airport: str) -> int:
        with Wire(site.clients.staff_url, token=site.clients.staff_token) as desk:
            notice = {"airport": airport, "title": "Snow", "text": "Not to be told."}
            answer = desk.call("publish_notice", **notice)
        number: int = answer["structuredContent"]["number"]
        return number

    return publish


def test_a_tool_that_is_switched_off_leaves_the_lists_of_clients_elsewhere(site, visit):
    url, token = site.clients.url, site.clients.token
    with (
        talking(listening(url, token, changes=2)) as modern,
        talking(in_a_session(url, token, changes=2)) as older,
    ):
        assert older.next() == "2025-11-25"
        for client in (modern, older):
            assert TOOL in client.next()
        visitor = visit()
        deeds.switch(visitor, TOOL, on=False)
        assert modern.next() == "ToolsListChanged"
        assert TOOL not in modern.next()
        assert older.next() == "notifications/tools/list_changed"
        assert TOOL not in older.next()
        deeds.switch(visitor, TOOL, on=True)
        for client in (modern, older):
            client.next()
            assert TOOL in client.next()


def test_a_prompt_that_is_written_in_the_admin_is_got_by_a_client(site, visit):
    text = "Hand {{ airport|upper }} over to the night shift."
    deeds.write_prompt(visit(), "hand_over", text, "airport")

    async def get(client: Client, tell: Tell) -> None:
        arguments: list[Any] = []
        async with asyncio.timeout(SECONDS):
            # A list may be a second old.
            while not arguments:
                prompts = (await client.list_prompts()).prompts
                arguments = [prompt.arguments for prompt in prompts if prompt.name == "hand_over"]
        tell(arguments)
        tell(await client.get_prompt("hand_over", {"airport": "wlg"}))

    with talking(doing(site.clients.url, site.clients.token, get)) as client:
        ((argument,),) = client.next()
        assert (argument.name, argument.required) == ("airport", True)
        (message,) = client.next().messages
    assert message.content.text == "Hand WLG over to the night shift."


def test_a_model_that_is_exposed_in_the_admin_is_queried_without_its_other_fields(
    site, visit, publish
):
    number = publish("ZQN")
    deeds.expose(visit(), "desk.Notice", "bulletin", "id", "title")
    attempts: list[dict[str, Any]] = [
        {"fields": ["text"]},
        {"order_by": "text"},
        {"ordering": "text"},
        {"text": "Not to be told."},
        {"filters": {"text": "Not to be told."}},
        {"text__contains": "told"},
    ]

    async def query(client: Client, tell: Tell) -> None:
        tell({tool.name: tool for tool in (await client.list_tools()).tools})
        tell(await client.call_tool("get_bulletin", {"id": number}))
        tell(await client.call_tool("list_bulletins", {}))
        for arguments in attempts:
            try:
                tell(await client.call_tool("list_bulletins", arguments))
            except MCPError as exc:
                tell(exc.error)

    with talking(doing(site.clients.url, site.clients.staff_token, query)) as client:
        tools = client.next()
        assert {"get_bulletin", "list_bulletins"} < set(tools)
        for name in ("get_bulletin", "list_bulletins"):
            assert "created_by" not in tools[name].model_dump_json()
        notice = client.next().structured_content
        assert notice == {"id": number, "title": "Snow"}
        listed = client.next()
        assert "Snow" in str(listed.structured_content)
        assert "Not to be told." not in listed.model_dump_json()
        for arguments in attempts:
            refused = client.next()
            assert getattr(refused, "is_error", True), arguments
            assert "Snow" not in refused.model_dump_json()


def test_a_tool_that_asks_is_tried_in_the_admin(site, visit, publish):
    number = publish("PKP")
    visitor = visit()
    page = visitor.page
    deeds.open_trial(visitor, "staff", "close_notice")
    page.fill("[name='arg.number']", str(number))
    visitor.press("Continue")
    visitor.press("Yes, run it")
    assert f"Close notice {number}" in page.locator(".mcp-question").inner_text()
    page.get_by_label("confirmed").select_option("Yes")
    page.get_by_label("Accept").check()
    visitor.press("Continue")
    page.locator(".mcp-done").wait_for()
    with Wire(site.clients.url, token=site.clients.token) as guest:
        assert guest.read_json("notices://PKP")["notices"] == []


def test_a_call_waits_until_somebody_else_grants_it(site, visit, publish):
    publish("OAKB")
    granted = threading.Event()

    async def withdraw(client: Client, tell: Tell) -> None:
        tell(await client.call_tool("withdraw_notices", {"airport": "OAKB"}))
        await asyncio.to_thread(granted.wait, SECONDS)
        tell(await client.call_tool("withdraw_notices", {"airport": "OAKB"}))

    talk = doing(site.clients.staff_url, site.clients.staff_token, withdraw)
    with talking(talk) as client:
        waiting = client.next()
        assert waiting.is_error
        assert "waits for approval by another user" in waiting.content[0].text
        deeds.decide(visit(), "withdraw_notices", "Approve")
        granted.set()
        done = client.next()
    assert not done.is_error
    assert done.structured_content["notices"] == []


def test_a_call_goes_on_once_its_own_user_grants_it_in_the_browser(site, visit):
    deeds.override(visit(), "report_problem", approval="The caller approves each call")
    granted = threading.Event()
    problem = {"airport": "WLG", "place": "Taxiway N", "problem": "The lights are out."}

    async def report(tell: Tell) -> None:
        async def open_page(context: Any, params: Any) -> ElicitResult:
            tell(params.url)
            await asyncio.to_thread(granted.wait, SECONDS)
            return ElicitResult(action="accept")

        url, token = site.clients.staff_url, site.clients.staff_token
        async with connected(url, token, elicitation_callback=open_page) as client:
            tell(await client.call_tool("report_problem", problem))

    with talking(report) as client:
        url = client.next()
        desk = visit("desk")
        desk.page.goto(url)
        desk.press("Approve this call")
        desk.page.get_by_text("Approved by").wait_for()
        granted.set()
        done = client.next()
    assert not done.is_error, done.content
