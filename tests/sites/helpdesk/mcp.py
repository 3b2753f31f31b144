"""What the site offers."""

from helpdesk.forms import TicketForm
from helpdesk.models import KBItem, Queue, Ticket
from helpdesk.views.api import TicketViewSet

from mcp_django import mcp

mcp.register_viewset(
    TicketViewSet,
    basename="helpdesk:ticket",
    actions=["list", "retrieve", "create", "partial_update"],
)
mcp.register_view("helpdesk:submit", method="post", form=TicketForm, name="submit_ticket")
mcp.register_admin(Queue, tools=["list", "get", "create", "update", "delete"])
mcp.register_admin(Ticket, name="ticket_row", plural="ticket_rows")
mcp.register_admin(KBItem)
