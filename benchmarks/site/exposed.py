"""The table as generated tools on a separate server: ``list_rows`` and ``get_row``.

They are compared with views that make the same queries, which shows the cost of the package.
"""

from __future__ import annotations

from benchmarks.site.models import Row
from mcp_django import MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny

exposed = MCPServer("exposed", permission=AllowAny)


@exposed.register(Row)
class RowTools(ModelTools[Row]):
    """Generated tools of the rows."""

    fields = Row.FIELDS
    permission = AllowAny
    # The views do not count the rows either.
    count = False
