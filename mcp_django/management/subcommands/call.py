"""``mcp call``: run a tool, read a resource or get a prompt, as one user and for real."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from mcp_django.auth.principal import Principal
from mcp_django.core.component import Component
from mcp_django.exceptions import AccessRefused, AuthenticationRequired
from mcp_django.execution.results import CallAborted
from mcp_django.management.answers import Prepared
from mcp_django.management.command_errors import SEE_WHERE, command_error, name_and_text
from mcp_django.management.conversation import Conversation
from mcp_django.management.guards import failed_permission, guard_names, verdict
from mcp_django.management.lookups import add_place, find_component, find_principal
from mcp_django.management.narrator import Narrator
from mcp_django.management.offering import SWITCHED_OFF, guards_of_server
from mcp_django.management.questions import CAPABILITIES, Answerer, Nobody
from mcp_django.management.rendering import binaries, printable, render
from mcp_django.management.requests import request_for
from mcp_django.management.terminal import Terminal
from mcp_django.server import MCPServer
from mcp_django.signals import component_failed
from mcp_django.transports.memory import Response


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser(
        "call", help="Run a tool, read a resource or get a prompt, for real."
    )
    parser.add_argument("name", help="The name of a tool or prompt, or the URI of a resource.")
    parser.add_argument(
        "pairs",
        nargs="*",
        metavar="key=value",
        help="An argument; key=@FILE reads it from a file, key:=JSON takes any JSON.",
    )
    parser.add_argument("--user", help="The user who calls; nobody, if left out.")
    add_place(parser)
    parser.add_argument("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        dest="answers",
        metavar="NAME=VALUE",
        help="Answers a question: a field of a form, or the whole of it as JSON, accept, decline "
        "or cancel. Repeatable; what has the same name is used in the order of the questions.",
    )
    parser.add_argument(
        "--no-input", action="store_true", help="Be a client that cannot be asked anything."
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="Write the first image, sound or blob there."
    )
    parser.add_argument("--json", action="store_true", help="Print the JSON-RPC response.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Make the call and print what came of it; a failure is the exit status 1."""
    server, component = find_component(
        options["name"], server=options["server"], kind=options["kind"]
    )
    method, params = request_for(
        component,
        options["name"],
        pairs=options["pairs"],
        json_arguments=options["json_args"],
    )
    principal = find_principal(options["user"])
    prepared = Prepared(options["answers"], _answerer(command, options))
    conversation = Conversation(
        server,
        principal,
        answerer=prepared,
        capabilities={} if options["no_input"] else CAPABILITIES,
        listener=Narrator(command.stderr),
    )
    bugs: list[Exception] = []

    def keep(exception: Exception, **kwargs: Any) -> None:
        bugs.append(exception)

    component_failed.connect(keep)
    try:
        response = conversation.request(method, params)
        _print(command, options, response)
        if options["output"] and "result" in response:
            _write(command, options["output"], response["result"])
        _fail_if_failed(server, component, principal, response, bugs)
    except CommandError as exc:
        if unused := prepared.unused():
            raise CommandError(f"{exc}\n{unused}", returncode=exc.returncode) from exc
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise _failure(server, component, principal, options["user"], exc) from exc
    finally:
        component_failed.disconnect(keep)
    if unused := prepared.unused():
        # What the call did is done, so this is no failure.
        command.stderr.write(unused, style_func=command.style.WARNING)


def _answerer(command: BaseCommand, options: Mapping[str, Any]) -> Answerer:
    stdin = options.get("stdin") or sys.stdin
    is_terminal = stdin is not None and not stdin.closed and stdin.isatty()
    return Terminal(stdin, command.stderr) if is_terminal else Nobody()


def _print(command: BaseCommand, options: Mapping[str, Any], response: Response) -> None:
    if options["json"]:
        command.stdout.write(json.dumps(response, ensure_ascii=False))
    elif "result" in response:
        text = render(response["result"])
        # Elsewhere than at a terminal the text has to arrive as it is.
        command.stdout.write(printable(text) if command.stdout.isatty() else text)


def _write(command: BaseCommand, path: Path, result: Mapping[str, Any]) -> None:
    content = next(binaries(result), None)
    if content is None:
        raise CommandError("There is no image, sound or blob in the answer; nothing was written.")
    try:
        path.write_bytes(content)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CommandError(f"{path} cannot be written: {reason}.") from exc
    command.stderr.write(f"Wrote {len(content):,} bytes to {path}.", style_func=str)


def _fail_if_failed(
    server: MCPServer,
    component: Component,
    principal: Principal,
    response: Response,
    bugs: list[Exception],
) -> None:
    """Raise what makes the exit status 1."""
    if bugs:
        raise _bug(component, bugs[-1]) from bugs[-1]
    if "error" in response:
        _fail(server, component, principal, response["error"])
    if response["result"].get("isError"):
        raise CommandError(f"The {component} answered with an error.")


def _bug(component: Component, exc: BaseException) -> CommandError:
    if isinstance(exc, CallAborted) and exc.__cause__ is not None:
        exc = exc.__cause__
    return CommandError(f"The {component} raised {name_and_text(exc)}\n{SEE_WHERE}")


def _failure(
    server: MCPServer,
    component: Component,
    principal: Principal,
    username: str | None,
    exc: BaseException,
) -> CommandError:
    """The error for what came out of the runtime in place of a response."""
    if not isinstance(exc, Exception):
        # What ends threads and processes is not caught there.
        return _bug(component, exc)
    if failed := failed_permission(server, component, principal):
        return failed
    if isinstance(exc, AccessRefused):
        return _refusal(server, component, username, exc)
    return command_error(exc)


def _fail(
    server: MCPServer, component: Component, principal: Principal, error: Mapping[str, Any]
) -> NoReturn:
    seen = verdict(server, component, principal)
    if not seen.is_visible:
        if failed := failed_permission(server, component, principal):
            raise failed
        who = principal.user.get_username() or "callers without --user"
        raise CommandError(
            f"The {component} is hidden from {who} by {', '.join(seen.refused_by)}; "
            f"a client is told: {error['message']}"
        )
    data = f"\n{json.dumps(error['data'], ensure_ascii=False)}" if error.get("data") else ""
    raise CommandError(f"{error['message']} ({error['code']}){data}")


def _refusal(
    server: MCPServer, component: Component, username: str | None, exc: AccessRefused
) -> CommandError:
    if not server.offered.is_enabled:
        return CommandError(f"The server {server.name!r} is {SWITCHED_OFF}.")
    guards = " and ".join(guard_names(guards_of_server(server)))
    if isinstance(exc, AuthenticationRequired):
        own = " and ".join(guard_names(component.permission))
        needs = f"needs {own}" if own else f"is on server {server.name!r}, which needs {guards}"
        return CommandError(f"The {component} {needs}; say who calls with --user.")
    return CommandError(f"{username} may not use server {server.name!r}, which needs {guards}.")
