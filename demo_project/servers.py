"""The demo's second MCP server, and why there are two.

The default server, `mcp`, only reads. It is open to every account, and none of its components
writes, so users can connect any assistant without supervision: an assistant that was misled by a
prompt injection has no tool that does damage.

`staff` is for the staff of the desk: it publishes, corrects and closes notices. It has its own
address because users connect one address at a time, and a host asks for confirmation ("always
allow?") per connection. The server rejects guests, so no list and no error message of the first
server reveals what staff can do.
"""

from __future__ import annotations

from mcp_django import MCPServer
from mcp_django.auth.permissions import IsStaff

staff = MCPServer(
    "staff",
    title="Airport operations desk (staff)",
    instructions=(
        "Publish, correct and close the notices of airports. Read the current notices before "
        "publishing, and ask the user before closing one. To see first what a change would do, "
        "call create_notice or update_notice with preview."
    ),
    permission=IsStaff,
)
