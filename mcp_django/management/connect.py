"""``mcp connect``: print the configuration that a client needs to connect to a server of this site.

The configuration alone goes to the standard output, so that it can be redirected to a file.
Instructions go to the error stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import override

from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_open
from mcp_django.hosts.clients import (
    CLIENTS,
    DEFAULT_VARIABLE,
    PLACEHOLDER,
    ConnectionTarget,
    Credential,
    KnownClient,
)
from mcp_django.hosts.configuration import LOCAL, build_config, entry_name, is_public, render_config
from mcp_django.management.lookups import (
    check_url,
    endpoint_url,
    environment,
    find_principal,
    find_server,
    known_name,
    stdio_command,
)
from mcp_django.management.text_output import format_table, output_width, print_result
from mcp_django.server import MCPServer
from mcp_django.transports.site_pages import offers_sign_in

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser("connect", help="Print what a client needs to connect.")
    parser.add_argument(
        "client", nargs="?", help=f"One of: {', '.join(CLIENTS)}. Without it, list the clients."
    )
    parser.add_argument("--server", metavar="NAME", help="The server (default: the default one).")
    parser.add_argument(
        "--url", help="The server's URL, if it differs from that of the settings and URLconf."
    )
    parser.add_argument(
        "--name", help="The server's name in the client (default: made from its title)."
    )
    parser.add_argument(
        "--stdio", action="store_true", help="Have the client start the server on this machine."
    )
    caller = parser.add_mutually_exclusive_group()
    caller.add_argument("--user", help="The user to connect as.")
    caller.add_argument(
        "--token-env", metavar="NAME", help="The environment variable that contains the token."
    )
    caller.add_argument("--token", help="The token itself; it is printed in plain text.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


# Steps are translated in the admin, but nothing else that the command prints.
@override(None)
def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the configuration for one client, or the list of clients."""
    if options["client"] is None:
        _list_clients(command, options)
        return
    host = CLIENTS[known_name("client", options["client"], CLIENTS)]
    server = find_server(options["server"])
    target = _build_target(host, server, options)
    print_result(command, options, build_config(host, [target]), render_config(host, [target]))
    command.stderr.write("", ending="\n")
    lines: list[Any] = []
    if host.files:
        lines += [f"{host.title} reads it from:", format_table(host.files, indent=2)]
    if options["json"] and host.format == "claude":
        lines.append("Save this as .mcp.json in the directory of the project.")
    else:
        lines += host.next_steps
    for line in (*lines, *_notes(host, server, target, options)):
        command.stderr.write(str(line), style_func=str)


def _list_clients(command: BaseCommand, options: Mapping[str, Any]) -> None:
    described = [
        {
            "client": host.slug,
            "title": host.title,
            "summary": host.summary,
            "stdio": host.stdio is not None,
            "files": [{"where": str(where), "path": path} for where, path in host.files],
        }
        for host in CLIENTS.values()
    ]
    rows = [(host.slug, f"{host.title}: {host.summary}") for host in CLIENTS.values()]
    text = format_table(rows, width=output_width(command.stdout))
    print_result(command, options, described, text)
    command.stderr.write("", ending="\n")
    command.stderr.write(
        "manage.py mcp connect CLIENT prints the configuration of one of them.", style_func=str
    )


def _build_target(
    host: KnownClient, server: MCPServer, options: Mapping[str, Any]
) -> ConnectionTarget:
    name = options["name"] or entry_name(server)
    if options["user"]:
        # Reports a mistyped name here instead of in the client's log.
        find_principal(options["user"])
    if options["stdio"]:
        if host.stdio is None:
            clients = [client.slug for client in CLIENTS.values() if client.stdio is not None]
            raise CommandError(
                f"{host.title} cannot start a server; omit --stdio, or choose one of: "
                f"{', '.join(clients)}."
            )
        for option in ("url", "token", "token_env"):
            if options[option]:
                written = f"--{option.replace('_', '-')}"
                raise CommandError(
                    f"{written} is for HTTP; with --stdio, set the user with --user."
                )
        command = stdio_command(server=options["server"], user=options["user"])
        return ConnectionTarget(name=name, command=command, environment=environment())
    url = check_url(options["url"]) if options["url"] else endpoint_url(server)
    variable, token = options["token_env"], options["token"]
    if variable and not VARIABLE.fullmatch(variable):
        raise CommandError(
            f"--token-env {variable!r} is not a valid name of an environment variable; use "
            "letters, digits and underscores, such as MCP_TOKEN."
        )
    if variable and not host.reference and not host.is_cloud:
        raise CommandError(
            f"{host.title} cannot read a token from the environment. Omit --token-env and replace "
            f"{PLACEHOLDER} with the token, or pass the token with --token."
        )
    credential = None
    signs_in = host.signs_in and offers_sign_in(server)
    if variable or token or options["user"] or not (is_open(server) or signs_in):
        credential = Credential(token=token or "", variable=variable or "")
    return ConnectionTarget(name=name, url=url, credential=credential)


def _notes(
    host: KnownClient, server: MCPServer, target: ConnectionTarget, options: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what still has to be done or fixed before the client can connect."""
    if target.is_local:
        if not options["user"] and not is_open(server):
            yield f"Server {server.name!r} rejects anonymous calls; set the user with --user."
        yield from _revision_notes(host, server, host.stdio_revisions or host.revisions)
        return
    credential = target.credential
    if credential is None and not is_open(server) and not host.is_cloud:
        options_for_token = "--token-env or --token" if host.reference else "--token"
        yield (
            f"{host.title} opens a browser to sign in; to use a token instead, pass "
            f"{options_for_token}."
        )
    if credential is not None and not host.is_cloud:
        if credential.token:
            yield "The configuration contains the token in plain text: keep the file private."
        else:
            yield f"Create a token with: manage.py mcp token create {options['user'] or 'USERNAME'}"
            if host.prompts_for_token and not credential.variable:
                yield f"{host.title} asks for the token once, and stores it in its secret storage."
            elif host.reference:
                variable = credential.variable or DEFAULT_VARIABLE
                yield f"The token is read from the environment: export {variable}=…"
            else:
                yield f"Replace {PLACEHOLDER} with the token."
    if not options["url"] and not get_settings().base_url:
        yield (
            f"The URL begins with {LOCAL}, the address of runserver. For another address, set "
            "MCP_DJANGO['BASE_URL'] or pass --url."
        )
    if host.is_cloud and not is_public(target.url):
        yield f"{host.title} connects from its vendor's cloud and needs a public https:// URL."
    yield from _revision_notes(host, server, host.revisions)


def _revision_notes(host: KnownClient, server: MCPServer, spoken: tuple[str, ...]) -> Iterator[str]:
    if not {*spoken} & {*server.protocol_versions}:
        yield (
            f"{host.title} is known to support {' and '.join(spoken)}; this site serves "
            f"{', '.join(server.protocol_versions)}."
        )
