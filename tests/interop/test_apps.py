"""The demo's views, shown by Chromium in a page on the official bridge (MCP Apps, SEP-1865)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.interop.apps_host import Endpoint, running_host
from tests.interop.wire import Wire
from tests.kit.services import chromium
from tests.spec import spec

pytestmark = [
    pytest.mark.requires("node", "npm", "chromium"),
    pytest.mark.timeout(600),
]
SECONDS = 60
PICTURES = "MCP_TEST_SCREENSHOTS"
# A client with a handshake opens a GET stream, which the host does not pass on; a test tries what
# the policy of its view forbids.
EXPECTED = ("405 (Method Not Allowed)", "\"connect-src 'none'\"", "Refused to connect")
ROUTE = {"origin": "LHR", "destination": "SYD", "max_leg_km": 9000}


@pytest.fixture(scope="module")
def host(demo_server):
    endpoints = {
        "/mcp": Endpoint(demo_server.url, demo_server.token),
        "/staff/mcp": Endpoint(demo_server.staff_url, demo_server.staff_token),
    }
    with running_host(endpoints) as started:
        yield started


@pytest.fixture(scope="module")
def chrome():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Shown:
    """A view in the host's page."""

    def __init__(self, page: Any, details: dict[str, Any]) -> None:
        self.page = page
        self.told = details
        self.view = page.frame_locator("#sandbox").frame_locator("#view")

    def seen(self, what: str) -> list[Any]:
        values: list[Any] = self.page.evaluate(f"window.seen.{what}")
        return values

    def picture(self, name: str) -> None:
        """Save a screenshot, if a folder for screenshots is set."""
        if place := os.environ.get(PICTURES):
            self.page.screenshot(path=Path(place) / f"app-{name}.png", full_page=True)

    def overflow(self) -> int:
        """Return by how many pixels the view is wider than its frame."""
        root = self.view.locator("html")
        pixels: int = root.evaluate("e => e.scrollWidth - e.clientWidth")
        return pixels


