"""Finds every screen that this package has in the admin, as a person does: by following links."""

from __future__ import annotations

import re
from collections import deque
from typing import Any
from urllib.parse import urlsplit

APPS = ("/admin/mcp_django/", "/admin/mcp_oauth/")
# Django's own pages of each row, and files, which are not pages.
LEFT_OUT = ("/history/", "/delete/", "/jsi18n/", "/csv/", "/json/")
OK = 200
# One row of a kind is enough; a page with more in its path is a kind of its own.
ROW = re.compile(r"/(?:\d+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32,}|[\w-]{43,})(?=/|$)")


def kind(path: str) -> str:
    """Return the path without its key, which pages of one kind have in common."""
    return ROW.sub("/N", path.partition("&")[0])


def find(visitor: Any) -> list[str]:
    """Return the path of one screen of each kind, in the order in which they are found."""
    waiting, paths_by_kind = deque(APPS), {}
    while waiting:
        path = waiting.popleft()
        if kind(path) in paths_by_kind:
            continue
        paths_by_kind[kind(path)] = path
        if visitor.open(path) != OK:
            # The tests report it when they open the page.
            visitor.errors.clear()
            continue
        links = visitor.page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
        for link in links:
            parts = urlsplit(link)
            if link.startswith(visitor.site) and _is_screen(parts.path):
                # Other queries only filter and order the same screen.
                query = f"?{parts.query}" if parts.query.startswith("kind=") else ""
                waiting.append(f"{parts.path}{query}")
    return [*paths_by_kind.values()]


def _is_screen(path: str) -> bool:
    return path.startswith(APPS) and path.endswith("/") and not path.endswith(LEFT_OUT)
