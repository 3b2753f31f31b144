"""The page where a user connects an account, and the memory of who has.

Everybody is a stranger on this site, so the page cannot tell whose visit it is; a real one asks
`mcp_django.auth.pages.belongs_to`.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

connected: set[str] = set()


def account(request: HttpRequest, interaction_id: str) -> HttpResponse:
    """Connect the account at the first visit."""
    connected.add(interaction_id)
    return HttpResponse("Connected. You can go back.", content_type="text/plain")