@pytest.fixture
def show(chrome, host):
    """Yield a function that opens a tool's view; errors of the page or a policy are failures."""
    contexts: list[Any] = []
    errors: list[str] = []

    def note(message: Any) -> None:
        if message.type == "error" and not any(fragment in message.text for fragment in EXPECTED):
            errors.append(message.text)

    def show(width: int = 640, **given: Any) -> Shown:
        context = chrome.new_context(viewport={"width": width, "height": 900})
        context.set_default_timeout(SECONDS * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(host.page)
        page.wait_for_function("() => Boolean(window.open_view)")
        return Shown(page, page.evaluate("given => window.open_view(given)", given))

    yield show
    for context in contexts:
        errors.extend(context.pages[0].evaluate("window.seen.errors"))
        context.close()
    assert errors == []


@spec("APP-1", "APP-2")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_route_is_drawn_and_planned_anew_from_the_view(show, mode):
    shown = show(path="/mcp", mode=mode, tool="find_route", args=ROUTE, theme="light")
    view = shown.view
    assert shown.told["mimeType"] == "text/html;profile=mcp-app"
    assert shown.told["app"]["name"] == "find_route"
    title = view.locator("#title")
    title.filter(has_text="London to Sydney").wait_for()
    assert view.locator("svg circle").count() == view.locator("#legs tbody tr").count() + 1
    assert view.locator("#longest").input_value() == "9000"
    before = title.inner_text()
    view.locator("#longest").fill("4500")
    view.get_by_role("button", name="Plan again").click()
    shown.page.wait_for_function("window.seen.contexts.length > 0")
    assert title.inner_text() != before
    assert shown.seen("calls") == [
        {"name": "find_route", "arguments": {**ROUTE, "max_leg_km": 4500}}
    ]
    (context,) = shown.seen("contexts")
    assert context["structuredContent"]["max_leg_km"] == 4500
    view.locator("#longest").fill("1")
    view.get_by_role("button", name="Plan again").click()
    view.get_by_role("status").filter(has_text="No route from EGLL").wait_for()
    assert shown.page.evaluate("window.tear_down()") == {}


@spec("APP-3", "APP-4", "APP-6")
def test_a_notice_is_closed_on_the_board(show, demo_server):
    with Wire(demo_server.staff_url, token=demo_server.staff_token) as desk:
        given = {"airport": "BIKF", "title": "<b>Ash</b>", "text": "From the north."}
        number = desk.call("publish_notice", **given)["structuredContent"]["number"]
    options = {"tool": "current_notices", "args": {"airport": "BIKF"}, "theme": "dark"}
    shown = show(path="/staff/mcp", **options)
    # The view declares only the origin of the site, which serves its stylesheet.
    assert shown.told["meta"] == {"csp": {"resourceDomains": [demo_server.site]}}
    assert "close_on_board" not in shown.told["forTheModel"]
    assert "current_notices" in shown.told["forTheModel"]
    view = shown.view
    # Nothing else is allowed, not even requests to that origin.
    reach = "url => fetch(url, {mode: 'no-cors'}).then(() => 'reached', () => 'blocked')"
    assert (
        view.locator("body").evaluate(f"(_, url) => ({reach})(url)", demo_server.site) == "blocked"
    )
    notice = view.locator("li", has_text=f"notice {number}")
    # What people write is text, whatever it looks like.
    assert notice.locator("h2").inner_text() == "<b>Ash</b>"
    assert notice.evaluate("e => getComputedStyle(e).borderInlineStartWidth") == "4px"
    notice.get_by_role("button", name=f"Close notice {number}").click()
    notice.get_by_role("button", name="Close permanently").click()
    notice.wait_for(state="detached")
    assert shown.seen("calls") == [{"name": "close_on_board", "arguments": {"number": number}}]
    with Wire(demo_server.url, token=demo_server.token) as guest:
        remaining = guest.read_json("notices://BIKF")["notices"]
    assert number not in [row["number"] for row in remaining]
    guests = show(path="/mcp", **options)
    guests.view.get_by_role("button", name="Read again").wait_for()
    assert guests.view.get_by_role("button").count() == 1


@pytest.mark.parametrize("tool", ["find_route", "current_notices"])
def test_a_view_follows_the_theme_and_the_width(show, tool, demo_server):
    with Wire(demo_server.staff_url, token=demo_server.staff_token) as desk:
        for severity in ("information", "caution", "warning"):
            given = {"airport": "LOWI", "title": f"A {severity}", "text": "Föhn from the south."}
            desk.call("publish_notice", severity=severity, **given)
    args = ROUTE if tool == "find_route" else {"airport": "LOWI"}
    path = "/mcp" if tool == "find_route" else "/staff/mcp"
    shown = show(path=path, tool=tool, args=args, theme="light", width=320)
    view = shown.view
    view.locator("svg, li").first.wait_for()
    shown.page.wait_for_function("window.seen.sizes.at(-1) > 250")
    shown.picture(f"{tool}-narrow-light")
    assert shown.overflow() <= 0
    body = view.locator("body")
    colors = {"light": body.evaluate("e => getComputedStyle(e).backgroundColor")}
    shown.page.evaluate("window.set_theme('dark')")
    view.locator("html[data-theme=dark]").wait_for(state="attached")
    colors["dark"] = body.evaluate("e => getComputedStyle(e).backgroundColor")
    assert colors == {"light": "rgb(255, 255, 255)", "dark": "rgb(30, 30, 30)"}
    shown.picture(f"{tool}-narrow-dark")
    narrow = shown.seen("sizes")[-1]
    shown.page.set_viewport_size({"width": 900, "height": 900})
    shown.page.wait_for_function(f"window.seen.sizes.at(-1) !== {narrow}")
    assert shown.overflow() <= 0
    shown.picture(f"{tool}-wide-dark")
