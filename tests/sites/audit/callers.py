"""Clients of every transport, each of which calls one tool once."""

from __future__ import annotations

import asyncio
import io
import json
import os
from dataclasses import dataclass
from typing import Any

from channels.routing import URLRouter
from django.core.management import call_command
from django.urls import re_path

from mcp_django.auth.authentication import LocalCaller
from mcp_django.transports.consumer import MCPConsumer
from mcp_django.transports.stdio import StdioChannel
from tests.kit.drivers import PATIENCE, Answer, message
from tests.sites.audit import site
from tests.transports.asgi import MOUNTS
from tests.transports.http_session import handshakes, legacy
from tests.transports.mounts import ask, in_thread

SERVERS = {"notes": site.notes, "rest": site.rest, "staff": site.staff}
PLACES = {f"^{name}/mcp(?:/sse|/messages)?/?$": server for name, server in SERVERS.items()}
OWN_MOUNTS = {
    "raw": URLRouter([re_path(place, server.asgi) for place, server in PLACES.items()]),
    "consumer": URLRouter(
        [re_path(place, MCPConsumer.as_asgi(server=server)) for place, server in PLACES.items()]
    ),
}
MOUNTS_WITH_SESSIONS = ("wsgi", "view", "lane", "raw", "consumer")
HTTP = (
    *MOUNTS_WITH_SESSIONS,
    *(f"{mount} in a session" for mount in MOUNTS_WITH_SESSIONS),
    "sse",
)
LOCAL = ("stdio", "command")
PROGRESS = "progress-1"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A user with a token, or an anonymous caller."""

    username: str = ""
    token: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call of a tool, with a progress token if `streams`."""

    server: str
    tool: str
    arguments: dict[str, Any]
    streams: bool = False


@dataclass(frozen=True)
class Outcome:
    """The response, and whether it was the last event of a stream."""

    response: dict[str, Any]
    is_stream: bool = False

    @property
    def is_done(self) -> bool:
        return not self.response.get("result", {"isError": True}).get("isError", False)


async def call(mount: str, caller: Caller, wanted: ToolCall) -> Outcome:
    """Call a tool at a mount, or on another transport, as a caller."""
    if mount == "stdio":
        return await _over_stdio(caller, wanted)
    if mount == "command":
        return await in_thread(_by_command, caller, wanted)
    if mount == "sse":
        return await _over_sse(caller, wanted)
    mount, _, session = mount.partition(" ")
    path = f"/{wanted.server}/mcp"
    if session:
        peer = await handshakes.opened(mount, path, token=caller.token)
        answer = await peer.send(_in_session(wanted))
    else:
        meta = {"progressToken": PROGRESS} if wanted.streams else {}
        params = {"name": wanted.tool, "arguments": wanted.arguments}
        body = message("tools/call", params, **meta)
        answer = await ask(mount, path, body, authorization=caller.token)
    return _outcome(answer)


def _outcome(answer: Answer) -> Outcome:
    assert answer.status == 200, answer.body
    return Outcome(answer.response(), answer.is_stream)


def _in_session(wanted: ToolCall) -> dict[str, Any]:
    meta = {"_meta": {"progressToken": PROGRESS}} if wanted.streams else {}
    params = {"name": wanted.tool, "arguments": wanted.arguments, **meta}
    return handshakes.request("tools/call", params)


async def _over_sse(caller: Caller, wanted: ToolCall) -> Outcome:
    path = f"/{wanted.server}/mcp/sse"
    async with legacy.opened(MOUNTS["raw"], path, authorization=caller.token) as stream:
        await stream.ask(handshakes.initialize("2024-11-05"))
        await stream.post(handshakes.INITIALIZED)
        response = await stream.ask(_in_session(wanted))
        while "method" in response:
            response = await stream.said()
        return Outcome(response, is_stream=True)


async def _over_stdio(caller: Caller, wanted: ToolCall) -> Outcome:
    server = SERVERS[wanted.server]
    local = LocalCaller(username=caller.username, token="", server=server.name)
    authorized = await in_thread(local.principal)
    source, sink = os.pipe()
    back, out = os.pipe()
    channel = StdioChannel(source, out, when_ending=lambda: None)
    serving = asyncio.create_task(channel.serve(server.unwrapped, local, authorized=authorized))
    with os.fdopen(back, "rb") as lines:
        meta = {"progressToken": PROGRESS} if wanted.streams else {}
        params = {"name": wanted.tool, "arguments": wanted.arguments}
        os.write(sink, json.dumps(message("tools/call", params, **meta)).encode() + b"\n")
        response = {"method": ""}
        while "method" in response:
            async with asyncio.timeout(PATIENCE):
                response = json.loads(await asyncio.to_thread(lines.readline))
        os.close(sink)
        async with asyncio.timeout(PATIENCE):
            await serving
        for end in (source, out):
            os.close(end)
    return Outcome(response, is_stream=wanted.streams)


def _by_command(caller: Caller, wanted: ToolCall) -> Outcome:
    out = io.StringIO()
    call_command(
        "mcp",
        "call",
        wanted.tool,
        *(f"{name}={value}" for name, value in wanted.arguments.items()),
        *(("--user", caller.username) if caller.username else ()),
        "--server",
        SERVERS[wanted.server].name,
        "--json",
        stdout=out,
        stderr=io.StringIO(),
        stdin=io.StringIO(),
    )
    return Outcome(json.loads(out.getvalue()))
