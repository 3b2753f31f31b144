"""What a server has, for the commands of its owner: what is offered, and what is switched off."""

from __future__ import annotations

from mcp_django.core.component import Component
from mcp_django.exceptions import Busy
from mcp_django.server import MCPServer

SWITCHED_OFF = "switched off in the admin"


def look_up(server: MCPServer) -> None:
    """See that what the admin says of a server is known, as far as the database can tell.

    Who asks owns the site: without a database he is shown what code says.
    """
    try:
        server.refresh(is_list=True)
    except Busy:
        server.as_in_code()


def components_of(server: MCPServer) -> list[Component]:
    """Each as it is offered; what is switched off, as it would be."""
    offered = server.offered.tables
    return [offered[one.kind].get(one.key, one) for one in server.available]


def is_offered(server: MCPServer, component: Component) -> bool:
    """Whether callers are offered it at all."""
    return component.key in server.offered.tables[component.kind]


def guards_of_server(server: MCPServer) -> tuple[object, ...]:
    """Who may enter, as code and the admin say."""
    return (server.permission, *server.offered.guards)
