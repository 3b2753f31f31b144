"""``mcp connect``: print the configuration that a client needs to connect to a server of this site.

The configuration alone goes to the standard output, so that it can be redirected to a file.
Instructions go to the error stream.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError
from django.utils.text import slugify
from django.utils.translation import override

from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_open
from mcp_django.management.clients import (
    CLIENTS,
    DEFAULT_VARIABLE,
    PLACEHOLDER,
    ConfigEntry,
    ConnectionTarget,
    Credential,
    KnownClient,
    authorization_header,
)
from mcp_django.management.lookups import (
    LOCAL,
    check_url,
    endpoint_url,
    environment,
    find_principal,
    find_server,
    is_public,
    known_name,
    stdio_command,
)
from mcp_django.management.text_output import format_table, output_width, print_result
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.headers import ACCEPT, JSON
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import LATEST
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
    for line in (*_places(host), *_steps(host, options), *_notes(host, server, target, options)):
        command.stderr.write(str(line), style_func=str)


def entry_name(server: MCPServer) -> str:
    """Return the default name of a server in clients, made from its title or else its name."""
    identity = server.identity()
    return str(slugify(identity.get("title", "")) or slugify(identity["name"]))


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
    if not options["stdio"]:
        url = check_url(options["url"]) if options["url"] else endpoint_url(server)
        return ConnectionTarget(
            name=name, url=url, credential=_build_credential(host, server, options)
        )
    if host.stdio is None:
        able = ", ".join(one.slug for one in CLIENTS.values() if one.stdio is not None)
        raise CommandError(
            f"{host.title} cannot start a server; omit --stdio, or choose one of: {able}."
        )
    for option in ("url", "token", "token_env"):
        if options[option]:
            written = f"--{option.replace('_', '-')}"
            raise CommandError(f"{written} is for HTTP; with --stdio, set the user with --user.")
    return ConnectionTarget(
        name=name,
        command=stdio_command(server=options["server"], user=options["user"]),
        environment=environment(),
    )


def _build_credential(
    host: KnownClient, server: MCPServer, options: Mapping[str, Any]
) -> Credential | None:
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
    is_chosen = bool(variable or token or options["user"])
    signs_in = host.signs_in and offers_sign_in(server)
    if not is_chosen and (is_open(server) or signs_in):
        return None
    return Credential(token=token or "", variable=variable or "")


# Instructions -------------------------------------------------------------------------------------


def _places(host: KnownClient) -> Iterator[str]:
    if host.files:
        yield f"{host.title} reads it from:"
        yield format_table(host.files, indent=2)


def _steps(host: KnownClient, options: Mapping[str, Any]) -> Iterable[Any]:
    if options["json"] and host.format == "claude":
        return ["Save this as .mcp.json in the directory of the project."]
    return host.next_steps


def _notes(
    host: KnownClient, server: MCPServer, target: ConnectionTarget, options: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what still has to be done or fixed before the client can connect."""
    if target.is_local:
        if not options["user"] and not is_open(server):
            yield f"Server {server.name!r} rejects anonymous calls; set the user with --user."
        yield from _revision_notes(host, server, host.stdio_revisions or host.revisions)
        return
    if target.credential is None and not is_open(server) and not host.is_cloud:
        options_for_token = "--token-env or --token" if host.reference else "--token"
        yield (
            f"{host.title} opens a browser to sign in; to use a token instead, pass "
            f"{options_for_token}."
        )
    yield from _token_notes(host, target, options["user"])
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


def _token_notes(host: KnownClient, target: ConnectionTarget, user: str | None) -> Iterator[str]:
    credential = target.credential
    if credential is None or host.is_cloud:
        return
    if credential.token:
        yield "The configuration contains the token in plain text: keep the file private."
        return
    yield f"Create a token with: manage.py mcp token create {user or 'USERNAME'}"
    if host.prompts_for_token and not credential.variable:
        yield f"{host.title} asks for the token once, and stores it in its secret storage."
    elif host.reference:
        variable = credential.variable or DEFAULT_VARIABLE
        yield f"The token is read from the environment: export {variable}=…"
    else:
        yield f"Replace {PLACEHOLDER} with the token."


# The configuration of a client as text ------------------------------------------------------------

Config = dict[str, Any]


def build_config(host: KnownClient, targets: Sequence[ConnectionTarget]) -> Config:
    """Return the client's configuration as data, before it is serialized in the client's format."""
    if host.format == "curl":
        return {"command": render_config(host, targets)}
    if host.format == "url":
        return {"url": targets[0].url}
    servers = {target.name: _build_entry(host, target) for target in targets}
    inputs = [_input(target) for target in targets if _is_prompted(host, target)]
    return {**({"inputs": inputs} if inputs else {}), host.root: servers}


