"""``mcp connect``: what to paste into a client so that it uses a server of this site.

What is pasted goes to the standard output alone, so that it can be sent into a file; where it
belongs and what to do then goes to the error stream.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError
from django.utils.text import slugify

from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_open
from mcp_django.management.clients import (
    CURSOR,
    DEFAULT_VARIABLE,
    HOSTS,
    PLACEHOLDER,
    VSCODE,
    Credential,
    Entry,
    Host,
    Target,
    authorization_of,
)
from mcp_django.management.lookups import (
    LOCAL,
    check_url,
    endpoint_url,
    environment,
    find_principal,
    find_server,
    is_public,
    nearest,
    stdio_command,
)
from mcp_django.management.text_output import columns, width_of
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import LATEST
from mcp_django.server import MCPServer
from mcp_django.transports.site_pages import offers_sign_in

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser("connect", help="Print what a client needs to connect.")
    parser.add_argument(
        "client", nargs="?", help=f"One of: {', '.join(HOSTS)}. Without it they are listed."
    )
    parser.add_argument("--server", metavar="NAME", help="The server; else the default one.")
    parser.add_argument("--url", help="Its address, where settings and URLconf do not tell.")
    parser.add_argument("--name", help="What the client calls it; else after its title.")
    parser.add_argument(
        "--stdio", action="store_true", help="Let the client start the server on this machine."
    )
    caller = parser.add_mutually_exclusive_group()
    caller.add_argument("--user", help="The user who will call.")
    caller.add_argument(
        "--token-env", metavar="NAME", help="The environment variable that holds the token."
    )
    caller.add_argument("--token", help="The token itself; it will stand there in plain text.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the configuration of one client, or the clients."""
    if options["client"] is None:
        _list(command, is_json=options["json"])
        return
    host = _host(options["client"])
    server = find_server(options["server"])
    target = _target(host, server, options)
    if options["json"]:
        command.stdout.write(json.dumps(document(host, [target]), ensure_ascii=False))
    else:
        command.stdout.write(text(host, [target]))
    command.stderr.write("", ending="\n")
    for line in (*_places(host), *host.next_steps, *_notes(host, server, target, options)):
        command.stderr.write(line, style_func=str)


def entry_name(server: MCPServer) -> str:
    """What clients call a server, unless told otherwise: the name that people know it by."""
    identity = server.identity()
    return str(slugify(identity.get("title", "")) or slugify(identity["name"]))


def _list(command: BaseCommand, *, is_json: bool) -> None:
    if is_json:
        described = [
            {
                "client": host.slug,
                "title": host.title,
                "summary": host.summary,
                "stdio": host.stdio is not None,
                "files": [{"where": where, "path": path} for where, path in host.files],
            }
            for host in HOSTS.values()
        ]
        command.stdout.write(json.dumps(described, ensure_ascii=False))
        return
    rows = [(host.slug, f"{host.title}: {host.summary}") for host in HOSTS.values()]
    command.stdout.write(columns(rows, width=width_of(command.stdout)))


def _host(slug: str) -> Host:
    if slug not in HOSTS:
        raise CommandError(
            f"There is no client {slug!r} here.{nearest(slug, HOSTS)} "
            f"The clients are: {', '.join(HOSTS)}."
        )
    return HOSTS[slug]


def _target(host: Host, server: MCPServer, options: Mapping[str, Any]) -> Target:
    name = options["name"] or entry_name(server)
    if options["user"]:
        # A typing mistake is found here rather than in the log of some host.
        find_principal(options["user"])
    if not options["stdio"]:
        url = check_url(options["url"]) if options["url"] else endpoint_url(server)
        return Target(name=name, url=url, credential=_credential(host, server, options))
    if host.stdio is None:
        able = ", ".join(one.slug for one in HOSTS.values() if one.stdio is not None)
        raise CommandError(f"{host.title} starts no servers; leave out --stdio, or use: {able}.")
    for option in ("url", "token", "token_env"):
        if options[option]:
            written = f"--{option.replace('_', '-')}"
            raise CommandError(f"{written} is for HTTP; with --stdio, --user says who is calling.")
    return Target(
        name=name,
        command=stdio_command(server=options["server"], user=options["user"]),
        environment=environment(),
    )


