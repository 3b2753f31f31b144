"""What was confirmed runs once: pressing the button again, or sending the page, runs nothing."""

from __future__ import annotations

from mcp_django.admin.trying.state import State
from mcp_django.conf import get_settings
from mcp_django.models import Attachment
from mcp_django.store.databases import after, rows


def is_first_time(state: State) -> bool:
    """Whether this confirmation was not used before, in any process; it is used now.

    The row is nobody's, so it is no attachment that could be asked for, and is swept up as they
    are, once the state is too old anyway.
    """
    _row, is_new = rows(Attachment).get_or_create(
        code=state.nonce,
        defaults={
            "owner": "",
            "media_type": "",
            "name": "",
            "content": b"",
            "expires_at": after(get_settings().question_timeout),
        },
    )
    return is_new
