"""``mcp stdio``: serve the client that started this process, over its standard streams."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from mcp_django.auth.authentication import LocalCaller
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution.policy import REFUSALS, authorize_connection
from mcp_django.management.lookups import check_connection, find_principal, find_server
from mcp_django.server import MCPServer
from mcp_django.transports import drain
from mcp_django.transports.conversation import HINT
from mcp_django.transports.stdio import (
    CLEANUP_SECONDS,
    GRACE_SECONDS,
    StdioChannel,
    take_over_stdio,
)

USER_VARIABLE = "MCP_DJANGO_USER"
TOKEN_VARIABLE = "MCP_DJANGO_TOKEN"

# The process exits after this time, even if threads that cannot be stopped are still running.
EXIT_DEADLINE_SECONDS = GRACE_SECONDS + 2 * CLEANUP_SECONDS + 0.25


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser("stdio", help="Serve one client over standard input/output.")
    parser.add_argument(
        "--server", metavar="NAME", help="The server to serve (default: the default one)."
    )
    parser.add_argument(
        "--user",
        metavar="USERNAME",
        help=f"The user to serve; the environment variables {USER_VARIABLE} and {TOKEN_VARIABLE} "
        "set it as well.",
    )
    # No system checks: they take time, and hosts show their output as failures.
    parser.set_defaults(run=run, skip_checks=True, needs_tenant=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Serve until the client disconnects.

    Raises:
        CommandError: the server or user does not exist, the token is not valid, or both environment
            variables are set.
    """
    if sys.stdin is None or sys.stdout is None:
        raise CommandError("The standard input or output is closed, and mcp stdio needs both.")
    # Taken over before anything else can print to the standard output.
    source, sink = take_over_stdio()
    server = find_server(options["server"])
    caller = replace(_read_caller(options["user"]), server=server.name)
    authorized = _authorized_principal(command, server, caller)
    # This thread no longer needs a database connection: requests run in other threads.
    connections.close_all()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    asyncio.run(_serve(server, caller, authorized, source, sink))


def _read_caller(username: str | None) -> LocalCaller:
    """Return the caller of this process: from the command line, or else from the environment.

    The token is in no frame of the process while it serves.

    Raises:
        CommandError: both environment variables are set.
    """
    if username:
        return LocalCaller(username=username)
    username, token = (os.environ.get(name, "") for name in (USER_VARIABLE, TOKEN_VARIABLE))
    if username and token:
        raise CommandError(f"Both {USER_VARIABLE} and {TOKEN_VARIABLE} are set; set only one.")
    return LocalCaller(username=username, token=token)


def _authorized_principal(
    command: BaseCommand, server: MCPServer, caller: LocalCaller
) -> Principal | None:
    """Return the caller if the server authorizes it; else write the reason to the error stream."""
    if caller.username:
        # Raises an error that suggests similar usernames, if the user does not exist.
        find_principal(caller.username)
    try:
        principal = caller.principal()
    except AuthenticationRequired as exc:
        raise CommandError(f"{TOKEN_VARIABLE}: {exc} See: manage.py mcp token list.") from None
    # Raises an error that names a permission that fails.
    check_connection(server, principal)
    try:
        # Not `admit_caller`, which needs the database; each request is authorized again.
        authorize_connection(server, principal)
    except REFUSALS as exc:
        reason = str(exc) if principal.is_authenticated else HINT
        command.stderr.write(f"The server {server.name!r} will reject every request: {reason}")
        return None
    return principal


async def _serve(
    server: MCPServer, caller: LocalCaller, principal: Principal | None, source: int, sink: int
) -> None:
    channel = StdioChannel(source, sink, when_ending=_exit_after_deadline)
    await channel.serve(server, caller, authorized=principal)
    # Cancelled functions may still be cleaning up; asyncio.run() would cancel that as well.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=CLEANUP_SECONDS)


def _stop(number: int, frame: FrameType | None) -> None:
    """Shut down as at the end of the input, with exit status 0."""
    _exit_after_deadline()
    drain.begin_drain()


@cache
def _exit_after_deadline() -> None:
    """Exit after ``EXIT_DEADLINE_SECONDS``, even if a thread or the event loop is blocked."""
    timer = threading.Timer(EXIT_DEADLINE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
