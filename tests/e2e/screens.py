"""Finds every screen that this package has in the admin, as a person does: by its links."""

from __future__ import annotations

import re
from collections import deque
from typing import Any
from urllib.parse import urlsplit

APPS = ("/admin/mcp_django/", "/admin/mcp_oauth/")
# Django's own of each row, and what is no page but a file.
LEFT_OUT = ("/history/", "/delete/", "/jsi18n/", "/csv/", "/json/")
OK = 200
# One row of a kind is enough; a page with more in its path is a kind of its own.
ROW = re.compile(r"/(?:\d+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32,}|[\w-]{43,})(?=/|$)")


def kind(path: str) -> str:
    """What rows of one table share of the paths of their pages, and components of one kind."""
    return ROW.sub("/N", path.partition("&")[0])


def find(visitor: Any) -> list[str]:
    """The paths of one screen of each kind, in the order in which they are met."""
    waiting, paths_by_kind = deque(APPS), {}
    while waiting:
        path = waiting.popleft()
        if kind(path) in paths_by_kind:
            continue
        paths_by_kind[kind(path)] = path
        if visitor.open(path) != OK:
            # Whoever looks at it next says so.
            visitor.errors.clear()
            continue
        links = visitor.page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
        for link in links:
            parts = urlsplit(link)
            if link.startswith(visitor.site) and _is_screen(parts.path):
                # Other queries narrow and order what is on the same screen.
                query = f"?{parts.query}" if parts.query.startswith("kind=") else ""
                waiting.append(f"{parts.path}{query}")
    return [*paths_by_kind.values()]


def _is_screen(path: str) -> bool:
    return path.startswith(APPS) and path.endswith("/") and not path.endswith(LEFT_OUT)
