"""Whether there is anything to check yet: one mistake is to be told once, by its own check."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage

from mcp_django.conf import Check, with_settings


def when_ready(check: Check) -> Check:
    """The check, silent as long as the toolkit is missing or ``MCP_DJANGO`` cannot be read."""

    @with_settings
    @wraps(check)
    def ready(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        if not apps.is_installed("oauth2_provider"):
            return []
        return check(app_configs, **kwargs)

    return ready
