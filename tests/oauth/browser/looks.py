"""The looks in which each page is tested, and the checks of a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.kit.services import axe

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 320, "height": 640}},
    "right-to-left": {"locale": "ar"},
    "forced-colors": {"forced_colors": "active", "reduced_motion": "reduce"},
}


class Looker:
    """Checks the page that a visitor is on; ``MCP_TEST_SCREENSHOTS`` is where screenshots go."""

    def __init__(self, visitor: Any, look: str, otherwise: Path) -> None:
        self.page = visitor.page
        self.look = look
        self.place = Path(os.environ.get("MCP_TEST_SCREENSHOTS", otherwise))

    def look_at(self, name: str) -> None:
        """Take a screenshot; assert that nothing is cut off and axe-core reports no violation."""
        picture = self.place / f"{self.look}-{name}.png"
        self.page.screenshot(path=picture, full_page=True)
        root = "document.documentElement"
        assert self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), picture
        source = axe()
        assert source is not None
        self.page.evaluate(source.read_text(encoding="utf-8"))
        report = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        problems = [
            (violation["id"], [node["html"] for node in violation["nodes"]])
            for violation in report["violations"]
        ]
        assert problems == [], picture
