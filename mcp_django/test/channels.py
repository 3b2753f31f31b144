"""The transports that a test client knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mcp_django.protocol.revisions import V2024_11_05
from mcp_django.test.entrance import Entrance
from mcp_django.test.http import HTTPChannel
from mcp_django.test.messages import Channel
from mcp_django.test.shared import EventChannel, LineChannel

CHANNELS: Final[Mapping[str, Callable[[Entrance], Channel]]] = {
    "http": HTTPChannel,
    "sse": EventChannel,
    "stdio": LineChannel,
}


def check_transport(name: str, version: str) -> None:
    """Refuse a transport that does not exist, or does not carry the revision.

    Raises:
        ValueError: naming what there is.
    """
    if name != "memory" and name not in CHANNELS:
        known = ", ".join(["memory", *CHANNELS])
        raise ValueError(f"There is no transport {name!r}; use one of {known}.")
    if name == "sse" and version != V2024_11_05.version:
        raise ValueError(
            f"The transport 'sse' carries {V2024_11_05.version} alone, not {version!r}; pass "
            f"protocol_version={V2024_11_05.version!r}, or transport='http'."
        )
