"""A class of a model keeps its type, and its hooks know which model it is."""

from __future__ import annotations

from typing import assert_type

from django.contrib.auth.models import Group
from django.db.models import QuerySet

from mcp_django import Context, MCPServer, ModelResource, ModelTools, mcp
from mcp_django.auth.permissions import IsStaff

server = MCPServer("typing")


@mcp.register(Group)
class GroupMCP(ModelResource[Group], ModelTools[Group]):
    """Groups of users."""

    uri = "auth://groups/{name}"
    fields = ["id", "name"]
    search_fields = ["name"]
    filter_fields = {"name": ["exact", "startswith"]}
    ordering = ["-name"]
    tools = ["list", "get", "count"]
    page_size = 20
    permission = IsStaff
    scopes = ["groups"]

    def get_queryset(self, ctx: Context) -> QuerySet[Group]:
        rows = super().get_queryset(ctx)
        assert_type(rows, QuerySet[Group])
        return rows.filter(user=ctx.user)


assert_type(mcp.register(Group, GroupMCP), type[GroupMCP])
server.unregister(Group)