def _credential(host: Host, server: MCPServer, options: Mapping[str, Any]) -> Credential | None:
    variable, token = options["token_env"], options["token"]
    if variable and not VARIABLE.fullmatch(variable):
        raise CommandError(f"--token-env {variable!r} is no name of an environment variable.")
    if variable and not host.reference and not host.is_cloud:
        raise CommandError(
            f"{host.title} reads no token from the environment. Leave --token-env out, and write "
            f"the token where {PLACEHOLDER} stands; or give it with --token."
        )
    is_chosen = bool(variable or token or options["user"])
    if not is_chosen and (is_open(server) or _signs_in(host, server)):
        return None
    return Credential(token=token or "", variable=variable or "")


def _signs_in(host: Host, server: MCPServer) -> bool:
    """Whether the client gets its token by itself, once its user has signed in."""
    return host.signs_in and offers_sign_in(server)


# What is said beside it ---------------------------------------------------------------------------


def _places(host: Host) -> Iterator[str]:
    if host.files:
        yield f"{host.title} reads it from:"
        yield columns(host.files, indent=2)


def _notes(
    host: Host, server: MCPServer, target: Target, options: Mapping[str, Any]
) -> Iterator[str]:
    """What stands in the way here and now, and how to remove it."""
    if target.is_local:
        if not options["user"] and not is_open(server):
            yield f"Server {server.name!r} lets nobody in without --user."
        yield from _revision_notes(host, server, host.stdio_revisions or host.revisions)
        return
    if target.credential is None and not is_open(server) and not host.is_cloud:
        yield f"{host.title} opens a browser to sign in; --token-env and --token give it a token."
    yield from _token_notes(host, target, options["user"])
    if not options["url"] and not get_settings().base_url:
        yield f"MCP_DJANGO['BASE_URL'] is not set, so the address begins with {LOCAL}."
    if host.is_cloud and not is_public(target.url):
        yield f"{host.title} calls from its vendor's cloud, which needs a public https:// address."
    yield from _revision_notes(host, server, host.revisions)


def _revision_notes(host: Host, server: MCPServer, spoken: tuple[str, ...]) -> Iterator[str]:
    if not {*spoken} & {*server.protocol_versions}:
        yield (
            f"{host.title} was seen to speak {' and '.join(spoken)}; this site serves "
            f"{', '.join(server.protocol_versions)}."
        )


def _token_notes(host: Host, target: Target, user: str | None) -> Iterator[str]:
    credential = target.credential
    if credential is None or host.is_cloud:
        return
    if credential.token:
        yield "The token stands there in plain text: keep the file to yourself."
        return
    yield f"A token is made by: manage.py mcp token create {user or 'USERNAME'}"
    if host.prompts_for_token and not credential.variable:
        yield f"{host.title} asks for it once, and keeps it where secrets are kept."
    elif host.reference:
        variable = credential.variable or DEFAULT_VARIABLE
        yield f"It is read from the environment: export {variable}=…"
    else:
        yield f"Write it where {PLACEHOLDER} stands."


# The configuration of a client as text ------------------------------------------------------------

Document = dict[str, Any]


def document(host: Host, targets: Sequence[Target]) -> Document:
    """The configuration as the client reads it, before it is written in its format."""
    if host.format == "curl":
        return {"command": text(host, targets)}
    if host.format == "url":
        return {"url": targets[0].url}
    servers = {target.name: _entry(host, target) for target in targets}
    inputs = [_input(target) for target in targets if _is_prompted(host, target)]
    return {**({"inputs": inputs} if inputs else {}), host.root: servers}


def text(host: Host, targets: Sequence[Target]) -> str:
    """The configuration, ready to be pasted."""
    if host.format == "curl":
        return "\n\n".join(curl(target, "tools/list") for target in targets)
    if host.format == "url":
        return "\n".join(target.url for target in targets)
    if host.format == "claude":
        return "\n".join(_claude_command(_entry(host, target), target) for target in targets)
    found = document(host, targets)
    if host.format == "toml":
        return "\n\n".join(_table((host.root, name), one) for name, one in found[host.root].items())
    return json.dumps(found, indent=2, ensure_ascii=False)


