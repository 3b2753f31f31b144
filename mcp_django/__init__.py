"""The Model Context Protocol for Django: functions, models and views as tools for AI assistants.

Importing this package needs no settings; README.md describes how to add it to a site.
"""

from __future__ import annotations

from mcp_django.components.context import Context, CurrentTask, SessionInfo, UpstreamAccess
from mcp_django.components.questions import (
    Elicit,
    ElicitURL,
    ListRoots,
    Root,
    Sample,
    SampledMessage,
    ToolResultBlock,
)
from mcp_django.components.tool import UI
from mcp_django.exceptions import ElicitationDeclined, MCPError, ToolError
from mcp_django.integrations.models.declaration import ModelResource, ModelTools
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
from mcp_django.schema.arguments import Header
from mcp_django.server import MCPServer, mcp

__version__ = "0.1.0"

__all__ = [
    "UI",
    "Annotations",
    "Audio",
    "Context",
    "CurrentTask",
    "Elicit",
    "ElicitURL",
    "ElicitationDeclined",
    "EmbeddedResource",
    "Header",
    "Icon",
    "Image",
    "ListRoots",
    "MCPError",
    "MCPServer",
    "Message",
    "ModelResource",
    "ModelTools",
    "ResourceContents",
    "ResourceLink",
    "Root",
    "Sample",
    "SampledMessage",
    "SessionInfo",
    "Text",
    "ToolError",
    "ToolResult",
    "ToolResultBlock",
    "UpstreamAccess",
    "mcp",
]
