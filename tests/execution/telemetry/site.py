"""A server whose tools return the span in which they run, and its URLs."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.urls import path
from opentelemetry import baggage, trace
from pydantic import SecretStr

from mcp_django import Context, MCPServer, ToolError
from mcp_django.auth.permissions import AllowAny
from tests.kit.drivers import message

PATH = "/traced/mcp"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
RECEIVED = {"traceparent": f"00-{TRACE_ID}-{CLIENT}-01", "tracestate": "a=1", "baggage": "k=v"}

traced = MCPServer("traced", permission=AllowAny)
begun: dict[str, asyncio.Event] = {}


def current() -> str:
    """Return the id of the current span."""
    return trace.format_span_id(trace.get_current_span().get_span_context().span_id)


@traced.tool(read_only=True)
def here() -> dict[str, Any]:
    """Say where it runs."""
    return {"spans": [current()], "baggage": dict(baggage.get_all())}


@traced.tool(read_only=True)
async def later() -> dict[str, Any]:
    """Say where it runs, and where its database work does."""
    return {"spans": [current(), await sync_to_async(current)()], "baggage": {}}


@traced.tool(read_only=True)
def walk(ctx: Context) -> dict[str, Any]:
    """Say where it runs, on a stream."""
    ctx.report_progress(1)
    return {"spans": [current()], "baggage": {}}


@traced.tool
def fail() -> str:
    """Fail."""
    raise ToolError("No order 47114711471147")


@traced.tool
def stumble() -> str:
    """Have a bug."""
    raise ZeroDivisionError("47114711471147")


@traced.tool(timeout=0.01)
async def hang() -> None:
    """Take too long."""
    await asyncio.Event().wait()


@traced.tool
async def wait(name: str) -> None:
    """Wait until somebody calls it off."""
    begun[name].set()
    await asyncio.Event().wait()


@traced.tool(scopes=["traced:write"])
def guarded() -> str:
    """Need a scope."""
    return "done"


@traced.tool
async def name(ctx: Context) -> str:
    """Ask."""
    return await ctx.aelicit("Your name?", str)


@traced.tool
def reads(ctx: Context) -> str:
    """Read what is there for others."""
    return str(ctx.read_resource("traced://about")[0].content)


@traced.tool(log_arguments=True, sensitive=["note"])
def pay(number: str, card: SecretStr, note: str = "") -> str:
    """Take secrets."""
    return number


@traced.resource("traced://about")
def about() -> str:
    """A fixed one."""
    return "about"


@traced.resource("traced://orders/{number}")
def order(number: str) -> str:
    """One of many."""
    return number


@traced.prompt
def greet(who: str) -> str:
    """Greet."""
    return who


@traced.completion(greet, "who")
def _names(value: str) -> list[str]:
    return [current()]


def call(tool: str, /, *, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """Return a call with the trace context of its client."""
    return message("tools/call", {"name": tool, "arguments": arguments}, id=id, **RECEIVED)


urlpatterns = [path("traced/mcp", traced.urls)]