def _entry(host: Host, target: Target) -> Entry:
    if target.is_local:
        assert host.stdio is not None
        return host.stdio(target)
    assert host.http is not None
    if _is_prompted(host, target):
        return host.http(target, f"Bearer ${{input:{_input(target)['id']}}}")
    return host.http(target, authorization_of(target, host.reference))


def _is_prompted(host: Host, target: Target) -> bool:
    """Whether the client itself asks for the token, and keeps it where secrets are kept."""
    credential = target.credential
    named = credential is not None and bool(credential.token or credential.variable)
    return host.prompts_for_token and not target.is_local and credential is not None and not named


def _input(target: Target) -> Document:
    return {
        "type": "promptString",
        "id": f"{target.name}-token",
        "description": f"Access token for {target.name}",
        "password": True,
    }


def _claude_command(entry: Entry, target: Target) -> str:
    if target.is_local:
        variables = [f"--env {shlex.quote(f'{k}={v}')}" for k, v in entry.get("env", {}).items()]
        # Another option has to follow --env, which would take the name for a variable.
        words = ["claude mcp add", *variables, "--transport stdio", shlex.quote(target.name)]
        return " ".join([*words, "--", shlex.join(target.command)])
    words = ["claude mcp add --transport http"]
    if target.credential is not None and not target.credential.token:
        # Only .mcp.json is known to have its variables filled in.
        words.append("--scope project")
    words += [shlex.quote(target.name), shlex.quote(target.url)]
    headers = entry.get("headers", {}).items()
    words += [f"--header {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    return " ".join(words)


def _table(path: Sequence[str], members: Mapping[str, Any]) -> str:
    """A table of TOML, its tables after it. A string of JSON is one of TOML too."""
    plain = {k: v for k, v in members.items() if not isinstance(v, Mapping)}
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in plain.items()]
    tables = [_table((*path, k), v) for k, v in members.items() if isinstance(v, Mapping)]
    return "\n\n".join(["\n".join(lines), *tables])


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name, ensure_ascii=False)


# A request with curl ------------------------------------------------------------------------------


def curl(target: Target, method: str, params: Mapping[str, Any] | None = None) -> str:
    """One request of 2026-07-28 as a command of curl: everything in one message, no session.

    A token in a variable is filled in by the shell.
    """
    given = dict(params or {})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST.version,
        "Mcp-Method": method,
    }
    named = REQUESTS[method].name_member
    if named is not None:
        headers["Mcp-Name"] = given[named]
    envelope = {
        PROTOCOL_VERSION: LATEST.version,
        CLIENT_INFO: {"name": "curl", "version": "1"},
        CLIENT_CAPABILITIES: {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**given, "_meta": envelope}}
    lines = [
        f"curl -sS {shlex.quote(target.url)}",
        *_authorization(target),
        *(f"  -H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()),
        f"  --data {shlex.quote(json.dumps(message))}",
    ]
    return " \\\n".join(lines)


def _authorization(target: Target) -> list[str]:
    value = authorization_of(target, "$NAME")
    if value is None:
        return []
    assert target.credential is not None
    header = f"Authorization: {value}"
    # Within single quotes the shell would leave the variable as it is.
    return [f"  -H {shlex.quote(header)}" if target.credential.token else f'  -H "{header}"']


# Install links ------------------------------------------------------------------------------------


def link(host: Host, target: Target) -> str:
    """The address by which a client adds one server, empty for a client that has none.

    The client opens such an address by itself, and then asks whether to add the server.
    """
    make = _LINKS.get(host.slug)
    return make(target) if make is not None else ""


def _vscode(target: Target) -> str:
    found = document(VSCODE, [target])
    inputs = {"inputs": found["inputs"]} if "inputs" in found else {}
    entry = {"name": target.name, **inputs, **found[VSCODE.root][target.name]}
    return f"vscode:mcp/install?{quote(_json(entry), safe='')}"


def _cursor(target: Target) -> str:
    entry = document(CURSOR, [target])[CURSOR.root][target.name]
    config = base64.b64encode(_json(entry).encode()).decode()
    query = urlencode({"name": target.name, "config": config})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_LINKS: dict[str, Callable[[Target], str]] = {VSCODE.slug: _vscode, CURSOR.slug: _cursor}
