"""The contract of the servers of this site, as code declares them.

What the admin narrows, adds and rewords is not in it: that is no matter of a release. Nor is the
address of anything, so that the file is the same wherever it is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.utils.translation import override

from mcp_django.core.component import Component, Prompt
from mcp_django.core.resource import ResourceTemplate
from mcp_django.core.tool import Tool
from mcp_django.management.contract.canonical import sealed
from mcp_django.management.guards import guard_names
from mcp_django.management.kinds import KINDS
from mcp_django.protocol.content import Icon
from mcp_django.protocol.jsonrpc import encode
from mcp_django.server import MCPServer

FORMAT = 1
PLURALS = tuple(kind.plural for kind in KINDS)
SERVERS = "servers"


def contract_of(servers: Iterable[MCPServer]) -> dict[str, Any]:
    """The contract: every server with its components, each with its digest."""
    # Words are in the language of the site, whoever makes the file.
    with override(settings.LANGUAGE_CODE):
        described = {server.name: _server(server) for server in servers}
    return sealed({"contract": FORMAT, SERVERS: described})


def _server(server: MCPServer) -> dict[str, Any]:
    said = {
        "title": server.title_in_code,
        "description": str(server.description),
        "instructions": server.instructions_in_code,
        "website_url": server.website_url,
        "icons": _icons(server.icons),
        "permission": guard_names(server.permission),
        "scopes": sorted(server.scopes),
    }
    tables: Mapping[str, Mapping[str, Component]] = {
        "tools": server.tools,
        "resources": server.resources,
        "templates": server.templates,
        "prompts": server.prompts,
    }
    return sealed(
        {
            **{name: value for name, value in said.items() if value},
            **{
                kind.plural: {
                    key: _component(kind.describe(one), one)
                    for key, one in sorted(tables[kind.plural].items())
                }
                for kind in KINDS
            },
        }
    )


def _component(wire: dict[str, Any], component: Component) -> dict[str, Any]:
    """One component: its ``definition`` as clients are given it, and who may use it and how."""
    definition = {name: value for name, value in wire.items() if name != "icons"}
    if component.icons:
        definition["icons"] = _icons(component.icons)
    said: dict[str, Any] = {
        "aliases": sorted(component.aliases),
        "permission": guard_names(component.permission),
        "scopes": sorted(component.scopes),
        "needs": sorted(component.needs),
        "approval": component.approval if isinstance(component, Tool) else "",
    }
    if isinstance(component, Prompt | ResourceTemplate):
        # Clients get names and words of these, and values are held to the schema all the same.
        said["arguments"] = component.arguments.json_schema
    kept = {name: value for name, value in said.items() if value}
    # As it is on the wire: lazy texts, tuples and the like become JSON.
    return sealed(json.loads(encode({"definition": definition, **kept})))


def _icons(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """As declared: which of them clients are given depends on the address of the site."""
    return [icon.to_wire() for icon in icons]
