"""The servers of the record, each restricted in another way, and their addresses.

Open and members have the same components, so that their answers differ by the caller alone.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, cast

from channels.routing import URLRouter
from django.contrib import admin
from django.core.exceptions import ObjectDoesNotExist
from django.urls import path, re_path

from mcp_django import MCPServer, Message
from mcp_django.auth.permissions import AllowAny, IsStaff
from tests.matrix.components_tools import declare_tools
from tests.sites.example.asgi import application, plain

SETTINGS: dict[str, Any] = {
    "ALLOWED_ORIGINS": ["https://page.example"],
    "HEALTH": True,
    "LIMITS": {"rows": 5, "statements": 3},
    "MAX_BODY_BYTES": 20_000,
    "MAX_RESULT_BYTES": 1000,
    "SCOPES": {"mcp": "Use the tools", "matrix:write": "Change things", "other": "Something else"},
}
ITEMS = ["apple", "banana", "cherry"]


def make(name: str, **options: Any) -> MCPServer:
    """Return a server whose identity does not change with the version of the package."""
    return MCPServer(f"matrix-{name}", version="1.0", title="Gallery", **options)


open_to_all = make("open", permission=AllowAny, instructions="Look.", auth=["tokens"])
members = make("members", instructions="Look.", auth=["tokens"])
guarded = make("guarded", permission=IsStaff, auth=["tokens"])
rated = make("rated", permission=AllowAny, rate="1/h", auth=["tokens"])
scoped = make("scoped", auth=["oauth", "tokens"])
bare = make("bare", permission=AllowAny, auth=["tokens"])
pages = make("pages", permission=AllowAny, page_size=2, auth=["tokens"])


def declare_resources(server: MCPServer) -> None:
    """Declare the resources, among them templates."""

    @server.resource("matrix://text", mime_type="text/markdown", title="Text")
    def text() -> str:
        """A text."""
        return "# Text"

    @server.resource("matrix://later", aliases=["matrix://former"])
    async def later() -> str:
        """A text from the event loop."""
        return "later"

    @server.resource("matrix://binary", mime_type="image/png")
    def binary() -> bytes:
        """A picture."""
        return b"\x89PNG"

    @server.resource("matrix://items/{name}", mime_type="application/json")
    def item(name: str) -> dict[str, Any]:
        """An item by its name."""
        if name not in ITEMS:
            raise ObjectDoesNotExist("No such item.")
        return {"name": name}

    @server.resource("matrix://numbers/{number}")
    def number(number: int) -> str:
        """A number."""
        return str(number)

    @server.resource("matrix://hidden", permission=IsStaff)
    def hidden() -> str:
        """For members of staff."""
        return "hidden"

    @server.resource("matrix://broken")
    def broken() -> str:
        """A bug."""
        raise RuntimeError("secret detail")

    @server.completion(item, "name")
    def names(value: str) -> list[str]:
        """Suggest items."""
        return [item_name for item_name in ITEMS if item_name.startswith(value)]


def declare_prompts(server: MCPServer) -> None:
    """Declare the prompts."""

    @server.prompt(title="Guide")
    def guide(topic: str, tone: str = "warm") -> list[Message]:
        """Guide a visitor."""
        return [Message(f"Talk about {topic}, {tone}."), Message("Gladly.", role="assistant")]

    @server.prompt
    async def guide_later(topic: str) -> str:
        """Guide a visitor from the event loop."""
        return f"Talk about {topic}."

    @server.prompt(template="example/briefing.txt")
    def briefing(topic: str) -> dict[str, str]:
        """Brief the guides."""
        return {"topic": topic}

    @server.prompt(permission=IsStaff)
    def hidden() -> str:
        """For members of staff."""
        return "hidden"

    @server.completion("guide", "topic")
    async def topics(value: str, tone: str) -> list[str]:
        """Suggest topics."""
        return [f"{value}-{tone}-{n}" for n in range(3)]


for server in (open_to_all, members):
    declare_tools(server)
    declare_resources(server)
    declare_prompts(server)
    if find_spec("yaml"):
        server.register_skills("skills")


def look() -> str:
    """Look around."""
    return "looked"


for server in (guarded, rated, scoped):
    server.tool(look)
scoped.tool("change", scopes=["matrix:write"])(look)


for name in ("one", "two", "three"):

    @pages.tool(f"tool_{name}")
    def page_tool() -> str:
        """A tool among others."""
        return "done"

    @pages.resource(f"pages://{name}")
    def page_resource() -> str:
        """A resource among others."""
        return "text"

    @pages.resource(f"pages://{name}/{{part}}")
    def page_template(part: str) -> str:
        """A template among others."""
        return part

    @pages.prompt(f"prompt_{name}")
    def page_prompt() -> str:
        """A prompt among others."""
        return "text"


SERVERS = {
    server.name.removeprefix("matrix-"): server
    for server in (open_to_all, members, guarded, rated, scoped, bare, pages)
}

urlpatterns = [
    *(path(f"{name}/mcp", server.urls) for name, server in SERVERS.items()),
    path("admin/", admin.site.urls),
]
# The endpoint, the two of HTTP+SSE, and the health check.
raw_patterns: list[Any] = [
    re_path(f"^{name}/mcp(?:/sse|/messages|/health)?/?$", cast(Any, server.asgi))
    for name, server in SERVERS.items()
]
raw = URLRouter(raw_patterns)
MOUNTS = {"raw": raw, "lane": application, "view": plain}
