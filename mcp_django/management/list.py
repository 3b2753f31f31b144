"""``mcp list``: list every server with its components, or those that one user may see."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.auth.principal import Principal
from mcp_django.core.component import Component
from mcp_django.core.resource import ReadableComponent
from mcp_django.execution.policy import is_visible
from mcp_django.management.lookups import (
    DISABLED,
    ESTIMATE,
    KINDS,
    PLURALS,
    ComponentType,
    check_connection,
    component_summary,
    estimate_tokens,
    find_principal,
    find_servers,
    flags,
    is_in_catalog,
    kind_argument,
    permission_names,
    server_permissions,
    server_urls,
    total_tokens,
)
from mcp_django.management.text_output import format_table, output_width
from mcp_django.protocol.revisions import LATEST
from mcp_django.server import MCPServer

Grouped = dict[ComponentType, list[Component]]


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser("list", help="List the servers and their components.")
    parser.add_argument("--server", metavar="NAME", help="Only this server.")
    parser.add_argument("--user", help="Only components that this user may see.")
    parser.add_argument(
        "--kind", type=kind_argument, metavar="KIND", help=f"Only one of: {', '.join(PLURALS)}."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the servers, each with its components by kind."""
    servers = find_servers(options["server"])
    principal = find_principal(options["user"]) if options["user"] else None
    kinds = [options["kind"]] if options["kind"] else list(KINDS)
    shown = [(server, _visible_components(server, principal, kinds)) for server in servers]
    if options["json"]:
        described = [_describe_server(server, principal, groups) for server, groups in shown]
        command.stdout.write(json.dumps(described, ensure_ascii=False))
        return
    width = output_width(command.stdout)
    texts = [
        _server_text(
            server, groups, width, refused=_rejection_text(server, principal, options["user"])
        )
        for server, groups in shown
    ]
    command.stdout.write("\n\n".join(texts) or "This site has no MCP server.")


def _visible_components(
    server: MCPServer, principal: Principal | None, kinds: Sequence[ComponentType]
) -> Grouped:
    """Return the components by kind that the caller may see; all of them if it is ``None``."""
    if principal is not None and not check_connection(server, principal).allowed:
        return {}
    return {
        kind: [
            one
            for one in kind.components(server)
            if principal is None or (is_in_catalog(server, one) and is_visible(principal, one))
        ]
        for kind in kinds
    }


def _rejection_text(server: MCPServer, principal: Principal | None, username: str) -> str:
    if principal is None or check_connection(server, principal).allowed:
        return ""
    return f"{username} may not use this server."


def _describe_server(
    server: MCPServer, principal: Principal | None, groups: Grouped
) -> dict[str, Any]:
    entries = _entries(server, groups)
    authorized = (
        {} if principal is None else {"admitted": check_connection(server, principal).allowed}
    )
    return {
        "name": server.name,
        "title": str(server.identity().get("title", "")),
        "urls": server_urls(server),
        "permission": permission_names(server_permissions(server)),
        "enabled": server.catalog.is_enabled,
        **authorized,
        "estimated_tokens": _total(server, entries),
        "components": entries,
    }


def _entries(server: MCPServer, groups: Grouped) -> list[dict[str, Any]]:
    return [
        {**component_summary(one), "enabled": is_in_catalog(server, one)}
        for components in groups.values()
        for one in components
    ]


def _total(server: MCPServer, entries: Sequence[Mapping[str, Any]]) -> int:
    """Return the token estimate of the enabled components, which are those that clients load."""
    return total_tokens([one for one in entries if one["enabled"]], server.instructions)


def _server_text(server: MCPServer, groups: Grouped, width: int, *, refused: str) -> str:
    entries = _entries(server, groups)
    title = str(server.identity().get("title", ""))
    permission = " and ".join(permission_names(server_permissions(server))) or "none"
    head = [
        f"{server.name}: {title}" if title else server.name,
        *(f"  {url}" for url in server_urls(server) or ["no URL without arguments in the URLconf"]),
        *([] if server.catalog.is_enabled else [f"  {DISABLED}"]),
        f"  permission {permission}",
        f"  {refused}" if refused else f"  about {_total(server, entries):,} tokens ({ESTIMATE})",
    ]
    tables = [
        _components_table(server, kind, found, width) for kind, found in groups.items() if found
    ]
    return "\n\n".join(["\n".join(head), *tables])


def _components_table(
    server: MCPServer, kind: ComponentType, components: Sequence[Component], width: int
) -> str:
    rows = [
        (
            one.key if isinstance(one, ReadableComponent) else one.name,
            f"~{estimate_tokens(kind.wire(one, LATEST))}",
            str(one.title),
            ", ".join([*([] if is_in_catalog(server, one) else [DISABLED]), *flags(one)]),
        )
        for one in components
    ]
    body = format_table(rows, width=width, indent=4, squeeze=(2, 3))
    return f"  {kind.plural} ({len(components)})\n{body}"
