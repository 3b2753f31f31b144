"""The tool of the quick start, and a server with a component for each feature of the protocol."""

from __future__ import annotations

from datetime import date

from django.contrib.auth import get_user_model

from mcp_django import Context, MCPServer

shop = MCPServer("shop")
features = MCPServer("features")


@shop.tool(read_only=True)
def signups(since: date) -> int:
    """Count the users who joined on or after a date."""
    return get_user_model().objects.filter(date_joined__date__gte=since).count()


@features.tool
def declared(ctx: Context) -> dict[str, bool]:
    """Return the client requests that the client declares."""
    return {name: ctx.supports(name) for name in ("elicitation", "sampling")}


@features.tool
def greet(ctx: Context) -> str:
    """Greet the user by name."""
    name = ctx.elicit("What is your name?", str)
    return f"Hello, {name}."


@features.tool
def summarize(ctx: Context, text: str) -> str:
    """Have the client's model summarize a text."""
    return ctx.sample(f"Summarize: {text}", max_tokens=50).text


@features.tool
def rearrange() -> str:
    """Change the list of tools."""
    features.notify_list_changed("tools")
    return "rearranged"


@features.tool(task="optional")
def report() -> str:
    """Write a report, which may take long."""
    return "A report."


@features.resource("shop://news")
def news() -> str:
    """Return the news of the shop."""
    return "Nothing new."


@features.prompt
def letter(topic: str) -> str:
    """Write a letter."""
    return f"Write a letter about {topic}."
