"""What the site offers: one line for each model of its admin, and a server beside it."""

from django.contrib.auth.models import Group
from oscar.core.loading import get_model

from mcp_django import MCPServer, mcp

EVERY = ["list", "get", "create", "update", "delete"]
for app, name in (
    ("catalogue", "Category"),
    ("catalogue", "Product"),
    ("catalogue", "ProductClass"),
    ("order", "Order"),
    ("partner", "Partner"),
):
    mcp.register_admin(get_model(app, name), tools=EVERY)
mcp.register_admin(Group, tools=EVERY)

# Below the admin tools, whose forms must not load the URLconf that imports this module.
desk = MCPServer("desk")
