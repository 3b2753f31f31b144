"""Icons as clients get them: absolute addresses only (UIX-2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urljoin

from mcp_django.conf import get_settings
from mcp_django.protocol.content import Icon


def published(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """The icons with an address that a client may fetch.

    A path on this site is completed by ``BASE_URL``; without an https one it is left out, since a
    client has to refuse it.
    """
    absolute = [{**icon.to_wire(), "src": _absolute(icon.src)} for icon in icons]
    return [icon for icon in absolute if icon["src"].lower().startswith(("https:", "data:"))]


def _absolute(src: str) -> str:
    return urljoin(get_settings().base_url, src) if src.startswith("/") else src
