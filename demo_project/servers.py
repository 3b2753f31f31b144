"""The demo's second MCP server, and why there are two.

The default server, `mcp`, answers questions. It is open to every account, and nothing on it
writes, so people can hand it to any assistant without watching over its shoulder: an assistant
that was talked into mischief has no tool to do it with.

`staff` is for the people at the desk: it publishes, corrects and closes notices. It has an address
of its own because that is what a person connects, and a host asks its questions ("always allow?")
per connection; and since guests are refused at its door, no list and no error message of the first
server ever hints at what staff can do.
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
