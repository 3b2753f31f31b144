"""The screens in themes that bring their own templates, and styles that no strict policy allows."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.e2e import deeds, screens
from tests.e2e.conftest import Site
from tests.e2e.test_screens import ROOT, begin_session, find_nothing, picture
from tests.interop.demo_site import running_demo
from tests.kit.services import themes

pytestmark = [pytest.mark.requires("chromium", "themes"), pytest.mark.timeout(600)]
FITS = f"{ROOT}.scrollWidth <= {ROOT}.clientWidth"
# Bootstrap puts captions below their tables, where they seem to belong to what follows.
CAPTIONS_BELOW = """[...document.querySelectorAll("[class*=mcp-] caption")].filter(
    (caption) => getComputedStyle(caption).captionSide !== "top").map((one) => one.textContent)"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("unfold", marks=pytest.mark.heavy(turn=1)),
        pytest.param("jazzmin", marks=pytest.mark.heavy(turn=2)),
    ],
)
def theme(request):
    """Return the name of the theme."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def site(theme, tmp_path_factory):
    """Yield the demo in that theme; one process is enough."""
    path = os.pathsep.join(filter(None, [str(themes()), os.environ.get("PYTHONPATH")]))
    settings = f"tests.e2e.settings_{theme}"
    environ = {"DJANGO_SETTINGS_MODULE": settings, "PYTHONPATH": path}
    with running_demo(tmp_path_factory.mktemp(theme), **environ) as server:
        yield Site(server, server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_whole_in_another_theme(scheme, theme, site, visit):
    visitor = visit(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    if scheme == "light":
        begin_session(site)

    def complaints(path: str) -> list[Any]:
        if visitor.open(path) != screens.OK:
            return ["does not open"]
        picture(visitor.page, f"{theme}-{scheme}", path)
        problems = []
        if not visitor.page.evaluate(FITS):
            problems.append("wider than the window")
        if not visitor.page.locator(":is(#content, main)").first.inner_text().strip():
            problems.append("empty")
        if below := visitor.page.evaluate(CAPTIONS_BELOW):
            problems.append(f"captions below their tables: {below}")
        return problems

    find_nothing(screens.find(visitor), complaints)


def test_the_form_of_an_exposed_model_fits_in_another_theme(theme, visit):
    visitor = visit(viewport={"width": 1440, "height": 900})
    path = f"{deeds.ADMIN}/modelexposure/add/?server=default&target=desk.Notice"
    assert visitor.open(path) == screens.OK
    picture(visitor.page, f"{theme}-light", path)
    assert visitor.page.locator("input[name=paths-fields][value=title]").count() == 1
    assert visitor.page.evaluate(FITS)


def test_a_tool_is_switched_off_in_another_theme(visit):
    visitor = visit()
    visitor.open(f"{deeds.ADMIN}/component/?q=airport_map")
    box = visitor.page.locator("input[name=form-0-is_enabled]")
    box.uncheck()
    visitor.page.locator("[name=_save]").click()
    visitor.page.wait_for_load_state()
    assert not box.is_checked()
