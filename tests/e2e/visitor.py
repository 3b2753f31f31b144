"""One person's window of the browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECONDS = 60


@dataclass
class Visitor:
    """One person's window, and the errors in its console."""

    page: Any
    site: str
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> int:
        """Open a path, and return the status of the response."""
        response = self.page.goto(f"{self.site}{path}")
        status: int = response.status
        return status

    def sign_in(self, name: str) -> None:
        """Sign in as one of the demo's accounts."""
        self.open("/admin/login/?next=/admin/")
        self.page.fill("input[name=username]", name)
        self.page.fill("input[name=password]", f"airports-{name}")
        self.page.click("[type=submit]")
        self.page.wait_for_url("**/admin/")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def note(self, message: Any) -> None:
        """Store an error in the console; only the missing icon of the site is expected."""
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            self.errors.append(f"{self.page.url}: {message.text}")
