"""The Model Context Protocol for Django: a site's own functions, models and views for assistants.

Importing this needs no settings; see README.md for the way to add it to a site.
"""

from __future__ import annotations

from mcp_django.context import Context
from mcp_django.exceptions import MCPError, ToolError
from mcp_django.protocol.content import (
    Annotations,
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    Message,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
)
from mcp_django.schema.annotations import Header
from mcp_django.server import MCPServer, mcp

__version__ = "0.1.0"

__all__ = [
    "Annotations",
    "Audio",
    "Context",
    "EmbeddedResource",
    "Header",
    "Icon",
    "Image",
    "MCPError",
    "MCPServer",
    "Message",
    "ResourceContents",
    "ResourceLink",
    "Text",
    "ToolError",
    "ToolResult",
    "mcp",
]
