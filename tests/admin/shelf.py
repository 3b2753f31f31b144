"""A server with one component of each kind, which the screens show."""

from __future__ import annotations

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

shelf = MCPServer(
    "shelf",
    title="The shelf",
    instructions="Ask before you take.",
    permission=AllowAny,
    rate="1000/h",
)


@shelf.tool(read_only=True, title="Look")
def look(where: str) -> str:
    """Look at the shelf <b>closely</b>."""
    return where


@shelf.tool(destructive=True, permission="auth.delete_group", scopes=["shelf:write"])
def clear() -> str:
    """Clear the shelf."""
    return "cleared"


@shelf.resource("shelf://about")
def about() -> str:
    """What stands there."""
    return "books"


@shelf.resource("shelf://books/{name}")
def book(name: str) -> str:
    """A book."""
    return name


@shelf.prompt
def recommend(topic: str) -> str:
    """Recommend a book."""
    return f"A book about {topic}."
