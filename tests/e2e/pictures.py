"""`python -m tests.e2e.pictures`: takes the pictures that the documentation shows.

The demo is started in a directory of its own and used for a moment, so that there is something to
see. Needs Chromium and Pillow; run it again when a screen has changed.
"""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.e2e import deeds
from tests.e2e.visitor import SECONDS, Visitor
from tests.interop.demo_site import DemoServer, running_demo
from tests.interop.wire import Wire
from tests.kit.processes import REPOSITORY
from tests.kit.services import chromium

PLACE = REPOSITORY / "docs" / "_static"
SIZE = {"width": 1440, "height": 810}
COLORS, MARGIN = 128, 24
TASKS: dict[str, Any] = {
    "elicitation": {},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
CITIES = ("LHR", "WLG", "JFK", "SIN", "CPT", "GRU", "OSL", "YYZ", "NRT", "EZE", "XXX", "DXB")
# The chat of README: the calls and their results are real, the window is drawn.
QUESTION = "We have to divert near Reykjavík. Which airports are closest? Show me a map."
NEAR = {"latitude": 64.1466, "longitude": -21.9426, "count": 3}
RADIUS = 150
CHAT_WIDTH = 860
CHAT_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; padding: 28px; background: #f7f7f4; color: #22272e;
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 760px; margin: 0 auto; padding: 22px 26px; background: #fff;
  border: 1px solid #e2e2dc; border-radius: 14px; }
.user { margin-left: auto; width: fit-content; max-width: 78%; padding: 10px 14px;
  border-radius: 14px; background: #eceff3; }
.call { margin: 14px 0; padding: 10px 14px; border: 1px solid #dcdfe4; border-radius: 10px; }
.call b { font-weight: 600; }
.call code { display: block; margin-top: 4px; color: #57606a;
  font: 12.5px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; margin: 10px auto 0; border-radius: 8px; }
p { margin: 12px 0; }
"""


def front(visitor: Visitor) -> None:
    """Show the catalog, the latest calls and the latest changes."""
    deeds.switch(visitor, "find_route", on=False)
    deeds.switch(visitor, "find_route", on=True)
    visitor.open(f"{deeds.ADMIN}/")
    visitor.page.locator(".mcp-chart canvas").first.wait_for()


def component(visitor: Visitor) -> None:
    """Show the page of one tool."""
    visitor.open(f"{deeds.ADMIN}/component/?q=nearest_airports")
    visitor.page.locator("#result_list tbody th a").first.click()
    visitor.page.locator(".mcp-comparison").wait_for()


def components(visitor: Visitor) -> None:
    """Show the list of components, with a switch for each."""
    deeds.switch(visitor, "find_route", on=False)
    visitor.open(f"{deeds.ADMIN}/component/?kind__exact=tool")


def try_it(visitor: Visitor) -> None:
    """Run a tool from its form, and show the picture that it returns."""
    deeds.open_trial(visitor, "default", "airport_map")
    visitor.page.fill("[name='arg.place']", "IS")
    visitor.press("Run")
    visitor.page.locator(".mcp-answer img").wait_for()


def client_view(visitor: Visitor) -> None:
    """Show what a client of the guest gets."""
    deeds.open_page(visitor, "default", "What a client sees")
    visitor.page.get_by_label("Another user").check()
    visitor.page.get_by_label("Name of the other user").fill("guest")
    visitor.press("Show")


def charts(visitor: Visitor) -> None:
    """Show the charts of calls and latency."""
    deeds.open_page(visitor, "default", "Charts")
    visitor.page.get_by_role("link", name="Last hour").click()
    visitor.page.locator(".mcp-chart canvas").first.wait_for()
    # A site that was started a moment ago has few calls to show for an hour.
    tools = visitor.page.get_by_role("heading", name="Tools, resources and prompts")
    tools.evaluate("one => one.scrollIntoView()")


def tasks(visitor: Visitor) -> None:
    """Show running tasks, one of which waits for an answer."""
    visitor.open(f"{deeds.ADMIN}/task/")


def calls(visitor: Visitor) -> None:
    """Show the call log."""
    visitor.open(f"{deeds.ADMIN}/call/")


def approval(visitor: Visitor) -> None:
    """Show a call that waits for a person."""
    deeds.open_approval(visitor, "withdraw_notices")


def exposure(visitor: Visitor) -> None:
    """Expose a model, and show its fields."""
    deeds.expose(visitor, "desk.Notice", "bulletin", "id", "title", "severity", "published_at")
    visitor.page.locator("#result_list tbody th a").first.click()
    visitor.page.locator(".mcp-fields").evaluate("one => one.scrollIntoView()")


PICTURES: dict[str, Callable[[Visitor], None]] = {
    "front": front,
    "component": component,
    "components": components,
    "try-it": try_it,
    "client-view": client_view,
    "charts": charts,
    "calls": calls,
    "tasks": tasks,
    "approval": approval,
    "exposure": exposure,
}


def chat(demo: DemoServer) -> str:
    """Call the demo's tools, and return a chat as HTML: no host that runs here has a window."""
    with Wire(demo.url, token=demo.token) as guest:
        nearest = guest.call("nearest_airports", **NEAR)
        rows = nearest["structuredContent"]
        code = rows[0]["airport"]["icao"]
        drawn = guest.call("airport_map", place=code, radius_km=RADIUS)
    picture = next(block for block in drawn["content"] if block["type"] == "image")
    named = ", ".join(
        f"{row['airport']['name']} ({row['airport']['icao']}, {row['distance_km']} km)"
        for row in rows
    )
    parts = [
        f'<div class="user">{html.escape(QUESTION)}</div>',
        drawn_call("nearest_airports", NEAR, nearest),
        f"<p>The three closest are {html.escape(named)}.</p>",
        drawn_call("airport_map", {"place": code, "radius_km": RADIUS}, None),
        f'<img src="data:{picture["mimeType"]};base64,{picture["data"]}" height="330">',
    ]
    return f"<!doctype html><style>{CHAT_STYLE}</style><main id=content>{''.join(parts)}</main>"


def drawn_call(name: str, arguments: dict[str, Any], result: dict[str, Any] | None) -> str:
    texts = [json.dumps(arguments)]
    if result is not None:
        texts.append(f"→ {json.dumps(result['structuredContent'], ensure_ascii=False)[:230]}…")
    codes = "".join(f"<code>{html.escape(text)}</code>" for text in texts)
    return f'<div class="call"><b>airports</b> · {html.escape(name)}{codes}</div>'


def use(demo: DemoServer) -> None:
    """Call some tools, as clients do."""
    with Wire(demo.url, token=demo.token) as guest:
        for number, city in enumerate(CITIES):
            guest.call("great_circle_distance", origin="CDG", destination=city)
            guest.call("current_notices", airport=city)
            if number % 3 == 0:
                guest.call("search_airports", query="saint")
                guest.call("airport_map", place=city)
    with Wire(demo.url, token=demo.token, capabilities=TASKS) as patient:
        patient.call("grand_tour", start="LHR", countries=20, rounds=20)
        patient.call("grand_tour", start="AKL", rounds=5000)
    with Wire(demo.staff_url, token=demo.staff_token, capabilities=TASKS) as desk:
        notice = {"title": "Runway 16/34 closed", "text": "Until the ice is gone."}
        desk.call("publish_notice", airport="EDI", **notice)
        desk.call("withdraw_notices", airport="EDI")
        desk.call("review_notices", airport="EDI")


def take(page: Any, path: Path, *, width: int = SIZE["width"]) -> None:
    """Save a screenshot of the window, in few colors."""
    # The empty part of the window below the content is cut off.
    end = page.evaluate("document.querySelector('#content').getBoundingClientRect().bottom")
    height = min(SIZE["height"], end + MARGIN)
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": width, "height": height})
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLORS).save(path, optimize=True)


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory() as place,
        running_demo(Path(place), DJANGO_SETTINGS_MODULE="tests.e2e.settings") as demo,
        sync_playwright() as playwright,
    ):
        use(demo)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(SECONDS * 1000)
        page.set_viewport_size({**SIZE, "width": CHAT_WIDTH})
        page.set_content(chat(demo), wait_until="load")
        take(page, PLACE / "chat.png", width=CHAT_WIDTH)
        page.set_viewport_size(SIZE)
        visitor = Visitor(page, demo.site)
        visitor.sign_in("admin")
        # The list of all models is not part of the screens.
        visitor.open(f"{deeds.ADMIN}/component/")
        page.locator("#toggle-nav-sidebar").click()
        for name, prepare in PICTURES.items():
            prepare(visitor)
            take(page, PLACE / f"admin-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
