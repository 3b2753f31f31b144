"""The prompts that the suite gets, and the argument that it completes."""

from __future__ import annotations

from typing import Annotated

from mcp_django import EmbeddedResource, Image, Message
from tests.conformance.media import PIXEL
from tests.conformance.server import server

WORDS = ("paris", "park", "party", "test", "testing")


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(
    arg1: Annotated[str, "First test argument"], arg2: Annotated[str, "Second test argument"]
) -> str:
    """A prompt that repeats its arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(test_prompt_with_arguments, "arg1")
def words(value: str) -> list[str]:
    """Suggest words that begin like this."""
    return [word for word in WORDS if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, "URI of the resource to embed"],
) -> list[Message]:
    """A prompt with a resource in it."""
    text = "Embedded resource content for testing."
    return [
        Message(EmbeddedResource(resourceUri, text=text, mime_type="text/plain")),
        Message("Please process the embedded resource above."),
    ]


@server.prompt
def test_prompt_with_image() -> list[Message]:
    """A prompt with a picture in it."""
    return [Message(Image(PIXEL)), Message("Please analyze the image above.")]
