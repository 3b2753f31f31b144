"""The same tools with another library, which ``BENCH_PEER`` names.

This module is imported in the virtual environment of the peer, without this package. The tools are
at ``/mcp`` without sessions, and at ``/session`` with sessions if the peer has them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import django
from django.conf import settings

from benchmarks.site import STARTPROJECT, database

FILLERS = 45
PEER = os.environ.get("BENCH_PEER", "")

if not settings.configured:
    settings.configure(
        SECRET_KEY="only-for-benchmarks-and-long-enough-to-sign-with",
        ALLOWED_HOSTS=["localhost", "127.0.0.1", "[::1]"],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        DATABASES={"default": database(os.environ.get("BENCH_DB", ""))},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
            "benchmarks.site.BenchConfig",
            *(["django_bolt"] if PEER == "bolt" else []),
        ],
        MIDDLEWARE=STARTPROJECT,
        BOLT_API=["benchmarks.peer_site:api"],
    )
    django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import path  # noqa: E402

from benchmarks.site.models import Row  # noqa: E402

urlpatterns: list[Any] = []


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def add_sync(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


def list_rows(limit: int = 10) -> list[dict[str, Any]]:
    """The first rows of the table."""
    return list(Row.objects.order_by("pk").values(*Row.FIELDS)[:limit])


async def big(kb: int) -> str:
    """Return a text of this size in KiB."""
    return "x" * (kb * 1024)


async def slow(ms: int) -> str:
    """Wait for this number of milliseconds without blocking other calls."""
    await asyncio.sleep(ms / 1000)
    return "done"


def filler(query: str, status: str = "any", limit: int = 20) -> str:
    """Look for something: as long a description and schema as tools of real sites have."""
    return f"{limit} of {status}: {query}"


def named_tools() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the fifty tools with their names."""
    for function in (add, add_sync, list_rows, big, slow):
        yield function.__name__, function
    for number in range(FILLERS):
        yield f"filler_{number:02d}", filler


def sdk() -> Any:
    """Return the application of the official SDK."""
    from mcp.server import MCPServer
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.routing import Mount

    parts = []
    for stateless in (True, False):
        server = MCPServer("bench")
        for name, function in named_tools():
            server.add_tool(function, name=name, structured_output=False)
        parts.append(
            server.streamable_http_app(
                streamable_http_path="/",
                stateless_http=stateless,
                json_response=True,
                transport_security=TransportSecuritySettings(allowed_hosts=["127.0.0.1"]),
            )
        )
    return _at_paths(Starlette, Mount, *parts)


def fastmcp() -> Any:
    """Return the application of FastMCP."""
    from fastmcp import FastMCP
    from starlette.applications import Starlette
    from starlette.routing import Mount

    parts = []
    for stateless in (True, False):
        server = FastMCP("bench")
        for name, function in named_tools():
            server.tool(name=name, output_schema=None)(function)
        parts.append(
            server.http_app(
                path="/",
                stateless_http=stateless,
                json_response=True,
                allowed_hosts=["127.0.0.1"],
            )
        )
    return _at_paths(Starlette, Mount, *parts)


def _at_paths(starlette: Any, mount: Any, stateless: Any, stateful: Any) -> Any:
    """Return both applications at their paths; each has its own lifespan."""

    @asynccontextmanager
    async def lifespan(application: Any) -> Any:
        async with AsyncExitStack() as stack:
            for app in (stateless, stateful):
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    inner = starlette(
        routes=[mount("/mcp", stateless), mount("/session", stateful)], lifespan=lifespan
    )

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        # A mount redirects paths without a slash at the end.
        if scope["type"] == "http":
            scope = {**scope, "path": f"{scope['path']}/"}
        await inner(scope, receive, send)

    return serve


def mcpz() -> None:
    """Add the endpoint of django-mcpz, whose tools are synchronous, to the URLconf."""
    import msgspec
    from django_mcpz.server import MCPServer, Text, public

    server = MCPServer(name="bench", version="1", instructions="", auth=public)

    class Arguments(msgspec.Struct):
        a: int = 0
        b: int = 0
        kb: int = 0
        ms: int = 0
        limit: int = 10

    class Query(msgspec.Struct):
        query: str
        status: str = "any"
        limit: int = 20

    def register(name: str, work: Callable[[Any], str], schema: Any = Arguments) -> None:
        def run(request: object, params: Any) -> Text:
            return Text(work(params))

        options = {"name": name, "description": filler.__doc__ or "", "read_only": True}
        server.tool(input_schema=schema, **options)(run)

    def wait(arguments: Arguments) -> str:
        time.sleep(arguments.ms / 1000)
        return "done"

    register("add", lambda arguments: str(arguments.a + arguments.b))
    register("list_rows", lambda arguments: json.dumps(list_rows(arguments.limit), default=str))
    register("big", lambda arguments: "x" * (arguments.kb * 1024))
    register("slow", wait)
    for number in range(FILLERS + 1):
        register(f"filler_{number:02d}", lambda arguments: str(arguments.query), Query)
    urlpatterns.append(path("mcp", server))


def bolt() -> Any:
    """Return the API of django-bolt with the tools of bolt-mcp."""
    from bolt_mcp import MCP
    from django_bolt import BoltAPI

    bolt_api = BoltAPI()
    for place, stateless in (("/mcp", True), ("/session", False)):
        # With JSON responses, bolt-mcp has no sessions.
        server = MCP("bench", "1", stateless=stateless, json_response=stateless)
        for name, function in named_tools():
            server.tool(name=name)(function)
        bolt_api.mount_mcp(server, path=place)
    return bolt_api


application: Any = None
api: Any = None
if PEER == "sdk":
    application = sdk()
elif PEER == "fastmcp":
    application = fastmcp()
elif PEER == "mcpz":
    mcpz()
    application, wsgi = get_asgi_application(), get_wsgi_application()
elif PEER == "bolt":
    api = bolt()


def run_bolt(port: int) -> None:
    """Run the server of django-bolt."""
    from django.core.management import execute_from_command_line

    options = ["--host", "127.0.0.1", "--port", str(port), "--processes", "1"]
    execute_from_command_line(["manage.py", "runbolt", *options])
