"""The resources that the suite reads."""

from __future__ import annotations

from typing import Any

from tests.conformance.media import PIXEL
from tests.conformance.server import server


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """The data of one id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Text that clients subscribe to."""
    return "Watched resource content"


server.register_skills("skills")
