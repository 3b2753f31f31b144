"""The tools that the suite calls and that ask no questions."""

from __future__ import annotations

import json
from typing import Annotated, Any

from django.contrib.auth.models import Group

from mcp_django import Audio, Context, EmbeddedResource, Header, Image, Text, ToolError
from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from tests.conformance.media import PIXEL, SILENCE
from tests.conformance.server import server

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool
def test_simple_text() -> str:
    """Return one text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Return one picture."""
    return Image(PIXEL)


@server.tool
def test_audio_content() -> Audio:
    """Return one sound."""
    return Audio(SILENCE)


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return one resource."""
    text = "This is an embedded resource content."
    return EmbeddedResource("test://embedded-resource", text=text, mime_type="text/plain")


@server.tool
def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Return a text, a picture and a resource."""
    text = json.dumps({"test": "data", "value": 123})
    return [
        Text("Multiple content types test:"),
        Image(PIXEL),
        EmbeddedResource("test://mixed-content-resource", text=text, mime_type="application/json"),
    ]


@server.tool
def test_tool_with_logging(ctx: Context) -> str:
    """Send three log messages."""
    for message in ("started", "in progress", "completed"):
        ctx.log("info", f"Tool execution {message}")
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Send a log message of each urgency."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.alog(level, f"A message of level {level}", logger="conformance")
    return "Logged"


@server.tool
def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for progress in (0, 50, 100):
        ctx.report_progress(progress, 100, f"Completed step {progress} of 100")
    return "Tool with progress executed successfully"


@server.tool(slow=True)
async def test_reconnection(ctx: Context) -> str:
    """Send the client away in the middle of the call; it comes back for the rest."""
    await ctx.areport_progress(1, 2, "Before the connection closes")
    await ctx.aclose_stream(seconds=0.5)
    await ctx.areport_progress(2, 2, "After the connection closed")
    return "The rest, after the connection closed."


@server.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool(input_schema=SCHEMA)
def json_schema_2020_12_tool(**given: Any) -> str:
    """Take what a schema with many keywords of JSON Schema 2020-12 allows."""
    return f"JSON Schema 2020-12 tool called with: {json.dumps(given)}"


@server.tool
def test_header_routing(region: Annotated[str, Header("Region")]) -> str:
    """Mirror an argument into a header."""
    return f"Routed to {region}"


class IsSwitchedOn(BasePermission):
    """Holds while a row of this name exists, so that a list can change while the server runs.

    A row and not a variable: every worker process has to give the same list.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def has_permission(self, principal: Principal) -> bool:
        return Group.objects.filter(name=self.name).exists()


def switch(name: str) -> str:
    """Toggle the components that depend on a name, and return their new state."""
    _, is_new = Group.objects.get_or_create(name=name)
    if not is_new:
        Group.objects.filter(name=name).delete()
    return "on" if is_new else "off"


@server.tool(permission=IsSwitchedOn("test_sometimes"))
def test_sometimes() -> str:
    """Be there at times."""
    return "I am here."


@server.prompt(permission=IsSwitchedOn("test_sometimes_prompt"))
def test_sometimes_prompt() -> str:
    """Be there at times."""
    return "I am here."


@server.tool
def test_trigger_tool_change() -> str:
    """Put a tool on the list, or take it off again."""
    state = switch("test_sometimes")
    server.notify_list_changed("tools")
    return f"test_sometimes is {state}"


@server.tool
def test_trigger_prompt_change() -> str:
    """Put a prompt on the list, or take it off again."""
    state = switch("test_sometimes_prompt")
    server.notify_list_changed("prompts")
    return f"test_sometimes_prompt is {state}"