def render_config(host: KnownClient, targets: Sequence[ConnectionTarget]) -> str:
    """Return the client's configuration as text in the client's format."""
    if host.format == "curl":
        return "\n\n".join(curl_command(target, "tools/list") for target in targets)
    if host.format == "url":
        return "\n".join(target.url for target in targets)
    if host.format == "claude":
        return "\n".join(_claude_command(_build_entry(host, target), target) for target in targets)
    found = build_config(host, targets)
    if host.format == "toml":
        return "\n\n".join(
            _toml_table((host.root, name), one) for name, one in found[host.root].items()
        )
    return json.dumps(found, indent=2, ensure_ascii=False)


def _build_entry(host: KnownClient, target: ConnectionTarget) -> ConfigEntry:
    if target.is_local:
        assert host.stdio is not None
        return host.stdio(target)
    if _is_prompted(host, target):
        return host.http(target, f"Bearer ${{input:{_input(target)['id']}}}")
    return host.http(target, authorization_header(target, host.reference))


def _is_prompted(host: KnownClient, target: ConnectionTarget) -> bool:
    """Return whether the client prompts for the token and stores it in its secret storage."""
    # An empty credential: neither the token nor its variable was named.
    return host.prompts_for_token and not target.is_local and target.credential == Credential()


def _input(target: ConnectionTarget) -> Config:
    return {
        "type": "promptString",
        "id": f"{target.name}-token",
        "description": f"Access token for {target.name}",
        "password": True,
    }


def _claude_command(entry: ConfigEntry, target: ConnectionTarget) -> str:
    if target.is_local:
        variables = [f"--env {shlex.quote(f'{k}={v}')}" for k, v in entry.get("env", {}).items()]
        # Another option has to follow --env: it takes several values, and would take the name.
        words = ["claude mcp add", *variables, "--transport stdio", shlex.quote(target.name)]
        return " ".join([*words, "--", shlex.join(target.command)])
    words = ["claude mcp add --transport http"]
    if target.credential is not None and not target.credential.token:
        # Variables are known to be expanded in .mcp.json (project scope) only.
        words.append("--scope project")
    words += [shlex.quote(target.name), shlex.quote(target.url)]
    headers = entry.get("headers", {}).items()
    words += [f"--header {shlex.quote(f'{name}: {value}')}" for name, value in headers]
    return " ".join(words)


def _toml_table(path: Sequence[str], members: Mapping[str, Any]) -> str:
    """Return a TOML table, followed by its subtables. A JSON string is a valid TOML string."""
    plain = {k: v for k, v in members.items() if not isinstance(v, Mapping)}
    lines = [f"[{'.'.join(map(_toml_key, path))}]"]
    lines += [f"{_toml_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in plain.items()]
    tables = [_toml_table((*path, k), v) for k, v in members.items() if isinstance(v, Mapping)]
    return "\n\n".join(["\n".join(lines), *tables])


def _toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name, ensure_ascii=False)


# A request with curl ------------------------------------------------------------------------------


def curl_command(
    target: ConnectionTarget, method: str, params: Mapping[str, Any] | None = None
) -> str:
    """Return a curl command that sends one request of revision 2026-07-28, without a session.

    If the token is in an environment variable, the shell expands it.
    """
    given = dict(params or {})
    headers = {
        "Content-Type": JSON,
        "Accept": ACCEPT,
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


def _authorization(target: ConnectionTarget) -> list[str]:
    value = authorization_header(target, "$NAME")
    if value is None:
        return []
    assert target.credential is not None
    header = f"Authorization: {value}"
    # The shell does not expand a variable within single quotes.
    return [f"  -H {shlex.quote(header)}" if target.credential.token else f'  -H "{header}"']


# Install links ------------------------------------------------------------------------------------


def install_link(host: KnownClient, target: ConnectionTarget) -> str:
    """Return the install link that adds one server to a client; empty if the client has none.

    The client opens the link, and asks its user whether to add the server.
    """
    make = _LINKS.get(host.slug)
    return make(target.name, build_config(host, [target])) if make is not None else ""


def _vscode(name: str, config: Config) -> str:
    servers = config.pop(CLIENTS["vscode"].root)
    entry = {"name": name, **config, **servers[name]}
    return f"vscode:mcp/install?{quote(_json(entry), safe='')}"


def _cursor(name: str, config: Config) -> str:
    entry = _json(config[CLIENTS["cursor"].root][name])
    query = urlencode({"name": name, "config": base64.b64encode(entry.encode()).decode()})
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_LINKS: dict[str, Callable[[str, Config], str]] = {"vscode": _vscode, "cursor": _cursor}
