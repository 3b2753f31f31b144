"""``mcp list``: list every server with its components, or those that one user may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.components.component import Component
from mcp_django.components.resource import ReadableComponent
from mcp_django.execution.handlers.entries import ESTIMATE, KINDS, ComponentType, estimate_tokens
from mcp_django.execution.policy import is_visible
from mcp_django.hosts.configuration import server_urls
from mcp_django.management.lookups import (
    DISABLED,
    PLURALS,
    check_connection,
    component_summary,
    find_principal,
    find_servers,
    flags,
    is_in_catalog,
    kind_argument,
    list_components,
    permission_names,
    server_permissions,
)
from mcp_django.management.text_output import format_table, output_width, print_result
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
    sections = []
    for server in servers:
        may_connect = principal is None or check_connection(server, principal).allowed
        groups = {
            kind: [
                component
                for component in list_components(server, kind)
                if principal is None
                or (is_in_catalog(server, component) and is_visible(principal, component))
            ]
            for kind in (kinds if may_connect else [])
        }
        admitted = {} if principal is None else {"admitted": may_connect}
        sections.append((server, groups, _describe_server(server, groups, admitted)))
    width = output_width(command.stdout)
    texts = [_server_text(*section, width=width, username=options["user"]) for section in sections]
    text = "\n\n".join(texts) or "This site has no MCP server."
    print_result(command, options, [described for *_, described in sections], text)


def _describe_server(
    server: MCPServer, groups: Grouped, admitted: Mapping[str, bool]
) -> dict[str, Any]:
    summaries = [
        {**component_summary(component), "enabled": is_in_catalog(server, component)}
        for components in groups.values()
        for component in components
    ]
    # Clients load the enabled components and the instructions.
    tokens = sum(summary["estimated_tokens"] for summary in summaries if summary["enabled"])
    if server.instructions:
        tokens += estimate_tokens(server.instructions)
    return {
        "name": server.name,
        "title": str(server.identity().get("title", "")),
        "urls": server_urls(server),
        "permission": permission_names(server_permissions(server)),
        "enabled": server.catalog.is_enabled,
        **admitted,
        "estimated_tokens": tokens,
        "components": summaries,
    }


def _server_text(
    server: MCPServer, groups: Grouped, described: Mapping[str, Any], *, width: int, username: str
) -> str:
    title, urls = described["title"], described["urls"]
    size = f"about {described['estimated_tokens']:,} tokens ({ESTIMATE})"
    if not described.get("admitted", True):
        size = f"{username} may not use this server."
    head = [
        f"{server.name}: {title}" if title else server.name,
        *(f"  {url}" for url in urls or ["no URL without arguments in the URLconf"]),
        *([] if described["enabled"] else [f"  {DISABLED}"]),
        f"  permission {' and '.join(described['permission']) or 'none'}",
        f"  {size}",
    ]
    sections = ["\n".join(head)]
    for kind, components in groups.items():
        rows = [
            (
                component.key if isinstance(component, ReadableComponent) else component.name,
                f"~{estimate_tokens(kind.wire(component, LATEST))}",
                str(component.title),
                ", ".join(
                    [*([] if is_in_catalog(server, component) else [DISABLED]), *flags(component)]
                ),
            )
            for component in components
        ]
        if rows:
            table = format_table(rows, width=width, indent=4, squeeze=(2, 3))
            sections.append(f"  {kind.plural} ({len(rows)})\n{table}")
    return "\n\n".join(sections)
