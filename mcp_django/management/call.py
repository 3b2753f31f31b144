"""``mcp call``: run a tool, read a resource or get a prompt as one user.

The call has real effects: it goes through the same policy and runtime as a call over the network
(``transports.memory``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from mcp_django import __version__
from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component, Prompt
from mcp_django.components.questions import ANSWERABLE
from mcp_django.components.resource import ReadableComponent, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.exceptions import AccessRefused, AuthenticationRequired
from mcp_django.execution.policy import Verdict
from mcp_django.execution.results import CallAborted
from mcp_django.management.command_errors import TRACEBACK_HINT, command_error, describe_exception
from mcp_django.management.lookups import (
    DISABLED,
    add_component_options,
    check_access,
    denial_names,
    find_component,
    find_principal,
    permission_names,
    server_permissions,
)
from mcp_django.management.terminal import (
    Answerer,
    ClientRequest,
    ClientResult,
    NonInteractiveAnswerer,
    OptionAnswerer,
    RequestDeclined,
    TerminalAnswerer,
    describe_request,
)
from mcp_django.management.text_output import binaries, escape_control_characters, result_text
from mcp_django.management.values import parse_object, parse_pairs, parse_text_pairs
from mcp_django.protocol.revisions import LATEST, STATELESS
from mcp_django.server import MCPServer
from mcp_django.signals import component_failed
from mcp_django.transports.memory import LocalClient, Message

CLIENT = {"name": "manage.py mcp call", "version": __version__}
MethodAndParams = tuple[str, dict[str, Any]]


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser(
        "call", help="Run a tool, read a resource or get a prompt, with real effects."
    )
    parser.add_argument("name", help="The name of a tool or prompt, or the URI of a resource.")
    parser.add_argument(
        "pairs",
        nargs="*",
        metavar="key=value",
        help="An argument. key=@FILE reads the value from a file; key:=JSON takes any JSON.",
    )
    parser.add_argument("--user", help="The user to call as; without it, the call is anonymous.")
    add_component_options(parser)
    parser.add_argument("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        dest="answers",
        metavar="NAME=VALUE",
        help="Answer a client request: one field of a form, or without a name the whole request, "
        "as JSON, accept, decline or cancel. Repeatable; answers with the same name are used in "
        "the order of the requests.",
    )
    parser.add_argument(
        "--no-input",
        action="store_true",
        help="Act as a client without elicitation, sampling and roots.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="Write the first image, audio or blob of the result to this file.",
    )
    parser.add_argument("--json", action="store_true", help="Print the JSON-RPC response.")
    parser.set_defaults(run=run, skip_checks=True, needs_tenant=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Make the call and print its result.

    Raises:
        CommandError: the call failed; the exit status is 1.
    """
    server, component = find_component(
        options["name"], server=options["server"], kind=options["kind"]
    )
    method, params = _build_request(
        component, options["name"], pairs=options["pairs"], json_arguments=options["json_args"]
    )
    attempt = _Attempt(server, component, find_principal(options["user"]))
    stdin = options.get("stdin") or sys.stdin
    is_terminal = stdin is not None and not stdin.closed and stdin.isatty()
    fallback = TerminalAnswerer(stdin, command.stderr) if is_terminal else NonInteractiveAnswerer()
    answers = OptionAnswerer(options["answers"], fallback)
    exceptions: list[Exception] = []

    def record_exception(exception: Exception, **kwargs: Any) -> None:
        exceptions.append(exception)

    component_failed.connect(record_exception)
    try:
        response = attempt.request(
            method,
            params,
            answerer=answers,
            capabilities={} if options["no_input"] else ANSWERABLE,
            stderr=command.stderr,
        )
        _write_response(command, options, response)
        attempt.raise_if_failed(response, exceptions)
    except CommandError as exc:
        if unused := answers.unused_text():
            raise CommandError(f"{exc}\n{unused}", returncode=exc.returncode) from exc
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise attempt.error_for(exc) from exc
    finally:
        component_failed.disconnect(record_exception)
    if unused := answers.unused_text():
        # The call itself succeeded, so unused answers are a warning.
        command.stderr.write(unused, style_func=command.style.WARNING)


