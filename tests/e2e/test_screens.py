"""Every screen of the admin: in every look, on a strict site, without scripts, by keyboard."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

import httpx
import pytest

from tests.e2e import deeds, screens
from tests.e2e.conftest import Site
from tests.interop.wire import Wire
from tests.kit.services import axe
from tests.kit.strict import POLICY

pytestmark = [
    pytest.mark.requires("chromium", "axe"),
    pytest.mark.heavy,
    pytest.mark.timeout(600),
]

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 320, "height": 640}},
    "right-to-left": {"locale": "ar"},
}
# The other looks differ in their layout, which axe-core does not check.
JUDGED = ("light", "dark")
GRAVE = {"serious", "critical"}
# Links that differ from the text only by their color, and icons with a label but no role.
OF_DJANGO = [[".breadcrumbs"], ["#changelist-search"], [".help-tooltip"]]
ROOT = "document.documentElement"
TASKS: dict[str, Any] = {
    "elicitation": {},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
# The folder for screenshots of all screens, if they are wanted.
PLACE = Path(os.environ["MCP_TEST_SCREENSHOTS"]) if "MCP_TEST_SCREENSHOTS" in os.environ else None


@pytest.fixture(scope="module")
def found_paths():
    """Return a list that is filled with the paths of the screens when they are first needed."""
    return []


Look = Callable[[str], Any]


def find_nothing(paths: list[str], look: Look) -> None:
    """Check all screens, and only then fail with the problems of all of them."""
    complaints_by_path = {path: complaints for path in paths if (complaints := look(path))}
    assert not complaints_by_path, pformat(complaints_by_path, width=150)


@pytest.fixture
def paths(found_paths, site, visit):
    """Return the path of a screen of each kind, on a site that is in use."""
    if not found_paths:
        visitor = visit()
        deeds.write_prompt(visitor, "greet_crew", "Greet the crew of {{ flight }}.", "flight")
        deeds.expose(visitor, "airports.Country", "state", "code", "name")
        with Wire(site.clients.staff_url, token=site.clients.staff_token) as desk:
            desk.call("withdraw_notices", airport="EDI")
            desk.call("publish_notice", airport="EDI", title="Haar", text="Until the sun is out.")
        with Wire(
            site.clients.staff_url, token=site.clients.staff_token, capabilities=TASKS
        ) as patient:
            # The task waits for an answer during all tests.
            assert patient.call("review_notices", airport="EDI")["resultType"] == "task"
        begin_session(site)
        found_paths += screens.find(visitor)
        visitor.errors.clear()
    return found_paths


def picture(page: Any, look: str, path: str) -> None:
    """Save a screenshot of the screen, if a folder for screenshots is set."""
    if PLACE is not None:
        name = re.sub(r"\W+", "-", path).strip("-")
        page.screenshot(path=PLACE / f"{look}-{name}.png", full_page=True)


def begin_session(site: Site) -> None:
    """Begin a session that is not ended."""
    client = {"name": "Example Client", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {
        "Authorization": f"Bearer {site.clients.token}",
        "Accept": "application/json, text/event-stream",
    }
    answer = httpx.post(site.clients.url, json=body, headers=headers, timeout=30, trust_env=False)
    assert answer.headers["mcp-session-id"]


@pytest.mark.parametrize("look", LOOKS)
def test_every_screen_is_whole_and_can_be_used_by_everybody(look, paths, visit):
    # axe-core styles what it measures, which the policy would forbid.
    visitor = visit(bypass_csp=True, **LOOKS[look])
    direction = "rtl" if look == "right-to-left" else "ltr"

    def complaints(path: str) -> list[Any]:
        if visitor.open(path) != screens.OK:
            return ["does not open"]
        picture(visitor.page, look, path)
        problems: list[Any] = []
        if visitor.page.evaluate("document.dir || 'ltr'") != direction:
            problems.append("written in the other direction")
        if not visitor.page.evaluate(f"{ROOT}.scrollWidth <= {ROOT}.clientWidth"):
            problems.append("wider than the window")
        return problems + (complaints_of(visitor.page) if look in JUDGED else [])

    find_nothing(paths, complaints)


def complaints_of(page: Any) -> list[Any]:
    """Return the serious problems that axe-core finds on a page."""
    source = axe()
    assert source is not None
    page.evaluate(source.read_text(encoding="utf-8"))
    report = page.evaluate(f"axe.run({{exclude: {OF_DJANGO}}}, {{resultTypes: ['violations']}})")
    return [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]][:3])
        for violation in report["violations"]
        if violation["impact"] in GRAVE
    ]


def test_every_screen_keeps_to_the_policy_of_a_strict_site(paths, visit):
    visitor = visit()

    def refused(path: str) -> list[str]:
        response = visitor.page.goto(f"{visitor.site}{path}")
        assert response.headers["content-security-policy"] == POLICY, path
        # The browser reports in its console what it refused to run or to load.
        errors = visitor.errors[:3]
        visitor.errors.clear()
        return errors

    find_nothing(paths, refused)


def test_every_screen_opens_without_javascript(paths, visit):
    visitor = visit(java_script_enabled=False)

    def missing(path: str) -> bool:
        opened = visitor.open(path) == screens.OK
        return not (opened and visitor.page.locator("#content :is(h1, h2)").first.is_visible())

    find_nothing(paths, missing)


def test_the_keyboard_reaches_everything_that_can_be_pressed(paths, visit):
    visitor = visit()

    def unreachable(path: str) -> list[str]:
        visitor.open(path)
        elements: list[str] = visitor.page.evaluate(UNREACHABLE)
        return elements

    find_nothing(paths, unreachable)


# How much of a list is hidden at its side, in pixels.
TOO_WIDE = """() => {
  const list = document.querySelector("#result_list");
  return list === null ? 0 : list.scrollWidth - list.closest(".results").clientWidth;
}"""
# Elements that can be clicked and that the keyboard does not reach.
UNREACHABLE = """() => [...document.querySelectorAll(
  "#content :is(a[href], button, input:not([type=hidden]), select, textarea, summary)"
)].filter(one => one.checkVisibility() && !one.disabled && one.tabIndex < 0)
  .map(one => one.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("language", ["en", "de", "es", "fr"])
def test_lists_fit_beside_the_menu_and_the_filters(language, paths, visit):
    visitor = visit(locale=language, viewport={"width": 1280, "height": 900})

    def overflow(path: str) -> int:
        visitor.open(path)
        width: int = visitor.page.evaluate(TOO_WIDE)
        return width

    lists = [path for path in paths if path.count("/") == 4]
    assert len(lists) > 10
    find_nothing(lists, overflow)
