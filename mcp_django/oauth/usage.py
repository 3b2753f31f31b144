"""When clients were last used, so that those nobody uses can be swept up.

Noted where tokens are issued, which every client that is in use asks for at least once an hour.
Calls are noted in the token that they came with (``backend.py``).
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from mcp_django.oauth.models import ClientProfile

RESOLUTION = timedelta(minutes=1)


def note_use(client_id: str) -> None:
    """Note that a client got a token, at most once a minute."""
    now = timezone.now()
    profile, created = ClientProfile._default_manager.get_or_create(
        client_id=client_id, defaults={"last_used_at": now}
    )
    if created or (profile.last_used_at and now - profile.last_used_at < RESOLUTION):
        return
    ClientProfile._default_manager.filter(pk=profile.pk).update(last_used_at=now)
