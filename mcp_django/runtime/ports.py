"""What the runtime asks of a server; ``mcp_django.server.MCPServer`` is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mcp_django.components.completion import Completion
from mcp_django.components.prompt import Prompt
from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.components.tool import Tool


class Server(Protocol):
    """The components of a server and what it says of itself."""

    name: str
    permission: Any

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Resources by URI."""

    @property
    def templates(self) -> Mapping[str, ResourceTemplate]:
        """Resource templates by template."""

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """Prompts by name."""

    @property
    def completions(self) -> Mapping[tuple[str, str, str], Completion]:
        """Completions by kind, key and argument."""

    @property
    def is_guarded(self) -> bool:
        """Whether any component asks for a permission."""

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends in use."""

    @property
    def instructions(self) -> str:
        """What a model should know of the server."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The revisions served."""

    @property
    def page_size(self) -> int:
        """Entries per page of a list."""

    def identity(self) -> dict[str, Any]:
        """Name, version and the rest of ``serverInfo``."""

    def find_resource(self, uri: str) -> tuple[ReadableComponent, dict[str, str]] | None:
        """The resource that answers for a URI."""

    def read_resource(self, incoming: Any, uri: str) -> Any:
        """Read a resource on behalf of a running call."""
