"""Two servers behind OAuth; a token for one must not be accepted by the other."""

from __future__ import annotations

from mcp_django import Context, MCPServer

orders = MCPServer("orders", title="Orders")
billing = MCPServer("billing", title="Billing")


@orders.tool(read_only=True)
def whoami(ctx: Context) -> str:
    """Say who is calling."""
    return str(ctx.user.get_username())


@orders.tool(scopes=["mcp:write"])
def place(item: str) -> str:
    """Place an order."""
    return f"Placed {item}."


@orders.tool(scopes=["mcp:write", "orders:refund"])
def refund(number: str) -> str:
    """Refund an order."""
    return f"Refunded {number}."


@orders.tool(permission="auth.change_user")
def hire(name: str) -> str:
    """Hire somebody; for those who may change users."""
    return f"Hired {name}."


@billing.tool
def invoices() -> str:
    """List invoices."""
    return "None."
