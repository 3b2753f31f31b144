"""The page where a user connects an account, and the memory of who has.

All users of this site are anonymous, so the page cannot check who visits it; a page of a real site
calls `mcp_django.auth.pages.belongs_to`.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

connected: set[str] = set()


def account(request: HttpRequest, interaction_id: str) -> HttpResponse:
    """Connect the account at the first visit."""
    connected.add(interaction_id)
    return HttpResponse("Connected. You can go back.", content_type="text/plain")
