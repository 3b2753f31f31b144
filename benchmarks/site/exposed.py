"""The table as generated tools, on a server of its own: ``list_rows`` and ``get_row``.

They are compared with views that make the same queries, which says what the layer costs.
"""

from __future__ import annotations

from benchmarks.site.models import Row
from mcp_django import MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny

exposed = MCPServer("exposed", permission=AllowAny)


@exposed.register(Row)
class RowTools(ModelTools[Row]):
    """Rows that are there to be counted."""

    fields = Row.FIELDS
    permission = AllowAny
    # The views count no rows either.
    count = False