def _write_response(command: BaseCommand, options: Mapping[str, Any], response: Message) -> None:
    """Print a response, and write the first image, audio or blob of its result to ``--output``.

    Raises:
        CommandError: the result has no such content, or the file cannot be written.
    """
    if options["json"]:
        command.stdout.write(json.dumps(response, ensure_ascii=False))
    elif "result" in response:
        text = result_text(response["result"])
        # Escape control characters for terminals only; pipes and files get the text unchanged.
        command.stdout.write(escape_control_characters(text) if command.stdout.isatty() else text)
    if not options["output"] or "result" not in response:
        return
    path = options["output"]
    content = next(binaries(response["result"]), None)
    if content is None:
        raise CommandError("The result has no image, audio or blob; no file was written.")
    try:
        path.write_bytes(content)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise CommandError(f"{path} cannot be written: {reason}.") from exc
    command.stderr.write(f"Wrote {len(content):,} bytes to {path}.", style_func=str)


def _build_request(
    component: Component, name: str, *, pairs: Sequence[str], json_arguments: str | None
) -> MethodAndParams:
    """Return the method that uses the component, and its parameters.

    ``name`` is the name or URI on the command line; for a resource template it may be a whole URI.

    Raises:
        CommandError: the arguments are not valid for the component.
    """
    json_values = parse_object(json_arguments, "--json-args") if json_arguments else {}
    if isinstance(component, Tool):
        arguments = {**json_values, **parse_pairs(pairs, component.arguments.json_schema)}
        return "tools/call", {"name": component.name, "arguments": arguments}
    if isinstance(component, Prompt):
        names = [parameter.name for parameter in component.parameters]
        arguments = {**json_values, **parse_text_pairs(pairs, names)}
        return "prompts/get", {"name": component.name, "arguments": arguments}
    assert isinstance(component, ReadableComponent)
    if isinstance(component, ResourceTemplate) and name in (component.key, component.name):
        template = component.template
        values = {**json_values, **parse_text_pairs(pairs, template.variables)}
        try:
            uri = template.expand({variable: str(value) for variable, value in values.items()})
        except ValueError as exc:
            needed = " ".join(f"{variable}=…" for variable in template.variables)
            raise CommandError(f"{exc}. Pass {needed}, or a whole URI.") from None
        return "resources/read", {"uri": uri}
    if json_values or pairs:
        raise CommandError(f"{component} takes no arguments; it is read by its URI alone.")
    return "resources/read", {"uri": component.key if name == component.name else name}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A call of one component of one server, by one caller."""

    server: MCPServer
    component: Component
    principal: Principal

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        answerer: Answerer,
        capabilities: Mapping[str, Any],
        stderr: OutputWrapper,
    ) -> Message:
        """Send a request, answer the client requests in between, and return the response.

        Raises:
            CommandError: a client request cannot be answered.
            AccessRefused: the caller is not authorized, has to authenticate or lacks a scope.
        """

        def write_notification(message: Message) -> None:
            method, params = message["method"], message["params"]
            if method == "notifications/progress":
                total = f"/{params['total']:g}" if "total" in params else ""
                line = f"[{params['progress']:g}{total}] {params.get('message', '')}".rstrip()
            else:
                data = params.get("data")
                text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
                logger = f" {params['logger']}" if "logger" in params else ""
                line = f"[{params.get('level', method)}{logger}] {text}"
            stderr.write(escape_control_characters(line), style_func=str)

        # The newest revision without a handshake that the server supports.
        served = (
            revision for revision in STATELESS if revision.version in self.server.protocol_versions
        )
        # The runtime limits the number of rounds.
        client = LocalClient(
            self.server,
            self.principal,
            revision=next(served, LATEST),
            client_info=CLIENT,
            capabilities=capabilities,
            answer=partial(self._answer_requests, answerer),
            hear=write_notification,
            origin="command",
        )
        return client.request(method, params)

    def _answer_requests(
        self, answerer: Answerer, requests: Mapping[str, Any]
    ) -> dict[str, ClientResult]:
        title = str(self.server.identity().get("title") or self.server.name)
        questions = {
            key: ClientRequest(
                server_title=f"Server {title!r}",
                method=request["method"],
                params=request.get("params") or {},
            )
            for key, request in requests.items()
        }
        answers: dict[str, ClientResult] = {}
        for key, question in questions.items():
            try:
                answers[key] = answerer.answer(question)
            except RequestDeclined:
                raise
            except CommandError as exc:
                unanswered = [
                    pending for other, pending in questions.items() if other not in {*answers, key}
                ]
                others = [
                    f"  {line}" for pending in unanswered for line in describe_request(pending)
                ]
                lines = [str(exc), *(["Requested at the same time:"] if others else []), *others]
                raise CommandError("\n".join(lines)) from exc
        return answers

    def raise_if_failed(self, response: Message, exceptions: Sequence[Exception]) -> None:
        """Raise an error if the call failed."""
        if exceptions:
            raise self._component_error(exceptions[-1]) from exceptions[-1]
        if error := response.get("error"):
            verdict = check_access(self.server, self.component, self.principal, use="call")
            if not verdict.allowed:
                raise self._hidden_error(verdict, error["message"])
            data = error.get("data")
            details = f"\n{json.dumps(data, ensure_ascii=False)}" if data else ""
            raise CommandError(f"{error['message']} ({error['code']}){details}")
        if response["result"].get("isError"):
            raise CommandError(f"The {self.component} returned an error result.")

    def error_for(self, exc: BaseException) -> CommandError:
        """Return the error for an exception that the runtime raised instead of a response."""
        if not isinstance(exc, Exception):
            # The runtime does not catch SystemExit and other exceptions outside of Exception.
            return self._component_error(exc)
        verdict = check_access(self.server, self.component, self.principal, use="call")
        if isinstance(exc, AccessRefused) or any(reason.error for reason in verdict.reasons[:1]):
            return self._access_error(verdict, exc)
        return command_error(exc)

    def _component_error(self, exc: BaseException) -> CommandError:
        if isinstance(exc, CallAborted) and exc.__cause__ is not None:
            exc = exc.__cause__
        raised = describe_exception(exc)
        return CommandError(f"The {self.component} raised {raised}\n{TRACEBACK_HINT}")

    def _access_error(self, verdict: Verdict, exc: Exception) -> CommandError:
        server = f"server {self.server.name!r}"
        if not self.server.catalog.is_enabled:
            return CommandError(f"The {server} is {DISABLED}.")
        guards = " and ".join(permission_names(server_permissions(self.server)))
        if isinstance(exc, AuthenticationRequired) and not self.principal.is_authenticated:
            own = " and ".join(permission_names(self.component.permission))
            needs = f"requires a user ({own})"
            if not own:
                needs = f"is on {server}, which requires a user ({guards})"
            return CommandError(f"The {self.component} {needs}: pass --user USERNAME.")
        if any(reason.component for reason in verdict.reasons[:1]):
            return self._hidden_error(verdict, str(exc))
        return CommandError(f"{self._caller} may not use {server}, which needs {guards}.")

    def _hidden_error(self, verdict: Verdict, message: str) -> CommandError:
        return CommandError(
            f"The {self.component} is hidden from {self._caller} by "
            f"{', '.join(denial_names(verdict))}; a client receives: {message}"
        )

    @property
    def _caller(self) -> str:
        return self.principal.user.get_username() or "anonymous callers (no --user)"
