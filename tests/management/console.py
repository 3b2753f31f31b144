"""Run `manage.py mcp` in this process, and read its output."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TextIO

from django.core.management import CommandError, call_command

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

_numbers = count(1)


@dataclass(frozen=True)
class Outcome:
    """What a command printed on both streams, its error and its exit status."""

    out: str
    err: str
    error: str = ""
    status: int = 0


def attempt(*arguments: str, stdin: TextIO | None = None) -> Outcome:
    """Run the command; without a terminal unless one is given."""
    out, err = io.StringIO(), io.StringIO()
    error, status = "", 0
    try:
        call_command("mcp", *arguments, stdout=out, stderr=err, stdin=stdin or io.StringIO())
    except CommandError as exc:
        error, status = str(exc), exc.returncode
    return Outcome(out.getvalue(), err.getvalue(), error, status)


def run(*arguments: str, stdin: TextIO | None = None) -> Outcome:
    """Run the command, which has to succeed."""
    outcome = attempt(*arguments, stdin=stdin)
    if outcome.status:
        raise AssertionError(f"status {outcome.status}: {outcome.error}\n{outcome.err}")
    return outcome


def fails(*arguments: str) -> str:
    """Run a command that has to fail, and return its error."""
    outcome = attempt(*arguments)
    if outcome.status != 1:
        raise AssertionError(f"status {outcome.status}: {outcome.out}")
    return outcome.error


@contextmanager
def terminal(*lines: str, ended: bool = False) -> Iterator[TextIO]:
    """Yield a pseudo-terminal at which these lines are typed, and Ctrl-D if it is `ended`."""
    master, slave = pty.openpty()
    typed = "".join(f"{line}\n" for line in lines) + ("\x04" if ended else "")
    try:
        os.write(master, typed.encode())
        with os.fdopen(slave, encoding="utf-8") as stdin:
            yield stdin
    finally:
        os.close(master)


def server_of(*functions: Any, **options: Any) -> MCPServer:
    """Return a server of its own, open to all, with these functions as tools."""
    server = MCPServer(f"cli-{next(_numbers)}", **{"permission": AllowAny, **options})
    for function in functions:
        server.tool(function)
    return server
